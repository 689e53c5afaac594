"""Settings of agents with documents: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection, Tools
from pipeline_lib.settings.problems import PROMPT, FamilyProblems, Prompt, PublishedProblems, SplitSizes

#: Most tokens and turns of an episode that are counted.
MOST_TOKENS, MOST_TURNS = 10_000, 16


class SoundDocumentsReward(Section):
    """Weights of the default reward: the answer and its support, less the price of messages and turns."""

    kind: Literal["sound"] = "sound"
    answer: float = Field(1.0, gt=0, description="the right answer")
    support: float = Field(
        1.0, ge=0, description="facts that are named and prove the answer, as a share of all that are named or needed"
    )
    wrong: float = Field(0.1, ge=0, description="penalty of a wrong answer")
    made_up: float = Field(
        0.1, ge=0, description="penalty if no fact that the asker names was read by it; proportional to their share"
    )
    token: float = Field(0.002, ge=0, description="price of a token of a message: a mark, or eight letters of a word")
    tokens: int = Field(100, ge=1, le=MOST_TOKENS, description="most tokens of an episode that are paid for")
    turn: float = Field(0.005, ge=0, description="price of a turn")


DocumentsReward = Annotated[SoundDocumentsReward | CustomReward, Field(discriminator="kind")]


class DocumentsSettings(EnvironmentSection):
    """Agents with different documents answer a question that only one of them is told."""

    kind: Literal["documents"] = "documents"
    team: Literal["team", "single"] = Field(
        "team", description="team: the documents are dealt out; single: one agent has them all and answers at once"
    )
    turns: int = Field(
        6, ge=2, le=MOST_TURNS, description="most turns of an episode, which ends with the asker's answer"
    )
    tools: Tools | None = Field(
        None,
        description=(
            "limits of a tool: agents are shown the titles of their documents, and look up what these say before they "
            "speak (docs/documents.md); null: they are shown the documents"
        ),
    )
    reward: DocumentsReward = SoundDocumentsReward()


class GeneratedWorlds(FamilyProblems):
    """Generated worlds whose facts are all known; no agent can answer from its own documents."""

    kind: Literal["worlds"] = "worlds"
    agents: int = Field(3, ge=2, le=4, description="agents with documents of their own")
    hops: tuple[Literal[1, 2, 3], ...] = Field(
        (1, 2, 3), min_length=1, description="relations to follow from the question to the answer; used in turn"
    )
    documents: int = Field(2, ge=1, le=6, description="documents of each agent")
    facts: int = Field(2, ge=1, le=3, description="facts of each document")
    sizes: SplitSizes = SplitSizes()
    prompt: Prompt = PROMPT

    @model_validator(mode="after")
    def _room(self) -> GeneratedWorlds:
        if max(self.hops) > self.agents * self.documents:
            raise ValueError(
                f"a question of {max(self.hops)} hops needs as many documents, but {self.agents} agents with "
                f"{self.documents} each have fewer"
            )
        return self


class PublishedDocuments(PublishedProblems):
    """HotpotQA or 2WikiMultihopQA with their published fields, for pretrained policies."""

    kind: Literal["hotpotqa", "2wikimultihop"]
    agents: int = Field(2, ge=2, le=4, description="agents that the documents are dealt out to")
    documents: int = Field(6, ge=2, description="most documents of a question: those that it needs, and distractors")
    most: int = Field(2000, ge=3, description="largest number of questions; the first usable ones in published order")
