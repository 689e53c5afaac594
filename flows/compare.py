"""Compare runs with a verdict on one page; the data come from MLflow.

symposium compare                                   # all of this environment, into compare.html
symposium compare brave-owl paper-peacock           # these two
symposium compare --experiment philosophers
"""

import argparse
from pathlib import Path

from pipeline_lib.report.text import count
from pipeline_lib.settings import load_params
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.services.process_environment import places
from tasks.stages.comparing import compare_runs


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("compare", __doc__)
    reader.add_argument("runs", nargs="*", metavar="run", help="names of runs (default: all with a verdict)")
    reader.add_argument("--experiment", help="MLflow experiment, an environment (default: that of the settings)")
    reader.add_argument("--output", type=Path, default=Path("compare.html"), help="file of the page")
    return reader


def main() -> None:
    """Write the page, or say what is missing."""
    with explained():
        asked = parser().parse_args()
        experiment = asked.experiment or load_params().environment.kind
        number = compare_runs(places().tracking, experiment, asked.runs, asked.output)
        print(f"{count(number, 'run')} compared: {asked.output}")


if __name__ == "__main__":
    main()
