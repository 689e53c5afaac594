"""What a report is made of: the outputs of the stages, nothing computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.seam.metrics import Metric, Metrics, describe

#: Problems of which figures may show what a team did.
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class ReportData:
    """The stage outputs of one experiment.

    Attributes:
        name: name of the run, as DVC, Prefect and MLflow know it.
        train: metrics of each training step, by training seed: rows with ``step`` and slash-grouped names
            (``reward/mean``, ``terms/...``, ``metrics/...``, ``actions/...``, ``time/...``).
        selection: outcome of the sweep (`Selection.to_json`).
        verdict: outcome of the test (`summarise_test`).
        sweep: all metrics of each checkpoint on the validation split, by training seed and step.
        baseline_train: training metrics of trained baselines, by name and seed.
        costs: what each part cost, by name: ``seconds`` and ``tokens`` where known.
        plan: the evaluation plan (`Plan.to_json`), or None.
        audit: the reward audit (``status``, ``summary``, ``checks``, ``ladder``), or None.
        identity: what identifies the run: name and value (commit, digests, ids in MLflow and Prefect, versions).
        settings: all settings, as JSON.
        notes: what a reader must know of the teams compared, a paragraph each.
        metrics: the environment's metrics: how they are named and shown.
        first_episodes: episodes of the test (`EpisodeRecord.to_json`), the first of each problem, by team: ``base``,
            and ``selected`` of the first training seed.
        about: task, model, data, date and machine, a sentence.
    """

    name: str
    train: Mapping[int, Sequence[Mapping[str, float]]]
    selection: Mapping[str, Any]
    verdict: Mapping[str, Any]
    sweep: Mapping[int, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)
    baseline_train: Mapping[str, Mapping[int, Sequence[Mapping[str, float]]]] = field(default_factory=dict)
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    audit: Mapping[str, Any] | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    metrics: Metrics = field(default_factory=dict)
    first_episodes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    about: str = ""

    @property
    def examples(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        """The first episodes of the first few problems, by team."""
        return {name: rows[:EXAMPLES] for name, rows in self.first_episodes.items()}

    @property
    def metric(self) -> str:
        """The primary metric."""
        return str(self.verdict["metric"])

    @property
    def info(self) -> Metric:
        """How the primary metric is named and shown."""
        return describe(self.metric, self.metrics)
