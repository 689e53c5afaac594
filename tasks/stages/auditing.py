"""The reward audit: what it reads, and where its answer goes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.audit.preflight import Played
from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environments.make import make_environment
from pipeline_lib.play import Player, groups
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts import make_engine
from tasks.experiment.arms import PROBLEMS, RESULTS, TEAM, environment_section
from tasks.experiment.sampling import protocol_of, sampling_of
from tasks.experiment.teams import base_team
from tasks.runtime.stage import RefusedError

if TYPE_CHECKING:
    from pipeline_lib.seam.environment import Environment
    from pipeline_lib.settings import Params
    from tasks.runtime.stage import StageRun


def audit_reward(params: Params, run: StageRun) -> None:
    """Audit the team's environment and write ``results/audit.json``; training asks for it.

    Raises:
        RefusedError: the reward failed, and ``audit.override`` gives no reason to train on it all the same.
    """
    section = environment_section(params, TEAM)
    problems = load_split(PROBLEMS, "train")[: params.audit.problems]
    with (
        contextlib.closing(make_environment(section, params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts)) as engine,
    ):
        team = base_team(params, environment, problems)
        engine.load(team.policies)

        def play_base(watched: Environment[Any, Any]) -> Played:
            size = params.audit.group_size
            player = Player(watched, team, engine, sampling_of(params), protocol_of(params, TEAM))
            return Played.of(player.play(groups(problems, size, params.audit.seed)), size)

        result = audit(section, environment, problems, play_base, run.progress, params.audit.seed)
    content = {key: value for key, value in result.to_json().items() if key != "seconds"}
    storage.write_json(RESULTS / "audit.json", content)
    run.table("checks", [{"check": c.name, "status": c.status, "says": c.sentence} for c in result.checks])
    run.table("ladder", [{"team": r.name, "role": r.role, "reward": r.reward} for r in result.ladder])
    run.tracked.tag({"symposium.audit": f"{result.status}: {result.summary}"})
    run.log(0, {f"audit/reward/{rung.name}": rung.reward for rung in result.ladder})
    if result.status == Status.FAIL and not params.audit.override:
        raise RefusedError(f"the reward audit failed: {result.summary}")
