"""Settings of the writers: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.environment_kit.served_model import ServedModelSection
from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import STOP_AT, CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import PROMPT, Prompt, PublishedProblems, SplitSizes

Task = Literal["summary", "introduction"]


class JudgeModel(ServedModelSection):
    """A model on a server with an OpenAI-compatible API that marks two texts from 0 to 10."""

    weight: float = Field(0.3, gt=0, description="reward of the highest mark, for texts without faults")


class SoundWritingReward(Section):
    """Weights of the default reward: it depends on the facts of the source that the texts tell."""

    kind: Literal["sound"] = "sound"
    coverage: float = Field(2.2, gt=0, description="share of the facts of the source that are told")
    inventions: float = Field(
        1.2,
        gt=0,
        description="penalty if the number of sentences that state no fact equals the number of facts; proportional",
    )
    repeats: float = Field(
        0.8,
        ge=0,
        description="penalty if the number of sentences that repeat a fact equals the number of facts; proportional",
    )
    lengths: float = Field(0.15, ge=0, description="words of both texts, and their ratio")
    style: float = Field(0.12, ge=0, description="share of the facts that are told in the more frequent tense")
    coherence: float = Field(0.12, ge=0, description="neighbouring sentences that tell new facts and share an entity")
    judge: JudgeModel | None = Field(None, description="a further term from a judge model on a server; null for none")


class PaperWritingReward(Section):
    """The published reward (arXiv 2508.04652), at most 2.98; kept for comparison, the audit refuses it."""

    kind: Literal["paper"] = "paper"
    variant: Literal["paper", "later"] = Field(
        "paper", description="constants of the paper, or of later versions of its code"
    )


WritingReward = Annotated[SoundWritingReward | PaperWritingReward | CustomReward, Field(discriminator="kind")]


class WritingSettings(EnvironmentSection):
    """Two writers summarise or introduce one text; each of them sees a part of it."""

    kind: Literal["writing"] = "writing"
    team: Literal["pair", "single"] = Field(
        "pair", description="pair: a writer for each text; single: one agent sees everything and writes both"
    )
    turns: int = Field(
        1, ge=1, le=8, description="turns per problem; in later turns a writer sees its own text and notes on it"
    )
    feedback: Literal["plain", "notes"] = Field(
        "notes", description="what a writer sees in later turns: its own text, or also the counts for it, in words"
    )
    stop_at: float = STOP_AT
    reward: WritingReward = SoundWritingReward()


class GeneratedTexts(Section):
    """Generated posts or abstracts with known facts; no writer of a pair sees all of them."""

    kind: Literal["world"] = "world"
    task: Task = Field(
        "summary",
        description="summary: a short and a long summary of a post; introduction: two halves of an introduction",
    )
    seed: int = Field(7, ge=0, description="seed of the generator and of the split")
    sizes: SplitSizes = SplitSizes()
    prompt: Prompt = PROMPT


class PublishedTexts(PublishedProblems):
    """A published dataset with its published fields, from the hub or a local file."""

    kind: Literal["tldr", "arxiv"]
    most: int = Field(2000, ge=3, description="largest number of texts; the first usable ones in published order")
