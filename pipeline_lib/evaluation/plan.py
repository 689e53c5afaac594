"""What will be measured and how, written down before the sweep; afterwards, whether it was done.

A plan is a small JSON file that carries the digest of its own content.  Every result names the digest of the plan it
was made under and describes its design in the same words, so `check_plan` can compare the two key by key.  The stop
rule is fixed: the test split is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import problems_digest

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings

VERSION = 1


@dataclass(frozen=True, slots=True)
class Plan(Result):
    """Everything that is fixed before the first checkpoint is evaluated.

    Attributes:
        version: version of this format.
        metric: the one primary metric.
        select: rule of selection.
        guards: guards of selection, as JSON objects.
        identical_share: largest share of identical episodes accepted.
        training_seeds: one training run each.
        checkpoints: steps evaluated, by training seed.
        validation_problems: digest of the validation problems' ids.
        validation_size: their number.
        validation_samples: episodes per problem.
        validation_seed: sampling seed.
        test_problems: digest of the test problems' ids.
        test_size: their number.
        test_samples: episodes per problem.
        test_seed: sampling seed.
        comparisons: what the selected team is compared with on the test split, the primary one first.
        outside: which of them are left outside the family of comparisons, and why; decided before anything is tested.
        alpha: family-wise error rate.
        margin: smallest difference that would matter.
        correction: how the family is corrected.
        power: power at which detectable effects are given.
        resamples: bootstrap and permutation resamples.
        resampling_seed: their seed.
        stop_rule: when to stop: ``fixed`` is one look at a fixed number of episodes.
    """

    metric: str
    select: str
    guards: tuple[Mapping[str, Any], ...]
    identical_share: float
    training_seeds: tuple[int, ...]
    checkpoints: Mapping[str, Sequence[int]]
    validation_problems: str
    validation_size: int
    validation_samples: int
    validation_seed: int
    test_problems: str
    test_size: int
    test_samples: int
    test_seed: int
    comparisons: tuple[str, ...]
    outside: Mapping[str, str]
    alpha: float
    margin: float
    power: float
    resamples: int
    resampling_seed: int
    correction: str = "holm"
    stop_rule: str = "fixed"
    version: int = VERSION

    @property
    def digest(self) -> str:
        """SHA-256 of the content; every result carries it."""
        return storage.digest(Result.to_json(self))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object, with its digest; what `read_plan` expects in the file."""
        return {**Result.to_json(self), "digest": self.digest}

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        storage.write_json(path, self.to_json())


def make_plan(
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
    checkpoints: Mapping[int, Sequence[int]],
    problems: Mapping[str, Sequence[str]],
    comparisons: Sequence[str] = ("base", "last"),
    outside: Mapping[str, str] | None = None,
) -> Plan:
    """Fix the plan of a sweep and its test.

    Args:
        evaluate: settings of sweep and test.
        verdict: settings of significance.
        checkpoints: steps that will be evaluated, by training seed.
        problems: ids of the problems of ``validation``, ``test`` and, if known, ``train``.
        comparisons: names of the teams the selected one will be compared with, the primary first.
        outside: which of them are left outside the family, and why.

    Raises:
        EvaluationError: no checkpoints, a split without problems, or a problem in two splits.
    """
    if not checkpoints or not all(checkpoints.values()):
        raise EvaluationError(
            "there are no checkpoints to plan for; train first, with train.checkpoint_every at most train.steps"
        )
    for split in ("validation", "test"):
        if not problems.get(split):
            raise EvaluationError(f"the {split} split has no problems; give it some in problems.sizes")
    refuse_overlap(problems)
    return Plan(
        metric=evaluate.metric,
        select=evaluate.select,
        guards=tuple(guard.model_dump(mode="json") for guard in evaluate.guards),
        identical_share=evaluate.identical_share,
        training_seeds=tuple(sorted(checkpoints)),
        checkpoints={str(seed): sorted(steps) for seed, steps in sorted(checkpoints.items())},
        validation_problems=problems_digest(problems["validation"]),
        validation_size=len(set(problems["validation"])),
        validation_samples=evaluate.validation.samples,
        validation_seed=evaluate.validation.seed,
        test_problems=problems_digest(problems["test"]),
        test_size=len(set(problems["test"])),
        test_samples=evaluate.test.samples,
        test_seed=evaluate.test.seed,
        comparisons=tuple(comparisons),
        outside=dict(outside or {}),
        alpha=verdict.alpha,
        margin=verdict.margin,
        power=verdict.power,
        resamples=verdict.resamples,
        resampling_seed=verdict.seed,
    )


