"""HumanEval's canonical solutions as jobs."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.sandbox import Job

PATH = Path(__file__).parents[2] / "../shared/data/HumanEval.jsonl.gz"


def human_eval() -> list[Job]:
    """Return the 164 jobs; skips the test where the dataset is not at hand."""
    if not PATH.exists():
        pytest.skip(f"{PATH} is not there")
    with gzip.open(PATH, "rt") as file:
        problems = [json.loads(line) for line in file]
    return [
        Job(
            problem["task_id"],
            problem["prompt"] + problem["canonical_solution"],
            problem["test"],
            problem["entry_point"],
            _prelude(problem),
        )
        for problem in problems
    ]


def _prelude(problem: dict[str, Any]) -> str:
    """Return what the prompt defines beside the function that is asked for."""
    tree = ast.parse(problem["prompt"] + "    pass\n")
    return "\n".join(ast.unparse(n) for n in tree.body if getattr(n, "name", "") != problem["entry_point"])
