"""Check that the plan was followed, and that it was the same plan from beginning to end.

Plans are compared field by field as JSON, over the fields that they have: there is no list of fields to compare, so a
new field of `Plan` cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.evaluation.results import Result

if TYPE_CHECKING:
    from pipeline_lib.evaluation.plan import Plan


@dataclass(frozen=True, slots=True)
class Change(Result):
    """One thing in which two plans differ.

    Attributes:
        key: which field; inside a field that is an object, with a dot, for example ``play.sampling.temperature``.
        before: its value in the first plan, as JSON; None where that plan does not have it.
        after: its value in the second.
    """

    key: str
    before: Any
    after: Any

    def words(self, pattern: str = "{key} from {before} to {after}") -> str:
        """Return the change in words; of lists of objects only what differs is quoted."""
        before, after = self.before, self.after
        if isinstance(before, list) and isinstance(after, list) and any(isinstance(x, dict) for x in before + after):
            before, after = [x for x in before if x not in after], [x for x in after if x not in before]
            if not before and not after:
                before, after = self.before, self.after  # another order
        return pattern.format(key=self.key, before=_text(before), after=_text(after))


def changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[Change]:
    """Return in what two plans (as JSON, `Plan.to_json`) differ, in the order of their fields."""
    found = []
    for key in dict.fromkeys((*before, *after)):
        name, old, new = f"{prefix}{key}", before.get(key), after.get(key)
        if old == new or name == "digest":
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes(old, new, f"{name}.")
        else:
            found.append(Change(name, old, new))
    return found


@dataclass(frozen=True, slots=True)
class PlanCheck(Result):
    """Whether a result followed its plan, and whether that plan was there before anything was seen.

    Attributes:
        followed: neither of the two lists that follow holds anything.
        deviations: one sentence per thing that was done in another way than planned.
        changed: one sentence per change of the plan after checkpoints were swept or the test split was looked at.
        plan: digest of the plan.
    """

    followed: bool
    deviations: tuple[str, ...]
    changed: tuple[str, ...]
    plan: str

    @property
    def sentence(self) -> str:
        """What must be said beside a verdict; empty when the plan was followed."""
        parts = []
        if self.deviations:
            parts.append(f"The plan was not followed: {'; '.join(self.deviations)}.")
        parts += [f"{text[:1].upper()}{text[1:]}." for text in self.changed]
        return " ".join(parts)


def check_plan(
    done: Plan,
    plan: Plan,
    selected: Mapping[str, int] | None = None,
    carried: Mapping[str, Mapping[str, Any]] | None = None,
    changed: Sequence[str] = (),
) -> PlanCheck:
    """Compare what was done with what was planned.

    Args:
        done: what was done, as a plan: made from the settings in force, then with what the results show.
        plan: the plan.
        selected: step tested, by training seed.
        carried: by name (for example ``the test``), the plan (as JSON) under which something that the result rests on
            was made.
        changed: what else is known of changes, in words; see `looks`.
    """
    planned = plan.to_json()
    deviations = [change.words("{key}: planned {before}, done {after}") for change in changes(planned, done.to_json())]
    for seed, step in (selected or {}).items():
        if step not in planned["checkpoints"].get(seed, ()):
            deviations.append(f"selected: step {step} of training seed {seed} is not among the planned checkpoints")
    elsewhere: dict[str, list[str]] = {}
    for name, under in (carried or {}).items():
        for change in changes(under, planned):
            elsewhere.setdefault(change.words("{key} was {before} then and is {after} now"), []).append(name)
    deviations += [f"made under another plan ({', '.join(names)}): {words}" for words, names in elsewhere.items()]
    return PlanCheck(not deviations and not changed, tuple(deviations), tuple(changed), plan.digest)


def _text(value: Any) -> str:
    """Return a value as people read it: nothing for what is not there, objects without brackets, digests cut short."""
    if value is None or value == []:
        return "nothing"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return " and ".join(f"({_text(item)})" for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item is not None)
    text = value if isinstance(value, str) else storage.canonical_json(value)
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return f"the problems {text[:12]}"
    return text
