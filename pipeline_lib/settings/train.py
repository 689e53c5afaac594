"""``train``: the MAGRPO update (arXiv 2508.04652) and its options."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Machine, Section


class AlignedCredit(Section):
    """Joint actions as they were sampled; all agents share their advantage (the paper)."""

    kind: Literal["aligned"] = "aligned"


class PairingsCredit(Section):
    """Every action with a few different partners: per_action x G executions per group."""

    kind: Literal["pairings"] = "pairings"
    per_action: int = Field(2, ge=2, description="executions per action, including the sampled joint action")


class LatinCredit(Section):
    """A balanced subset of all combinations: G^2 executions per group, for any number of agents."""

    kind: Literal["latin"] = "latin"


class CrossCredit(Section):
    """Every combination: G^N executions per group of N agents."""

    kind: Literal["cross"] = "cross"


class ColumnCredit(Section):
    """Every action of one agent, with fixed partners (as in C3 and COMA): G + N G (G - 1) executions per group."""

    kind: Literal["column"] = "column"


class RemovalCredit(Section):
    """Each joint action also without each agent (difference rewards): G (N + 1) executions per group."""

    kind: Literal["removal"] = "removal"


class ReplayCredit(Section):
    """For rollouts.protocol sequential_pipeline: alternatives of each agent for the same text of those before it."""

    kind: Literal["replay"] = "replay"
    fan_out: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (2, 4), description="alternatives of each agent, in acting order; their product is group_size"
    )


Credit = Annotated[
    AlignedCredit | PairingsCredit | LatinCredit | CrossCredit | ColumnCredit | RemovalCredit | ReplayCredit,
    Field(discriminator="kind"),
]


#: Baselines that a critic has learned.
LEARNED = ("critic", "counterfactual")


class CriticSettings(Section):
    """The value function of the baselines critic and counterfactual."""

    trace: float = Field(
        1.0,
        ge=0,
        le=1,
        description=(
            "lambda of the returns: 1 follows episodes to their end, which leaves gradients unbiased; 0 takes the "
            "critic's value of the next state in place of what followed"
        ),
    )
    learning_rate: float = Field(1e-3, gt=0, lt=1, description="of the critic (AdamW)")
    passes: int = Field(8, ge=1, description="passes over each update's experience")
    width: int = Field(128, ge=1, description="neurons in each of its two hidden layers")


class AdvantageSettings(Section):
    """How returns become advantages; the default is the paper's R - mean(R)."""

    baseline: Literal["mean", "leave_one_out", "max", "none", "critic", "counterfactual"] = Field(
        "mean",
        description=(
            "subtracted from a return: the group's mean, the mean of the other members, the maximum, nothing; critic: "
            "the value of the state that a centralised critic has learned; counterfactual: for each agent, its value "
            "given what the other agents did"
        ),
    )
    critic: CriticSettings = CriticSettings()
    scale: Literal["none", "group_std", "agent_std"] = Field(
        "none",
        description=(
            "divide by the standard deviation of all that the group executed, or by that of each agent's own returns, "
            "as Dr. MAS does; both change the objective: problems, and agents, of small spread count more"
        ),
    )

    @model_validator(mode="after")
    def _settings_of_a_critic_have_one(self) -> Self:
        if self.critic != CriticSettings() and self.baseline not in LEARNED:
            raise ValueError(
                f"critic: it is not used with baseline {self.baseline}; leave it out, or set baseline to critic or "
                "counterfactual"
            )
        return self


class LossSettings(Section):
    """How token log-probabilities and advantages become a loss."""

    normalisation: Literal["batch_tokens", "sequences", "sequence_mean"] = Field(
        "batch_tokens",
        description=(
            "divide the sum over tokens of -A log p by the batch's token count, by its number of sequences (the "
            "paper), or average within each sequence first"
        ),
    )
    epochs: int = Field(1, ge=1, description="passes over each batch; more than one is off-policy and needs clip")
    clip: float = Field(
        0.0, ge=0, lt=1, description="half-width of the clip of the probability ratio; 0 means no ratio"
    )
    kl: float = Field(0.0, ge=0, description="weight of the KL divergence to the base policy")
    entropy: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    importance_cap: float = Field(
        2.0, ge=1, description="cap of the importance weight that corrects an engine whose log-probabilities differ"
    )
    importance_threshold: float = Field(
        1e-3, ge=0, description="tokens whose log-probabilities differ by more than this (nats) get that weight"
    )
    mask_truncated: bool = Field(False, description="leave actions that reach max_new_tokens out of the loss")

    @model_validator(mode="after")
    def _reuse_needs_clip(self) -> Self:
        if self.epochs > 1 and self.clip == 0:
            raise ValueError(f"epochs ({self.epochs}) above 1 reuses a batch off-policy; set clip (for example 0.2)")
        if self.epochs == 1 and self.clip > 0:
            raise ValueError(f"clip ({self.clip}) has no effect in a single epoch, where the ratio is 1; set epochs: 2")
        return self


