"""``evaluate`` and ``verdict``: the sweep, the rule of selection, the test, and the statistics."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Machine, Section


class SampleSettings(Section):
    """How many episodes are played per problem, and with which seed."""

    samples: int = Field(4, ge=1, description="episodes per problem")
    seed: int = Field(1000, ge=0, description="sampling seed, the same for every checkpoint")


class HeldOutSettings(SampleSettings):
    """The same for the test; what is left out has the test's own default."""

    samples: int = Field(8, ge=1, description="episodes per problem")
    seed: int = Field(2000, ge=0, description="sampling seed, the same for every team")


class RayNodes(Section):
    """A Ray cluster, whose nodes play the checkpoints of the sweep."""

    address: str = Field("auto", min_length=1, description="address of the cluster; auto: the cluster of this machine")
    cpus: int = Field(1, ge=1, description="CPUs that a checkpoint takes of a node")
    gpus: int = Field(0, ge=0, description="GPUs that a checkpoint takes of a node")


class Guard(Section):
    """A limit that a checkpoint must keep to be selected, for any value of its primary metric."""

    metric: str = Field(min_length=1, description="a metric of the environment")
    better: Literal["higher", "lower"] = Field("higher", description="which direction of the metric is good")
    limit: float | None = Field(None, description="worst accepted mean")
    slack: float | None = Field(None, ge=0, description="accepted difference from the base's mean in the bad direction")

    @model_validator(mode="after")
    def _guards_something(self) -> Self:
        if self.limit is None and self.slack is None:
            raise ValueError(f"the guard on '{self.metric}' accepts everything; set limit, slack or both")
        return self


class EvaluateSettings(Section):
    """Sweep on the validation split, rule of selection, one test on the held-out split."""

    metric: str = Field(
        "reward",
        description="primary metric: one of the environment's, or reward; the default comes from the environment",
    )
    validation: SampleSettings = Field(SampleSettings(), description="episodes of the sweep, on the validation split")
    test: HeldOutSettings = Field(HeldOutSettings(), description="episodes of the test, on the held-out split")
    select: Literal["best_mean", "one_standard_error"] = Field(
        "best_mean",
        description="checkpoint with the best validation mean, or the earliest one within one standard error of it",
    )
    guards: tuple[Guard, ...] = Field(
        (),
        description="limits that a checkpoint must keep to be selected (form, activity, behaviour); the default comes "
        "from the environment",
    )
    identical_share: float = Field(
        0.95,
        gt=0,
        le=1,
        description="largest accepted share of episodes that are equal in every recorded respect, over all problems",
    )
    pass_k: tuple[int, ...] = Field(
        (1, 4, 8), description="values of k for pass@k, pass^k and accuracy@k, at most test.samples"
    )
    baselines: tuple[Literal["naive_concatenation", "sequential_pipeline", "one_round_discussion"], ...] = Field(
        ("sequential_pipeline", "one_round_discussion"),
        description="further protocols in which the untrained base plays the test split; [] for none",
    )

    contributions: int = Field(
        1,
        ge=0,
        description="episodes per test problem in which the selected team also plays without some of its agents, to "
        "show who contributes how much (Shapley values up to four agents, and removal); 0 for none",
    )

    cross_play: bool = Field(
        False,
        description="also test teams in which one agent comes from another training run, or from the base: do agents "
        "understand the task, or only each other? One more comparison, and as many episodes as two more teams",
    )

    equal_effort: int = Field(
        0,
        ge=0,
        description="also compare the selected team with the trained single agent at equal tokens of the test: the "
        "one with more tokens per episode makes so many attempts, the other as many as these tokens allow, and each "
        "keeps the one that looks best to agents; 0: no such comparison",
    )

    ray: Machine[RayNodes | None] = Field(
        None, description="play the checkpoints of the sweep on the nodes of a Ray cluster; null: on this machine"
    )

    @model_validator(mode="before")
    @classmethod
    def _default_k(cls, values: Any) -> Any:
        """Leave out the default values of k for which the test plays too few episodes."""
        test = values.get("test") if isinstance(values, dict) and "pass_k" not in values else None
        samples = test.get("samples") if isinstance(test, dict) else None
        if not isinstance(samples, int) or samples < 1:
            return values
        return {**values, "pass_k": [k for k in cls.model_fields["pass_k"].default if k <= samples]}

    @model_validator(mode="after")
    def _k_episodes_are_played(self) -> Self:
        if wrong := [k for k in self.pass_k if k < 1]:
            raise ValueError(f"pass_k has {wrong[0]}; k is a number of episodes, at least 1")
        if (largest := max(self.pass_k, default=0)) > self.test.samples:
            raise ValueError(
                f"pass_k has {largest}, and the test plays {self.test.samples} episodes per problem; raise "
                f"evaluate.test.samples to {largest}, or set evaluate.pass_k to "
                f"{[k for k in self.pass_k if k <= self.test.samples] or [1]}"
            )
        return self

    @model_validator(mode="after")
    def _attempts_are_played(self) -> Self:
        if self.equal_effort > self.test.samples:
            raise ValueError(
                f"equal_effort asks for {self.equal_effort} attempts, and the test plays {self.test.samples} episodes "
                f"per problem; raise evaluate.test.samples, or set evaluate.equal_effort to {self.test.samples}"
            )
        return self

    @model_validator(mode="after")
    def _baselines_once(self) -> Self:
        if repeated := [name for name in self.baselines if self.baselines.count(name) > 1]:
            raise ValueError(f"baselines has {repeated[0]} more than once; each protocol is tested once")
        return self


class VerdictSettings(Section):
    """Significance; all of it is fixed before the sweep."""

    alpha: float = Field(0.05, gt=0, lt=0.5, description="family-wise error rate")
    margin: float = Field(0.05, gt=0, description="smallest difference of the primary metric that matters")
    power: float = Field(
        0.8, gt=0.5, lt=1, description="power for which detectable effects and needed sample sizes are computed"
    )
    resamples: int = Field(10_000, ge=200, description="bootstrap resamples")
    seed: int = Field(0, ge=0, description="seed of the resampling")
