"""How often a test split was used, and what changed in the plan between these looks.

A look is a set of test episodes evaluated under a plan.  The same episodes under the same plan are the same look, no
matter how often they are computed.  Another plan, other weights or other episodes are another look, because each gives
another chance of a false positive.  Looks count for every split that shares a problem with theirs, independent of the
problems' ids.

The correction of p values (`correct_for_looks`) is Bonferroni's over all looks made so far: p times their number.  It
is valid for any dependence between looks, needs no number of looks that is fixed in advance, and does not change a
single look.  It assumes that no further looks follow: if one corrects the k-th look for k and stops at the first
significant result, the error rate can reach 1 + 1/2 + ... + 1/k times alpha.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.comparison import EQUIVALENT, INCONCLUSIVE
from pipeline_lib.evaluation.plan import changes
from pipeline_lib.evaluation.results import Result
from pipeline_lib.evaluation.sentences import p_text


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


def correct_for_looks(
    known: Iterable[Look], this: Look, result: Mapping[str, Any], alpha: float, since: str = ""
) -> dict[str, Any]:
    """Return the report on looks for the ``result`` of `summarise_test`, as a JSON object.

    ``known`` are all recorded looks, ``this`` one included.  ``since`` says, as a sentence, since when looks are
    counted, and what other repositories are known to have.

    Returns:
        ``number`` of this look and ``count`` of all, their ``history``, ``p`` (by comparison: the plain p value of its
            verdict, after the correction for the family, and the same corrected for looks, or None), ``unsupported``
            (comparisons whose verdict is significant before and not after that), ``sentence`` (empty if this look is
            the only one), ``since`` and ``not_counted`` (empty).
    """
    known, comparisons = list(known), result["comparisons"]
    plain = {name: _p(comparison) for name, comparison in comparisons.items()}
    order = looks_at(this.problems, known)
    number = 1 + [look.identity for look in order].index(this.identity)
    return {
        "number": number,
        "count": len(order),
        "history": history(this.problems, known),
        "p": {n: {"plain": p, "for_looks": None if p is None else min(1.0, p * len(order))} for n, p in plain.items()},
        "unsupported": [
            name
            for name, p in plain.items()
            if p is not None and p <= alpha < p * len(order) and comparisons[name]["verdict"] != INCONCLUSIVE
        ],
        "sentence": _sentence(number, order, this, comparisons, alpha) if len(order) > 1 else "",
        "since": since,
        "not_counted": "",
    }


def not_counted(reason: str) -> dict[str, Any]:
    """Return the report for a result whose looks cannot be recorded; see `correct_for_looks`."""
    empty: dict[str, Any] = {
        "number": None,
        "count": None,
        "history": [],
        "p": {},
        "unsupported": [],
        "sentence": "",
        "since": "",
    }
    return {**empty, "not_counted": f"Looks at this test split are not counted: {reason}"}


def _p(comparison: Mapping[str, Any]) -> float | None:
    """Return the p value on which a comparison's verdict is based, corrected for the family of comparisons."""
    equivalent = comparison["verdict"] == EQUIVALENT
    p: float | None = comparison["equivalence_p_adjusted" if equivalent else "p_adjusted"]
    return p


def _sentence(number: int, order: Sequence[Look], this: Look, comparisons: Mapping[str, Any], alpha: float) -> str:
    count, problems = len(order), set(this.problems)
    primary = next(iter(comparisons.values()))
    p = _p(primary)
    head = f"This is look {number} of {count} at problems of this test split"
    shared = [len(problems & set(look.problems)) for look in order if look.identity != this.identity]
    if min(shared) < len(problems):  # as of another seed of generated problems
        least = f"{min(shared)} to " if min(shared) < max(shared) else ""
        head += f" ({least}{max(shared)} of its {len(problems)} problems in each of the others)"
    if p is None:
        return f"{head}; there is no p value to correct for them."
    corrected = min(1.0, p * count)
    what = " for a greater difference" if primary["verdict"] == EQUIVALENT else ""
    text = f"{head}; corrected for {count} looks, {p_text(corrected)}{what}"
    if p <= alpha < corrected and primary["verdict"] != INCONCLUSIVE:
        text += f", above alpha = {alpha:g}: all looks together do not support the verdict"
    return f"{text}."
