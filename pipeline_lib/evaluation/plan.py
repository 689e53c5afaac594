"""The plan of the evaluation, written before the sweep.

A plan is a small JSON file that contains the digest of its own content.  Every result made under a plan stores a copy
of it, so `check_plan` can find deviations later, and `looks` can find changes after a look at the test split.

Check that the plan was followed, and that it did not change between sweep and verdict.

Plans are compared as JSON over all fields, so a new field of `Plan` is compared automatically.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.evaluation.results import EvaluationError, Result

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings


VERSION = 4


def problems_digest(problems: Iterable[str]) -> str:
    """Return the digest of the sorted ids of a split's problems."""
    return storage.digest(sorted(set(problems)))


class SealedPlan(Result):
    """A plan whose file holds the digest of its content."""

    __slots__ = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the content; every result carries it."""
        return storage.digest(Result.to_json(self))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object with its digest."""
        return {**Result.to_json(self), "digest": self.digest}

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        storage.write_json(path, self.to_json())


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Return whether the content of a plan's file is what its digest is of."""
    try:
        return content.get("digest") == storage.digest({key: content[key] for key in content if key != "digest"})
    except ValueError:  # a number that is not finite, which no plan has
        return False


@dataclass(frozen=True, slots=True)
class Plan(SealedPlan):
    """Everything that is fixed before the first checkpoint is evaluated."""

    metric: str  #: the one primary metric
    select: str  #: rule of selection
    guards: tuple[Mapping[str, Any], ...]  #: guards of selection, as JSON objects
    identical_share: float  #: largest share of identical episodes accepted
    training_seeds: tuple[int, ...]  #: one training run each
    single_agent_seeds: tuple[int, ...]  #: training runs of the single-agent baseline; empty without one
    single_agent_budget: str  #: what the single agent is given as much of as the team; empty without one
    checkpoints: Mapping[str, Sequence[int]]  #: steps evaluated, by training seed
    #: How teams play in sweep and test, as JSON: environment with reward, sampling distribution, and limits of
    #: programs.
    play: Mapping[str, Any]
    validation_problems: str  #: digest of the validation problems' ids
    validation_content: str  #: digest of the validation problems, tests included
    validation_size: int  #: their number
    validation_samples: int  #: episodes per problem
    validation_seed: int  #: sampling seed
    test_problems: str  #: digest of the test problems' ids
    test_content: str  #: digest of the test problems, tests included
    test_size: int  #: their number
    test_samples: int  #: episodes per problem
    test_seed: int  #: sampling seed
    #: The teams with which the selected team is compared on the test split, the primary one first.
    comparisons: tuple[str, ...]
    outside: Mapping[str, str]  #: comparisons outside the family, and why; decided before the test
    alpha: float  #: family-wise error rate
    margin: float  #: smallest difference that would matter
    power: float  #: power for which detectable effects are computed
    resamples: int  #: bootstrap resamples
    resampling_seed: int  #: their seed
    statistics: str = ""  #: digest of the code that selects and tests
    correction: str = "holm"  #: correction for the family of comparisons
    stop_rule: str = "fixed"  #: ``fixed``: a fixed number of episodes
    #: Monitors that may end a training run, which then has the first of the checkpoints only.
    stop_training_when: tuple[str, ...] = ()
    version: int = VERSION  #: version of this format


