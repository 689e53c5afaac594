"""Stage ``verdict``: is the difference real?  ``python -m flows.verdict``."""

from prefect import flow, get_run_logger

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.crowning import crown
from tasks.stages.judging import judge


@flow(name="verdict")
def verdict() -> None:
    """Compare the selected team with everything else, and say it in one sentence."""
    params = settings_of("verdict")
    with stage("verdict", params) as run:
        get_run_logger().info("%s", judge(params, run))
        crown(params, run)


if __name__ == "__main__":
    main(verdict)
