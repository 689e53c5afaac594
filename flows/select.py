"""Stage ``select``: the selected checkpoint of each run, by the rule in the plan. ``python -m flows.select``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.selecting import select_checkpoints


@flow(name="select")
def select() -> None:
    """Select on validation episodes only, by the rule in the plan."""
    params = settings_of("select")
    with stage("select", params) as run:
        select_checkpoints(params, run)


if __name__ == "__main__":
    main(select)
