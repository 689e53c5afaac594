"""Common parts of the ``problems`` sections of several environments."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pipeline_lib.settings.base import FileName, Section


class SplitSizes(Section):
    """Number of problems in each split."""

    train: int = Field(1024, ge=1, description="training problems")
    validation: int = Field(64, ge=1, description="problems on which checkpoints are compared and one is selected")
    test: int = Field(128, ge=1, description="held-out problems for the verdict; every look at them is counted")


Prompt = Literal["compact", "plain"]

#: The setting ``prompt`` of generated problems; `pipeline_lib.settings.params` knows when it is ``plain`` by default.
PROMPT: Any = Field(
    "compact",
    description="compact: lines for the embedded model; plain: English sentences, the default for pretrained ones",
)


class FamilyProblems(Section):
    """Problems that are drawn; all problems of a family are in one split (`pipeline_lib.problems.splitting`)."""

    seed: int = Field(7, ge=0, description="seed of the generator and of the split")
    apart_from: int | None = Field(
        None,
        ge=0,
        description="seed of a split whose validation and test problems are left out: trying is no look at them",
    )

    @model_validator(mode="after")
    def _another_split(self) -> Self:
        if self.apart_from == self.seed:
            raise ValueError(f"apart_from ({self.apart_from}) is the seed itself; give seed another number")
        return self


class PublishedProblems(Section):
    """A published dataset with its published fields, from the hub or a local file."""

    source: FileName = Field(
        "",
        description="hub id or path of a .jsonl, .jsonl.gz, .json or .parquet file; empty means the published hub id",
    )
    revision: str = Field("main", description="hub revision (branch, tag or commit)")
    leave_out: tuple[str, ...] = Field((), description="ids of problems that are not used, such as HumanEval/32")
    seed: int = Field(7, ge=0, description="seed of the split; not used if the rows of a file have the field split")
    validation: float = Field(
        0.15,
        gt=0,
        lt=1,
        description=(
            "share of problems on which checkpoints are compared; shares are not used if the rows of a file have the "
            "field split"
        ),
    )
    test: float = Field(
        0.25, gt=0, lt=1, description="share of problems for the verdict; every look at them is counted"
    )

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation ({self.validation}) and test ({self.test}) leave no problem to train on; "
                "their sum must be below 1"
            )
        return self


class TextProblems(Section):
    """Texts that the environment draws (`pipeline_lib.text_task`)."""

    kind: Literal["texts"] = "texts"
    seed: int = Field(7, ge=0, description="seed of the draws")
    sizes: SplitSizes = SplitSizes(train=256, validation=64, test=128)
