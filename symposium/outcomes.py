"""Symposium's statistics for the outcomes of anybody's systems."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.evaluation.outcome_files import Columns
from pipeline_lib.evaluation.outcome_verdict import Asked, OutcomeVerdict, verdict_on
from pipeline_lib.report.outcomes import build_outcomes
from symposium.arguments import check_list
from symposium.showing import paragraph, table


class OutcomesVerdict:
    """The verdict on outcomes of several systems, each compared with one baseline.

    Attributes:
        result: every number, named and explained in `pipeline_lib.evaluation.outcome_verdict.OutcomeVerdict`.
    """

    def __init__(self, result: OutcomeVerdict) -> None:
        self.result = result

    @property
    def verdicts(self) -> dict[str, str]:
        """IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE, by system."""
        return self.result.verdicts

    @property
    def sentences(self) -> dict[str, str]:
        """What may be quoted, by system."""
        return {name: found.sentence for name, found in self.result.comparisons.items()}

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per comparison, and one that counts the caveats."""
        return self.result.lines

    @property
    def caveats(self) -> list[str]:
        """What the data do not support, a sentence each."""
        return [text for caveat in self.result.caveats for text in caveat.details]

    def page(self, path: str | Path) -> Path:
        """Write the verdict as one HTML file, and return its path."""
        build_outcomes(self.result, Path(path))
        return Path(path)

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        rows = [[name, found.verdict, found.sentence] for name, found in self.result.comparisons.items()]
        told = "".join(paragraph(text) for text in self.caveats)
        return table(("system", "verdict", "in words"), rows) + paragraph(self.lines[-1]) + told


def verdict(
    *outcomes: str | Path | Sequence[Mapping[str, Any]],
    baseline: str | None = None,
    systems: Sequence[str] | None = None,
    margin: float | None = None,
    metric_range: tuple[float, float] | None = None,
    alpha: float | None = None,
    power: float | None = None,
    only_common: bool = False,
    plan: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> OutcomesVerdict:
    """Compare systems by their outcomes, whatever produced them, with the chain's statistics (docs/statistics.md).

    Args:
        outcomes: files (docs/verdict-for-any-run.md), as ``NAME=FILE`` if a file does not name its system; or one list
            of rows, each a mapping; or a data frame.
        baseline: the system that all others are compared with; by default ``baseline``, ``base``, or the first.
        systems: the others; by default all.
        margin: smallest difference that would matter; 0.05 for a share, else it has to be given.
        metric_range: least and greatest possible value, without which there is no verdict; values that are all 0 or 1
            are a share.
        alpha: family-wise error rate; 0.05 by default.
        power: power for which detectable differences are computed; 0.8 by default.
        only_common: leave out what only one of two systems has.  Otherwise the other's outcome is taken as lost, since
            runs that fail often leave no row.
        plan: file of a plan, written by ``symposium verdict --plan``.
        columns: columns of a table by what they hold, where the names differ: ``{"problem": "task_id"}``.  Keys are
            ``problem``, ``system``, ``value`` (the metric, greater is better; in logs its name), ``sample``, ``seed``
            (of the training) and ``family`` (of problems).

    Raises:
        EvaluationError: a file, a row or an argument is wrong; the message names it.
        ValueError: ``columns`` has another key.
        TypeError: neither files nor rows.
    """
    given: list[Any] = list(outcomes)
    if len(given) == 1 and not isinstance(given[0], str | Path):
        frame = given[0]
        given = frame.to_dict("records") if hasattr(frame, "to_dict") else check_list("outcomes", frame, "rows")
    else:
        given = [str(one) if isinstance(one, Path) else one for one in check_list("outcomes", given, "files")]
        if wrong := [one for one in given if not isinstance(one, str)]:
            raise TypeError(f"outcomes has {wrong[0]!r}; give files, or one list of rows")
    accepted = [field.name for field in dataclasses.fields(Columns)]
    if unknown := [name for name in columns or {} if name not in accepted]:
        raise ValueError(f"columns has {unknown[0]!r}; accepted: {', '.join(accepted)}")
    asked = Asked(baseline, systems, margin, metric_range, alpha, power, only_common)
    return OutcomesVerdict(verdict_on(given, Columns(**(columns or {})), asked, None if plan is None else Path(plan)))
