"""The whole run in MLflow: its state, links to it, and its verdict, learning curves and seconds.

Its owner, the process that runs all stages, opens and closes it.  While the owner runs, the run is RUNNING, also
between two stages; the owner records how it ended.  If the owner was killed, the next stage records that, or
`watch_states`, which runs together with ``make ui``.

Stages record what they compute.  A stage whose result DVC takes from its cache computes nothing, so the owner records
what is missing at the end (`record_results`); what is there already stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.project import TRACES
from pipeline_lib.settings import Params
from pipeline_lib.tracking import TrackedRun, Tracker
from pipeline_lib.tracking.processes import own_process
from pipeline_lib.tracking.store import artifact_link, run_link, tracking_uri
from pipeline_lib.tracking.tracker import Status, open_recorder
from tasks.experiment.arms import ARMS, REPORT, RESULTS, TEAM, seeds_of, training_rows
from tasks.experiment.result_text import costs, headline
from tasks.identity.run import NOTE, identity_tags
from tasks.runtime.exit_status import was_interrupted
from tasks.services.end_with_parent import above_the_stage
from tasks.services.process_environment import places, server_url
from tasks.services.stage_proxy import RUN_OWNER

if TYPE_CHECKING:
    from pipeline_lib.tracking.recorder import Recorder

log = logging.getLogger("symposium.states")

OWNER = RUN_OWNER
"""Environment variable of stages: the process that owns their run."""

_INTERVAL_S = 10.0


@contextlib.contextmanager
def tracked_run(
    experiment: str, run: str, settings: Mapping[str, Any], tags: Mapping[str, str], study: str = ""
) -> Iterator[TrackedRun]:
    """Keep a whole run in MLflow RUNNING while the block runs, and record how it ended.

    Args:
        experiment: MLflow experiment, the kind of environment.
        run: name of the run.
        settings, tags: of the run.
        study: name of the study that it is a cell of.
    """
    tracker = Tracker(
        places().tracking,
        experiment,
        run,
        tags={**identity_tags(), **tags},
        params=settings,
        owned=True,
        study=study,
    )
    status: Status = "FINISHED"
    try:
        yield tracker.whole
    except BaseException as error:
        status = "KILLED" if was_interrupted(error) else "FAILED"
        raise
    finally:
        tracker.whole.finish(status)
        tracker.close(4.0 if status == "KILLED" else 60.0)


def owner() -> str:
    """Return the process that owns this stage's run; empty if there is none."""
    return os.environ.get(OWNER, "")


def dvc_process() -> str:
    """Return the DVC process that starts this run's stages if `watch_states` will notice its end; else empty."""
    if owner() or "DVC_STAGE" not in os.environ or server_url("mlflow") is None:
        return ""
    return own_process(above_the_stage())


def watch_states() -> None:
    """Update the states of runs whose process has ended, every ten seconds, in a thread."""
    threading.Thread(target=_watch, name="states", daemon=True).start()


def _watch() -> None:
    recorder: Recorder | None = None
    warned = False
    while True:
        try:
            if recorder is None:
                uri = server_url("mlflow") or tracking_uri(places().tracking)
                recorder = open_recorder(os.environ.get("MLFLOW_TRACKING_URI", uri), places().tracking)
            recorder.update_all_states()
            warned = False
        except Exception as error:  # the server may be available the next time
            if not warned:
                log.warning("cannot update states in MLflow: %s", error)
            warned = True
        time.sleep(_INTERVAL_S)


_WAIT_S = 60.0


def run_in_mlflow(tracked: TrackedRun, name: str, artifact: str = "") -> str:
    """Return Markdown that names a run in MLflow, with links to it and a file of it if a UI is up; empty: no run."""
    ids = tracked.ids(_WAIT_S)
    if ids is None:
        return ""
    text, base = f"MLflow run `{ids[1]}` of `{name}`", _ui()
    if not base:
        return text
    also = f", [its {artifact}]({base}/{artifact_link(*ids, artifact)})" if artifact else ""
    return f"[{text}]({base}/{run_link(*ids)}){also}"


def _ui() -> str:
    """Return the address of the MLflow UI that is up; empty without one."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    return (given if given.startswith("http") else server_url("mlflow") or "").rstrip("/")


#: Tags of the verdict's run in MLflow; `flows.compare` reads them.
VERDICT, LINES, METRIC = "verdict", "symposium.lines", "symposium.metric"
PLAN, TEST_PROBLEMS = "symposium.plan", "symposium.problems"
#: Deviations from the plan, in words (empty: it was fixed before and followed), and the number of looks.
PLAN_FAULTS, LOOKS = "symposium.plan_faults", "symposium.looks"

#: Which training runs a monitor ended, in words (empty: none).
ENDED = "symposium.ended_by_monitors"

#: Metrics of a run: seconds from the start of its last command to its results.
TOOK = "run/seconds"


def record_verdict(whole: TrackedRun, result: Mapping[str, Any]) -> None:
    """Record the content of ``results/verdict.json``: its numbers as ``test/...``, and as tags what compares runs."""
    numbers = headline(result)
    whole.summary({f"test/{name}": value for name, value in numbers.items() if not isinstance(value, str)})
    for cell in result.get("cross_play", []):  # a matrix: team, agent, where it comes from
        if cell["agent"] and cell["mean"]["value"] is not None:
            name = f"cross_play/team {cell['seed']}/{cell['agent']} of {cell['run']}"
            whole.summary({name: cell["mean"]["value"]})
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

    ``row`` has all metrics of the update, with its ``step``; ``metric`` is one beside the reward.
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
    whole.traces(storage.read_json(folder / TRACES))
    whole.describe("\n\n".join(filter(None, (os.environ.get(NOTE), *lines))), "index.html")


def record_results(whole: TrackedRun, params: Params, project: Path, worked: Mapping[str, bool], began: float) -> None:
    """Record the results of a chain that is up to date.

    Args:
        whole: the run.
        params: the settings that made the results.
        project: folder of the project, or a workspace.
        worked: the stages of the chain, and whether each did any work; the others were up to date, or DVC had them.
        began: when the command was started, in seconds of the monotonic clock.
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
