"""A plan for outcomes that something else will produce: written before the data are there, compared with them later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.outcomes import OutcomesError
from pipeline_lib.evaluation.plan_check import PlanCheck, changes
from pipeline_lib.evaluation.results import Result

VERSION = 1


@dataclass(frozen=True, slots=True)
class OutcomePlan(Result):
    """What is fixed before the first outcome is seen.

    Attributes:
        metric: name of the metric.
        low: its least value, or None if it has no range.
        high: its greatest value, or None.
        baseline: the system that all others are compared with.
        systems: the others.
        problems: number of problems, the same for all systems.
        samples: outcomes per problem, system and training seed.
        seeds: training seeds of each system that has any; 0 if none has.
        alpha: family-wise error rate.
        margin: smallest difference that would matter.
        power: power for which detectable differences are computed.
        written: time (UTC, ISO 8601) at which the plan was written.
        version: version of this format.
    """

    metric: str
    low: float | None
    high: float | None
    baseline: str
    systems: tuple[str, ...]
    problems: int
    samples: int
    seeds: int
    alpha: float
    margin: float
    power: float
    written: str
    version: int = VERSION

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return storage.digest(Result.to_json(self))

    def write(self, path: Path) -> None:
        """Write the plan as JSON with its digest; one that is there is never replaced.

        Raises:
            OutcomesError: the file exists.
        """
        if path.exists():
            raise OutcomesError(f"{path}: the file exists, and a plan is never replaced; give another name")
        storage.write_json(path, {**self.to_json(), "digest": self.digest})


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
    if content.pop("digest") != storage.digest(content):
        raise OutcomesError(f"{path}: the plan was changed after it was written (its digest does not match)")
    return OutcomePlan.from_json(content)


def check_outcome_plan(plan: OutcomePlan, design: Mapping[str, Any], older: Sequence[str]) -> PlanCheck:
    """Compare what was done with the plan.

    Args:
        plan: the plan.
        design: what was done, with the plan's fields.
        older: files of outcomes that were there before the plan.
    """
    planned = {key: value for key, value in plan.to_json().items() if key not in ("written", "version")}
    deviations = [change.words("{key}: planned {before}, done {after}") for change in changes(planned, design)]
    changed = [f"{file} is older than the plan, so the plan may have been made to fit it" for file in older]
    return PlanCheck(not deviations and not changed, tuple(deviations), tuple(changed), plan.digest)
