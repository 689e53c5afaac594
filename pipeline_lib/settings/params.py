"""The typed, immutable model of ``params.yaml``: one section per stage."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find
from pipeline_lib.settings.base import Section
from pipeline_lib.settings.environment import DEFAULT, Environment, Problems, Tools, kinds_of, problem_models
from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings
from pipeline_lib.settings.policy import EmbeddedPolicy, Policy
from pipeline_lib.settings.rollouts import Rollouts, TransformersRollouts
from pipeline_lib.settings.sandbox import ProcessSandbox, Sandbox
from pipeline_lib.settings.train import SeedSettings, TrainSettings, unfit_for_tools


class AuditSettings(Section):
    """How much is sampled for the audit, and what happens after it fails."""

    problems: int = Field(32, ge=1, description="training problems on which the audit plays teams")
    group_size: int = Field(8, ge=2, description="joint actions per problem in the preflight of the base policy")
    seed: int = Field(0, ge=0, description="seed of the audit's random draws")
    override: str = Field(
        "",
        description="reason to train although the audit failed, recorded in the run; if empty, training does not start",
    )


def _with_environment_defaults(value: Any, info: ValidationInfo) -> Any:
    """Add the environment's primary metric and guards where the settings have none."""
    environment = info.data.get("environment")
    if not isinstance(value, dict) or environment is None:
        return value
    task = find(environment.kind)
    return {"metric": task.primary, "guards": task.guards, **value}


def _with_single_agent(value: Any, info: ValidationInfo) -> Any:
    """Leave the single-agent baseline out where nobody asked for it and the environment has no single-agent form."""
    environment = info.data.get("environment")
    if not isinstance(value, dict) or environment is None or "single_agent" in value:
        return value
    return value if find(environment.kind).single_agent(environment) else {"single_agent": (), **value}


#: Joint actions in the last turn of one problem's tree.
_LARGEST_TREE = 4096


