"""Stage ``report``: one page for people, and the same series for ``dvc plots``.  ``python -m flows.report``."""

from prefect import flow

from tasks.reporting import make_report
from tasks.stage import main, stage
from tasks.stage_identity import settings_of


@flow(name="report")
def report() -> None:
    """Gather what every stage wrote and build the page."""
    params = settings_of("report")
    with stage("report", params) as run:
        make_report(params, run)


if __name__ == "__main__":
    main(report)