class Epochs(Section):
    """Every problem once per epoch, in a new order each time."""

    kind: Literal["epochs"] = "epochs"


class Levels(Section):
    """From the easiest level of the training problems to the hardest; a mastered level opens the next."""

    kind: Literal["levels"] = "levels"
    metric: str = Field(min_length=1, description="metric in [0, 1] that decides, for example deadlock or all_passed")
    better: Literal["higher", "lower"] = Field("higher", description="which direction of the metric is good")
    bound: float = Field(ge=0, le=1, description="value that the unfavourable end of its 95 % interval must reach")
    every: int = Field(5, ge=1, description="steps between trials on validation problems of the current level")
    episodes: int = Field(4, ge=1, description="episodes per validation problem in a trial")
    replay: float = Field(0.25, ge=0, lt=1, description="share of problems from mastered levels")


class Turns(Section):
    """From one turn per episode to all; when the reward of the last turn stops rising, the next turn is added."""

    kind: Literal["turns"] = "turns"
    window: int = Field(5, ge=1, description="updates over which the reward of the last turn is averaged")
    rise: float = Field(
        0.02,
        ge=0,
        le=1,
        description=(
            "a turn is added when the mean of a window exceeds that of the window before by less than this share of "
            "the range of the reward"
        ),
    )


Curriculum = Annotated[Epochs | Levels | Turns, Field(discriminator="kind")]


