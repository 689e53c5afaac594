"""The verdict on outcomes of systems that something else ran: the chain's comparisons, against one baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.comparison import Comparison, measure_apart, measure_tables
from pipeline_lib.evaluation.family import decide
from pipeline_lib.evaluation.headline import Caveat, against_base, counted, in_line, of_comparisons
from pipeline_lib.evaluation.outcome_plan import OutcomePlan, check_outcome_plan
from pipeline_lib.evaluation.outcomes import OutcomesError
from pipeline_lib.evaluation.plan_check import PlanCheck
from pipeline_lib.evaluation.results import Result, to_json
from pipeline_lib.evaluation.sentences import power
from pipeline_lib.evaluation.summary import other_runs
from pipeline_lib.evaluation.table import Table, problem_means

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings

NO_PLAN = (
    "nothing shows that metric, baseline, margin and the number of problems were fixed before the data were seen; "
    "--plan writes them down for the next time"
)


@dataclass(frozen=True, slots=True)
class OutcomeVerdict(Result):
    """All systems against the baseline, as one family of comparisons.

    Attributes:
        metric: name of the metric.
        info: its format and range.
        baseline: the system that all others are compared with.
        comparisons: by name of the other system.
        lines: one per comparison, and one that counts the caveats.
        caveats: what else a reader must know.
        could_detect: by system, what the design could have found, a sentence.
        other_runs: by system, a sentence about training it again.
        systems: by name, problems, outcomes, lost outcomes, training seeds and mean over problems.
        problems: mean of the metric by problem and system.
        design: what was done, in the words of a plan.
        plan: whether the plan was kept; None without a plan.
    """

    metric: str
    info: Metric
    baseline: str
    comparisons: Mapping[str, Comparison]
    lines: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    could_detect: Mapping[str, str]
    other_runs: Mapping[str, str]
    systems: Mapping[str, Mapping[str, Any]]
    problems: Mapping[str, Mapping[str, float]]
    design: Mapping[str, Any]
    plan: PlanCheck | None

    @property
    def verdicts(self) -> dict[str, str]:
        """IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE, by system."""
        return {name: found.verdict for name, found in self.comparisons.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, ``verdicts`` first."""
        own = {field.name: to_json(getattr(self, field.name)) for field in dataclasses.fields(self)}
        own["info"] = {"label": self.info.label, "share": self.info.share, "low": self.info.low, "high": self.info.high}
        return {"verdicts": self.verdicts, **own}


def judge_outcomes(
    tables: Mapping[str, Table],
    baseline: str,
    settings: VerdictSettings,
    info: Metric,
    notes: Sequence[str] = (),
    plan: OutcomePlan | None = None,
    older: Sequence[str] = (),
) -> OutcomeVerdict:
    """Compare every system with the baseline and correct for their number (Holm).

    Args:
        tables: the outcomes of every system, the baseline's included.
        baseline: one of them.
        settings: alpha, margin and power.
        info: the metric; its label is its name.
        notes: what the rows do not support.
        plan: what was fixed before.
        older: files of outcomes that are older than the plan.

    Raises:
        OutcomesError: a system has no value at all.
    """
    if len(tables) < 2:
        raise OutcomesError(f"there is one system only, {baseline!r}; a comparison needs two")
    for name, table in tables.items():
        if np.isnan(table.values).all():
            raise OutcomesError(f"{name!r} has no value at all: every one is missing or not a number")
    base = tables[baseline]
    comparisons = decide(
        {
            name: _measure(table, base, settings, info, (name, baseline))
            for name, table in tables.items()
            if name != baseline
        }
    )
    design = _design(tables, baseline, settings, info)
    check = None if plan is None else check_outcome_plan(plan, design, older)
    caveats = (
        *_of_plan(check),
        *counted(notes, "note on the rows", "notes on the rows"),
        *counted(_of_seeds(tables, baseline), "note on training seeds", "notes on training seeds"),
        *counted(_of_range(info), "note on the metric", "notes on the metric"),
        *of_comparisons(comparisons.values()),
    )
    return OutcomeVerdict(
        metric=info.label,
        info=info,
        baseline=baseline,
        comparisons=comparisons,
        lines=(
            *(f"{name} {_small(against_base(found))}" for name, found in comparisons.items()),
            in_line(to_json(list(caveats))),
        ),
        caveats=caveats,
        could_detect={name: power(found, info) for name, found in comparisons.items()},
        other_runs={name: _other_runs(found) for name, found in comparisons.items()},
        systems={name: _summary(table) for name, table in tables.items()},
        problems=_by_problem(tables),
        design=design,
        plan=check,
    )