def refuse_overlap(problems: Mapping[str, Sequence[str]]) -> None:
    """Raise EvaluationError, naming a culprit, when a problem is in two splits."""
    names = list(problems)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            if shared := sorted(set(problems[first]) & set(problems[second])):
                raise EvaluationError(
                    f"{len(shared)} problems are in both {first} and {second}, for example {shared[0]}: a choice made "
                    "on problems cannot be tested on the same ones. Prepare the splits again"
                )


def read_plan(path: Path) -> Plan:
    """Read a plan and check its digest.

    Raises:
        EvaluationError: there is none, it is of another version, or it was edited after it was written.
    """
    try:
        content = storage.read_json(path)
    except FileNotFoundError:
        raise EvaluationError(
            f"{path}: there is no plan; it is written before the sweep, run the sweep again"
        ) from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise EvaluationError(f"{path}: not a plan of version {VERSION}; run the sweep again")
    recorded = content.pop("digest", "")
    if recorded != storage.digest(content):
        raise EvaluationError(
            f"{path}: the plan was changed after it was written (its digest does not match). Restore it with "
            "`dvc checkout`, or run the sweep again under a new plan"
        )
    lists = ("guards", "training_seeds", "comparisons")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in content.items()}
    return Plan(**fields)


@dataclass(frozen=True, slots=True)
class PlanCheck(Result):
    """Whether a result followed its plan.

    Attributes:
        followed: it did.
        deviations: one sentence per thing that was done differently.
        plan: digest of the plan.
    """

    followed: bool
    deviations: tuple[str, ...]
    plan: str


def check_plan(result: Mapping[str, Any], plan: Plan) -> PlanCheck:
    """Compare the ``design`` of a result (of `select` or `summarise_test`, as JSON) with the plan.

    Also compared, where the result has it: ``plan``, the digest of the plan it says it was made under.
    """
    deviations = []
    if "plan" in result and (made_under := _digest_of(result["plan"])) != plan.digest:
        deviations.append(
            f"the result was made under another plan ({made_under[:12]}) than this one ({plan.digest[:12]}): the plan "
            "was changed after the sweep"
        )
    design = result.get("design")
    if not design:
        return PlanCheck(False, (*deviations, "the result does not say how it was made"), plan.digest)
    planned = plan.to_json()
    for key, done in design.items():
        if key == "selected":
            deviations.extend(_unplanned_steps(done, planned["checkpoints"]))
        elif key not in planned:
            deviations.append(f"{key}: {_short(done)} was not planned at all")
        elif done != planned[key]:
            deviations.append(f"{key}: planned {_short(planned[key])}, done {_short(done)}")
    return PlanCheck(not deviations, tuple(deviations), plan.digest)


def _unplanned_steps(selected: Mapping[str, int], checkpoints: Mapping[str, Sequence[int]]) -> list[str]:
    return [
        f"selected: step {step} of training seed {seed} is not among the planned checkpoints"
        for seed, step in selected.items()
        if step not in checkpoints.get(seed, ())
    ]


def _digest_of(value: Any) -> str:
    return str(value.get("plan", "")) if isinstance(value, Mapping) else str(value)


def _short(value: Any) -> str:
    text = storage.canonical_json(value) if not isinstance(value, str) else value
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return f"the problems {text[:12]}"
    return text if len(text) <= 80 else f"{text[:77]}..."
