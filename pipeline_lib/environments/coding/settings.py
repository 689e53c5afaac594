"""Settings of the coding environment: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.environment_kit.served_model import ServedModelSection
from pipeline_lib.settings.base import Machine, Section
from pipeline_lib.settings.environment import STOP_AT, CustomReward, EnvironmentSection, Tools
from pipeline_lib.settings.problems import PROMPT, FamilyProblems, Prompt, PublishedProblems, SplitSizes


class SoundCodingReward(Section):
    """Weights of the default reward: cooperation by syntax tree and ablation, the rest by hidden tests."""

    kind: Literal["sound"] = "sound"
    structure: float = Field(0.4, ge=0, description="share of the functions that are defined and return a value")
    syntax: float = Field(0.2, ge=0, description="all texts of the agents parse")
    tests: float = Field(1.0, gt=0, description="fraction of hidden tests passed")
    cooperation: float = Field(0.4, ge=0, description="the main function calls the helper and needs it to pass tests")
    above_none: bool = Field(
        False,
        description=(
            "count only tests that a program returning None does not pass, rescaled to the same maximum; "
            "this matters for a few problems of published datasets"
        ),
    )


class FineCodingReward(Section):
    """A finer reward: harder tests count more, and the helper is paid for what it does itself (docs/rewards.md)."""

    kind: Literal["fine"] = "fine"
    structure: float = Field(0.2, ge=0, description="share of the functions that are defined and return a value")
    syntax: float = Field(0.2, ge=0, description="all texts of the agents parse")
    tests: float = Field(1.0, gt=0, description="fraction of hidden tests passed, where harder tests count more")
    hardness: float = Field(
        1.0,
        ge=0,
        le=10,
        description=(
            "how much more a test counts that all mutants of the known solution fail than one that they all pass: "
            "with 1 twice as much, with 0 all tests count the same"
        ),
    )
    contract: float = Field(
        0.3, ge=0, description="share of the tests of the helper alone that it passes; generated problems only"
    )
    mutation: float = Field(
        0.2, ge=0, description="share of the helper's mutants that the tests notice, times the share of tests passed"
    )
    mutants: int = Field(6, ge=1, le=32, description="greatest number of mutants of a helper; each is a program to run")
    ablation: float = Field(0.4, ge=0, description="share of the tests that are passed only with the helper")


class PaperCodingReward(Section):
    """The published reward of MAGRPO (arXiv 2508.04652), at most 4.0; kept for comparison, the audit refuses it."""

    kind: Literal["paper"] = "paper"


CodingReward = Annotated[
    SoundCodingReward | FineCodingReward | PaperCodingReward | CustomReward, Field(discriminator="kind")
]


class Expert(ServedModelSection):
    """A model on a server with an OpenAI-compatible API that suggests edits of an agent's code."""

    max_tokens: int = Field(512, ge=1, description="longest answer in tokens; a longer one is cut off and of no use")
    cache: Machine[str] = Field(
        ".symposium/expert", description="folder in which answers are kept; empty: they are kept in memory only"
    )


#: Sources of feedback that analyse programs in the sandbox, and the package that each needs there.
ANALYSERS = {"static_analysis": "pyflakes", "types": "mypy"}


class CodingSettings(EnvironmentSection):
    """Two agents write a helper function and a main function, which are executed together."""

    kind: Literal["coding"] = "coding"
    team: Literal["pair", "single"] = Field(
        "pair", description="pair: helper and main agent; single: one agent sees everything and writes both functions"
    )
    turns: int = Field(1, ge=1, le=8, description="turns per problem; agents see feedback in later turns")
    feedback: tuple[Literal["tests", "static_analysis", "types", "expert", "critic"], ...] = Field(
        ("tests",),
        description=(
            "what agents see in later turns besides their own previous code, in this order: tests: results of the "
            "visible tests; static_analysis: what pyflakes finds in their part; types: what mypy finds there; expert: "
            "edits that the model of environment.expert suggests; critic: what the agent's own base, which nobody "
            "trains, would write in its place; an empty list: nothing else. expert and critic come last, in this order"
        ),
    )
    expert: Expert | None = Field(None, description="the expert of feedback; null for none")
    history: Literal["last", "all"] = Field(
        "last",
        description=(
            "which earlier turns agents are shown: the last one, or all; if all do not fit into a policy's context, "
            "the oldest are cut"
        ),
    )
    tools: Tools | None = Field(
        None,
        description=(
            "limits of a tool: an agent may run the visible tests on what the team has written before it answers "
            "(docs/feedback.md); null for none"
        ),
    )
    stop_at: float = STOP_AT
    reward: CodingReward = SoundCodingReward()

    @model_validator(mode="after")
    def _feedback_fits(self) -> CodingSettings:
        if len(set(self.feedback)) < len(self.feedback):
            raise ValueError(f"feedback names a source twice: {', '.join(self.feedback)}")
        if "expert" in self.feedback and self.expert is None:
            raise ValueError(
                "feedback has expert, so expert must say which: {url: http://127.0.0.1:8000/v1, model: NAME}"
            )
        if self.expert is not None and "expert" not in self.feedback:
            raise ValueError("expert is set, but feedback does not have it; add it to feedback, or set expert to null")
        return self


class GeneratedProblems(FamilyProblems):
    """Generated problems with two functions; no agent sees enough to solve one alone."""

    kind: Literal["generated"] = "generated"
    levels: tuple[int, ...] = Field((1,), min_length=1, description="difficulty levels to draw from, 1 (easiest) to 4")
    sizes: SplitSizes = SplitSizes()
    visible_tests: int = Field(2, ge=0, le=16, description="tests whose results may be shown as feedback")
    hidden_tests: int = Field(6, ge=1, le=32, description="tests for reward and verdict")
    prompt: Prompt = PROMPT

    @model_validator(mode="after")
    def _levels_exist(self) -> GeneratedProblems:
        if wrong := [level for level in self.levels if not 1 <= level <= 4]:
            raise ValueError(f"there is no level {wrong[0]}; levels are 1, 2, 3 and 4")
        return self


class DatasetProblems(PublishedProblems):
    """A published coding dataset with its published fields, from the hub or a local file."""

    kind: Literal["humaneval", "coophumaneval", "mbpp"]
    visible_tests: int = Field(
        1, ge=0, le=16, description="number of first tests of a problem that are shown as feedback and not rewarded"
    )
