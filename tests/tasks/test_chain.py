"""Arithmetic on the stages; that DVC is asked rightly is seen in tests/flows/test_experiment.py."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch
import yaml
from transformers import LlamaConfig

from pipeline_lib.assembly import duration
from pipeline_lib.policies.sizes import Sizes, sizes_of
from tasks.chain import graph as chain

ROOT = Path(__file__).parents[2]


def graph(**above: str) -> dict[str, frozenset[str]]:
    return {name: frozenset(words.split()) for name, words in above.items()}


def test_what_remains_is_the_longest_way_when_there_are_hands_enough() -> None:
    above = graph(prepare="", one="prepare", two="prepare", report="one two")
    left = {"prepare": 5.0, "one": 10.0, "two": 20.0, "report": 1.0}
    assert chain.remaining_s(left, above, jobs=2) == 26.0
    assert chain.remaining_s(left, above, jobs=1) == 36.0


def test_finished_stages_count_as_done() -> None:
    above = graph(prepare="", one="prepare", two="prepare")
    assert chain.remaining_s({"one": 4.0, "two": 3.0}, above, jobs=1) == 7.0
    assert chain.remaining_s({}, above, jobs=1) == 0.0


def test_of_what_may_start_the_longest_way_comes_first() -> None:
    above = graph(prepare="", small="prepare", big="prepare", swift="prepare", sweep="swift", report="small big sweep")
    seconds = {"prepare": 5.0, "small": 9.0, "big": 10.0, "swift": 3.0, "sweep": 8.0, "report": 1.0}
    assert chain.in_order(above, seconds) == ["prepare", "swift", "big", "small", "sweep", "report"]


def test_expected_times_come_from_the_last_run_else_from_the_file_else_are_a_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "dvc.yaml").write_text("stages: {train: {meta: {seconds: 40}}, test: {cmd: x}}\n")
    names = ["train@0", "train@1", "test"]
    assert chain.expected_seconds(tmp_path, names) == {"train@0": 40.0, "train@1": 40.0, "test": chain.UNKNOWN_S}
    chain.remember_seconds(tmp_path, "train@1", 33.333, 30.0)
    chain.remember_seconds(tmp_path, "test", 5.0)
    assert chain.expected_seconds(tmp_path, names) == {"train@0": 40.0, "train@1": 33.33, "test": 5.0}
    assert chain.read_seconds(tmp_path)["train@1"] == {"seconds": 33.33, "work": 30.0}
    (tmp_path / "home" / "seconds/unknown.json").write_text("half a fi")
    (tmp_path / "dvc.yaml").write_text("not: [yaml")
    assert chain.expected_seconds(tmp_path, names) == dict.fromkeys(names, chain.UNKNOWN_S)


def test_times_of_a_small_model_say_nothing_about_a_pretrained_one_which_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured is replaced here by one pace, for the same number at every time."""
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    measured_pace, paces = duration.measured_pace, []

    def pace(sizes: Sizes, dtype: torch.dtype) -> duration.Pace:
        paces.append(measured_pace(sizes, dtype))
        return duration.Pace({1: 0.01, 8: 0.02, 64: 0.08}, 1e-6)

    monkeypatch.setattr(duration, "measured_pace", pace)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    names = ["prepare", "warm_start", "audit", "train@0", "test"]
    for name in names:
        chain.remember_seconds(tmp_path, name, 7.0)
    assert chain.expected_seconds(tmp_path, names) == dict.fromkeys(names, 7.0)
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 4, "num_hidden_layers": 2}
    LlamaConfig(**sizes, vocab_size=2048).save_pretrained(tmp_path / "model")
    policy = {"kind": "pretrained", "models": [str(tmp_path / "model")]}
    change(tmp_path, {"policy": policy})
    measured = chain.expected_seconds(tmp_path, names)
    assert measured["prepare"] == 16.0, "no model computes there: as in dvc.yaml"
    change(tmp_path, {"train": {"steps": 600}, "audit": {"group_size": 80}})
    longer = chain.expected_seconds(tmp_path, names)
    start = duration.START_S
    assert measured["warm_start"] == 45.0, "none is set: as in dvc.yaml"
    assert (longer["train@0"] - start) / (measured["train@0"] - start) == pytest.approx(10)
    assert (longer["audit"] - start) / (measured["audit"] - start) == pytest.approx(10, rel=0.01)
    assert all(seconds > 0 for found in paces for seconds in (found.token_s, *found.step_s.values()))
    change(
        tmp_path, {"policy": {"kind": "pretrained", "models": [str(tmp_path / "model")], "warm_start": {"steps": 400}}}
    )
    assert chain.expected_seconds(tmp_path, names)["warm_start"] > start
    chain.remember_seconds(tmp_path, "train@0", 50.0)
    assert chain.expected_seconds(tmp_path, names)["train@0"] == 50.0
    LlamaConfig(**sizes, vocab_size=2048, max_position_embeddings=128).save_pretrained(tmp_path / "model")
    assert chain.expected_seconds(tmp_path, names)["audit"] < longer["audit"], "no prompt is longer than the context"


def test_the_pace_of_a_model_does_not_depend_on_what_else_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.Tensor.__matmul__

    def waits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)  # as if other processes had the core meanwhile
        return product(one, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", waits)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_attention_heads=2, num_hidden_layers=1, vocab_size=64
    )
    pace = duration.measured_pace(sizes_of(config.to_dict()), torch.float32)
    assert 0 < pace.step_s[1] < 0.03


def change(project: Path, values: dict[str, dict[str, object]]) -> None:
    """Write values into the sections of a project's params.yaml."""
    content = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    for section, changed in values.items():
        content[section] = changed if "kind" in changed else {**content[section], **changed}
    (project / "params.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def test_a_copy_without_git_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("GIT_DIR", raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    with pytest.raises(chain.ChainError, match=r"is not a git repository.*`git init`, `git add -A`, `git commit"):
        chain.ask(tmp_path, "status", "--json")


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", r"dvc repro --quiet: killed by signal 9 \(SIGKILL\)"),
        ("import sys; sys.exit(255 if '--quiet' in sys.argv else 'ERROR: it is busy')", "dvc repro: it is busy"),
    ],
)
def test_a_dvc_that_says_nothing_is_told_in_words(tmp_path: Path, does: str, words: str) -> None:
    (tmp_path / "dvc.py").write_text(does)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(chain.ChainError, match=words):
        chain.ask(tmp_path, "repro", "--quiet")
