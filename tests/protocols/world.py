"""A tiny Qwen3 that reads any text, an engine that remembers its calls, and an environment that remembers its turns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Action, Request, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine

SAMPLING = Sampling(temperature=1.0, max_new_tokens=12)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {"<end>": 0, **{letter: number + 1 for number, letter in enumerate(alphabet)}}
    core = Tokenizer(models.BPE(words, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<end>")


def make_team(*names: str, seed: int = 0) -> Team:
    """Return a team with one policy per name; ``team`` alone is shared by everybody."""
    tokenizer = make_tokenizer()
    policies = {}
    for number, name in enumerate(names):
        torch.manual_seed(seed + number)
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            eos_token_id=0,
            pad_token_id=0,
            initializer_range=0.3,
        )
        model = Qwen3ForCausalLM(config).eval()
        model.generation_config.eos_token_id = 0
        policies[name] = Policy(name, model, tokenizer)
    return Team(policies, {} if names == ("team",) else {name: name for name in names})


class Listening(TransformersEngine):
    """The real engine, with a record of every call: the prompts as text, and the answers."""

    def __init__(self, team: Team | None = None) -> None:
        super().__init__(rows=64)
        if team is not None:
            self.load(team.policies)
        self.calls: list[list[tuple[str, str, str]]] = []
        self.requests: list[Request] = []

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        found = super().generate(requests, sampling)
        tokenizer = self.policy_of(requests[0].policy).tokenizer
        said = [
            (request.policy, tokenizer.decode(list(request.prompt)), actions[0].text)
            for request, actions in zip(requests, found, strict=True)
        ]
        self.calls.append(said)
        self.requests += requests
        return found


@dataclass(frozen=True)
class Talk:
    """A problem: who talks, and for how many turns; ``lost`` is the turn in which the infrastructure fails."""

    id: str
    speakers: tuple[str, ...] = ("one", "two")
    turns: int = 1
    lost: int = -1
    family: str = "talk"


@dataclass(frozen=True)
class TalkState:
    problem: Talk
    seed: int
    said: tuple[tuple[str, ...], ...] = ()


class Talking(Environment[Talk, TalkState]):
    """Everybody says something; a vowel is worth a point.  In turns, if asked for: one speaker after the other."""

    turns = 9
    reward_bounds = (0.0, 10.0)

    def __init__(self, in_turns: bool = False) -> None:
        self.in_turns = in_turns
        self.steps: list[int] = []

    def agents(self, problem: Talk) -> tuple[str, ...]:
        return problem.speakers

    def start(self, problem: Talk, seed: int = 0) -> TalkState:
        return TalkState(problem, seed)

    def acting(self, state: TalkState) -> Sequence[int] | None:
        return [len(state.said) % len(state.problem.speakers)] if self.in_turns else None

    def observe(self, state: TalkState, agent: int) -> str:
        return f"{state.problem.speakers[agent]} of {state.problem.id}, turn {len(state.said)}\n"

    def step(self, states: Sequence[TalkState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[TalkState]]:
        self.steps.append(len(states))
        outcomes = []
        for state, actions in zip(states, joint_actions, strict=True):
            turn, problem = len(state.said), state.problem
            vowels = float(sum(letter in "aeiou" for letter in "".join(actions)))
            following = replace(state, said=(*state.said, tuple(actions)))
            details = {"said": [list(turn) for turn in following.said], "seed": state.seed}
            if turn == problem.lost:
                outcomes.append(Outcome(None, {}, {}, following, True, {"status": "infra_error"}))
                continue
            terms, metrics = {"vowels": vowels, "turn": 1.0}, {"turn": float(turn)}
            done = turn + 1 >= problem.turns
            outcomes.append(Outcome(vowels + 1.0, terms, metrics, following, done, details))
        return outcomes
