"""What happened, in MLflow: the only package here that imports it (late, in a thread of its own).

`tracker.Tracker` is the way in.  Operations (`operations`) go through a queue (`writer`) to the server (`ledger`).
"""

from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.tracker import TrackedRun, Tracker

__all__ = ["Contender", "TrackedRun", "Tracker"]
