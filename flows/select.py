"""Stage ``select``: a checkpoint of each run, by the rule fixed in the plan.  ``python -m flows.select``."""

from prefect import flow

from pipeline_lib.settings import load_params
from tasks.selecting import select_checkpoints
from tasks.stage import main, stage


@flow(name="select")
def select() -> None:
    """Select on validation episodes only, by the rule in the plan."""
    params = load_params()
    with stage("select", params) as run:
        select_checkpoints(params, run)


if __name__ == "__main__":
    main(select)