class Params(Section):
    """Every setting that changes a result."""

    environment: Environment = Field({"kind": DEFAULT}, description="the task and its reward")
    problems: Problems = Field({}, description="where problems come from and how they are split")
    policy: Policy = Field(EmbeddedPolicy(), description="the language models of the team")
    rollouts: Rollouts = Field(TransformersRollouts(), description="how actions are sampled")
    sandbox: Sandbox = Field(ProcessSandbox(), description="where untrusted programs run")
    audit: AuditSettings = Field(AuditSettings(), description="the reward audit before training")
    seeds: Annotated[SeedSettings, BeforeValidator(_with_single_agent)] = Field(
        {},  # type: ignore[assignment]
        description="training seeds",
    )
    train: TrainSettings = Field(TrainSettings(), description="the update")
    evaluate: Annotated[EvaluateSettings, BeforeValidator(_with_environment_defaults)] = Field(
        {},  # type: ignore[assignment]
        description="sweep, selection and test",
    )
    verdict: VerdictSettings = Field(VerdictSettings(), description="significance")

    @model_validator(mode="before")
    @classmethod
    def _pretrained_models_read_english(cls, value: Any) -> Any:
        """Let generated problems be told in plain English to a pretrained model, unless somebody chose the prompt."""
        if not isinstance(value, dict) or not isinstance(value.get("problems", {}), dict):
            return value
        policy, environment, problems = (value.get(name, {}) for name in ("policy", "environment", "problems"))
        kind = policy.get("kind") if isinstance(policy, dict) else getattr(policy, "kind", None)
        if kind != "pretrained" or "prompt" in problems:
            return value
        name = environment.get("kind", DEFAULT) if isinstance(environment, dict) else environment.kind
        try:
            models = problem_models(str(name))
        except UnknownEnvironmentError:
            return value  # the section itself gives the reason
        wanted = problems.get("kind", kinds_of(models[0])[0])
        if any(wanted in kinds_of(model) and "prompt" in model.model_fields for model in models):
            return {**value, "problems": {**problems, "prompt": "plain"}}
        return value

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if isinstance(self.policy, EmbeddedPolicy) and self.rollouts.max_new_tokens >= self.policy.context:
            raise ValueError(
                f"rollouts.max_new_tokens ({self.rollouts.max_new_tokens}) leaves no space for a prompt in "
                f"policy.context ({self.policy.context})"
            )
        if self.train.loss.kl > 0 and (self.rollouts.top_p < 1 or self.rollouts.top_k > 0):
            raise ValueError(
                f"train.loss.kl ({self.train.loss.kl:g}) needs distributions with full support; set rollouts.top_p "
                "to 1 and rollouts.top_k to 0, or train.loss.kl to 0"
            )
        if self.train.curriculum.kind == "turns" and getattr(self.environment, "turns", 2) < 2:
            raise ValueError(
                "train.curriculum: turns adds turns one by one, and environment.turns is 1; set environment.turns to 2 "
                "or more, or train.curriculum to {kind: epochs}"
            )
        return self

    @model_validator(mode="after")
    def _the_environment_agrees(self) -> Self:
        task = find(self.environment.kind)
        task.check(self)
        metrics = task.metrics()
        for what, name in [("metric", self.evaluate.metric), *(("guards", g.metric) for g in self.evaluate.guards)]:
            if name != "reward" and name not in metrics:
                raise ValueError(
                    f"evaluate.{what}: {name!r} is not a metric of the environment {self.environment.kind}; accepted: "
                    f"{', '.join(metrics)}, reward"
                )
        if self.evaluate.metric != "reward" and metrics[self.evaluate.metric].better == "lower":
            raise ValueError(
                f"evaluate.metric: lower values of {self.evaluate.metric} are better; choose another metric"
            )
        if reason := describe(self.evaluate.metric, metrics).judges_nothing(self.verdict.margin):
            raise ValueError(f"verdict.margin: {reason}")
        if (
            self.policy.kind == "pretrained"
            and self.policy.warm_start is not None
            and (reason := task.unreadable(self))
        ):
            raise ValueError(f"policy.warm_start: there are no demonstrations here: {reason}; set it to null")
        protocol = self.rollouts.protocol
        if protocol != "decentralised" and (reason := task.unsuitable(protocol, self.environment)):
            raise ValueError(f"rollouts.protocol: {protocol} does not suit this environment: {reason}")
        if self.seeds.single_agent and task.single_agent(self.environment) is None:
            raise ValueError(
                f"seeds.single_agent: the environment '{self.environment.kind}' has no single-agent form; set "
                "seeds.single_agent to []"
            )
        for name in self.evaluate.baselines:
            if name == protocol:
                raise ValueError(
                    f"evaluate.baselines: the base already plays {name}, which is rollouts.protocol; remove it here"
                )
            if reason := task.unsuitable(name, self.environment):
                raise ValueError(f"evaluate.baselines: {name} does not suit this environment: {reason}; remove it")
        return self

    @model_validator(mode="after")
    def _a_model_for_each_agent(self) -> Self:
        agents = find(self.environment.kind).agent_names(self)
        if self.policy.kind != "pretrained" or len(self.policy.models) == 1 or agents is None:
            return self
        shared = self.policy.parameters == "shared"
        if shared or len(self.policy.models) != len(agents):
            accepted = "one, since the agents share it" if shared else f"one, or one for each of {', '.join(agents)}"
            raise ValueError(f"policy.models: got {len(self.policy.models)} models; name {accepted}")
        return self

    @model_validator(mode="after")
    def _turns_are_attempts(self) -> Self:
        wanted = {
            "turn_reward: gain": ("turn_reward to whole", self.train.turn_reward == "gain"),
            "curriculum: turns": ("curriculum to {kind: epochs}", self.train.curriculum.kind == "turns"),
        }
        for what, (change, given) in wanted.items():
            if given and not find(self.environment.kind).retries:
                raise ValueError(
                    f"train.{what} is for turns that are attempts at the same thing, and those of environment "
                    f"{self.environment.kind} are not; set train.{change}"
                )
        return self

    @model_validator(mode="after")
    def _agents_can_be_exchanged(self) -> Self:
        if not self.evaluate.cross_play:
            return self
        if len(self.seeds.train) < 2:
            raise ValueError(
                "evaluate.cross_play exchanges agents between training runs, and seeds.train has "
                f"{len(self.seeds.train)}; give it two seeds or more"
            )
        if self.policy.parameters == "shared":
            raise ValueError(
                "evaluate.cross_play exchanges agents between training runs, and with policy.parameters shared all "
                "agents are one policy; set policy.parameters to separate"
            )
        return self

    @model_validator(mode="after")
    def _attempts_can_be_chosen(self) -> Self:
        if not self.evaluate.equal_effort:
            return self
        if not self.seeds.single_agent:
            raise ValueError(
                "evaluate.equal_effort compares with the trained single agent, and seeds.single_agent is empty; give "
                "it a seed, or set evaluate.equal_effort to 0"
            )
        if not find(self.environment.kind).chosen_by:
            raise ValueError(
                f"evaluate.equal_effort: environment {self.environment.kind} shows agents nothing by which they could "
                "choose one of their attempts (visible tests, or an answer); set evaluate.equal_effort to 0"
            )
        return self

    @model_validator(mode="after")
    def _agents_are_rewarded(self) -> Self:
        if self.train.individual_reward and not find(self.environment.kind).rewards_agents:
            raise ValueError(
                f"train.individual_reward: environment {self.environment.kind} rewards the team only, no agent by "
                "itself; set train.individual_reward to 0"
            )
        return self

    @model_validator(mode="after")
    def _others_act_on_their_own(self) -> Self:
        protocol = self.rollouts.protocol
        if self.train.advantage.baseline == "counterfactual" and protocol != "decentralised":
            raise ValueError(
                "train.advantage.baseline: counterfactual compares an action with what the others did beside it, but "
                f"in {protocol} they read it; set baseline to critic, or rollouts.protocol to decentralised"
            )
        return self

    @model_validator(mode="after")
    def _tools_can_be_called(self) -> Self:
        """Refuse what compares actions with those of other joint actions: a tool may tell what the others wrote."""
        if not isinstance(getattr(self.environment, "tools", None), Tools):
            return self
        if change := unfit_for_tools(self.train):
            raise ValueError(
                "environment.tools: what a tool answers may depend on all that the team writes at that time, so "
                f"actions cannot be combined anew or sampled beside others; set {change}, or environment.tools to null"
            )
        for name, agent in self.policy.agents.items():
            if agent.server is not None:
                raise ValueError(
                    f"environment.tools: agent {name} is played by a server, which gets one message and cannot "
                    "continue its own text; set environment.tools to null, or let a model play it here"
                )
        return self

    @model_validator(mode="after")
    def _fidelity_can_be_measured(self) -> Self:
        if not self.train.fidelity_every:
            return self
        if self.rollouts.protocol != "decentralised":
            raise ValueError(
                f"train.fidelity_every: an action is judged with fresh actions of the others, but in "
                f"{self.rollouts.protocol} agents read each other; set train.fidelity_every to 0"
            )
        if reason := find(self.environment.kind).unrepeatable(self.environment):
            raise ValueError(f"train.fidelity_every needs several episodes from one state: {reason}")
        return self

    @model_validator(mode="after")
    def _agents_exist(self) -> Self:
        """Refuse agents that the team does not have, and a team without an agent to train."""
        differing = self.policy.agents
        names = find(self.environment.kind).agent_names(self) if differing else None
        if names is None:
            return self
        if unknown := [name for name in differing if name not in names]:
            raise ValueError(
                f"policy.agents.{unknown[0]}: the team of {self.environment.kind} has no such agent; it has "
                f"{', '.join(names)}"
            )
        trained = [name for name in names if name not in differing or differing[name].trained]
        if all(name in differing and differing[name].server for name in trained):
            raise ValueError("policy.agents: no agent is trained, so there is nothing to learn; let one be trained")
        return self

    @model_validator(mode="after")
    def _credit_can_be_given(self) -> Self:
        credit = self.train.credit
        if credit.kind == "aligned":
            return self
        # It loads numpy, and settings are read before anything else is.
        from pipeline_lib.credit.plans import make_plan

        protocol = self.rollouts.protocol
        if credit.kind == "replay" and protocol != "sequential_pipeline":
            raise ValueError(
                f"train.credit: replay is for agents that read each other one after the other, which is not so in "
                f"{protocol}; set rollouts.protocol to sequential_pipeline, or train.credit to {{kind: aligned}}"
            )
        if credit.kind != "replay" and protocol != "decentralised":
            other = " or {kind: replay}" if protocol == "sequential_pipeline" else ""
            raise ValueError(
                f"train.credit: {credit.kind} combines actions that were sampled independently, but in "
                f"{protocol} agents read each other; set train.credit to {{kind: aligned}}{other}"
            )
        task = find(self.environment.kind)
        if reason := task.unrepeatable(self.environment):
            raise ValueError(f"train.credit: {credit.kind} needs several steps from one state: {reason}")
        agents = task.max_acting(self)
        if agents is not None and agents > 1:
            plan = make_plan(**credit.model_dump())
            if reason := plan.refuse(agents, self.train.group_size):
                raise ValueError(f"train.credit: {credit.kind} of {agents} agents: {reason}")
        return self

    @model_validator(mode="after")
    def _a_tree_can_be_sampled(self) -> Self:
        turns = find(self.environment.kind).most_turns(self)
        if self.train.groups == "tree" and self.train.group_size**turns > _LARGEST_TREE:
            raise ValueError(
                f"train.groups: tree samples {self.train.group_size} ** {turns} joint actions in a problem's last turn "
                f"(train.group_size ** turns of an episode), more than {_LARGEST_TREE:,}; set train.groups to "
                "episodes, or one of the two smaller"
            )
        return self
