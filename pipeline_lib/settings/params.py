"""The one typed, immutable model of ``params.yaml``: a section per stage."""

from __future__ import annotations

from pydantic import Field, model_validator

from pipeline_lib.settings.audit import AuditSettings
from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import CodingEnvironment, Environment
from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings
from pipeline_lib.settings.philosophers import PhilosophersEnvironment
from pipeline_lib.settings.policy import EmbeddedPolicy, Policy
from pipeline_lib.settings.problems import GeneratedProblems, Problems, ScenarioProblems
from pipeline_lib.settings.rollouts import Rollouts, TransformersRollouts
from pipeline_lib.settings.sandbox import ProcessSandbox, Sandbox
from pipeline_lib.settings.train import SeedSettings, TrainSettings


class Params(Section):
    """Every setting that changes a result."""

    problems: Problems = Field(GeneratedProblems(), description="where problems come from and how they are split")
    environment: Environment = Field(CodingEnvironment(), description="the task and its reward")
    policy: Policy = Field(EmbeddedPolicy(), description="the language models of the team")
    rollouts: Rollouts = Field(TransformersRollouts(), description="how actions are sampled")
    sandbox: Sandbox = Field(ProcessSandbox(), description="where untrusted programs run")
    audit: AuditSettings = Field(AuditSettings(), description="the reward audit before training")
    seeds: SeedSettings = Field(SeedSettings(), description="training seeds")
    train: TrainSettings = Field(TrainSettings(), description="the update")
    evaluate: EvaluateSettings = Field(EvaluateSettings(), description="sweep, selection and test")
    verdict: VerdictSettings = Field(VerdictSettings(), description="significance")

    @model_validator(mode="after")
    def _sections_agree(self) -> Params:
        if isinstance(self.policy, EmbeddedPolicy) and self.rollouts.max_new_tokens >= self.policy.context:
            raise ValueError(
                f"rollouts.max_new_tokens ({self.rollouts.max_new_tokens}) leaves no room for a prompt in "
                f"policy.context ({self.policy.context})"
            )
        seated = isinstance(self.environment, PhilosophersEnvironment)
        if seated != isinstance(self.problems, ScenarioProblems):
            raise ValueError(
                f"environment.kind {self.environment.kind} does not go with problems.kind {self.problems.kind}: "
                "philosophers play scenarios, and nobody else does; choose both, for example with the presets "
                "problems: philosophers and environment: philosophers"
            )
        embedded = isinstance(self.policy, EmbeddedPolicy)
        if isinstance(self.environment, PhilosophersEnvironment) and embedded and self.environment.prompt != "compact":
            raise ValueError(
                f"environment.prompt is {self.environment.prompt}, but the embedded policy reads only compact; set "
                "it to compact, or use a pretrained policy"
            )
        if isinstance(self.problems, GeneratedProblems) and self.train.problems_per_step > self.problems.sizes.train:
            raise ValueError(
                f"train.problems_per_step ({self.train.problems_per_step}) is more than "
                f"problems.sizes.train ({self.problems.sizes.train})"
            )
        if self.train.loss.kl > 0 and (self.rollouts.top_p < 1 or self.rollouts.top_k > 0):
            raise ValueError(
                f"train.loss.kl ({self.train.loss.kl:g}) compares distributions of full support; set rollouts.top_p "
                "to 1 and rollouts.top_k to 0, or train.loss.kl to 0"
            )
        return self

    @model_validator(mode="after")
    def _baselines_make_sense(self) -> Params:
        for name in self.evaluate.baselines:
            if reason := senseless(name, self.environment):
                raise ValueError(f"evaluate.baselines: {name} makes no sense here: {reason}; leave it out")
        return self


def senseless(baseline: str, environment: Environment) -> str:
    """Return why a baseline protocol makes no sense in an environment; empty if it does."""
    if isinstance(environment, PhilosophersEnvironment):
        if baseline == "naive_concatenation":
            return "it plays a single turn, and a meal takes several"
        if environment.prompt == "compact":
            return "environment.prompt is compact, a line of letters with no room for what others wrote"
        if environment.mode == "sequential":
            return "environment.mode is sequential, one philosopher acts at a time and there is nobody to read"
        return ""
    if environment.team == "single":
        return "environment.team is single, and one agent has nobody to read"
    if baseline == "naive_concatenation" and environment.turns == 1:
        return "with environment.turns 1 it is what the base plays anyway"
    return ""
