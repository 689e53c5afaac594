"""Stage ``test``: base, selected, last and baselines on the held-out split.  ``python -m flows.test``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.testing import test_teams


@flow(name="test")
def test() -> None:
    """Play every team once on the test split, with the same problems and sampling seeds."""
    params = settings_of("test")
    with stage("test", params) as run:
        test_teams(params, run)


if __name__ == "__main__":
    main(test)
