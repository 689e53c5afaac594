"""The results that calls return: data, and how a notebook displays it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metrics, describe, with_reward
from pipeline_lib.evaluation.episodes import summarise_team
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.training_figures import learning, terms
from symposium.showing import means, paragraph, table

if TYPE_CHECKING:
    from pipeline_lib.audit.result import AuditResult
    from pipeline_lib.evaluation import comparison as compared
    from pipeline_lib.evaluation.episodes import EpisodeRecord
    from pipeline_lib.evaluation.planning import Variances
    from pipeline_lib.evaluation.selection import Selection
    from pipeline_lib.report.style import Figure
    from symposium.experiments import Experiment
    from symposium.teams import Team

_CAUTIONS = {
    "validation": "These are validation problems: a team that was selected on them looks better than it is.",
    "training": "These are training problems: what a team does on them need not hold for others.",
    "chosen": "These problems were chosen by hand.",
}
_CLAIM = "A claim needs the chain's test on held-out problems."


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit: does the best policy under the reward do the task?

    Attributes:
        result: status (PASS, WARN, FAIL), a summary, the checks, and the ladder of scripted teams.
        path: the file in which it is kept; None for a reward function.
    """

    result: AuditResult
    path: Path | None

    @property
    def passed(self) -> bool:
        """Whether training on the reward is allowed without an override."""
        return self.result.status != "FAIL"

    def __repr__(self) -> str:
        return f"Audit({self.result.status}: {self.result.summary})"

    def _repr_html_(self) -> str:
        found = self.result
        ladder = [[rung.name, rung.role, rung.reward, rung.outcome] for rung in found.ladder]
        checks = [[check.name, check.status, check.sentence] for check in found.checks]
        return (
            paragraph(found.summary, found.status)
            + table(("scripted team", "role", "reward", "does the task"), ladder)
            + table(("check", "status", "says"), checks)
        )


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One training run.

    Attributes:
        experiment: what was trained.
        seed: of the run.
        folder: holds the checkpoints.
        steps: the steps that have a checkpoint; 0 is the untrained team.
        rows: the metrics of every step, for example ``reward/mean`` and ``metrics/<metric>``.
        override: the reason given for training on a reward that the audit failed; empty if it did not fail.
    """

    experiment: Experiment
    seed: int
    folder: Path
    steps: tuple[int, ...]
    rows: tuple[Mapping[str, float], ...]
    override: str

    @property
    def learning(self) -> Figure:
        """Reward and primary metric of every step, on training problems."""
        figure = learning(_report_data(self))
        assert figure is not None  # every run has a reward
        return figure

    @property
    def terms(self) -> Figure | None:
        """Each term of the reward at every step; None if the reward has no terms."""
        return terms(_report_data(self))

    def __repr__(self) -> str:
        return f"TrainingRun(seed={self.seed}, {len(self.rows)} steps, reward {self.rows[-1]['reward/mean']:.3g})"

    def _repr_html_(self) -> str:
        reason = paragraph(f"although the audit failed, because: {self.override}", "Trained") if self.override else ""
        figure = self.learning
        return f"{reason}<div style='max-width:50rem'>{figure.wide}</div>{paragraph(figure.caption)}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The episodes of a team on validation problems.

    Attributes:
        team: which team.
        episodes: all episodes; the first one on each problem has its texts in ``shown``.
        reward_bounds: least and greatest reward of an episode, as the environment declares it; None if unknown.
    """

    team: Team
    episodes: tuple[EpisodeRecord, ...]
    reward_bounds: tuple[float, float] | None = None

    @property
    def metrics(self) -> Metrics:
        """What the environment measures, by name, with the range of the reward."""
        known = self.team.experiment.metrics
        return known if self.reward_bounds is None else with_reward(known, *self.reward_bounds)

    @property
    def means(self) -> dict[str, float]:
        """The mean over problems of the reward and of every metric, and pass@k where a metric counts as success."""
        experiment = self.team.experiment
        found = summarise_team(self.episodes, experiment.params.evaluate.pass_k, experiment.metrics)
        return dict(found["overall"])

    @property
    def schemes(self) -> dict[str, float]:
        """The share of episodes with each cooperation scheme, if the environment detects schemes."""
        return dict(summarise_team(self.episodes)["schemes"])

    def __repr__(self) -> str:
        metric = self.team.experiment.params.evaluate.metric
        return f"Evaluation({self.team.title}: {metric} {self.means[metric]:.3g}, {len(self.episodes)} episodes)"

    def _repr_html_(self) -> str:
        metrics = self.team.experiment.metrics
        head = f"{len(self.episodes)} episodes on {len({record.problem for record in self.episodes})} problems"
        return paragraph(head, self.team.title) + table(("metric", "mean"), means(self.means, metrics)) + self._read()

    def _read(self) -> str:
        """Return the first episode as a table: each agent's observation and its texts."""
        shown = next((record.shown for record in self.episodes if record.shown), None)
        if not shown:
            return ""
        turns = [f"turn {number}" for number in range(1, len(shown["turns"]) + 1)]
        rows = [
            [agent, told, *(turn[number] for turn in shown["turns"])]
            for number, (agent, told) in enumerate(zip(shown["agents"], shown["told"], strict=True))
        ]
        return paragraph("", "The first episode") + table(("agent", "was told", *turns), rows)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """All checkpoints of some training runs on validation problems, and the selected checkpoint of each run.

    Attributes:
        selection: the selected steps, with the expected optimism of the selection.
        base: the untrained team.
        evaluations: by training seed and step.
    """

    selection: Selection
    base: Evaluation
    evaluations: Mapping[int, Mapping[int, Evaluation]]

    @property
    def selected(self) -> list[Evaluation]:
        """The evaluation of the selected checkpoint of every run."""
        return [self.evaluations[seed][choice.step] for seed, choice in self.selection.seeds.items()]

    def __repr__(self) -> str:
        return f"Checkpoints(selected: {', '.join(f'seed {s} step {c.step}' for s, c in self.selection.seeds.items())})"

    def _repr_html_(self) -> str:
        info = describe(self.selection.metric, self.base.team.experiment.metrics)
        rows = []
        for seed, choice in self.selection.seeds.items():
            for point in choice.curve:
                mark = "selected" if point.step == choice.step else ""
                rows.append([str(seed), point.step, info.text(point.mean), mark, "; ".join(point.faults)])
        notes = "".join(map(paragraph, self.selection.notes))
        return (
            table(("seed", "step", info.label, "", "fails"), rows)
            + notes
            + paragraph(f"{_CAUTIONS['validation']} {_CLAIM}")
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two teams compared.

    Attributes:
        result: every number, named and explained in `pipeline_lib.evaluation.comparison.Comparison`.
    """

    result: compared.Comparison

    @property
    def verdict(self) -> str:
        """IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE."""
        return self.result.verdict

    @property
    def sentence(self) -> str:
        """What may be quoted, together with a caution about the problems."""
        return f"{self.result.sentence} {_CAUTIONS[self.result.where]} {_CLAIM}"

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        c, info = self.result, self.result.info
        low, high = c.difference.low, c.difference.high
        limits = None if low is None or high is None else f"{info.difference(low)} to {info.difference(high)}"
        rows: list[list[Any]] = [
            [c.names[0], info.text(c.means[0].value or 0.0)],
            [c.names[1], info.text(c.means[1].value or 0.0)],
            ["difference", info.difference(c.difference.estimate or 0.0)],
            [f"{100 * c.difference.level:.0f} % interval", limits],
            ["p", c.p_adjusted],
            ["Hedges' g", c.effect.g],
            ["problems, in families", f"{c.problems}, {c.families}"],
            [f"seen with {100 * c.power:.0f} % power", None if c.detectable is None else info.difference(c.detectable)],
            [f"problems needed to see {info.difference(c.margin)}", c.problems_for_margin],
        ]
        return paragraph(self.sentence) + table(("", ""), rows)


@dataclass(frozen=True, slots=True)
class Requirements:
    """How many problems, episodes and training runs wanted differences need.

    Attributes:
        pilot: the variances of the pilot, in squared units of the metric.
        rows: one per wanted difference, episodes per problem and training runs (`evaluation.planning.requirements`).
        caveat: why no number of problems brings a verdict; empty if one does.
    """

    pilot: Variances
    rows: tuple[Mapping[str, Any], ...]
    caveat: str = ""

    def __repr__(self) -> str:
        text = f"Requirements({len(self.rows)} designs, from a pilot of {self.pilot.problems} problems)"
        return f"{text}. {self.caveat}" if self.caveat else text

    def _repr_html_(self) -> str:
        columns = {
            "difference": "wanted difference", "samples": "episodes per problem", "runs": "training runs",
            "problems": "problems", "problems_new_runs": "problems, for other runs too",
            "test_episodes": "episodes in the test", "sweep_episodes": "episodes in the sweep",
        }  # fmt: skip
        shown = table(tuple(columns.values()), [[row[name] for name in columns] for row in self.rows])
        return shown + (paragraph(self.caveat) if self.caveat else "")


def _report_data(run: TrainingRun) -> ReportData:
    """Return as much of a report as figures of training look at."""
    experiment = run.experiment
    judged = {"metric": experiment.params.evaluate.metric}
    return ReportData("", {run.seed: run.rows}, {}, judged, metrics=experiment.metrics)
