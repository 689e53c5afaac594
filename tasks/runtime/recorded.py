"""What MLflow shows of a whole run: its verdict, its learning curves and its seconds; also of a run that DVC restored.

Stages record what they compute.  A stage whose result DVC takes from its cache computes nothing, so the process that
runs the whole chain records what is missing at the end; what is there already stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from tasks.experiment.arms import ARMS, REPORT, RESULTS, TEAM, seeds_of
from tasks.experiment.costs import costs
from tasks.experiment.training_files import training_rows
from tasks.experiment.verdict_text import headline
from tasks.identity.run import NOTE

if TYPE_CHECKING:
    from pipeline_lib.settings import Params
    from pipeline_lib.tracking import TrackedRun

#: Tags of the verdict's run in MLflow; `tasks.stages.comparing` reads them.
VERDICT, LINES, METRIC = "verdict", "symposium.lines", "symposium.metric"
PLAN, TEST_PROBLEMS = "symposium.plan", "symposium.problems"
#: Deviations from the plan, in words (empty: it was fixed before and followed), and the number of looks.
PLAN_FAULTS, LOOKS = "symposium.plan_faults", "symposium.looks"

#: Which training runs a monitor ended, in words (empty: none).
ENDED = "symposium.ended_by_monitors"

#: Metrics of a run: seconds from the start to the end of its last invocation.
TOOK = "run/seconds"


def record_verdict(whole: TrackedRun, result: Mapping[str, Any]) -> None:
    """Record the content of ``results/verdict.json``: its numbers as ``test/...``, and as tags what compares runs."""
    numbers = headline(result)
    whole.summary({f"test/{name}": value for name, value in numbers.items() if isinstance(value, int | float)})
    whole.tag(
        {
            VERDICT: result["verdict"],
            LINES: "\n".join(result["lines"]),
            METRIC: result["metric"],
            PLAN: result["plan"]["plan"],
            TEST_PROBLEMS: result["design"]["test_content"],
            PLAN_FAULTS: "; ".join((*result["plan"]["deviations"], *result["plan"]["changed"])),
            LOOKS: str(result["looks"]["count"] or "not counted"),
            ENDED: " ".join(result["ended_by_monitors"]),
        }
    )


def record_update(whole: TrackedRun, arm: str, seed: int, row: Mapping[str, float], metric: str = "") -> None:
    """Record the points of one update on the learning curves of a whole run, which MLflow shows in the order of names.

    Args:
        whole: the run.
        arm: what is trained.
        seed: training seed.
        row: all metrics of the update, with its ``step``.
        metric: a metric beside the reward, by its name in the environment.
    """
    curves = {"1 reward": "reward/mean", f"2 {metric}": f"metrics/{metric}"}
    whole.log(int(row["step"]), {f"{name}/{arm} seed {seed}": row[key] for name, key in curves.items() if key in row})


def record_costs(whole: TrackedRun, spent: Mapping[str, Mapping[str, float]]) -> None:
    """Record the result of `costs`."""
    for part, cost in spent.items():
        whole.summary({f"cost/{part.replace(', ', ' ')}/{name}": value for name, value in cost.items()})


def record_report(whole: TrackedRun, folder: Path, lines: Sequence[str]) -> None:
    """Keep the report with the whole run, described by the run's note and the lines of the verdict."""
    whole.artifact(folder)
    whole.describe("\n\n".join(filter(None, (os.environ.get(NOTE), *lines))), "index.html")


def record_results(whole: TrackedRun, params: Params, project: Path, worked: Mapping[str, bool], began: float) -> None:
    """Record the results of a chain that is up to date.

    Args:
        whole: the run.
        params: the settings that made the results.
        project: folder of the project, or a workspace.
        worked: the stages of the chain, and whether each did any work; the others were up to date, or DVC had them.
        began: when the run was started, in seconds of the monotonic clock.
    """
    whole.summary({TOOK: round(time.monotonic() - began, 1)})
    if "verdict" not in worked:
        return
    result = storage.read_json(project / RESULTS / "verdict.json")
    record_verdict(whole, result)
    for arm in ARMS:
        for seed in seeds_of(params, arm):
            # A training that worked has recorded the reward in a process of its own, of which this one has no memory.
            itself = {"reward/mean"} if worked.get(f"{'train' if arm == TEAM else 'train_single'}@{seed}") else set()
            for row in training_rows(arm, seed, project):
                left = {name: value for name, value in row.items() if name not in itself}
                record_update(whole, arm, seed, left, params.evaluate.metric)
    record_costs(whole, costs(params, project))
    if worked.get("report") is False:
        record_report(whole, project / REPORT, result["lines"])
