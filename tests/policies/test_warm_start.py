"""Warm start: the right tokens count, the same bytes come out, and nothing is left half-written."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.coding.demonstrations import demonstrate
from pipeline_lib.environments.coding.settings import DatasetProblems
from pipeline_lib.policies import imitation, warm_start
from pipeline_lib.policies.base import base_digest, check_base
from pipeline_lib.policies.embedded import make_model, single_core_numerics, train_tokenizer
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Policy, PolicyError
from pipeline_lib.policies.warm_start import LaterTurns, build_base
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings.policy import EmbeddedPolicy, PretrainedPolicy
from pipeline_lib.storage import folder_digest
from tests.policies.conftest import TINY


def _changed(**changes: object) -> EmbeddedPolicy:
    return EmbeddedPolicy.model_validate({**TINY.model_dump(), **changes})


def test_the_base_is_an_ordinary_transformers_folder(base: Path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.config.tie_word_embeddings and model.dtype == torch.float32
    assert model.config.eos_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert model.config.vocab_size == len(tokenizer)


def test_the_note_beside_it_has_facts_and_no_times(base: Path, problems_folder: Path):
    facts = json.loads((base / "base.json").read_text())
    assert set(facts) == {
        "kind", "settings", "problems", "steps", "demonstrations", "first_loss", "last_loss", "parameters",
        "vocabulary",
    }  # fmt: skip
    assert (facts["kind"], facts["steps"], facts["demonstrations"]) == ("embedded", 12, 96)
    assert facts["last_loss"] < facts["first_loss"]
    assert check_base(TINY, base) == facts


@pytest.mark.parametrize("spread", [0.02, 0.088])
def test_first_weights_are_as_wide_as_set(spread: float):
    settings = EmbeddedPolicy(initializer_range=spread)
    model = make_model(settings, train_tokenizer(["a"], settings.vocabulary, settings.context))
    for name, weights in model.named_parameters():
        if weights.ndim == 2:
            assert weights.std().item() == pytest.approx(spread, rel=0.05), name


def test_the_default_has_at_most_a_million_parameters():
    settings = EmbeddedPolicy()
    tokenizer = train_tokenizer(["def aux(xs):\n    return xs"], settings.vocabulary, settings.context)
    assert make_model(settings, tokenizer).num_parameters() < 1_000_000


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(base: Path, problems_folder: Path, tmp_path: Path):
    torch.manual_seed(99)  # the state of the process must not matter
    build_base(TINY, problems_folder, tmp_path / "same")
    build_base(_changed(seed=1), problems_folder, tmp_path / "other")
    assert folder_digest(tmp_path / "same") == folder_digest(base)
    weights = "model.safetensors"
    assert (tmp_path / "other" / weights).read_bytes() != (base / weights).read_bytes()


def test_later_turns_are_mixed_in_and_the_rest_are_the_first_ones(
    base: Path, problems_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    encoded: list[list[Demonstration]] = []
    encode = warm_start.encode
    monkeypatch.setattr(
        warm_start, "encode", lambda drawn, *rest: (encoded.append(list(drawn)), encode(drawn, *rest))[1]
    )
    asked = []

    def later(problems: Sequence[object], count: int, mistakes: float, seed: int) -> list[Demonstration]:
        asked.append((len(problems), count, mistakes, seed))
        return [Demonstration("Your code:", f"again {number}") for number in range(count)]

    facts = build_base(
        _changed(warm_start={"steps": 12, "batch": 8}),
        problems_folder,
        tmp_path / "a",
        None,
        LaterTurns(0.25, later),
    )
    (drawn,) = encoded
    assert asked == [(40, 24, 0.2, 0)] and facts["demonstrations"] == len(drawn) == 96
    places = [place for place, one in enumerate(drawn) if one.observation == "Your code:"]
    assert len(places) == 24 and max(places) - min(places) > 60, "mixed"
    first = demonstrate(load_split(problems_folder, "train"), 72, 0.2, 0)
    assert sorted(map(repr, drawn)) == sorted(map(repr, [*first, *later([], 24, 0, 0)]))
    build_base(TINY, problems_folder, tmp_path / "none", None, LaterTurns(0.5, lambda *_: []))
    assert folder_digest(tmp_path / "none") == folder_digest(base), "an environment may have none"


def test_settings_of_torch_are_what_they_were(problems_folder: Path, tmp_path: Path):
    before = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.random.get_rng_state().tolist())
    build_base(TINY, problems_folder, tmp_path / "base")
    after = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.random.get_rng_state().tolist())
    assert before == after
    with pytest.raises(RuntimeError), single_core_numerics():
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before[1]


def test_the_loss_is_that_of_the_action_and_its_end_and_of_nothing_else(problems_folder: Path):
    demonstrations = demonstrate(load_split(problems_folder, "train"), 6, 0.3, 0)
    tokenizer = train_tokenizer([d.action for d in demonstrations], 400, 160)
    model = make_model(TINY, tokenizer).eval()
    examples = imitation.encode(demonstrations, Policy("base", model, tokenizer))
    total, count = 0.0, 0
    with torch.no_grad():
        for demonstration, (ids, prompt) in zip(demonstrations, examples, strict=True):
            action = [*tokenizer(demonstration.action)["input_ids"], tokenizer.eos_token_id]
            assert ids[:prompt] == tokenizer(demonstration.observation)["input_ids"]
            assert ids[prompt:] == action
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            total -= sum(float(logprobs[prompt + k - 1, token]) for k, token in enumerate(action))
            count += len(action)
        loss = imitation.loss_of(model, examples)
    assert float(loss) == pytest.approx(total / count, rel=1e-5)


def test_every_demonstration_is_used_once(problems_folder: Path):
    examples = [([n] * (n % 7 + 1), 1) for n in range(100)]
    batches = list(imitation.batches(examples, 8, seed=0))
    assert sorted(ids[0] for batch in batches for ids, _ in batch) == list(range(100))
    assert {len(batch) for batch in batches} == {8, 4}


def test_the_learning_rate_rises_stays_and_falls():
    rates = [imitation.schedule(step, 600) for step in range(600)]
    assert rates[0] == pytest.approx(1 / 20) and rates[19] == rates[300] == 1.0
    assert rates[510] == pytest.approx(0.5) and 0 < rates[-1] < 0.01


def test_progress_is_reported_to_the_end(problems_folder: Path, tmp_path: Path):
    seen: list[tuple[int, int, str]] = []
    build_base(TINY, problems_folder, tmp_path / "base", lambda done, total, text: seen.append((done, total, text)))
    assert [done for done, _, _ in seen] == [10, 12]
    assert all(total == 12 and "loss" in text for _, total, text in seen)


def test_killed_half_way_it_leaves_nothing_and_the_next_run_finishes(problems_folder: Path, base: Path, tmp_path: Path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from tests.policies.conftest import TINY\n"
        "from pipeline_lib.policies import warm_start\n"
        "real = warm_start.write_json\n"
        "def die(path, facts):\n    real(path, facts)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "warm_start.write_json = die\n"
        f"warm_start.build_base(TINY, Path({str(problems_folder)!r}), Path({str(tmp_path / 'base')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "base").exists()
    build_base(TINY, problems_folder, tmp_path / "base")
    assert folder_digest(tmp_path / "base") == folder_digest(base)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_an_old_base_is_replaced(problems_folder: Path, base: Path, tmp_path: Path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "old.txt").write_text("from another run")
    build_base(TINY, problems_folder, tmp_path / "base")
    assert folder_digest(tmp_path / "base") == folder_digest(base)


def test_a_context_that_is_too_small_is_said(problems_folder: Path, tmp_path: Path):
    with pytest.raises(ProblemsError, match=r"policy.context: a demonstration takes \d+ tokens, .*holds 64"):
        build_base(_changed(context=64, vocabulary=280), problems_folder, tmp_path / "base")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Prepared problems of a dataset whose prompts are far longer than those of generated problems."""
    rows = [
        {
            "task_id": f"T/{n}",
            "prompt": f'def f(x):\n    """Return x plus {n}. {"So it is. " * 20}"""\n',
            "entry_point": "f",
            "test": f"def check(c):\n    assert c(1) == {n + 1}\n",
        }
        for n in range(10)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare("coding", DatasetProblems(kind="humaneval", source=str(tmp_path / "tasks.jsonl")), tmp_path / "dataset")
    return tmp_path / "dataset"


def test_a_base_for_a_dataset_is_warm_started_on_generated_problems(dataset: Path, tmp_path: Path):
    facts = build_base(_changed(context=400), dataset, tmp_path / "base")
    assert facts["last_loss"] < facts["first_loss"]
    policy = load_team(_changed(context=400), tmp_path / "base", ("main",)).policy_of("main")
    for split in ("train", "validation", "test"):
        for problem in load_split(dataset, split):
            assert len(policy.encode(problem.observations["main"])) < 400


def test_observations_that_do_not_fit_the_context_are_said(dataset: Path, tmp_path: Path):
    with pytest.raises(ProblemsError, match=r"policy.context: the longest observation takes \d+ tokens, .*holds 160"):
        build_base(TINY, dataset, tmp_path / "base")


def test_a_base_of_other_settings_is_refused(base: Path, tmp_path: Path):
    assert base_digest(TINY) == base_digest(_changed(adapter={"kind": "lora"}, parameters="shared"))
    with pytest.raises(PolicyError, match=r"base.json: the base was made from other policy settings"):
        check_base(_changed(hidden_size=64), base)
    with pytest.raises(PolicyError, match=r"is of kind 'embedded', policy.kind is 'pretrained'"):
        check_base(PretrainedPolicy(models=("x",)), base)
    with pytest.raises(PolicyError, match="there is no base policy; make it first"):
        check_base(TINY, tmp_path)


def test_the_base_of_pretrained_models_is_a_note_of_what_was_found(
    foreign: Callable[[str], Path], problems_folder: Path, tmp_path: Path
):
    path = str(foreign("qwen2"))
    facts = build_base(PretrainedPolicy(models=(path,)), problems_folder, tmp_path / "base")
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["base.json"]
    (model,) = facts["models"]
    assert (model["model"], model["architecture"], model["chat_template"]) == (path, "Qwen2ForCausalLM", False)
    assert {len(found) for found in model["files"].values()} == {64}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(model["files"])


def test_a_pretrained_model_that_is_not_there_is_named(problems_folder: Path, tmp_path: Path):
    settings = PretrainedPolicy(models=(str(tmp_path / "nowhere"),))
    with pytest.raises(PolicyError, match=r"policy.models: .*nowhere: no such folder"):
        build_base(settings, problems_folder, tmp_path / "base")
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(PolicyError, match=r"policy.models: .*nowhere: the folder cannot be loaded"):
        build_base(settings, problems_folder, tmp_path / "base")
    assert not (tmp_path / "base").exists()
