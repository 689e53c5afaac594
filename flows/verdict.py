"""Stage ``verdict``: is the difference real?  ``python -m flows.verdict``."""

from prefect import flow, get_run_logger

from tasks.crowning import crown
from tasks.judging import judge
from tasks.stage import main, stage
from tasks.stage_identity import settings_of


@flow(name="verdict")
def verdict() -> None:
    """Compare the selected team with everything else, and say it in one sentence."""
    params = settings_of("verdict")
    with stage("verdict", params) as run:
        get_run_logger().info("%s", judge(params, run))
        crown(params, run)


if __name__ == "__main__":
    main(verdict)
