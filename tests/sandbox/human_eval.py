"""HumanEval's canonical solutions as jobs."""

import ast
from typing import Any

from pipeline_lib.sandbox import Job
from tests.human_eval import human_eval_rows


def human_eval() -> list[Job]:
    """Return the 164 jobs."""
    return [
        Job(
            problem["task_id"],
            problem["prompt"] + problem["canonical_solution"],
            problem["test"],
            problem["entry_point"],
            _prelude(problem),
        )
        for problem in human_eval_rows()
    ]


def _prelude(problem: dict[str, Any]) -> str:
    """Return what the prompt defines beside the function that is asked for."""
    tree = ast.parse(problem["prompt"] + "    pass\n")
    return "\n".join(ast.unparse(n) for n in tree.body if getattr(n, "name", "") != problem["entry_point"])
