"""Check that the plan was followed, and that it did not change between sweep and verdict.

Plans are compared as JSON over all fields, so a new field of `Plan` is compared automatically.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.evaluation.results import Result

if TYPE_CHECKING:
    from pipeline_lib.evaluation.plan import Plan


@dataclass(frozen=True, slots=True)
class Change(Result):
    """One difference between two plans.

    Attributes:
        key: name of the field, dotted for nested objects, for example ``play.sampling.temperature``.
        before: its value in the first plan, as JSON; None if that plan does not have it.
        after: its value in the second.
    """

    key: str
    before: Any
    after: Any

    def words(self, pattern: str = "{key} from {before} to {after}") -> str:
        """Return the change in words; of lists of objects, only the items that differ."""
        before, after = self.before, self.after
        if isinstance(before, list) and isinstance(after, list) and any(isinstance(x, dict) for x in before + after):
            before, after = [x for x in before if x not in after], [x for x in after if x not in before]
            if not before and not after:
                before, after = self.before, self.after  # another order
        return pattern.format(key=self.key, before=_text(before), after=_text(after))


def changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[Change]:
    """Return the differences between two plans (as JSON, `Plan.to_json`), in the order of their fields."""
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
    """Whether a result followed its plan, and whether the plan was fixed in advance.

    Attributes:
        followed: whether there are neither deviations nor changes.
        deviations: one sentence per deviation from the plan.
        changed: one sentence per change of the plan after checkpoints were swept or the test split was looked at.
        plan: digest of the plan.
    """

    followed: bool
    deviations: tuple[str, ...]
    changed: tuple[str, ...]
    plan: str


def check_plan(
    done: Plan,
    plan: Plan,
    selected: Mapping[str, int] | None = None,
    carried: Mapping[str, Mapping[str, Any]] | None = None,
    changed: Sequence[str] = (),
) -> PlanCheck:
    """Compare a result with its plan.

    Args:
        done: the actual design as a plan, from the present settings and the results.
        plan: the plan.
        selected: step tested, by training seed.
        carried: by name of an input of the result (for example ``the test``), the plan (as JSON) under which that input
            was made.
        changed: further changes of the plan, in words; see `looks`.
    """
    planned = plan.to_json()
    deviations = [
        change.words("{key}: planned {before}, done {after}")
        for change in changes(planned, done.to_json())
        if not _was_stopped(change, plan)
    ]
    for seed, step in (selected or {}).items():
        if step not in planned["checkpoints"].get(seed, ()):
            deviations.append(f"selected: step {step} of training seed {seed} is not among the planned checkpoints")
    elsewhere: dict[str, list[str]] = {}
    for name, under in (carried or {}).items():
        for change in changes(under, planned):
            elsewhere.setdefault(change.words("{key} was {before} then and is {after} now"), []).append(name)
    deviations += [f"made under another plan ({', '.join(names)}): {words}" for words, names in elsewhere.items()]
    return PlanCheck(not deviations and not changed, tuple(deviations), tuple(changed), plan.digest)


def as_planned(done: Plan, plan: Plan) -> Plan:
    """Return a design with the planned checkpoints of training runs that a monitor was allowed to end, and ended.

    Such a run has the first of its checkpoints only, as the plan foresees; that makes it no other plan.
    """
    stopped = {
        change.key.partition(".")[2] for change in changes(plan.to_json(), done.to_json()) if _was_stopped(change, plan)
    }
    checkpoints = {seed: plan.checkpoints[seed] if seed in stopped else own for seed, own in done.checkpoints.items()}
    return dataclasses.replace(done, checkpoints=checkpoints)


def _was_stopped(change: Change, plan: Plan) -> bool:
    """Return whether a training run has fewer checkpoints because monitors of the plan were allowed to end it."""
    if not plan.stop_training_when or not change.key.startswith("checkpoints.") or not change.after:
        return False
    return list(change.before[: len(change.after)]) == list(change.after)


def _text(value: Any) -> str:
    """Return a value in words: ``nothing`` for None, objects without brackets, digests shortened."""
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
