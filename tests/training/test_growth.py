"""A process that trains a large model holds as much after many updates as after a few."""

import random
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline_lib.memory import SMALL_MODEL
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.policy import LoraAdapter
from pipeline_lib.training.trainer import train
from tests.training.conftest import END, WORDS, Agree, Toy, make_settings, make_tokenizer

AGENTS = ("one", "two")


class Noise(Agree):
    """Rewards that differ, whatever is written: every group has a gradient."""

    def reward(self, problem: Toy, actions: Sequence[str]) -> float:
        self.rewarded = getattr(self, "rewarded", 0) + 1
        return zlib.crc32(str(self.rewarded).encode()) % 1000 / 1000


def test_a_process_does_not_grow_with_its_updates(tmp_path: Path) -> None:
    """Prompts and actions of ever new lengths, 10 million parameters: every product has a new shape each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16_384,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    base = LlamaForCausalLM(config).eval()
    base.generation_config.eos_token_id = END
    assert base.num_parameters() > SMALL_MODEL
    tokenizer = make_tokenizer()
    policies = {
        name: Policy(name, attach(base, LoraAdapter(), name, 0), tokenizer, below=base)  # type: ignore[arg-type]
        for name in AGENTS
    }
    rng = random.Random(0)
    problems = [Toy(str(i), " ".join(rng.choices(WORDS[3:], k=rng.randint(30, 120)))) for i in range(13)]
    held: list[float] = []
    train(
        settings=make_settings(steps=12, problems_per_step=1, group_size=4, checkpoint_every=12),
        sampling=Sampling(max_new_tokens=8),
        environment=Noise(AGENTS),
        team=Team(policies, {name: name for name in AGENTS}),
        engine=TransformersEngine(),
        problems=problems,
        seed=0,
        scratch=tmp_path / "run",
        on_step=lambda step, metrics: held.append(metrics["memory/now_mb"]),
    )
    assert held[11] < 1.04 * held[2], held
