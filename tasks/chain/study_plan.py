"""The plan of a study: its comparisons and their tests, written before the first cell runs.

It may be changed later, for example by adding a level.  The file keeps every version with the cells whose results were
known when it was written, and the page reports this.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cells_of, changes_of, reference_of
from pipeline_lib.storage import read_json, write_json

PAGES = Path("studies")
"""Folder of the project with one folder per study, for its plan and its page."""


def fix_plan(path: Path, study: StudySettings, params: Params, known: Sequence[str]) -> str:
    """Write the plan, or add a version to it if it has changed; return a sentence that says when it was fixed.

    Args:
        path: file of the plan.
        study: the study.
        params: settings of the reference cell; all cells have the same problems, evaluation and verdict.
        known: cells that already have results.
    """
    plan = {
        "question": study.question,
        "cells": {name: changes_of(study, name) for name in cells_of(study)},
        "reference": reference_of(study),
        "seeds": list(study.seeds),
        "test": "t over training runs and problems, crossed random effects; Holm over all comparisons",
        **{section: result_settings(getattr(params, section)) for section in ("problems", "evaluate", "verdict")},
    }
    versions: list[dict[str, Any]] = read_json(path)["versions"] if path.exists() else []
    if not versions or versions[-1]["plan"] != plan:
        written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        versions.append({"written": written, "known": sorted(known), "plan": plan})
        write_json(path, {"versions": versions})
    return plan_history(versions)


def plan_history(versions: Sequence[dict[str, Any]]) -> str:
    """Return a sentence that says when the current plan was fixed, and which results were known then."""
    last = versions[-1]
    seen = f"when {len(last['known'])} of its cells were known ({', '.join(last['known'])})" if last["known"] else ""
    if len(versions) == 1:
        return f"The plan was written on {last['written']}, {seen or 'before any cell was run'}, and kept."
    return (
        f"The plan was changed {len(versions) - 1} time{'s' if len(versions) > 2 else ''}, last on {last['written']}, "
        f"{seen or 'before any cell was run'}; its versions are in plan.json."
    )
