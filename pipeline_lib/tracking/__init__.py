"""Tracking with MLflow: the only package of the library that imports it (late, in a separate thread).

Use `tracker.Tracker`.  Operations (`operations`) are stored in a file (`journal`) until a thread has sent them to the
server (`recorder`).
"""

from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.tracker import Checkpoint, TrackedRun, Tracker

__all__ = ["Checkpoint", "Contender", "TrackedRun", "Tracker"]
