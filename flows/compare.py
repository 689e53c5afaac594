"""Compare runs with a verdict on one page; the data come from MLflow.

symposium compare                                   # all of this environment, into compare.html
symposium compare brave-owl paper-peacock           # these two
symposium compare --experiment philosophers
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline_lib.environment_api.registry import find
from pipeline_lib.report.compare import RunRow, build_comparison
from pipeline_lib.report.text import count
from pipeline_lib.settings import load_params
from pipeline_lib.tracking.store import tracking_uri
from pipeline_lib.tracking.verdicts import TrackedRun, tracked_runs, tracked_verdicts
from tasks.runtime.arguments import ArgumentError, meant, program_parser
from tasks.runtime.exit_status import explained
from tasks.runtime.tracked_run import LINES, LOOKS, METRIC, PLAN, PLAN_FAULTS, TEST_PROBLEMS, VERDICT
from tasks.services.process_environment import answers, places
from tasks.services.servers import ServerError, check_tracking

#: Facts about a run that the page shows besides its numbers, by tag.
IDENTITY = {
    "git.commit": "commit",
    "dvc.exp_name": "DVC experiment",
    "prefect.flow_run_id": "Prefect flow run",
    "note": "note",
}


def compare_runs(home: Path, experiment: str, names: Sequence[str], output: Path) -> int:
    """Write a page that compares runs; return how many.

    Args:
        home: folder of the project's tracking database.
        experiment: MLflow experiment, the kind of environment.
        names: names of runs, in any order; empty for all runs with a verdict.
        output: file of the page.

    Raises:
        ServerError: the MLflow server does not answer.
        ArgumentError: there is no such experiment or run.
        EvaluationError: the runs cannot be compared on one page.
    """
    with _explained(home):
        found = {verdict.run: verdict for verdict in reversed(tracked_verdicts(home, experiment))}
    if unknown := sorted(set(names) - set(found)):
        raise ArgumentError(
            f"there is no run with a verdict named {', '.join(unknown)}"
            f"{meant(unknown[0], found) or '; runs: ' + (', '.join(found) or 'none yet')}"
        )
    rows = [_row(found[name]) for name in names or found]
    build_comparison(rows, output, find(experiment).metrics())
    return len(rows)


def recorded_runs(home: Path, experiment: str | None) -> list[TrackedRun]:
    """Return the runs of an MLflow experiment, or of all, the newest first; raises as `compare_runs`."""
    with _explained(home):
        return tracked_runs(home, experiment)


@contextmanager
def _explained(home: Path) -> Iterator[None]:
    check_tracking()
    if (address := tracking_uri(home)).startswith("http") and not answers(address, "mlflow"):
        raise ServerError(f"the MLflow server at {address} does not answer; start it, or unset MLFLOW_TRACKING_URI")
    try:
        yield
    except LookupError as error:
        raise ArgumentError(f"{error.args[0]}; run the pipeline to its verdict first") from error


def _row(verdict: TrackedRun) -> RunRow:
    tags, numbers = verdict.tags, verdict.metrics
    return RunRow(
        name=verdict.run,
        verdict=tags[VERDICT],
        lines=tags[LINES].split("\n"),
        metric=tags[METRIC],
        base=numbers["test/base"],
        selected=numbers["test/selected"],
        difference=numbers["test/difference"],
        low=numbers.get("test/low"),
        high=numbers.get("test/high"),
        p=numbers.get("test/p"),
        plan=tags[PLAN],
        problems=tags[TEST_PROBLEMS],
        plan_faults=tags.get(PLAN_FAULTS, ""),
        looks=int(looks) if (looks := tags.get(LOOKS, "")).isdigit() else None,
        settings=verdict.settings,
        identity={words: tags[tag] for tag, words in IDENTITY.items() if tag in tags},
    )


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
