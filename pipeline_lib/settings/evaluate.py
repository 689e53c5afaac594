"""``evaluate`` and ``verdict``: the sweep, the rule of selection, the test, and the statistics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Section


class SampleSettings(Section):
    """How many actions are sampled per problem, from which seed."""

    samples: int = Field(4, ge=1, description="episodes per problem")
    seed: int = Field(1000, ge=0, description="sampling seed, the same for every checkpoint")


class Guard(Section):
    """What a checkpoint must keep to be selected, whatever its primary metric says."""

    metric: str = Field(min_length=1, description="a metric of the environment")
    better: Literal["higher", "lower"] = Field("higher", description="which direction is good")
    limit: float | None = Field(None, description="the worst mean that is accepted")
    slack: float | None = Field(None, ge=0, description="how much worse than the base's mean is accepted")

    @model_validator(mode="after")
    def _guards_something(self) -> Guard:
        if self.limit is None and self.slack is None:
            raise ValueError(f"the guard on '{self.metric}' accepts everything; set limit, slack or both")
        return self


class EvaluateSettings(Section):
    """Sweep on the validation split, selection by a rule fixed here, one test on the held-out split."""

    metric: str = Field("reward", description="primary metric, one of the environment's; by default the one it names")
    validation: SampleSettings = SampleSettings(samples=4, seed=1000)
    test: SampleSettings = SampleSettings(samples=8, seed=2000)
    select: Literal["best_mean", "one_standard_error"] = Field(
        "best_mean",
        description="best validation mean, or the earliest checkpoint within one standard error of it",
    )
    guards: tuple[Guard, ...] = Field(
        (),
        description="what a checkpoint must keep to be selected (form, activity, behaviour); by default what the "
        "environment asks",
    )
    identical_share: float = Field(
        0.95,
        gt=0,
        le=1,
        description="largest share of episodes that may be equal in all that is recorded, whatever the problem",
    )
    pass_k: tuple[int, ...] = Field((1, 4, 8), description="for which k pass@k, pass^k and accuracy@k are given")
    baselines: tuple[Literal["naive_concatenation", "sequential_pipeline", "one_round_discussion"], ...] = Field(
        ("sequential_pipeline", "one_round_discussion"),
        description="protocols that the untrained base plays on the test split beside its own; [] leaves them out",
    )

    @model_validator(mode="after")
    def _k_positive(self) -> EvaluateSettings:
        if wrong := [k for k in self.pass_k if k < 1]:
            raise ValueError(f"pass_k has {wrong[0]}; k is a number of episodes, at least 1")
        return self

    @model_validator(mode="after")
    def _baselines_once(self) -> EvaluateSettings:
        if repeated := [name for name in self.baselines if self.baselines.count(name) > 1]:
            raise ValueError(f"baselines has {repeated[0]} more than once; each protocol is tested once")
        return self


class VerdictSettings(Section):
    """Significance: everything here is fixed before the sweep."""

    alpha: float = Field(0.05, gt=0, lt=0.5, description="family-wise error rate")
    margin: float = Field(0.05, gt=0, description="smallest difference of the primary metric that would matter")
    power: float = Field(0.8, gt=0.5, lt=1, description="power at which detectable effects and needed sizes are given")
    resamples: int = Field(10_000, ge=200, description="bootstrap and permutation resamples")
    seed: int = Field(0, ge=0, description="seed of the resampling")
