"""Settings of the modules: ``environment`` with its reward, and ``problems``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CustomReward, EnvironmentSection
from pipeline_lib.settings.problems import PROMPT, FamilyProblems, Prompt, PublishedProblems, SplitSizes


class SoundModulesReward(Section):
    """Weights of the default reward: hidden tests of the system and of each part."""

    kind: Literal["sound"] = "sound"
    form: float = Field(0.2, ge=0, description="share of the parts that parse and define what they must")
    unit: float = Field(0.4, ge=0, description="share of a part's hidden tests passed, mean over the parts")
    system: float = Field(1.0, gt=0, description="share of the hidden tests of the whole program passed")


ModulesReward = Annotated[SoundModulesReward | CustomReward, Field(discriminator="kind")]


class ModulesSettings(EnvironmentSection):
    """Each agent writes one part of a program, and the joined program is tested."""

    kind: Literal["modules"] = "modules"
    team: Literal["modules", "single", "orchestrated"] = Field(
        "modules",
        description=(
            "modules: an agent for each part; single: one agent is told everything and writes all; orchestrated: a "
            "lead is told everything, and hands out the files to workers who see only what it tells them"
        ),
    )
    reward: ModulesReward = SoundModulesReward()


class GeneratedModules(FamilyProblems):
    """Generated programs of several files that import each other; no agent is told enough to write one alone."""

    kind: Literal["module_graphs"] = "module_graphs"
    modules: int = Field(3, ge=2, le=4, description="number of files, and of agents in a team")
    levels: tuple[int, ...] = Field(
        (1,),
        min_length=1,
        description=(
            "levels to draw from, 1 to modules - 1: a graph of level n has n + 1 layers, and all modules that the "
            "number of layers leaves over are side by side in the layer below the last"
        ),
    )
    sizes: SplitSizes = SplitSizes()
    unit_tests: int = Field(4, ge=1, le=16, description="hidden tests of each module")
    system_tests: int = Field(6, ge=1, le=16, description="hidden tests of the whole program")
    prompt: Prompt = PROMPT

    @model_validator(mode="after")
    def _levels_exist(self) -> GeneratedModules:
        if wrong := [level for level in self.levels if not 1 <= level < self.modules]:
            raise ValueError(
                f"there is no level {wrong[0]} with {self.modules} modules; accepted: 1 to {self.modules - 1}"
            )
        return self


class ClassProblems(PublishedProblems):
    """ClassEval's classes with their published fields, from the hub or a local file; pretrained policies only."""

    kind: Literal["classeval"] = "classeval"
    modules: int = Field(
        2, ge=2, le=4, description="number of agents that share the methods of a class; at most one for each method"
    )
