"""The card of an exported team; the chain's tests export a whole team (tests/flows/test_chain.py)."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.policy import Team
from pipeline_lib.settings import load_params
from tasks.use.exporting import _program, fence, told_later
from tests.rollouts.tiny import policy

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("coding-quick", ""),
        ("modules-orchestrated", "in later turns"),
        ("coding-tools", "after a call of a tool"),
        ("documents-tools", "in later turns and after a call of a tool"),
    ],
)
def test_a_card_says_what_agents_read_after_its_prompts(tmp_path: Path, preset: str, told: str) -> None:
    (tmp_path / "params.yaml").write_text(f"environment: {preset}\n")
    params = load_params(tmp_path / "params.yaml", ROOT / "conf")
    environment = make_environment(params.environment, params.sandbox)
    try:
        assert told_later(environment) == told
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("texts", "edge"), [([], 3), (["no `code`"], 3), (["", "```python\nx\n```"], 4), (["`" * 7], 8)]
)
def test_no_observation_ends_its_block_in_the_card(texts: list[str], edge: int) -> None:
    assert fence(texts) == "`" * edge


@pytest.mark.parametrize(("kind", "eager"), [("gemma2", True), ("qwen3", False)])
@pytest.mark.parametrize("bases", [{}, {"main": "base"}], ids=["whole", "adapters"])
def test_the_program_computes_attention_as_training_did(kind: str, eager: bool, bases: dict[str, str]) -> None:
    """transformers by itself leaves out the limit on Gemma 2's attention scores."""
    params = SimpleNamespace(rollouts=SimpleNamespace(max_new_tokens=4))
    team = Team({"main": policy(kind)}, {"main": "main"})
    program = _program(params, team, {"main": "Go."}, bases, local=True)
    assert ('attn_implementation="eager")' in program) == eager
