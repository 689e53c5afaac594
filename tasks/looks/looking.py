"""Record plans, sweeps of checkpoints and looks at the test split in git when they happen.

Each sweep and the test also write, beside their episodes, the plan, the weights and the problems that they used;
`record_look_of_verdict` reads both records.
"""

import dataclasses
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.looks import Look, Sweep
from pipeline_lib.evaluation.plan import Plan, read_plan
from pipeline_lib.problems.splits import load_manifest
from tasks.experiment.arms import PLAN_FILE, PROBLEMS, TESTED, sweep_folder
from tasks.identity.run import commit
from tasks.looks.records import LOOKS, PLANS, SWEEPS, RecordsError, record

log = logging.getLogger("symposium.stage")

#: File next to the episodes of a sweep or of the test: its plan, weights and problems.
MADE_OF = "made-of.json"


def remember_plan(plan: Plan, run: str) -> None:
    """Record that a plan was registered."""
    _keep(PLANS, plan.digest, {"plan": plan.to_json(), **when_and_who(run)})


def begin_sweep(arm: str, seed: int, checkpoints: Mapping[int, str], run: str) -> None:
    """Record that a training run's checkpoints are evaluated on the validation split, and under which plan.

    ``checkpoints`` has the digest of the team by step, without step 0; ``run`` is the name of the run.
    """
    plan, who = read_plan(PLAN_FILE).to_json(), when_and_who(run)
    made_of = {"plan": plan, "checkpoints": {str(step): digest for step, digest in checkpoints.items()}}
    storage.write_json(sweep_folder(arm, seed) / MADE_OF, made_of)
    problems = tuple(load_manifest(PROBLEMS)["splits"]["validation"]["hashes"])
    sweep = Sweep(plan, f"{arm} {seed}", tuple(checkpoints.values()), run, who["time"], problems)
    _keep(SWEEPS, sweep.identity, sweep.to_json())


def begin_look(weights: Mapping[str, Mapping[str, str]], run: str) -> Look:
    """Record that the test has begun; from here on results may have been seen, even if the test fails later.

    ``weights`` has the digests of the teams tested, by training run and role; ``run`` is the name of the run.
    """
    problems = load_manifest(PROBLEMS)["splits"]["test"]["hashes"]
    look = Look(read_plan(PLAN_FILE).to_json(), weights, tuple(problems), "", **when_and_who(run))
    storage.write_json(TESTED / MADE_OF, {"plan": look.plan, "weights": weights, "problems": problems})
    _keep(LOOKS, look.identity, look.to_json())
    return look


def end_look(look: Look) -> None:
    """Record the episodes of the finished test."""
    ended = dataclasses.replace(look, episodes=episodes_seen())
    _keep(LOOKS, ended.identity, ended.to_json())


def episodes_seen() -> str:
    """Return the digest of all test episodes on disk (without their costs)."""
    return storage.digest([[path.name, storage.file_digest(path)] for path in sorted(TESTED.glob("*.jsonl"))])


def _keep(kind: str, identity: str, value: dict[str, Any]) -> None:
    """Record, or log why not: a project without a repository works, and its verdict says that looks are not counted."""
    try:
        record(kind, identity, value)
    except RecordsError as error:
        log.warning("not recorded (%s): %s", kind, error)


def when_and_who(run: str) -> dict[str, str]:
    """Return who made a record and when: ``run``, ``commit`` and ``time`` (ISO 8601, UTC)."""
    return {"run": run, "commit": commit(), "time": datetime.now(UTC).isoformat()}
