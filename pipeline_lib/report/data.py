"""The input of a report: the outputs of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pipeline_lib.environment_api.metrics import Metric, Metrics, describe
from pipeline_lib.evaluation.attempts import TurnGain
from pipeline_lib.evaluation.contributions import Contribution
from pipeline_lib.evaluation.schemes import SchemeUse
from pipeline_lib.evaluation.verdict import BASE, SELECTED
from pipeline_lib.report.viewer import TestedTeam

#: Number of problems whose episodes figures may show.
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class About:
    """The subject of the page, in words.

    Attributes:
        task: kind of the environment.
        model: the model of the agents.
        problems: their source, and the size of each split.
        tested: day of the test (UTC), ``2026-01-31``; empty if unknown.
        machine: description of the machine that made the page.
    """

    task: str
    model: str
    problems: str
    tested: str
    machine: str

    def sentence(self) -> str:
        """Return all attributes in one sentence."""
        tested = f"tested on {self.tested} (UTC); " if self.tested else ""
        return (
            f"A team for the task {self.task}: {self.model}; {self.problems}; {tested}this page was made on "
            f"{self.machine}."
        )


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
        costs: cost of each part, by name: ``seconds`` and ``tokens`` where known.
        plan: the evaluation plan (`Plan.to_json`), or None.
        audit: the reward audit (``status``, ``summary``, ``checks``, ``ladder``), or None.
        identity: names and ids of the run (commit, digests, ids in MLflow and Prefect, versions).
        settings: all settings, as JSON.
        notes: notes on the compared teams, a paragraph each.
        metrics: the environment's metrics, with labels and units.
        about: task, model, data, date and machine, or None.
        tested: every team that was tested, with all of its episodes; named as in ``verdict["teams"]``.
        terms: meaning of each reward term, a clause each.
        team_terms: terms that the reward never pays to a single agent.
        schemes: meaning of each cooperation scheme, a clause each.
        cooperation: how often the schemes are used, or None if no episode shows one.
        turn_gains: what each turn adds, by team (``base``, ``selected``), where turns are attempts.
        contributions: what each agent of the selected teams contributes (`contributions` of evaluation); empty if that
            was not measured.
        subteams: mean of the primary metric of each subteam, by the names of the agents that are present.
        contribution_episodes: number of episodes per problem of each subteam; 0 if that was not measured.
        called: name that a person gave the run; empty: none.
        note: what the run is for, as that person wrote it.
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
    about: About | None = None
    tested: Sequence[TestedTeam] = ()
    terms: Mapping[str, str] = field(default_factory=dict)
    team_terms: Sequence[str] = ()
    schemes: Mapping[str, str] = field(default_factory=dict)
    cooperation: SchemeUse | None = None
    turn_gains: Mapping[str, Sequence[TurnGain]] = field(default_factory=dict)
    contributions: Sequence[Contribution] = ()
    subteams: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    contribution_episodes: int = 0
    called: str = ""
    note: str = ""

    @property
    def examples(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        """The first episodes (`EpisodeRecord.to_json`) of the first few problems: of base and selected team."""
        first = {name: next((t for t in self.tested if t.name == name), None) for name in (BASE, SELECTED)}
        return {
            name: [episode.to_json() for episode in team.episodes if episode.sample == 0][:EXAMPLES]
            for name, team in first.items()
            if team is not None
        }

    @property
    def title(self) -> str:
        """Title of the page for people: the name that one gave it, else task and day, else the name of the run."""
        if self.called or self.about is None:
            return self.called or self.name
        day = f", {date.fromisoformat(self.about.tested):%-d %B %Y}" if self.about.tested else ""
        return f"A team for {self.about.task}{day}"

    @property
    def metric(self) -> str:
        """The primary metric."""
        return str(self.verdict["metric"])

    @property
    def info(self) -> Metric:
        """Label, unit and format of the primary metric."""
        return describe(self.metric, self.metrics)
