"""How often a test split was used, and what changed in the plan between these looks.

A look is a set of test episodes evaluated under a plan.  The same episodes under the same plan are the same look, no
matter how often they are computed.  Another plan, other weights or other episodes are another look, because each gives
another chance of a false positive.  Looks count for every split that shares a problem with theirs, independent of the
problems' ids.  `look_correction` corrects p values for several looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.plan import changes
from pipeline_lib.evaluation.results import Result


@dataclass(frozen=True, slots=True)
class Look(Result):
    """One look at a test split."""

    plan: Mapping[str, Any]  #: the plan under which it was made, as JSON
    weights: Mapping[str, Any]  #: digest of every checkpoint tested, by training run and role
    problems: tuple[str, ...]  #: content hash of each test problem
    episodes: str  #: digest of all episodes; empty if the test began and did not end
    run: str  #: name of the run
    commit: str  #: commit of the code
    time: str  #: when it was recorded, ISO 8601 in UTC

    @property
    def begun(self) -> str:
        """SHA-256 of the inputs of the look: plan, weights and problems."""
        return storage.digest([self.plan["digest"], self.weights, sorted(self.problems)])

    @property
    def identity(self) -> str:
        """SHA-256 of the look: of its inputs and its episodes, not of run and time."""
        return storage.digest([self.begun, self.episodes])


@dataclass(frozen=True, slots=True)
class Sweep(Result):
    """One sweep of a training run's checkpoints on the validation split, after which the plan may not change."""

    plan: Mapping[str, Any]  #: the plan under which it was made, as JSON
    name: str  #: which training run
    checkpoints: tuple[str, ...]  #: digests of the weights swept, without those of step 0
    run: str  #: name of the run
    time: str  #: when it was recorded, ISO 8601 in UTC
    problems: tuple[str, ...] = ()  #: content hash of each validation problem

    @property
    def identity(self) -> str:
        """SHA-256 of the sweep, without run and time."""
        return storage.digest([self.plan["digest"], self.name, sorted(self.checkpoints), sorted(self.problems)])


def looks_at(problems: Iterable[str], known: Iterable[Look]) -> list[Look]:
    """Return the looks at any of these problems (content hashes), in order of time, each once.

    A test that ended replaces the record of its beginning.
    """
    wanted, known = set(problems), list(known)
    ended = {look.begun for look in known if look.episodes}
    distinct = {
        look.identity: look
        for look in sorted(known, key=lambda look: (look.time, look.identity), reverse=True)
        if wanted & set(look.problems) and (look.episodes or look.begun not in ended)
    }
    return list(reversed(distinct.values()))


def history(problems: Sequence[str], known: Iterable[Look]) -> list[dict[str, Any]]:
    """Return the looks at any of these problems as JSON objects, each with the changes since the one before.

    Returns:
        By look, in order of time: its number, ``time``, ``run``, ``commit``, ``plan`` (digest), ``ended``, ``shared``
        (number of the problems in the look), ``changed`` (each a `Change`) and the changes in ``words``.
    """
    rows: list[dict[str, Any]] = []
    before: Look | None = None
    for number, look in enumerate(looks_at(problems, known), start=1):
        changed = changes(before.plan, look.plan) if before else []
        words = [change.words() for change in changed]
        if before and look.weights != before.weights:
            words.append("other weights")
        elif before and not changed:
            words.append("other episodes")
        rows.append(
            {
                "look": number,
                "time": look.time,
                "run": look.run,
                "commit": look.commit,
                "plan": look.plan["digest"],
                "ended": bool(look.episodes),
                "shared": len(set(look.problems) & set(problems)),
                "changed": [change.to_json() for change in changed],
                "words": "; ".join([*words, *([] if look.episodes else ["interrupted"])]),
            }
        )
        before = look
    return rows


def changed_plans(known: Iterable[Look], sweeps: Iterable[Sweep], this: Look, swept: Collection[str]) -> list[str]:
    """Describe changes of the plan after looks or sweeps, each as a sentence without a full stop.

    ``known`` looks and ``sweeps`` are all that were recorded; the result is based on the look ``this``.  ``swept`` are
    the digests of the present checkpoints, without those of step 0.
    """
    order = looks_at(this.problems, known)
    found = [
        f"the plan was changed after look {i + 1} at this test split: {_joined(order[i].plan, order[i + 1].plan)}"
        for i in range(len(order) - 1)
        if order[i].plan["digest"] != order[i + 1].plan["digest"]
    ]
    reported = {look.plan["digest"] for look in order}
    own = [sweep for sweep in sweeps if set(sweep.checkpoints) & set(swept)]
    since = min((sweep.time for sweep in own if sweep.plan["digest"] == this.plan["digest"]), default=this.time)
    for sweep in sorted(own, key=lambda sweep: sweep.time):
        if sweep.plan["digest"] not in reported and sweep.time < since:
            reported.add(sweep.plan["digest"])
            found.append(
                f"the plan was changed after its checkpoints had been swept ({sweep.name}): "
                f"{_joined(sweep.plan, this.plan)}"
            )
    return found


def seen_in_validation(problems: Collection[str], sweeps: Iterable[Sweep]) -> list[str]:
    """Describe sweeps in which test problems were validation problems, each as a sentence without a full stop.

    A sweep evaluates every checkpoint on its validation problems.  If they are later moved to the test split, their
    results are known although no look was counted.
    """
    runs: dict[str, set[str]] = {}
    for sweep in sorted(sweeps, key=lambda sweep: sweep.time):
        if shared := set(problems) & set(sweep.problems):
            runs.setdefault(sweep.run, set()).update(shared)
    return [
        f"{len(shared)} of the {len(problems)} test problems were validation problems of run {run}, which its sweep saw"
        for run, shared in runs.items()
    ]


def _joined(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return "; ".join(change.words() for change in changes(before, after))
