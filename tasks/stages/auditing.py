"""The reward audit: its inputs and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib import storage
from pipeline_lib.assembly.auditing import audit_team
from pipeline_lib.audit.result import Status
from pipeline_lib.problems.splits import load_split
from tasks.experiment.arms import BASE, PROBLEMS, RESULTS, TEAM, environment_section
from tasks.experiment.protocols import protocol_of
from tasks.runtime.stage import RefusedError

if TYPE_CHECKING:
    from pipeline_lib.settings import Params
    from tasks.runtime.stage import StageRun


def audit_reward(params: Params, run: StageRun) -> None:
    """Audit the team's environment and write ``results/audit.json``; training asks for it.

    Raises:
        RefusedError: the reward failed, and ``audit.override`` gives no reason to train on it anyway.
    """
    problems, protocol = load_split(PROBLEMS, "train"), protocol_of(params, TEAM)
    result = audit_team(params, environment_section(params, TEAM), protocol, BASE, problems, run.progress)
    content = {key: value for key, value in result.to_json().items() if key != "seconds"}
    storage.write_json(RESULTS / "audit.json", content)
    run.table("checks", [{"check": c.name, "status": c.status, "says": c.sentence} for c in result.checks])
    run.table("ladder", [{"team": r.name, "role": r.role, "reward": r.reward} for r in result.ladder])
    run.tracked.tag({"symposium.audit": f"{result.status}: {result.summary}"})
    run.log(0, {f"audit/reward/{rung.name}": rung.reward for rung in result.ladder})
    if result.status == Status.FAIL and not params.audit.override:
        raise RefusedError(f"the reward audit failed: {result.summary}")
