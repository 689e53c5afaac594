"""Stage ``audit``: test whether the best policy under the reward does the task. ``python -m flows.audit``."""

from pipeline_lib import storage
from pipeline_lib.assembly.auditing import BASE_PLAY, audit_team
from pipeline_lib.audit.result import Status
from pipeline_lib.environment_api.registry import find
from tasks.experiment.arms import RESULTS, TEAM
from tasks.experiment.setups import setup_of
from tasks.runtime.stage import RefusedError, StageRun, run_stage


def audit_reward(run: StageRun) -> None:
    """Audit the team's environment and write ``results/audit.json``; training asks for it.

    Raises:
        RefusedError: the reward failed, and ``audit.override`` gives no reason to train on it anyway.
    """
    run.progress.expect_parts((BASE_PLAY, *find(run.params.environment.kind).audit().parts))
    result = audit_team(setup_of(run.params, TEAM), run.progress)
    content = {key: value for key, value in result.to_json().items() if key != "seconds"}
    storage.write_json(RESULTS / "audit.json", content)
    run.table("checks", [{"check": c.name, "status": c.status, "says": c.sentence} for c in result.checks])
    run.table("ladder", [{"team": r.name, "role": r.role, "reward": r.reward} for r in result.ladder])
    run.tracked.tag({"symposium.audit": f"{result.status}: {result.summary}"})
    run.log(0, {f"audit/reward/{rung.name}": rung.reward for rung in result.ladder})
    if result.status == Status.FAIL and not run.params.audit.override:
        raise RefusedError(f"the reward audit failed: {result.summary}")


if __name__ == "__main__":
    run_stage("audit", audit_reward)
