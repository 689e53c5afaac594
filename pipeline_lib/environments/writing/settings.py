"""Settings of the writers: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import FileName, Machine, Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import SplitSizes

Task = Literal["summary", "introduction"]


class JudgeModel(Section):
    """A model on a server with an OpenAI-compatible API that marks two texts from 0 to 10."""

    url: Machine[str] = Field(min_length=1, description="where the API begins, for example http://127.0.0.1:8000/v1")
    model: str = Field(min_length=1, description="its name on the server")
    weight: float = Field(0.3, gt=0, description="what the highest mark adds to the reward of texts without faults")
    key_variable: Machine[str] = Field("", description="environment variable that holds the key; empty for none")
    concurrency: Machine[int] = Field(16, ge=1, description="requests in flight")
    retries: Machine[int] = Field(3, ge=0, description="new tries after a failure; the pause doubles each time")
    timeout: Machine[float] = Field(60.0, gt=0, description="seconds a request may take")
    cache: Machine[str] = Field(
        "", description="folder in which marks are kept; empty: as long as the environment lives"
    )


class SoundWritingReward(Section):
    """Weights of the default reward: what the texts tell of their source decides."""

    kind: Literal["sound"] = "sound"
    coverage: float = Field(2.2, gt=0, description="share of the facts of the source that are told")
    inventions: float = Field(
        1.2, gt=0, description="penalty when as many sentences as there are facts state none of them"
    )
    repeats: float = Field(0.8, ge=0, description="penalty when as many sentences as there are facts repeat one")
    lengths: float = Field(0.15, ge=0, description="words of both texts, and their ratio")
    style: float = Field(0.12, ge=0, description="share of the facts that are told in one style")
    coherence: float = Field(0.12, ge=0, description="neighbouring sentences that tell and share an entity")
    judge: JudgeModel | None = Field(None, description="a further term by a model on a server; null for none")


class PaperWritingReward(Section):
    """The published reward (arXiv 2508.04652), at most 2.98; kept for comparison, the audit refuses it."""

    kind: Literal["paper"] = "paper"
    variant: Literal["paper", "later"] = Field(
        "paper", description="constants of the paper's time, or of later versions"
    )


WritingReward = Annotated[SoundWritingReward | PaperWritingReward | CustomReward, Field(discriminator="kind")]


class WritingEnvironment(EnvironmentSection):
    """Two writers summarise or introduce one text, of which each has seen a part."""

    kind: Literal["writing"] = "writing"
    team: Literal["pair", "single"] = Field(
        "pair", description="pair: a writer for each text; single: one agent sees everything and writes both"
    )
    turns: int = Field(1, ge=1, le=8, description="turns per problem; later ones see the own text and notes on it")
    feedback: Literal["plain", "notes"] = Field(
        "notes", description="what later turns see: the own text, or that and what is counted of it, in words"
    )
    stop_at: float = Field(
        1.0, gt=0, le=1, description="an episode ends early when a turn's reward reaches this share of the greatest one"
    )
    reward: WritingReward = SoundWritingReward()


class GeneratedTexts(Section):
    """Seeded posts or abstracts of which it is known what they say; no writer of a pair sees all of it."""

    kind: Literal["world"] = "world"
    task: Task = Field("summary", description="summary: a short and a long one of a post; introduction: two halves")
    seed: int = Field(7, ge=0, description="seed of the generator and of the split")
    sizes: SplitSizes = SplitSizes()


class PublishedTexts(Section):
    """A published dataset, from the hub or a local file, with the fields it was published with."""

    kind: Literal["tldr", "arxiv"]
    source: FileName = Field(
        "",
        description="hub id or path of a .jsonl, .jsonl.gz, .json or .parquet file; empty means the published hub id",
    )
    revision: str = Field("main", description="hub revision (branch, tag or commit)")
    seed: int = Field(7, ge=0, description="seed of the split")
    most: int = Field(2000, ge=3, description="texts used, the first ones in published order that can be")
    validation: float = Field(0.15, gt=0, lt=1, description="share of texts on which checkpoints are compared")
    test: float = Field(0.25, gt=0, lt=1, description="share of texts for the verdict; every look at them is counted")

    @model_validator(mode="after")
    def _something_to_train_on(self) -> PublishedTexts:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation ({self.validation}) and test ({self.test}) leave no text to train on; their sum must be "
                "below 1"
            )
        return self
