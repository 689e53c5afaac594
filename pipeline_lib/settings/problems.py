"""``problems``: where problems come from and how they are split."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import FileName, Section


class SplitSizes(Section):
    """How many problems each split holds."""

    train: int = Field(1024, ge=1, description="problems to learn from")
    validation: int = Field(64, ge=1, description="problems on which checkpoints are compared")
    test: int = Field(128, ge=1, description="problems for the verdict; every look at them is counted")


class GeneratedProblems(Section):
    """Seeded two-function coding problems; neither agent sees enough to solve one alone."""

    kind: Literal["generated"] = "generated"
    seed: int = Field(7, ge=0, description="seed of the generator and of the split")
    levels: tuple[int, ...] = Field((1,), min_length=1, description="difficulty levels to draw from, 1 (easiest) to 4")
    sizes: SplitSizes = SplitSizes()
    visible_tests: int = Field(2, ge=0, le=16, description="tests whose results may be shown as feedback")
    hidden_tests: int = Field(6, ge=1, le=32, description="tests that give reward and verdict")

    @model_validator(mode="after")
    def _levels_exist(self) -> GeneratedProblems:
        if wrong := [level for level in self.levels if not 1 <= level <= 4]:
            raise ValueError(f"there is no level {wrong[0]}; levels are 1, 2, 3 and 4")
        return self


class DatasetProblems(Section):
    """A published coding dataset, from the hub or a local file, with the fields it was published with."""

    kind: Literal["humaneval", "coophumaneval", "mbpp"]
    source: FileName = Field(
        "",
        description="hub id or path of a .jsonl, .jsonl.gz, .json or .parquet file; empty means the published hub id",
    )
    revision: str = Field("main", description="hub revision (branch, tag or commit)")
    seed: int = Field(7, ge=0, description="seed of the split")
    validation: float = Field(0.15, gt=0, lt=1, description="share of problems on which checkpoints are compared")
    test: float = Field(
        0.25, gt=0, lt=1, description="share of problems for the verdict; every look at them is counted"
    )
    visible_tests: int = Field(
        1, ge=0, le=16, description="first tests of a problem, shown as feedback and not rewarded"
    )

    @model_validator(mode="after")
    def _something_to_train_on(self) -> DatasetProblems:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation ({self.validation}) and test ({self.test}) leave no problem to train on; "
                "their sum must be below 1"
            )
        return self


class ScenarioFamily(Section):
    """A population of philosophers' tables; every scenario is one draw from it."""

    philosophers: tuple[int, ...] = Field((5,), min_length=1, description="table sizes, 2 to 50; they take turns")
    graphs: tuple[Literal["ring", "chain", "grid"], ...] = Field(
        ("ring",), min_length=1, description="who shares a fork with whom; they take turns"
    )
    labels: Literal["seat", "shuffled", "anonymous"] = Field(
        "seat", description="philosophers go by their seat's number, by numbers drawn at random, or by none"
    )
    priority: Literal["seat", "shuffled"] = Field(
        "shuffled", description="who wins a contested fork: the lower seat, or an order drawn at random"
    )
    held: float = Field(0.3, ge=0, le=1, description="chance that a philosopher starts with a fork in hand")
    eating_time: tuple[int, ...] = Field((1,), min_length=1, description="steps a meal lasts; one of these is drawn")
    horizon: tuple[int, ...] = Field((30,), min_length=1, description="steps of an episode; one of these is drawn")
    wordings: int = Field(1, ge=1, le=3, description="ways in which the prompt may be worded")

    @model_validator(mode="after")
    def _playable(self) -> ScenarioFamily:
        for name, values, low, high in (
            ("philosophers", self.philosophers, 2, 50),
            ("eating_time", self.eating_time, 1, 100),
            ("horizon", self.horizon, 1, 10_000),
        ):
            if wrong := [value for value in values if not low <= value <= high]:
                raise ValueError(f"{name}: got {wrong[0]}; accepted: {low} to {high}")
        return self


class ScenarioProblems(Section):
    """Seeded scenarios of dining philosophers, with families that training never sees."""

    kind: Literal["scenarios"] = "scenarios"
    seed: int = Field(7, ge=0, description="seed of the draws")
    sizes: SplitSizes = SplitSizes(train=512, validation=64, test=128)
    family: ScenarioFamily = Field(ScenarioFamily(), description="what train, validation and test are drawn from")
    ood: dict[str, ScenarioFamily] = Field(
        {}, description="families by name that are drawn for the split ood: measured, never trained or selected on"
    )
    ood_size: int = Field(64, ge=1, description="scenarios per family of the split ood")
    published_test: tuple[int, ...] = Field(
        (),
        description="table sizes of DPBench's published condition that make up the test split; empty: drawn like train",
    )

    @model_validator(mode="after")
    def _published_sizes(self) -> ScenarioProblems:
        if wrong := [n for n in self.published_test if not 2 <= n <= 50]:
            raise ValueError(f"published_test: got {wrong[0]}; accepted: 2 to 50")
        return self


Problems = Annotated[GeneratedProblems | DatasetProblems | ScenarioProblems, Field(discriminator="kind")]
