"""The verdict on outcomes of systems that something else ran: the chain's comparisons, against one baseline.

From files or rows of outcomes to a verdict, and the plan for outcomes that are still to come.

A plan for outcomes that something else will produce: written before the data are there, compared with them later.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import GREATEST, Metric
from pipeline_lib.evaluation.comparison import Comparison, measure_apart, measure_tables
from pipeline_lib.evaluation.outcome_files import Columns, outcomes_of, read_outcomes
from pipeline_lib.evaluation.outcomes import OutcomesError, arrange, complete, describe_values, exact
from pipeline_lib.evaluation.plan import PlanCheck, SealedPlan, changes, is_sealed
from pipeline_lib.evaluation.results import Result, to_json
from pipeline_lib.evaluation.sentences import Caveat, against_base, counted, in_line, of_comparisons, power
from pipeline_lib.evaluation.table import Table, problem_means
from pipeline_lib.evaluation.verdict import by_problem, decide, other_runs
from pipeline_lib.settings.evaluate import VerdictSettings

VERSION = 1


@dataclass(frozen=True, slots=True)
class OutcomePlan(SealedPlan):
    """What is fixed before the first outcome is seen."""

    metric: str  #: name of the metric
    low: float | None  #: its least value; None in a plan of an earlier version, for a metric without a range
    high: float | None  #: its greatest value, or None
    baseline: str  #: the system that all others are compared with
    systems: tuple[str, ...]  #: the others
    problems: int  #: number of problems, the same for all systems
    samples: int  #: outcomes per problem, system and training seed
    seeds: int  #: training seeds of each system that has any; 0 if none has
    alpha: float  #: family-wise error rate
    margin: float  #: smallest difference that would matter
    power: float  #: power for which detectable differences are computed
    written: str  #: time (UTC, ISO 8601) at which the plan was written
    version: int = VERSION  #: version of this format


def read_outcome_plan(path: Path) -> OutcomePlan:
    """Read a plan and check its digest.

    Raises:
        OutcomesError: there is none, it is something else, or it was changed after it was written.
    """
    try:
        content = storage.read_json(path)
    except FileNotFoundError:
        raise OutcomesError(
            f"{path}: there is no plan; it is written before the data are there, by the same command without files"
        ) from None
    except (OSError, ValueError, storage.CorruptFileError) as error:
        raise OutcomesError(f"{path}: not a plan that can be read ({error})") from None
    names = {field.name for field in dataclasses.fields(OutcomePlan)}
    if not isinstance(content, dict) or set(content) != names | {"digest"} or content["version"] != VERSION:
        raise OutcomesError(f"{path}: not a plan of outcomes, version {VERSION}")
    if not is_sealed(content):
        raise OutcomesError(f"{path}: the plan was changed after it was written (its digest does not match)")
    del content["digest"]
    return OutcomePlan.from_json(content)


def check_outcome_plan(plan: OutcomePlan, design: Mapping[str, Any], older: Sequence[str]) -> PlanCheck:
    """Compare the plan with the ``design`` of what was done; ``older`` are files of outcomes that are older than it."""
    planned = {key: value for key, value in plan.to_json().items() if key not in ("written", "version")}
    deviations = [change.words("{key}: planned {before}, done {after}") for change in changes(planned, design)]
    changed = [f"{file} is older than the plan, so the plan may have been made to fit it" for file in older]
    return PlanCheck(not deviations and not changed, tuple(deviations), tuple(changed), plan.digest)


NO_PLAN = (
    "nothing shows that metric, baseline, margin and the number of problems were fixed before the data were seen; "
    "--plan writes them down for the next time"
)


@dataclass(frozen=True, slots=True)
class OutcomeVerdict(Result):
    """All systems against the baseline, as one family of comparisons."""

    metric: str  #: name of the metric
    info: Metric  #: its format and range
    baseline: str  #: the system that all others are compared with
    comparisons: Mapping[str, Comparison]  #: by name of the other system
    lines: tuple[str, ...]  #: one per comparison, and one that counts the caveats
    caveats: tuple[Caveat, ...]  #: what else a reader must know
    could_detect: Mapping[str, str]  #: by system, what the design could have found, a sentence or nothing
    other_runs: Mapping[str, str]  #: by system, a sentence about training it again
    #: By name, problems, outcomes, those lost among them (without a value, or a row that the other system has),
    #: training seeds and mean over problems.
    systems: Mapping[str, Mapping[str, Any]]
    problems: Mapping[str, Mapping[str, float]]  #: mean of the metric by problem and system
    design: Mapping[str, Any]  #: what was done, in the words of a plan
    plan: PlanCheck | None  #: whether the plan was kept; None without a plan

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
    only_common: bool = False,
) -> OutcomeVerdict:
    """Compare every system with the baseline and correct for their number (Holm).

    ``notes`` say what the rows do not support.  ``older`` are files of outcomes that are older than the plan.  With
    ``only_common``, outcomes without a row are left out with their partners, else they are lost ones (`complete`).

    Raises:
        OutcomesError: there is one system only.
    """
    if len(tables) < 2:
        raise OutcomesError(f"there is one system only, {baseline!r}; a comparison needs two")
    measured, absent = {}, list[str]()
    lost = {name: table.lost for name, table in tables.items()}
    for name in tables:
        if name != baseline:
            own, other = tables[name], tables[baseline]
            if not only_common:
                (own, other), without = complete((own, other), (name, baseline))
                absent += without
                lost |= {name: own.lost, baseline: max(other.lost, lost[baseline])}
            pair = own, other, settings, info.label, info, (name, baseline)
            reason = _unpaired(own, other, (name, baseline))
            measured[name] = measure_apart(*pair, reason) if reason else measure_tables(*pair, where="common")
    comparisons = decide(measured)
    design = _design(tables, baseline, settings, info)
    check = None if plan is None else check_outcome_plan(plan, design, older)
    caveats = (
        *_of_plan(check),
        *counted((*notes, *dict.fromkeys(absent)), "note on the rows", "notes on the rows"),
        *counted(_of_seeds(tables, baseline), "note on training seeds", "notes on training seeds"),
        *of_comparisons(comparisons.values()),
    )
    lines = {name: against_base(comparison) for name, comparison in comparisons.items()}
    untrained = "The rows have no training seeds: the verdict is about these systems, not about training them again."
    return OutcomeVerdict(
        metric=info.label,
        info=info,
        baseline=baseline,
        comparisons=comparisons,
        lines=(
            *(f"{name} {line[:1].lower()}{line[1:]}" for name, line in lines.items()),
            in_line(to_json(list(caveats))),
        ),
        caveats=caveats,
        could_detect={name: power(found, info) for name, found in comparisons.items()},
        other_runs={name: untrained if c.runs == (0, 0) else other_runs(c) for name, c in comparisons.items()},
        systems={name: _summary(table, lost[name]) for name, table in tables.items()},
        problems=by_problem(tables),
        design=design,
        plan=check,
    )


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
    played = [(~np.isnan(table.values) | table.gone).sum(axis=2).ravel() for table in tables.values()]
    samples = [n for counts in played for n in counts.tolist() if n]
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
    seeds = {name: ", ".join(map(str, table.seeds)) for name, table in tables.items() if table.trained}
    return told + [
        f"the training seeds of {name} are {own}, those of {baseline} {seeds[baseline]}: they are not paired by seed"
        for name, own in seeds.items()
        if baseline in seeds and own != seeds[baseline]
    ]


def _summary(table: Table, lost: int) -> dict[str, Any]:
    means = problem_means(table)
    return {
        "problems": len(table.problems),
        "families": len(set(table.families)),
        "outcomes": table.played - table.lost + lost,
        "lost": lost,
        "seeds": list(table.seeds) if table.trained else [],
        "mean": float(np.nanmean(np.nanmean(means[:, ~np.isnan(means).all(axis=0)], axis=0))),
    }


#: Systems that are the baseline if nobody names one; without them it is the first system of the rows.
BASELINES = ("baseline", "base")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asks for; None: what the plan says, else the default."""

    baseline: str | None = None  #: the system that all others are compared with
    systems: Sequence[str] | None = None  #: the others; None also stands for all that are in the rows
    #: Smallest difference that would matter; for a share 0.05 by default, else it has to be given.
    margin: float | None = None
    metric_range: tuple[float, float] | None = None  #: least and greatest possible value of the metric
    alpha: float | None = None  #: family-wise error rate
    power: float | None = None  #: power for which detectable differences are computed
    only_common: bool = False  #: leave out what has no row for both systems, instead of taking it as lost


