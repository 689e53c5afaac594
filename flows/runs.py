"""List the runs that MLflow has recorded, the newest first: name, environment, start, verdict, before and after.

symposium runs
symposium runs --experiment philosophers

took: what the last `symposium run` of this name took.  work: training and test behind its result, whenever they were
done; a result that DVC has already takes seconds to get.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find
from pipeline_lib.tracking.verdicts import TrackedRun
from tasks.identity.run import NOTED
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.runtime.progress import duration
from tasks.runtime.recorded import METRIC, TOOK, VERDICT
from tasks.services.process_environment import places
from tasks.stages.comparing import recorded_runs

NUMBERS = ("base", "selected", "took", "work")
HEADINGS = ("run", "environment", "started (UTC)", "verdict", *NUMBERS, "note")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("runs", __doc__)
    found.add_argument("--experiment", help="only runs of this MLflow experiment, named after the environment")
    return found


def main() -> None:
    """Print a line per run, or say that there is none."""
    asked = parser().parse_args()
    with explained():
        table = Table(box=None, pad_edge=False)
        for heading in HEADINGS:
            table.add_column(heading, no_wrap=True, justify="right" if heading in NUMBERS else "left")
        for run in recorded_runs(places().tracking, asked.experiment):
            table.add_row(*(Text(cell) for cell in row(run)))
        Console(soft_wrap=True).print(table if table.rows else "no run is recorded yet; `symposium run` makes one")


def row(run: TrackedRun) -> tuple[str, ...]:
    """Return the cells of a run below `HEADINGS`."""
    try:
        metric = describe(run.tags.get(METRIC, ""), find(run.experiment).metrics())
    except UnknownEnvironmentError:  # of another project, which has recorded into the same place
        metric = describe("", {})
    values = [run.metrics.get(f"test/{name}") for name in ("base", "selected")]
    seconds = [run.metrics.get(TOOK), run.work_s or None]
    return (
        run.run,
        run.experiment,
        f"{run.started:%Y-%m-%d %H:%M}",
        run.tags.get(VERDICT) or run.status.lower(),
        *("-" if value is None else metric.text(value) for value in values),
        *("-" if value is None else duration(value) for value in seconds),
        run.tags.get(NOTED, ""),
    )


if __name__ == "__main__":
    main()