def _measure(a: Table, b: Table, settings: VerdictSettings, info: Metric, names: tuple[str, str]) -> Comparison:
    reason = _unpaired(a, b, names)
    if reason:
        return measure_apart(a, b, settings, info.label, info, names, reason)
    return measure_tables(a, b, settings, info.label, info, names, where="common")


def _unpaired(a: Table, b: Table, names: tuple[str, str]) -> str:
    """Return why two systems cannot be paired; empty if they can."""
    common = set(a.problems) & set(b.problems)
    if not common:
        return (
            f"{names[0]} and {names[1]} have no problem in common, so a difference between them cannot be told from "
            "one between their problems"
        )
    usable = set(common)
    for table in (a, b):
        whole = np.atleast_1d(~np.isnan(problem_means(table)).any(axis=0))
        usable &= {problem for problem, kept in zip(table.problems, whole, strict=True) if kept}
    if not usable:
        return f"no problem has a value of {names[0]} and of {names[1]} in every training seed"
    if a.seeds == b.seeds or not (a.trained and b.trained):
        samples = min(a.values.shape[2], b.values.shape[2])
        x = a.values[:, [a.problems.index(p) for p in sorted(common)], :samples]
        y = b.values[:, [b.problems.index(p) for p in sorted(common)], :samples]
        if not (~np.isnan(x) & ~np.isnan(y)).any(axis=2).all(axis=0).any():
            return f"no sample of a problem has a value of {names[0]} and of {names[1]}"
    return ""


def _design(tables: Mapping[str, Table], baseline: str, settings: VerdictSettings, info: Metric) -> dict[str, Any]:
    """Return what was done, with the names of a plan; a number that is not the same everywhere is a range."""
    samples = [n for table in tables.values() for n in _played(table).sum(axis=2).ravel().tolist() if n]
    return {
        "metric": info.label,
        "low": info.low,
        "high": info.high,
        "baseline": baseline,
        "systems": sorted(name for name in tables if name != baseline),
        "problems": _range([len(table.problems) for table in tables.values()]),
        "samples": _range(samples),
        "seeds": _range([len(table.seeds) for table in tables.values() if table.trained] or [0]),
        "alpha": settings.alpha,
        "margin": settings.margin,
        "power": settings.power,
    }


def _played(table: Table) -> np.ndarray:
    return ~np.isnan(table.values) | table.gone


def _range(numbers: Sequence[int]) -> int | str:
    low, high = min(numbers), max(numbers)
    return low if low == high else f"{low} to {high}"


def _of_plan(check: PlanCheck | None) -> list[Caveat]:
    if check is None:
        return [Caveat("no plan", (f"{NO_PLAN[:1].upper()}{NO_PLAN[1:]}.",))]
    return [
        *counted(check.deviations, "deviation from the plan", "deviations from the plan"),
        *counted(check.changed, "file older than the plan", "files older than the plan"),
    ]


def _of_seeds(tables: Mapping[str, Table], baseline: str) -> list[str]:
    told = [
        f"there is one training seed of {name}: another run may differ, and nothing here shows by how much"
        for name, table in tables.items()
        if table.trained and len(table.seeds) == 1
    ]
    base = tables[baseline]
    for name, table in tables.items():
        if table.trained and base.trained and table.seeds != base.seeds:
            told.append(
                f"the training seeds of {name} are {_listed(table)}, those of {baseline} {_listed(base)}: they are not "
                "paired by seed"
            )
    return told


def _listed(table: Table) -> str:
    return ", ".join(map(str, table.seeds))


def _of_range(info: Metric) -> list[str]:
    if info.low is not None and info.high is not None:
        return []
    return [
        f"the range of {info.label} is not known, so few families that differ much from the rest are expected, and "
        "intervals are wider; --metric-range gives it"
    ]


def _other_runs(c: Comparison) -> str:
    if c.runs == (0, 0):
        return "The rows have no training seeds: the verdict is about these systems, not about training them again."
    return other_runs(c)


def _summary(table: Table) -> dict[str, Any]:
    means = problem_means(table)
    return {
        "problems": len(table.problems),
        "families": len(set(table.families)),
        "outcomes": table.played,
        "lost": table.lost,
        "seeds": list(table.seeds) if table.trained else [],
        "mean": float(np.nanmean(np.nanmean(means[:, ~np.isnan(means).all(axis=0)], axis=0))),
    }


def _by_problem(tables: Mapping[str, Table]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for name, table in tables.items():
        for problem, values in zip(table.problems, problem_means(table).T, strict=True):
            if not np.isnan(values).any():
                rows.setdefault(problem, {})[name] = float(values.mean())
    return dict(sorted(rows.items()))


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