def verdict_on(
    given: Sequence[str] | Sequence[Mapping[str, Any]], columns: Columns, asked: Asked, plan: Path | None = None
) -> OutcomeVerdict:
    """Return the verdict on files (``PATH`` or ``NAME=PATH``), or on rows in memory.

    Raises:
        OutcomesError: a row, an argument or the plan is wrong; the message names it.
    """
    written = None if plan is None else read_outcome_plan(plan)
    files = [one for one in given if isinstance(one, str)]
    if files:
        outcomes, metric, notes = read_outcomes(files, columns)
    else:
        outcomes, metric = outcomes_of([one for one in given if not isinstance(one, str)], columns)
        notes = []
    present = dict.fromkeys(one.system for one in outcomes)
    if written is not None:
        planned = {name: getattr(written, name) for name in ("baseline", "margin", "alpha", "power")}
        planned["metric_range"] = None if None in (written.low, written.high) else (written.low, written.high)
        missing = {name: value for name, value in planned.items() if getattr(asked, name) in (None, "")}
        asked = dataclasses.replace(asked, **missing)
    baseline = asked.baseline or next((name for name in BASELINES if name in present), next(iter(present)))
    wanted = {*(asked.systems or present), baseline}
    for name in (baseline, *wanted):
        _check_system(name, present)
    if wanted == {baseline} and len(present) > 1:
        raise OutcomesError(
            f"--systems names {baseline!r} only, which is the baseline; name another system: there are "
            f"{', '.join(present)}"
        )
    outcomes = [one for one in outcomes if one.system in wanted]
    info = describe_values(metric, outcomes, _checked_range(asked.metric_range))
    tables, doubts = arrange(outcomes)
    older = [] if written is None else _older(files, written)
    settings = _settings(asked, info)
    return judge_outcomes(tables, baseline, settings, info, (*notes, *doubts), written, older, asked.only_common)


