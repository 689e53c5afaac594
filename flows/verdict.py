"""Stage ``verdict``: is the difference real?  ``python -m flows.verdict``."""

from prefect import flow, get_run_logger

from pipeline_lib.settings import load_params
from tasks.crowning import crown
from tasks.judging import identity, judge
from tasks.stage import main, stage


@flow(name="verdict")
def verdict() -> None:
    """Compare the selected team with everything else, and say it in one sentence."""
    params = load_params()
    with stage("verdict", params, identity=identity(params)) as run:
        get_run_logger().info("%s", judge(params, run))
        crown(params, run)


if __name__ == "__main__":
    main(verdict)
