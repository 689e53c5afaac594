"""A tiny Qwen3 made on the spot, and toy environments that a team learns in a second or two."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.train import TrainSettings

WORDS = ["<pad>", "<end>", "pick", "left", "right", "red", "green", "blue", "0", "1", "2", "3", "4", "5", "6", "7"]
END = WORDS.index("<end>")


def make_tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")


def make_model(
    seed: int = 0, hidden: int = 32, layers: int = 1, vocabulary: int = len(WORDS), spread: float = 0.02
) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=hidden // 2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=END,
        pad_token_id=0,
        initializer_range=spread,
        attn_implementation="eager",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = END
    return model.eval()


def add_lora(model: Any, rank: int = 8) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM"))


def make_team(agents: Sequence[str] = ("one", "two"), shared: bool = False, lora: bool = False, seed: int = 0) -> Team:
    tokenizer = make_tokenizer()
    names = ["team"] if shared else list(agents)
    policies = {}
    for name in names:
        torch.manual_seed(seed)
        # Wide, so that an adapter below a frozen output layer can become certain.
        model = make_model(seed, spread=0.15 if lora else 0.02)
        policies[name] = Policy(name, add_lora(model) if lora else model, tokenizer)
    return Team(policies, {} if shared else {agent: agent for agent in agents})


@dataclass(frozen=True)
class Toy:
    """A problem of a toy environment."""

    id: str
    text: str


@dataclass(frozen=True)
class ToyState:
    problem: Toy
    turn: int = 0
    seen: tuple[str, ...] = ()


class Agree(Environment[Toy, ToyState]):
    """Every agent says a digit, all the same one; nobody is told which: the team has to settle on one."""

    def __init__(self, agents: Sequence[str] = ("one", "two"), turns: int = 1, fail: Sequence[str] = ()) -> None:
        self.names = tuple(agents)
        self.turns = turns
        self.reward_bounds = (0.0, 1.0)
        self.fail = set(fail)
        self.steps = 0

    def agents(self, problem: Toy) -> tuple[str, ...]:
        return self.names

    def start(self, problem: Toy, seed: int = 0) -> ToyState:
        return ToyState(problem)

    def observe(self, state: ToyState, agent: int) -> str:
        return f"pick {state.problem.text} {WORDS[3 + agent % 2]}" + (f" {state.turn}" if state.turn else "")

    def reward(self, problem: Toy, actions: Sequence[str]) -> float:
        """0.3 times the share of actions that begin with a digit, and 0.7 when all begin with the same (alone: 3)."""
        first = [(action.split() or [""])[0] for action in actions]
        digits = [word for word in first if word in WORDS[8:]]
        same = len(digits) == len(actions) and len(set(digits)) == 1 and (len(digits) > 1 or digits[0] == "3")
        return 0.3 * len(digits) / len(actions) + 0.7 * same

    def step(self, states: Sequence[ToyState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[ToyState]]:
        self.steps += 1
        outcomes = []
        for state, actions in zip(states, joint_actions, strict=True):
            lost = state.problem.id in self.fail
            reward = self.reward(state.problem, actions)
            following = ToyState(state.problem, state.turn + 1, (*state.seen, " ".join(actions)))
            outcomes.append(
                Outcome(
                    None if lost else reward,
                    {"agreement": reward},
                    {"solved": float(reward > 0.99)},
                    following,
                    done=following.turn >= self.turns,
                )
            )
        return outcomes


TOYS = [Toy(f"toy/{word}", word) for word in ("red", "green", "blue")]
SAMPLING = Sampling(temperature=1.0, max_new_tokens=2)


def make_settings(**changes: Any) -> TrainSettings:
    values: dict[str, Any] = {
        "steps": 30,
        "problems_per_step": 3,
        "group_size": 16,
        "checkpoint_every": 10,
        "learning_rate": 1e-2,
    }
    return TrainSettings.model_validate(values | changes)


@pytest.fixture
def engine() -> TransformersEngine:
    return TransformersEngine(rows=64)


def run_training(tmp_path: Path, team: Team, environment: Environment[Any, Any], **options: Any) -> Any:
    from pipeline_lib.training.trainer import train

    settings = options.pop("settings", None) or make_settings()
    steps: list[dict[str, float]] = []
    result = train(
        settings=settings,
        sampling=options.pop("sampling", SAMPLING),
        environment=environment,
        team=team,
        engine=options.pop("engine", None) or TransformersEngine(rows=64),
        problems=options.pop("problems", TOYS),
        seed=options.pop("seed", 0),
        scratch=options.pop("scratch", tmp_path / "scratch"),
        on_step=options.pop("on_step", lambda step, metrics: steps.append(metrics)),
        **options,
    )
    return result, steps
