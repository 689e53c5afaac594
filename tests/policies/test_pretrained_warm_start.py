"""The warm start of pretrained models: what counts, what moves, what stays, and where it goes on."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.policies import imitation
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Policy, PolicyError
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings.policy import PretrainedPolicy
from pipeline_lib.settings.problems import SplitSizes, TextProblems
from pipeline_lib.storage import folder_digest, read_json, write_json

ROOT = Path(__file__).parents[2]
CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"


def _settings(model: Path, **changes: object) -> PretrainedPolicy:
    values = {
        "models": [str(model)],
        "dtype": "float32",
        "adapter": {"kind": "lora", "rank": 3, "alpha": 6},
        "warm_start": {"steps": 12, "batch": 4, "learning_rate": 0.01},
        **changes,
    }
    return PretrainedPolicy.model_validate({"kind": "pretrained", **values})


@pytest.fixture(scope="module")
def model(foreign: Callable[[str], Path]) -> Path:
    """A random Llama whose context holds the demonstrations, with a chat template."""
    folder = foreign("llama-5")
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", {**config, "max_position_embeddings": 640})
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())


def test_the_loss_is_the_mean_over_action_and_end_in_the_chat_template(model: Path):
    policy = Policy("base", AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model), True)
    shown = [
        Demonstration("items even\n", "def aux(xs):\n    return xs"),
        Demonstration("x", "y = 1"),
        Demonstration("", ""),
    ]
    examples = imitation.encode(shown, policy)
    total, count = 0.0, 0
    for demonstration in shown:
        prompt = policy.tokenizer(f"[user]{demonstration.observation}[/][a]")["input_ids"]
        action = [*policy.tokenizer(demonstration.action)["input_ids"], policy.tokenizer.eos_token_id]
        with torch.no_grad():
            scores = policy.model(torch.tensor([[*prompt, *action]])).logits[0].double().log_softmax(-1)
        total -= sum(float(scores[len(prompt) + k - 1, token]) for k, token in enumerate(action))
        count += len(action)
    with torch.no_grad():
        assert float(imitation.loss_of(policy.model, examples)) == pytest.approx(total / count, rel=1e-5)


def test_a_loss_in_pieces_is_the_loss_in_one(model: Path):
    policy = Policy("base", AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model))
    examples = imitation.encode([Demonstration("a" * n, "b" * (n + 1)) for n in range(1, 7)], policy)
    parts = list(imitation.pieces(examples, 12))
    assert len(parts) > 2 and [example for part in parts for example in part] == examples
    assert all(max(len(ids) for ids, _ in part) * len(part) <= 12 or len(part) == 1 for part in parts)
    whole = sum(len(ids) - prompt for ids, prompt in examples)
    with torch.no_grad():
        found = sum(
            float(imitation.loss_of(policy.model, part)) * sum(len(ids) - prompt for ids, prompt in part)
            for part in parts
        )
        assert found / whole == pytest.approx(float(imitation.loss_of(policy.model, examples)), rel=1e-5)


def test_the_adapter_moves_and_the_base_below_it_stays(model: Path, problems_folder: Path, tmp_path: Path):
    before = folder_digest(model)
    curve: list[tuple[int, dict[str, float]]] = []
    facts = build_base(
        _settings(model), problems_folder, tmp_path / "base", on_step=lambda step, found: curve.append((step, found))
    )
    assert folder_digest(model) == before, "the model's own folder is not touched"
    assert facts["last_loss"] < facts["first_loss"] and facts["demonstrations"] == 48
    assert [step for step, _ in curve] == list(range(1, 13))
    assert curve[0][1]["warm_start/loss"] == pytest.approx(facts["first_loss"], abs=1e-6)
    old, new = _weights(model), _weights(tmp_path / "base")
    assert old.keys() == new.keys()
    for name, weight in old.items():
        change = (new[name] - weight).detach().double()
        if "_proj" in name:
            rank = int(torch.linalg.matrix_rank(change, atol=1e-5))
            assert 1 <= rank <= 3, f"{name}: the change is that of an adapter of rank 3, not {rank}"
        else:
            assert not change.any(), name


def test_without_an_adapter_all_weights_move(model: Path, problems_folder: Path, tmp_path: Path):
    settings = _settings(model, adapter={"kind": "none"}, dtype="bfloat16")
    build_base(settings, problems_folder, tmp_path / "base")
    old, new = _weights(model), _weights(tmp_path / "base")
    assert all(value.dtype == torch.float32 for value in new.values())
    assert all((new[name] != weight).any() for name, weight in old.items())


def test_the_team_begins_as_the_warm_started_base(model: Path, problems_folder: Path, tmp_path: Path):
    settings = _settings(model)
    build_base(settings, problems_folder, tmp_path / "base")
    team = load_team(settings, tmp_path / "base", ("helper", "main"))
    ids = torch.tensor([team.policy_of("main").encode("items even")])
    with torch.no_grad():
        wanted = AutoModelForCausalLM.from_pretrained(tmp_path / "base")(ids).logits
        raw = AutoModelForCausalLM.from_pretrained(model)(ids).logits
        for agent in ("helper", "main"):
            policy = team.policy_of(agent)
            assert policy.chat and torch.allclose(policy.model(ids).logits, wanted, atol=1e-5)
    assert not torch.allclose(raw, wanted, atol=1e-2)
    assert {name for name, _ in team.policy_of("main").trainable() if "lora" not in name} == set()


@pytest.mark.parametrize(
    "changes",
    [{"adapter": {"kind": "lora", "rank": 4}}, {"warm_start": {"steps": 11, "batch": 4}}, {"warm_start": None}],
)
def test_a_base_with_another_warm_start_is_refused(
    changes: dict[str, object], model: Path, problems_folder: Path, tmp_path: Path
):
    build_base(_settings(model), problems_folder, tmp_path / "base")
    with pytest.raises(PolicyError, match="was made from other policy settings"):
        load_team(_settings(model, **changes), tmp_path / "base", ("helper", "main"))


def test_killed_half_way_it_continues_to_the_same_bits(model: Path, problems_folder: Path, tmp_path: Path):
    settings = _settings(model)
    build_base(settings, problems_folder, tmp_path / "whole")
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from pipeline_lib.policies import imitation, warm_start\n"
        "from pipeline_lib.settings.policy import PretrainedPolicy\n"
        "imitation._SAVE_EVERY = 0.0\n"
        "settings = PretrainedPolicy.model_validate_json(sys.stdin.read())\n"
        "die = lambda step, found: step == 7 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"problems, base = Path({str(problems_folder)!r}), Path({str(tmp_path / 'base')!r})\n"
        "warm_start.build_base(settings, problems, base, on_step=die)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=settings.model_dump_json().encode(),
        cwd=ROOT,
        check=False,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    saved = json.loads((tmp_path / ".base.unfinished" / "state.json").read_text())
    assert len(saved["losses"]) == 6 and not (tmp_path / "base").exists()
    logged: list[int] = []
    build_base(settings, problems_folder, tmp_path / "base", on_step=lambda step, found: logged.append(step))
    assert logged == list(range(1, 13)), "the history is logged again from the start"
    assert folder_digest(tmp_path / "base") == folder_digest(tmp_path / "whole")
    assert not (tmp_path / ".base.unfinished").exists()


def test_a_damaged_or_foreign_state_is_not_used(
    model: Path,
    problems_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(imitation, "_SAVE_EVERY", 0.0)
    build_base(_settings(model), problems_folder, tmp_path / "whole")

    def stop(step: int, found: dict[str, float]) -> None:
        if step == 7:
            raise KeyboardInterrupt

    def interrupted(settings: PretrainedPolicy) -> Path:
        with pytest.raises(KeyboardInterrupt):
            build_base(settings, problems_folder, tmp_path / "base", on_step=stop)
        return tmp_path / ".base.unfinished"

    interrupted(_settings(model, warm_start={"steps": 12, "batch": 4, "learning_rate": 0.02}))
    build_base(_settings(model), problems_folder, tmp_path / "base")
    assert folder_digest(tmp_path / "base") == folder_digest(tmp_path / "whole"), "of other settings"
    weights = interrupted(_settings(model)) / "state.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    build_base(_settings(model), problems_folder, tmp_path / "base")
    assert "the warm start begins again" in caplog.text
    assert folder_digest(tmp_path / "base") == folder_digest(tmp_path / "whole")


def test_where_there_are_no_demonstrations_it_is_refused(model: Path, tmp_path: Path):
    sizes = SplitSizes(train=8, validation=2, test=2)
    prepare("tests.environments.test_text_task:Silent", TextProblems(sizes=sizes), tmp_path / "problems")
    with pytest.raises(ProblemsError, match=r"policy.warm_start: this environment has no demonstrations"):
        build_base(_settings(model), tmp_path / "problems", tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_several_models_cannot_begin_as_one():
    with pytest.raises(ValueError, match="warm_start trains one model for all agents, and models names 2"):
        PretrainedPolicy.model_validate({"kind": "pretrained", "models": ["a", "b"], "warm_start": {}})
