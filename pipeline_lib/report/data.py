"""The input of a report: the outputs of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pipeline_lib.environment_api.metrics import Metric, Metrics, describe
from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.evaluation.schemes import SchemeUse
from pipeline_lib.evaluation.tested_teams import Cell, Contribution, TurnGain
from pipeline_lib.evaluation.verdict import BASE, SELECTED
from pipeline_lib.report.viewer import TestedTeam

#: Number of problems whose episodes figures may show.
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class About:
    """The subject of the page, in words."""

    task: str  #: kind of the environment
    model: str  #: the model of the agents
    problems: str  #: their source, and the size of each split
    tested: str  #: day of the test (UTC), ``2026-01-31``; empty if unknown
    machine: str  #: description of the machine that made the page

    def sentence(self) -> str:
        """Return all attributes in one sentence."""
        tested = f"tested on {self.tested} (UTC); " if self.tested else ""
        return (
            f"A team for the task {self.task}: {self.model}; {self.problems}; {tested}this page was made on "
            f"{self.machine}."
        )


@dataclass(frozen=True, slots=True)
class ReportData:
    """The stage outputs of one experiment."""

    name: str  #: name of the run, as DVC, Prefect and MLflow know it
    #: Metrics of each training step, by training seed: rows with ``step`` and slash-grouped names (``reward/mean``,
    #: ``terms/...``, ``metrics/...``, ``actions/...``, ``time/...``).
    train: Mapping[int, Sequence[Mapping[str, float]]]
    selection: Mapping[str, Any]  #: outcome of the sweep (`Selection.to_json`)
    verdict: Mapping[str, Any]  #: outcome of the test (`summarise_test`)
    #: All metrics of each checkpoint on the validation split, by training seed and step.
    sweep: Mapping[int, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)
    #: Training metrics of trained baselines, by name and seed.
    baseline_train: Mapping[str, Mapping[int, Sequence[Mapping[str, float]]]] = field(default_factory=dict)
    #: Cost of each part, by name: ``seconds`` and ``tokens`` where known.
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None  #: the evaluation plan (`Plan.to_json`), or None
    #: The reward audit (``status``, ``summary``, ``checks``, ``ladder``), or None.
    audit: Mapping[str, Any] | None = None
    #: Names and ids of the run (commit, digests, ids in MLflow and Prefect, versions).
    identity: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  #: all settings, as JSON
    notes: Sequence[str] = ()  #: notes on the compared teams, a paragraph each
    metrics: Metrics = field(default_factory=dict)  #: the environment's metrics, with labels and units
    about: About | None = None  #: task, model, data, date and machine, or None
    #: Every team that was tested, with all of its episodes; named as in ``verdict["teams"]``.
    tested: Sequence[TestedTeam] = ()
    terms: Mapping[str, str] = field(default_factory=dict)  #: meaning of each reward term, a clause each
    team_terms: Sequence[str] = ()  #: terms that the reward never pays to a single agent
    schemes: Mapping[str, str] = field(default_factory=dict)  #: meaning of each cooperation scheme, a clause each
    cooperation: SchemeUse | None = None  #: how often the schemes are used, or None if no episode shows one
    #: What each turn adds, by team (``base``, ``selected``), where turns are attempts.
    turn_gains: Mapping[str, Sequence[TurnGain]] = field(default_factory=dict)
    #: What each agent of the selected teams contributes (`tested_teams.contributions`); empty if that was not
    #: measured.
    contributions: Sequence[Contribution] = ()
    #: Mean of the primary metric of each subteam, by the names of the agents that are present.
    subteams: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    contribution_episodes: int = 0  #: number of episodes per problem of each subteam; 0 if that was not measured
    called: str = ""  #: name that a person gave the run; empty: none
    note: str = ""  #: what the run is for, as that person wrote it

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
    def cross_play(self) -> list[Cell]:
        """Teams in which one agent comes from another training run or the base; empty if they were not played."""
        found = self.verdict.get("cross_play", [])
        return [Cell(**{**cell, "mean": Estimate(**cell["mean"])}) for cell in found]

    @property
    def info(self) -> Metric:
        """Label, unit and format of the primary metric."""
        return describe(self.metric, self.metrics)
