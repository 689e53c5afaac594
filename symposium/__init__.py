"""Symposium in Python (``import symposium``), and the command ``symposium``, which runs the programs of `flows`.

The names below are the public interface and stay stable; docs/api.md describes them.  Each is imported when it is first
used, so ``symposium --help`` loads none of them.  They use `pipeline_lib` only.  So they need neither Prefect, DVC nor
MLflow, and they work with other packages named ``tasks`` or ``flows``.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

from symposium.neighbours import check_neighbours

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metric
    from pipeline_lib.text_task import Score, TextTask
    from symposium.experiments import Experiment
    from symposium.judging import compare, plan
    from symposium.outcomes import OutcomesVerdict, verdict
    from symposium.playing import evaluate, load_team, sweep
    from symposium.results import Audit, Checkpoints, Comparison, Evaluation, Requirements, TrainingRun
    from symposium.teams import Team
    from symposium.training import audit, train

#: The module of each name.
_HOMES = {
    "Experiment": "symposium.experiments",
    **dict.fromkeys(("audit", "train"), "symposium.training"),
    **dict.fromkeys(("load_team", "evaluate", "sweep"), "symposium.playing"),
    **dict.fromkeys(("compare", "plan"), "symposium.judging"),
    **dict.fromkeys(("verdict", "OutcomesVerdict"), "symposium.outcomes"),
    "TextTask": "pipeline_lib.text_task",
    "Score": "pipeline_lib.text_task",
    "Metric": "pipeline_lib.environment_api.metrics",
    **dict.fromkeys(("Audit", "TrainingRun"), "symposium.results"),
    "Team": "symposium.teams",
    **dict.fromkeys(("Evaluation", "Checkpoints", "Comparison", "Requirements"), "symposium.results"),
}

__all__ = [
    "Audit",
    "Checkpoints",
    "Comparison",
    "Evaluation",
    "Experiment",
    "Metric",
    "OutcomesVerdict",
    "Requirements",
    "Score",
    "Team",
    "TextTask",
    "TrainingRun",
    "audit",
    "compare",
    "evaluate",
    "load_team",
    "plan",
    "sweep",
    "train",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_neighbours("pipeline_lib")
    for variable, default in importlib.import_module("pipeline_lib.processor").WAITING.items():
        os.environ.setdefault(variable, default)  # too late if torch is loaded
    # In a notebook tqdm, which transformers imports, asks for widgets that nothing here needs.
    warnings.filterwarnings("ignore", message="IProgress not found")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
