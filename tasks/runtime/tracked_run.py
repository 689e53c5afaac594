"""The whole run in MLflow, opened and closed by its owner: the process that runs all stages.

While the owner runs, the run is RUNNING, also between two stages; the owner records how it ended.  If the owner was
killed, the next stage records that, or `watch_states`, which runs together with ``make ui``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline_lib.tracking import TrackedRun, Tracker
from pipeline_lib.tracking.addresses import tracking_uri
from pipeline_lib.tracking.processes import own_process
from tasks.identity.run import identity_tags
from tasks.runtime.exit_status import was_interrupted
from tasks.services.end_with_parent import above_the_stage
from tasks.services.process_environment import places, server_url
from tasks.services.stage_proxy import RUN_OWNER

if TYPE_CHECKING:
    from pipeline_lib.tracking.recorder import Recorder
    from pipeline_lib.tracking.tracker import Status

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
        settings: of the run, as JSON-like data.
        tags: of the run.
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
                from pipeline_lib.tracking.recorder import Recorder

                uri = server_url("mlflow") or tracking_uri(places().tracking)
                recorder = Recorder(os.environ.get("MLFLOW_TRACKING_URI", uri), places().tracking)
            recorder.update_all_states()
            warned = False
        except Exception as error:  # the server may be available the next time
            if not warned:
                log.warning("cannot update states in MLflow: %s", error)
            warned = True
        time.sleep(_INTERVAL_S)
