"""Stage ``report``: one page for people, and the same series for ``dvc plots``.  ``python -m flows.report``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.reporting import make_report


@flow(name="report")
def report() -> None:
    """Gather what every stage wrote and build the page."""
    params = settings_of("report")
    with stage("report", params) as run:
        make_report(params, run)


if __name__ == "__main__":
    main(report)
