"""The plan of a study: its comparisons and their tests, written before the first cell runs.

It may be changed later, for example by adding a level.  The file keeps every version with the cells whose results were
known when it was written, and the page reports this.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.evaluation.looks import Look, looks_at
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cells_of, changes_of, reference_of
from pipeline_lib.storage import read_json, write_json
from tasks.looks.records import LOOKS, RecordsError, counted_since, records

PAGES = Path("studies")
"""Folder of the project with one folder per study, for its plan and its page."""


def fix_plan(path: Path, study: StudySettings, params: Params, known: Sequence[str]) -> list[dict[str, Any]]:
    """Write the plan, or add a version to it if it has changed; return all versions, for `plan_history`.

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
    return versions


def plan_history(versions: Sequence[dict[str, Any]], test_content: str) -> str:
    """Return sentences that say when the current plan was fixed, and what was known then.

    Args:
        versions: of `fix_plan`.
        test_content: digest of the test problems of all cells; looks at them count, whoever made them.
    """
    last = versions[-1]
    before, told = _looks(test_content, _moment(last["written"]))
    seen = "when none of its results was kept here" if before else "before any cell was run"
    if last["known"]:
        seen = f"when {len(last['known'])} of its cells were known ({', '.join(last['known'])})"
    if len(versions) == 1:
        return f"The plan was written on {last['written']}, {seen}, and kept. {told}"
    return (
        f"The plan was changed {len(versions) - 1} time{'s' if len(versions) > 2 else ''}, last on {last['written']}, "
        f"{seen}; its versions are in plan.json. {told}"
    )


def _looks(test_content: str, written: str) -> tuple[int, str]:
    """Return how many looks at the test problems were made before the plan was written, and sentences about all."""
    try:
        since = counted_since()
        known = [Look.from_json(value) for value in records(LOOKS)]
    except RecordsError as error:
        return 0, f"Looks at the test split of its cells are not counted: {error}."
    same = [look for look in known if look.plan.get("test_content") == test_content]
    found = looks_at({problem for look in same for problem in look.problems}, known)
    before = [look for look in found if _moment(look.time) < written]
    by = f" (by {', '.join(dict.fromkeys(look.run for look in before))})" if before else ""
    return len(before), (
        f"Looks at problems of this test split: {len(found)}, of which {len(before)} before that{by}; the p values are "
        f"corrected for the study's comparisons, not for looks. {since}"
    )


def _moment(text: str) -> str:
    """Return a time in UTC in a form that can be compared, to the second."""
    return text[:19].replace("T", " ")
