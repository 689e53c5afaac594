"""Several runs on one page, out of MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.report.compare import RunRow, build_comparison
from pipeline_lib.seam.registry import find
from pipeline_lib.tracking.verdicts import TrackedVerdict, finished_verdicts
from tasks.stages.judging import LOOKS, METRIC, PLAN, PLAN_FAULTS, SENTENCE, TEST_PROBLEMS, VERDICT

#: What the page says of a run beside its numbers, by tag.
IDENTITY = {"git.commit": "commit", "dvc.exp_name": "DVC experiment", "prefect.flow_run_id": "Prefect flow run"}


def compare_runs(home: Path, experiment: str, names: Sequence[str], output: Path) -> int:
    """Write a page that compares runs; return how many.

    Args:
        home: folder of the project's tracking database.
        experiment: MLflow experiment, the kind of environment.
        names: runs wanted, in any order; empty for all that have a verdict.
        output: file of the page.

    Raises:
        EvaluationError: there is no such experiment or run, or the runs cannot stand on one page.
    """
    try:
        found = {verdict.run: verdict for verdict in reversed(finished_verdicts(home, experiment))}
    except LookupError as error:
        raise EvaluationError(f"{error.args[0]}; run the pipeline to its verdict first") from error
    if unknown := sorted(set(names) - set(found)):
        raise EvaluationError(f"no run with a verdict is named {', '.join(unknown)}; there are: {', '.join(found)}")
    rows = [_row(found[name]) for name in names or found]
    build_comparison(rows, output, find(experiment).metrics())
    return len(rows)


def _row(verdict: TrackedVerdict) -> RunRow:
    tags, numbers = verdict.tags, verdict.metrics
    return RunRow(
        name=verdict.run,
        verdict=tags[VERDICT],
        sentence=tags[SENTENCE],
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
