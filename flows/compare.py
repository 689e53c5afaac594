"""Compare runs that have a verdict, out of MLflow, on one page.

``python -m flows.compare [--experiment coding] [--output compare.html] [run ...]``
"""

import argparse
from pathlib import Path

from pipeline_lib.settings.environment import DEFAULT
from tasks.runtime.endings import end
from tasks.services.process_environment import places
from tasks.stages.comparing import compare_runs


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m flows.compare", description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="run", help="names of runs (default: all that have a verdict)")
    parser.add_argument("--experiment", default=DEFAULT, help="MLflow experiment: the kind of environment")
    parser.add_argument("--output", type=Path, default=Path("compare.html"), help="page to write")
    return parser.parse_args(words)


def main() -> None:
    """Write the page, or say what is missing."""
    try:
        asked = arguments()
        count = compare_runs(places().tracking, asked.experiment, asked.runs, asked.output)
        print(f"{count} runs compared: {asked.output}")
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
