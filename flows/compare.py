"""Compare runs that have a verdict, out of MLflow, on one page.

symposium compare                                   # all of this project, into compare.html
symposium compare brave-owl paper-peacock           # these two
symposium compare --experiment philosophers
"""

import argparse
from pathlib import Path

from pipeline_lib.settings.environment import DEFAULT
from tasks.runtime.arguments import program_parser
from tasks.runtime.endings import end
from tasks.services.process_environment import places
from tasks.stages.comparing import compare_runs


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("compare", __doc__)
    found.add_argument("runs", nargs="*", metavar="run", help="names of runs (default: all that have a verdict)")
    found.add_argument("--experiment", default=DEFAULT, help="MLflow experiment: the kind of environment")
    found.add_argument("--output", type=Path, default=Path("compare.html"), help="page to write")
    return found


def main() -> None:
    """Write the page, or say what is missing."""
    try:
        asked = parser().parse_args()
        count = compare_runs(places().tracking, asked.experiment, asked.runs, asked.output)
        print(f"{count} runs compared: {asked.output}")
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