def plan_outcomes(
    path: Path, asked: Asked, metric: str | None, problems: int | None, samples: int = 1, seeds: int = 0
) -> OutcomePlan:
    """Write a plan to ``path``, which must not exist.

    Baseline, systems and the range of the metric (the column of the values) are needed; the margin, too, if it is no
    share.  ``samples`` counts the outcomes per problem, system and training seed; ``seeds`` is 0 without training.

    Raises:
        OutcomesError: something is missing or wrong, or the file exists.
    """
    if not asked.baseline or not asked.systems or problems is None:
        raise OutcomesError(
            "a plan fixes what could be chosen by the result: give --baseline, --systems and --problems, or files for "
            "a verdict"
        )
    if asked.baseline in asked.systems or len(set(asked.systems)) < len(asked.systems):
        raise OutcomesError("--systems names every other system once, without the baseline")
    if (ends := _checked_range(asked.metric_range)) is None:
        raise OutcomesError(
            "a metric without a declared range gets no verdict: give --metric-range, its least and greatest possible "
            "value (0 1 for a share)"
        )
    low, high = ends
    settings = _settings(asked, Metric(metric or "value", share=ends == (0.0, 1.0), low=low, high=high))
    plan = OutcomePlan(
        metric or "value", low, high, asked.baseline, tuple(sorted(asked.systems)), problems, samples, seeds,
        settings.alpha, settings.margin, settings.power,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    if path.exists():
        raise OutcomesError(f"{path}: the file exists, and a plan is never replaced; give another name")
    plan.write(path)
    return plan


def _settings(asked: Asked, info: Metric) -> VerdictSettings:
    if asked.margin is None and not info.share:
        raise OutcomesError(
            f"the smallest difference of {info.label!r} that would matter is not known: give --margin, in its unit "
            "(only for a share, with --metric-range 0 1 or values of 0 and 1 alone, it is 0.05 by default)"
            f"{'' if math.isfinite(info.reach) else ', and --metric-range, without which there is no verdict'}"
        )
    if asked.margin is not None and asked.margin > GREATEST:
        raise OutcomesError(f"--margin: {asked.margin:g} is too large to compute with; use another unit")
    if asked.margin is not None and (reason := info.judges_nothing(asked.margin)):
        raise OutcomesError(f"--margin: {reason}")
    given = {"alpha": asked.alpha, "margin": asked.margin, "power": asked.power}
    try:
        return VerdictSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise OutcomesError(f"--{first['loc'][0]}: got {first['input']!r}; {first['msg'].lower()}") from None


def _checked_range(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    if ends is not None and not ends[0] < ends[1]:
        raise OutcomesError(f"--metric-range: {exact(ends[0])} is not less than {exact(ends[1])}")
    if ends is not None and max(map(abs, ends)) > GREATEST:
        raise OutcomesError(
            f"--metric-range: {ends[0]:g} to {ends[1]:g} is too large to compute with; use another unit, or "
            "leave it out (then there is no verdict)"
        )
    return ends


def _check_system(name: str, present: Collection[str]) -> None:
    if name not in present:
        close = difflib.get_close_matches(name, present)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(present)}"
        raise OutcomesError(f"there are no outcomes of a system {name!r}; {hint}")


def _older(files: Sequence[str], plan: OutcomePlan) -> list[str]:
    """Return the files that were last changed before the plan was written."""
    written = datetime.datetime.fromisoformat(plan.written).timestamp()
    paths = [Path(one if Path(one).exists() else one.partition("=")[2]) for one in files]
    return [path.name for path in paths if path.stat().st_mtime < written]
