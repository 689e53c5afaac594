"""What happened, in MLflow: the only package here that imports it (late, in a thread of its own).

`tracker.Tracker` is the way in.  Operations (`operations`) wait in a file (`journal`) until a thread has sent them to
the server (`recorder`).
"""

from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.tracker import Checkpoint, TrackedRun, Tracker

__all__ = ["Checkpoint", "Contender", "TrackedRun", "Tracker"]
