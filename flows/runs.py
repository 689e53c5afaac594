"""List the runs that MLflow has recorded, the newest first: name, environment, start, verdict, before and after.

symposium runs
symposium runs --experiment philosophers

Below each: what the last `symposium run` of this name took; the work of training and test behind its result, whenever
that was done (a result that DVC has already takes seconds to get); and its note.
"""

import argparse

from flows.compare import recorded_runs
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find
from pipeline_lib.tracking.verdicts import TrackedRun
from tasks.identity.run import NOTED
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.runtime.progress import duration
from tasks.runtime.tracked_run import METRIC, TOOK, VERDICT
from tasks.services.process_environment import places

HEADINGS = ("run", "environment", "started (UTC)", "verdict", "base", "selected")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("runs", __doc__)
    reader.add_argument("--experiment", help="only runs of this MLflow experiment, named after the environment")
    return reader


def main() -> None:
    """Print a line per run, or say that there is none."""
    asked = parser().parse_args()
    with explained():
        runs = [(row(run), about(run)) for run in recorded_runs(places().tracking, asked.experiment)]
        widths = [max(map(len, column)) for column in zip(HEADINGS, *(cells for cells, _ in runs), strict=True)]
        for cells, note in [(HEADINGS, ""), *runs] if runs else ():
            print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
            if note:
                print(f"    {note}")
        if not runs:
            print("no run is recorded yet; `symposium run` makes one")


def row(run: TrackedRun) -> tuple[str, ...]:
    """Return the cells of a run below `HEADINGS`."""
    try:
        metric = describe(run.tags.get(METRIC, ""), find(run.experiment).metrics())
    except UnknownEnvironmentError:  # of another project, which has recorded into the same place
        metric = describe("", {})
    values = [run.metrics.get(f"test/{name}") for name in ("base", "selected")]
    return (
        run.run,
        run.experiment,
        f"{run.started:%Y-%m-%d %H:%M}",
        run.tags.get(VERDICT) or run.status.lower(),
        *("-" if value is None else metric.text(value) for value in values),
    )


def about(run: TrackedRun) -> str:
    """Return the line below a run: what it took, the work behind its result, and its note."""
    seconds = {"took": run.metrics.get(TOOK), "training and test": run.work_s}
    spent = ", ".join(f"{words} {duration(value)}" for words, value in seconds.items() if value)
    return "; ".join(filter(None, (spent, run.tags.get(NOTED))))


if __name__ == "__main__":
    main()
