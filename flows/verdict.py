"""Stage ``verdict``: test whether the difference is real. ``python -m flows.verdict``."""

from prefect import flow, get_run_logger

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.champion import update_champion
from tasks.stages.judging import judge


@flow(name="verdict")
def verdict() -> None:
    """Compare the selected team with everything else, and say it in three lines."""
    params = settings_of("verdict")
    with stage("verdict", params) as run:
        get_run_logger().info("%s", judge(params, run))
        update_champion(params, run)


if __name__ == "__main__":
    main(verdict)
