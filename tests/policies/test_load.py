"""Loading teams: whose weights are whose, in which precision, and what cannot be loaded."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.lora import base_fingerprint
from pipeline_lib.policies.policy import Policy, PolicyError, Team, remote_policy
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings.policy import EmbeddedPolicy, PretrainedPolicy
from tests.policies.conftest import TINY

AGENTS = ("helper", "main")
LORA = {"kind": "lora", "rank": 4}


def _embedded(**changes: object) -> EmbeddedPolicy:
    return EmbeddedPolicy.model_validate({**TINY.model_dump(), **changes})


def _team(tmp_path: Path, agents: tuple[str, ...] = AGENTS, **settings: Any) -> Team:
    """Load pretrained models, with a note beside them as the chain would make it."""
    section = PretrainedPolicy.model_validate({"attention": "eager", **settings})
    build_base(section, tmp_path, tmp_path / "base")
    return load_team(section, tmp_path / "base", agents)


def _logits(policy: Policy, text: str = "aux: items over 3, plus 4\n") -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = policy.model(torch.tensor([policy.encode(text)])).logits
        return logits


def _shared(one: Policy, other: Policy) -> set[bool]:
    there = dict(other.model.named_parameters())
    return {there[name] is parameter for name, parameter in one.model.named_parameters() if "lora_" not in name}


def test_agents_have_weights_of_their_own_that_start_equal(base: Path):
    team = load_team(TINY, base, AGENTS)
    helper, main = team.policy_of("helper"), team.policy_of("main")
    assert (helper.name, main.name) == AGENTS and set(team.policies) == set(AGENTS)
    assert torch.equal(_logits(helper), _logits(main))
    before = _logits(main)
    with torch.no_grad():
        for _, parameter in helper.trainable():
            parameter.add_(0.1)
    assert torch.equal(_logits(main), before) and not torch.equal(_logits(helper), before)


def test_shared_parameters_are_one_policy_for_everybody(base: Path):
    team = load_team(_embedded(parameters="shared"), base, AGENTS)
    assert list(team.policies) == ["team"]
    assert team.policy_of("helper") is team.policy_of("main") is team.policies["team"]


def test_a_single_agent_is_a_team_of_one(base: Path):
    assert list(load_team(TINY, base, ("single",)).policies) == ["single"]


def test_a_policy_knows_its_context_if_its_model_does(base: Path):
    plain, lora = (load_team(_embedded(adapter=adapter), base, AGENTS) for adapter in ({"kind": "none"}, LORA))
    assert [team.policy_of("main").context for team in (plain, lora)] == [TINY.context] * 2
    assert remote_policy("main", "a").context is None


def test_full_training_moves_every_weight_in_float32(base: Path):
    policy = load_team(TINY, base, AGENTS).policy_of("main")
    model: Any = policy.model
    assert len(list(policy.trainable())) == len(list(model.parameters()))
    assert {parameter.dtype for _, parameter in policy.trainable()} == {torch.float32}
    assert model.config._attn_implementation == "eager" and not model.training


def test_a_prompt_is_the_observation_and_actions_can_end(base: Path):
    policy = load_team(TINY, base, AGENTS).policy_of("main")
    ids = policy.encode("main: chosen items, plus 4, sum\n")
    assert policy.decode(ids) == "main: chosen items, plus 4, sum\n"
    assert policy.end_ids == (policy.tokenizer.eos_token_id,) and not policy.chat


def test_adapters_share_one_base_in_memory(base: Path):
    team = load_team(_embedded(adapter=LORA), base, AGENTS)
    helper, main = team.policies.values()
    assert _shared(helper, main) == {True}
    assert all("lora_" in name for name, _ in helper.trainable())
    assert not {id(p) for _, p in helper.trainable()} & {id(p) for _, p in main.trainable()}


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "phi3", "gpt2", "bloom"])
def test_every_architecture_loads_in_every_way(foreign: Callable[[str], Path], tmp_path: Path, kind: str):
    path = str(foreign(kind))
    full = _team(tmp_path, models=(path,), adapter={"kind": "none"}, dtype="bfloat16", attention="auto")
    assert {p.dtype for _, p in full.policy_of("main").trainable()} == {torch.float32}
    assert _shared(*full.policies.values()) == {False}
    adapted = _team(tmp_path, models=(path,), adapter=LORA, dtype="bfloat16", attention="auto")
    assert {p.dtype for _, p in adapted.policy_of("main").trainable()} == {torch.float32}
    frozen = {p.dtype for p in adapted.policy_of("main").model.parameters() if not p.requires_grad}
    assert frozen == {torch.bfloat16}
    assert _shared(*adapted.policies.values()) == {True}
    reference = _logits(full.policy_of("helper"))
    assert torch.allclose(_logits(adapted.policy_of("helper")).float(), reference, atol=0.05)


def test_two_models_are_two_bases_in_the_order_of_the_agents(foreign: Callable[[str], Path], tmp_path: Path):
    paths = (str(foreign("qwen3")), str(foreign("llama-1")))
    team = _team(tmp_path, models=paths, adapter=LORA, dtype="float32")
    assert type(team.policy_of("helper").model.get_base_model()).__name__ == "Qwen3ForCausalLM"
    assert type(team.policy_of("main").model.get_base_model()).__name__ == "LlamaForCausalLM"


def test_gradient_checkpointing_is_switched_on_and_gradients_flow(foreign: Callable[[str], Path], tmp_path: Path):
    team = _team(tmp_path, models=(str(foreign("qwen2")),), adapter=LORA, dtype="float32")
    policy = team.policy_of("main")
    model: Any = policy.model
    assert model.is_gradient_checkpointing
    model.train()
    model(torch.tensor([policy.encode("def")])).logits.sum().backward()
    assert all(p.grad is not None for _, p in policy.trainable())


TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is false %}(no thought){% endif %}{% endif %}"
)


def _with_template(model: Path, folder: Path, template: str) -> str:
    shutil.copytree(model, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return str(folder)


@pytest.mark.parametrize(("chat", "used"), [("auto", True), ("never", False)])
def test_a_chat_template_is_used_where_there_is_one(
    foreign: Callable[[str], Path], tmp_path: Path, chat: str, used: bool
):
    folder = _with_template(foreign("qwen3"), tmp_path / "chatty", TEMPLATE)
    policy = _team(tmp_path, models=(folder,), chat=chat).policy_of("main")
    expected = "<user>def f(): ...<assistant>(no thought)" if used else "def f(): ..."
    assert policy.chat is used
    assert policy.decode(policy.encode("def f(): ...")) == expected


def test_the_day_in_a_chat_template_is_a_fixed_one(foreign: Callable[[str], Path], tmp_path: Path):
    template = "Today is {{ strftime_now('%d %b %Y, %H:%M') }}. {{ messages[-1]['content'] }}"
    folder = _with_template(foreign("qwen3"), tmp_path / "dated", template)
    policy = _team(tmp_path, models=(folder,)).policy_of("main")
    assert policy.decode(policy.encode("Go.")) == "Today is 26 Jul 2024, 00:00. Go."


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('A system message is required') }}", "TemplateError: A system message is required"),
        ("{% for m in messages %}", "TemplateSyntaxError: Unexpected end of template"),
        ("{{ 'a' + 1 }}", "TypeError: can only concatenate str"),
    ],
)
def test_a_chat_template_that_cannot_be_applied_is_refused_in_words(
    template: str, reason: str, foreign: Callable[[str], Path], tmp_path: Path
):
    folder = _with_template(foreign("qwen3"), tmp_path / "broken", template)
    policy = _team(tmp_path, models=(folder,)).policy_of("main")
    with pytest.raises(PolicyError, match=rf"policy.chat: the chat template of {folder} .*\({reason}.*auto, never"):
        policy.encode("Go.")


def test_a_model_without_a_chat_template_gets_the_plain_text(foreign: Callable[[str], Path], tmp_path: Path):
    policy = _team(tmp_path, models=(str(foreign("qwen3")),), chat="auto").policy_of("main")
    assert not policy.chat and policy.decode(policy.encode("def f(): ...")) == "def f(): ..."


def test_stop_strings_reach_the_policy(foreign: Callable[[str], Path], tmp_path: Path):
    team = _team(tmp_path, models=(str(foreign("qwen3")),), stop_strings=("\ndef ", "```"))
    assert team.policy_of("main").stop_strings == ("\ndef ", "```")


def test_a_model_that_cannot_end_needs_stop_strings(foreign: Callable[[str], Path], tmp_path: Path):
    folder = Path(shutil.copytree(foreign("qwen3"), tmp_path / "endless"))
    for name, key in (("config.json", "eos_token_id"), ("generation_config.json", "eos_token_id")):
        content = json.loads((folder / name).read_text())
        content.pop(key)
        (folder / name).write_text(json.dumps(content))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer.pop("eos_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    with pytest.raises(PolicyError, match=r"no end token.*set policy.stop_strings"):
        _team(tmp_path, models=(str(folder),))
    _team(tmp_path, models=(str(folder),), stop_strings=("\n\n",))


def test_the_number_of_models_must_fit_the_agents(foreign: Callable[[str], Path], tmp_path: Path):
    paths = (str(foreign("qwen3")), str(foreign("llama")))
    with pytest.raises(PolicyError, match=r"policy.models: 2 models for 1 policies \(team\)"):
        _team(tmp_path, models=paths, parameters="shared")


def test_one_agent_in_place_of_a_team_has_the_largest_of_its_models(
    foreign: Callable[[str], Path], tmp_path: Path
) -> None:
    paths = sorted((str(foreign("qwen3")), str(foreign("llama"))))
    for models in (paths, paths[::-1]):
        settings = PretrainedPolicy(models=tuple(models), attention="eager")
        build_base(settings, tmp_path / "problems", tmp_path / "base")
        two, one = (load_team(settings, tmp_path / "base", agents).policies for agents in (AGENTS, ("single",)))
        sizes = [policy.model.get_base_model().num_parameters() for policy in two.values()]
        assert len(set(sizes)) == 2
        assert one["single"].model.get_base_model().num_parameters() == max(sizes)
        shutil.rmtree(tmp_path / "base")


def test_a_tokenizer_of_another_model_is_noticed(foreign: Callable[[str], Path], tmp_path: Path):
    folder = Path(shutil.copytree(foreign("qwen3"), tmp_path / "mixed"))
    content = json.loads((folder / "tokenizer.json").read_text())
    size = len(content["model"]["vocab"])
    content["added_tokens"] += [
        {**content["added_tokens"][0], "id": size + n, "content": f"<|more{n}|>"} for n in range(10)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=r"the tokenizer has \d+ entries, the model embeds only \d+"):
        _team(tmp_path, models=(str(folder),))


def test_a_model_that_vanished_since_is_named(foreign: Callable[[str], Path], tmp_path: Path):
    folder = Path(shutil.copytree(foreign("qwen3"), tmp_path / "here"))
    _team(tmp_path, models=(str(folder),))
    shutil.rmtree(folder)
    with pytest.raises(PolicyError, match=r"policy.models: .*here: no such folder, and the hub did not provide it"):
        load_team(PretrainedPolicy(models=(str(folder),), attention="eager"), tmp_path / "base", AGENTS)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "generation_config.json"])
def test_a_model_whose_folder_has_changed_since_is_refused(name: str, foreign: Callable[[str], Path], tmp_path: Path):
    folder = Path(shutil.copytree(foreign("qwen3"), tmp_path / "here"))
    _team(tmp_path, models=(str(folder),))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(PolicyError, match=rf"policy.models: .*here: .*not what the base was made of: {name} changed"):
        load_team(PretrainedPolicy(models=(str(folder),), attention="eager"), tmp_path / "base", AGENTS)


MOVING = """
import logging, sys
from pathlib import Path
logging.basicConfig(stream=sys.stdout)
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings.policy import NoAdapter, PretrainedPolicy