class TrainSettings(Section):
    """Training by multi-agent group-relative policy optimisation."""

    steps: int = Field(60, ge=1, description="updates per run")
    problems_per_step: int = Field(32, ge=1, description="problems per update")
    group_size: int = Field(8, ge=2, description="joint actions per problem that share a baseline (G)")
    checkpoint_every: int = Field(10, ge=1, description="steps between checkpoints")
    learning_rate: float = Field(1e-3, gt=0, lt=1, description="peak learning rate (AdamW)")
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="learning rate after the warm-up")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    betas: tuple[float, float] = Field((0.9, 0.98), description="AdamW moment decays")
    gradient_clip: float = Field(1.0, ge=0, description="largest gradient norm per policy; 0 means no clipping")
    micro_batch_tokens: Machine[int] = Field(
        2048, ge=64, description="largest number of tokens (including padding) per forward pass"
    )
    overlap: Machine[int] = Field(
        1, ge=1, le=16, description="number of parts of a turn; one part is executed while the next is sampled"
    )
    processes: Machine[int] = Field(
        1, ge=1, description="processes on this machine that train one team together; on GPUs, one per GPU"
    )
    weights: Machine[Literal["replicated", "sharded"]] = Field(
        "replicated", description="with several processes: each holds all weights (DDP), or they are split (FSDP2)"
    )
    discount: float = Field(1.0, gt=0, le=1, description="discount of later turns' rewards")
    turn_reward: Literal["whole", "gain"] = Field(
        "whole",
        description=(
            "what a turn earns: its whole reward (the paper), or what this adds to the turn before; where success ends "
            "an episode, the sum of whole rewards pays for failing first"
        ),
    )
    individual_reward: float = Field(
        0.0,
        ge=0,
        le=1,
        description=(
            "share of an agent's own reward in what it is trained on: 0: the joint reward alone (the paper), 1: its "
            "own alone; for environments that reward agents by themselves"
        ),
    )
    groups: Literal["tree", "episodes"] = Field(
        "tree",
        description=(
            "multi-turn baseline: tree samples a fresh group below every joint action (the paper); episodes compares "
            "whole episodes of a problem turn by turn"
        ),
    )
    curriculum: Curriculum = Field(Epochs(), description="which problems come next, and with how many turns")
    credit: Credit = Field(
        AlignedCredit(),
        description="which combinations of sampled actions are executed to compute advantages per agent",
    )
    stop_when: tuple[Literal["trivial_cooperation", "turn_instability", "reward_hacking", "cascading_errors"], ...] = (
        Field((), description="monitors that end a run when they fire at a checkpoint (docs/monitors.md)")
    )
    fidelity_every: int = Field(
        0,
        ge=0,
        description=(
            "updates between measurements of how near the advantages are to the true ones; they cost executions and "
            "change nothing in training; 0 for none"
        ),
    )
    single_agent_budget: Literal["tokens", "executions", "seconds"] = Field(
        "tokens",
        description=(
            "the single agent is trained until it has used as much of this as a training run of the team: tokens "
            "sampled, joint actions executed, or seconds"
        ),
    )
    advantage: AdvantageSettings = AdvantageSettings()
    loss: LossSettings = LossSettings()

    @model_validator(mode="after")
    def _checkpoints_within_run(self) -> Self:
        if self.checkpoint_every > self.steps:
            raise ValueError(
                f"checkpoint_every ({self.checkpoint_every}) is longer than the run ({self.steps} steps): "
                "no checkpoint would be written"
            )
        return self

    @model_validator(mode="after")
    def _credit_needs_a_common_state(self) -> Self:
        if self.credit.kind != "aligned" and self.groups == "episodes":
            raise ValueError(
                f"credit {self.credit.kind} combines actions that were sampled in one state, and with groups: "
                "episodes there is one joint action in each state after the first turn; set groups: tree, or credit: "
                "{kind: aligned}"
            )
        return self

    @model_validator(mode="after")
    def _a_critic_judges_what_was_sampled(self) -> Self:
        if self.advantage.baseline not in LEARNED:
            return self
        if self.credit.kind != "aligned":
            raise ValueError(
                f"advantage.baseline {self.advantage.baseline} judges joint actions as they were sampled, and credit "
                f"{self.credit.kind} executes others; set credit: {{kind: aligned}}, or another baseline"
            )
        if self.individual_reward:
            raise ValueError(
                f"advantage.baseline {self.advantage.baseline} is a value of the joint reward, which individual_reward "
                "replaces; set individual_reward: 0, or another baseline"
            )
        return self

    @model_validator(mode="after")
    def _own_rewards_need_no_further_credit(self) -> Self:
        if not self.individual_reward:
            return self
        if self.credit.kind != "aligned":
            raise ValueError(
                f"individual_reward gives each agent a return of its own, and credit {self.credit.kind} divides the "
                "joint one; set credit: {kind: aligned}, or individual_reward: 0"
            )
        if self.fidelity_every:
            raise ValueError(
                "fidelity_every compares advantages with those of the joint reward, which individual_reward replaces; "
                "set one of them to 0"
            )
        return self


def unfit_for_tools(train: TrainSettings) -> str:
    """Return what has to change if agents call tools within a turn, empty if nothing.

    What a tool answers may depend on all that the team writes at that time, so no action is judged by what others
    might have done beside it.
    """
    changes = {
        f"train.credit ({train.credit.kind}) to {{kind: aligned}}": train.credit.kind != "aligned",
        "train.advantage.baseline (counterfactual) to critic": train.advantage.baseline == "counterfactual",
        f"train.fidelity_every ({train.fidelity_every}) to 0": train.fidelity_every > 0,
        f"train.overlap ({train.overlap}) to 1": train.overlap > 1,
    }
    return next((change for change, needed in changes.items() if needed), "")


#: Every generator of random numbers takes seeds of 32 bits.
GREATEST_SEED = 2**32 - 1


class SeedSettings(Section):
    """Training seeds; a claim about training, rather than about one checkpoint, needs at least three."""

    train: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one training run of the team per seed")
    single_agent: tuple[int, ...] = Field(
        (0,), description="seeds of the single-agent GRPO baseline; empty leaves the baseline out"
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, seeds in (("train", self.train), ("single_agent", self.single_agent)):
            if len(set(seeds)) != len(seeds) or not all(0 <= seed <= GREATEST_SEED for seed in seeds):
                raise ValueError(f"seeds.{name} {list(seeds)} must be different, and from 0 to {GREATEST_SEED}")
        return self
