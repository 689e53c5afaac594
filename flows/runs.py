"""List the runs that MLflow has recorded, the newest first: name, environment, start, end, verdict, before and after.

symposium runs
symposium runs --experiment philosophers
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.services.process_environment import places
from tasks.stages.comparing import METRIC, VERDICT, recorded_runs


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
        for heading in ("run", "environment", "started (UTC)", "verdict", "base", "selected"):
            table.add_column(heading, no_wrap=True, justify="right" if heading in ("base", "selected") else "left")
        for run in recorded_runs(places().tracking, asked.experiment):
            try:
                metric = describe(run.tags.get(METRIC, ""), find(run.experiment).metrics())
            except UnknownEnvironmentError:  # of another project, which has recorded into the same place
                metric = describe("", {})
            values = [run.metrics.get(f"test/{name}") for name in ("base", "selected")]
            table.add_row(
                run.run,
                run.experiment,
                f"{run.started:%Y-%m-%d %H:%M}",
                run.tags.get(VERDICT) or run.status.lower(),
                *("-" if value is None else metric.text(value) for value in values),
            )
        Console(soft_wrap=True).print(table if table.rows else "no run is recorded yet; `symposium run` makes one")


if __name__ == "__main__":
    main()