def make_plan(
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
    checkpoints: Mapping[int, Sequence[int]],
    problems: Mapping[str, Sequence[str]],
    contents: Mapping[str, str],
    play: Mapping[str, Any],
    comparisons: Sequence[str] = ("base", "last"),
    single_agent_seeds: Sequence[int] = (),
    single_agent_budget: str = "",
    outside: Mapping[str, str] | None = None,
    **further: Any,
) -> Plan:
    """Fix the plan of a sweep and its test.

    Args:
        evaluate: settings of sweep and test.
        verdict: settings of significance.
        checkpoints: steps that will be evaluated, by training seed.
        problems: ids of the problems of ``validation``, ``test`` and, if known, ``train``.
        contents: digest of everything in the split, for ``validation`` and ``test``.
        play, comparisons, single_agent_seeds, single_agent_budget, outside, further: fields of the plan.

    Raises:
        EvaluationError: no checkpoints, a split without problems, or a problem in two splits.
    """
    if not checkpoints or not all(checkpoints.values()):
        raise EvaluationError(
            "there are no checkpoints to plan for; train first, with train.checkpoint_every at most train.steps"
        )
    splits: dict[str, Any] = {}
    for split, drawn in (("validation", evaluate.validation), ("test", evaluate.test)):
        if not problems.get(split):
            raise EvaluationError(f"the {split} split has no problems; give it some in problems.sizes")
        splits |= {
            f"{split}_problems": problems_digest(problems[split]),
            f"{split}_content": contents[split],
            f"{split}_size": len(set(problems[split])),
            f"{split}_samples": drawn.samples,
            f"{split}_seed": drawn.seed,
        }
    refuse_overlap(problems)
    return Plan(
        metric=evaluate.metric,
        select=evaluate.select,
        guards=tuple(guard.model_dump(mode="json") for guard in evaluate.guards),
        identical_share=evaluate.identical_share,
        training_seeds=tuple(sorted(checkpoints)),
        single_agent_seeds=tuple(sorted(single_agent_seeds)),
        single_agent_budget=single_agent_budget if single_agent_seeds else "",
        checkpoints={str(seed): sorted(steps) for seed, steps in sorted(checkpoints.items())},
        play=play,
        comparisons=tuple(comparisons),
        outside=outside or {},
        alpha=verdict.alpha,
        margin=verdict.margin,
        power=verdict.power,
        resamples=verdict.resamples,
        resampling_seed=verdict.seed,
        **splits,
        **further,
    )


def refuse_overlap(problems: Mapping[str, Sequence[str]]) -> None:
    """Raise EvaluationError with an example if a problem is in two splits."""
    for first, second in itertools.combinations(problems, 2):
        if shared := sorted(set(problems[first]) & set(problems[second])):
            raise EvaluationError(
                f"{len(shared)} problems are in both {first} and {second}, for example {shared[0]}: a choice made on "
                "problems cannot be tested on the same ones. Prepare the splits again"
            )


def read_plan(path: Path) -> Plan:
    """Read a plan and check its digest.

    Raises:
        EvaluationError: it does not exist, has another version, or was edited after it was written.
    """
    try:
        content = storage.read_json(path)
    except FileNotFoundError:
        raise EvaluationError(
            f"{path}: there is no plan; it is written before the sweep, run the sweep again"
        ) from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise EvaluationError(f"{path}: not a plan of version {VERSION}; run the sweep again")
    if not is_sealed(content):
        raise EvaluationError(
            f"{path}: the plan was changed after it was written (its digest does not match). Restore it with "
            "`dvc checkout`, or run the sweep again under a new plan"
        )
    del content["digest"]
    if unknown := {field.name for field in dataclasses.fields(Plan)} ^ set(content):
        raise EvaluationError(f"{path}: not a plan of this version ({', '.join(sorted(unknown))}); run the sweep again")
    return Plan.from_json(content)


@dataclass(frozen=True, slots=True)
class Change(Result):
    """One difference between two plans."""

    key: str  #: name of the field, dotted for nested objects, for example ``play.sampling.temperature``
    before: Any  #: its value in the first plan, as JSON; None if that plan does not have it
    after: Any  #: its value in the second

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
    """Whether a result followed its plan, and whether the plan was fixed in advance."""

    followed: bool  #: whether there are neither deviations nor changes
    deviations: tuple[str, ...]  #: one sentence per deviation from the plan
    #: One sentence per change of the plan after checkpoints were swept or the test split was looked at.
    changed: tuple[str, ...]
    plan: str  #: digest of the plan


def check_plan(
    done: Plan,
    plan: Plan,
    selected: Mapping[str, int] | None = None,
    carried: Mapping[str, Mapping[str, Any]] | None = None,
    changed: Sequence[str] = (),
) -> PlanCheck:
    """Compare a result with its plan.

    ``done`` is the actual design, from the present settings and the results; ``selected`` the step tested, by training
    seed; ``carried`` the plan (as JSON) under which each input of the result (for example ``the test``) was made;
    ``changed`` has further changes of the plan, in words (`looks`).
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
