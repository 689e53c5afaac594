"""The rule by which a team gets the alias ``champion``; no other code sets the alias.

A team becomes champion if it was tested, its run's verdict against the base is IMPROVED (a team that fails a guard
never gets this verdict), the run followed its plan, and there is no champion yet, or one with a lower value of the same
metric on the same test problems.  A version that was never tested does not count as champion.  Otherwise the champion
stays, because values on other problems or of another metric cannot be compared.

A team is identified by its weights: a repeated run with the same name and other weights is a new contender.  If the
champion's own weights are tested again on the same problems by the same metric, the newest value is stored.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

IMPROVED = "IMPROVED"


def registered_name(kind: str) -> str:
    """Return the name in MLflow's registry under which the champions of a kind of environment are versions."""
    return f"symposium-{kind.replace(':', '.')}"


@dataclass(frozen=True, slots=True)
class Contender:
    """The test result of a team."""

    team: str  #: its checkpoint's name within its run
    run: str  #: name of the run
    verdict: str  #: the verdict against the base: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE
    plan_faults: str  #: deviations from the plan, in words; empty if there are none
    problems: str  #: digest of the test problems' content
    metric: str  #: the primary metric; greater is better
    value: float  #: its mean on the test problems over training seeds, with every lost episode at the least value
    weights: str = ""  #: digest of the team's weights; empty: unknown

    def tests_again(self, other: Self) -> bool:
        """Return whether the same weights were tested on the same problems by the same metric."""
        same = (self.weights, self.problems, self.metric) == (other.weights, other.problems, other.metric)
        return same and bool(self.weights)

    def tags(self) -> dict[str, str]:
        """Return the test as tags of a model version, from which `from_tags` reads it back."""
        return {f"symposium.test.{name}": str(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> Self | None:
        """Return the test in a version's tags, or None if it was never tested."""
        values = {field.name: tags.get(f"symposium.test.{field.name}", "") for field in dataclasses.fields(cls)}
        if not values["value"]:
            return None
        return cls(**{**values, "value": float(values["value"])})  # type: ignore[arg-type]  # the other fields are str

    def __str__(self) -> str:
        return f"{self.team} of {self.run}"


def decide(candidate: Contender, present: Contender | None) -> tuple[bool, str]:
    """Return whether a team that was just tested becomes or stays champion, and the reason as a sentence.

    ``present`` is the current champion; None if there is none that was tested.
    """
    stays = f"the champion stays {present}" if present else "there is still no champion"
    by = f"{candidate.metric} {candidate.value:.4f}"
    if candidate.verdict != IMPROVED:
        return False, f"{stays}: the verdict is {candidate.verdict}, not {IMPROVED}"
    if candidate.plan_faults:
        return False, f"{stays}: the plan was not followed ({candidate.plan_faults})"
    if present is not None and candidate.tests_again(present):
        return True, f"{candidate} is the champion already: {by} on the test problems now, {present.value:.4f} before"
    if present is None:
        return True, f"{candidate} is the first champion: {candidate.verdict}, {by} on the test problems"
    if present.problems != candidate.problems:
        return False, f"{stays}: it was tested on other problems, so the two cannot be compared"
    if present.metric != candidate.metric:
        return False, f"{stays}: it was tested by {present.metric}, so the two cannot be compared"
    if candidate.value <= present.value:
        return False, f"{stays}: {by} is not above its {present.value:.4f} on the same test problems"
    return True, f"{candidate} is the new champion: {by}, above the {present.value:.4f} of {present}"
