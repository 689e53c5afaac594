"""From files or rows of outcomes to a verdict, and the plan for outcomes that are still to come."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.outcome_files import Columns, outcomes_of, read_outcomes
from pipeline_lib.evaluation.outcome_plan import OutcomePlan, read_outcome_plan
from pipeline_lib.evaluation.outcome_verdict import OutcomeVerdict, judge_outcomes
from pipeline_lib.evaluation.outcomes import OutcomesError, arrange, describe_values
from pipeline_lib.settings.evaluate import VerdictSettings

#: Systems that are the baseline if nobody names one; without them it is the first system of the rows.
BASELINES = ("baseline", "base")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asks for; None: what the plan says, else the default.

    Attributes:
        baseline: the system that all others are compared with.
        systems: the others; None also stands for all that are in the rows.
        margin: smallest difference that would matter; for a share 0.05 by default, else it has to be given.
        metric_range: least and greatest possible value of the metric.
        alpha: family-wise error rate.
        power: power for which detectable differences are computed.
    """

    baseline: str | None = None
    systems: Sequence[str] | None = None
    margin: float | None = None
    metric_range: tuple[float, float] | None = None
    alpha: float | None = None
    power: float | None = None


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
        ends = None if written.low is None or written.high is None else (written.low, written.high)
        asked = Asked(
            asked.baseline or written.baseline,
            asked.systems or None,
            written.margin if asked.margin is None else asked.margin,
            ends if asked.metric_range is None else asked.metric_range,
            written.alpha if asked.alpha is None else asked.alpha,
            written.power if asked.power is None else asked.power,
        )
    baseline = asked.baseline or next((name for name in BASELINES if name in present), next(iter(present)))
    wanted = {*(asked.systems or present), baseline}
    for name in (baseline, *wanted):
        _check_system(name, present)
    outcomes = [one for one in outcomes if one.system in wanted]
    info = describe_values(metric, outcomes, _checked_range(asked.metric_range))
    arranged = arrange(outcomes)
    older = [] if written is None else _older(files, written)
    return judge_outcomes(
        arranged.tables, baseline, _settings(asked, info), info, (*notes, *arranged.notes), written, older
    )


def plan_outcomes(
    path: Path, asked: Asked, metric: str | None, problems: int | None, samples: int = 1, seeds: int = 0
) -> OutcomePlan:
    """Write a plan.

    Args:
        path: its file, which must not exist.
        asked: baseline and systems are needed; the margin, too, if the metric is no share.
        metric: name of the metric: the column of the values.
        problems: number of problems.
        samples: outcomes per problem, system and training seed.
        seeds: training seeds of each trained system; 0 without training.

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
    ends = _checked_range(asked.metric_range)
    low, high = ends or (None, None)
    settings = _settings(asked, Metric(metric or "value", share=ends == (0.0, 1.0), low=low, high=high))
    plan = OutcomePlan(
        metric or "value", low, high, asked.baseline, tuple(sorted(asked.systems)), problems, samples, seeds,
        settings.alpha, settings.margin, settings.power,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    plan.write(path)
    return plan


def _settings(asked: Asked, info: Metric) -> VerdictSettings:
    if asked.margin is None and not info.share:
        raise OutcomesError(
            f"the smallest difference of {info.label!r} that would matter is not known: give --margin, in its unit "
            "(only for a share, with --metric-range 0 1 or values of 0 and 1 alone, it is 0.05 by default)"
        )
    given = {"alpha": asked.alpha, "margin": asked.margin, "power": asked.power}
    try:
        return VerdictSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise OutcomesError(f"--{first['loc'][0]}: got {first['input']!r}; {first['msg'].lower()}") from None


def _checked_range(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    if ends is not None and not ends[0] < ends[1]:
        raise OutcomesError(f"--metric-range: {ends[0]:g} is not less than {ends[1]:g}")
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