here = Path(sys.argv[1])
settings = PretrainedPolicy(models=("someone/model",), attention="eager", adapter=NoAdapter())
facts = build_base(settings, here, here / "base")
print(facts["models"][0]["revision"])
print(team_digest(load_team(settings, here / "base", ("one",))))
(here / "hub/models--someone--model/refs/main").write_text("b" * 40)
print(team_digest(load_team(settings, here / "base", ("one",))))
"""


def test_a_branch_that_moves_on_the_hub_moves_no_base_and_is_named(foreign: Callable[[str], Path], tmp_path: Path):
    repository = tmp_path / "hub/models--someone--model"
    for commit, name in (("a" * 40, "qwen3"), ("b" * 40, "qwen3-1")):
        shutil.copytree(foreign(name), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("a" * 40)
    done = subprocess.run(
        [sys.executable, "-c", MOVING, str(tmp_path)],
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    commit, first, warning, second = done.stdout.splitlines()
    assert commit == "a" * 40
    assert first == second
    assert "'main' is commit bbbbbbbbbbbb by now; this run stays with aaaaaaaaaaaa" in warning


def test_a_base_can_be_told_from_another_whatever_its_precision(foreign: Callable[[str], Path], tmp_path: Path):
    def fingerprint(name: str, dtype: str) -> str:
        team = _team(tmp_path, models=(str(foreign(name)),), adapter=LORA, dtype=dtype)
        return base_fingerprint(team.policy_of("main"))

    assert fingerprint("qwen3", "float32") == fingerprint("qwen3", "bfloat16") != fingerprint("qwen3-1", "float32")
