"""Planning by the command that people type: from variances given by hand, and without a pilot."""

import json
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from tests.flows.project import ROOT, call
from tests.programs import command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def plan(project: Path, *words: str, status: int = 0) -> str:
    """Return all that `symposium plan` prints on a terminal of 80 columns."""
    with mock.patch.dict(os.environ, COLUMNS="80"):
        ended = command(project, "plan", *words)
    assert ended.status == status, ended
    return ended.out + ended.err


def test_the_problems_that_a_difference_needs_are_those_of_a_paired_t_test(project: Path) -> None:
    given = ["--between", "0.05", "--within", "0.1", "--difference", "0.05", "--samples", "8", "--seeds", "3"]
    said = plan(project, *given)
    # 301 by statsmodels' TTestPower.solve_power at 0.05 / 4 (four comparisons in the family) for the variance
    # 0.05 + 0.1 / (8 * 3) + 0.1 / 8: the selected team's episodes are spread over three runs, the base's are not.
    rows = [line.split() for line in said.splitlines()]
    assert ["0.050", "8", "3", "301"] in [row[:4] for row in rows]


def test_the_families_that_a_difference_needs_follow_from_the_range_of_the_metric(project: Path) -> None:
    """ln 0.05 / ln (1 - d / (range + d)): a range twice as wide needs as many for twice the difference d."""
    given = ("--between", "0.05", "--difference")
    share = plan(project, *given, "0.05", "0.1")
    assert "undoes the difference: 62, 32 for these differences" in " ".join(share.split())
    shutil.copytree(ROOT / "conf", project / "conf")
    reward = "{preset: philosophers, reward: {kind: terms, weights: {meals: 2.0}, clip: [-1, 1]}}"
    (project / "params.yaml").write_text(f"environment: {reward}\nevaluate: {{metric: reward}}\n")
    said = plan(project, *given, "0.1", "0.2")
    assert "undoes the difference: 62, 32 for these differences" in " ".join(said.split())
    assert "reward lies between -1 and 1" in plan(project, *given, "2.5", status=2)


def test_a_metric_without_a_range_has_no_number_of_families(project: Path) -> None:
    shutil.copy(ROOT / "tests/symposium/own/rendezvous.py", project)
    source = "import rendezvous\nimport symposium\n\n\nclass Points(rendezvous.Rendezvous):\n"
    source += "    measures = {'points': symposium.Metric('points')}\n"
    (project / "points.py").write_text(source)
    (project / "params.yaml").write_text(
        "environment: {kind: 'points:Points'}\nevaluate: {metric: points, guards: []}\n"
    )
    said = " ".join(call(project, "python", "-m", "flows.plan", "--between", "0.05").split())
    assert "No range of points is declared" in said and "undoes the difference" not in said


def test_episodes_by_the_million_fit_into_80_columns(project: Path) -> None:
    said = plan(project, "--between", "0.1", "--within", "0.1", "--difference", "0.005")
    assert "," in said and "…" not in said


def test_the_memory_of_every_stage_here_and_on_a_gpu(project: Path) -> None:
    """From a folder with a configuration alone: no weights are there to be loaded."""
    (project / "model").mkdir()
    shape = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
    more = {"num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True, "model_type": "qwen2"}
    (project / "model/config.json").write_text(json.dumps(shape | more))
    settings = "policy: {kind: pretrained, models: [model], dtype: float32}\nrollouts: {rows: 32}\n"
    (project / "params.yaml").write_text(settings)
    said = plan(project, "--memory")
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.split()}
    assert rows["weights"] == ["-", "1.84", "1.84", "1.84", "1.84"]  # 494 million numbers of 4 bytes
    assert len(rows["together"]) == 5 and "on the GPU" not in said
    refused = plan(project, "--memory", "--gpu", "2")
    assert "There are 2.0 GiB on the GPU." in refused and "GiB of memory and there are 2.0 (" in " ".join(
        refused.split()
    )
    assert "give --memory" in plan(project, "--gpu", "24", status=2)
    written = (project / "params.yaml").read_bytes()
    other = plan(project, "--memory", "-S", "train.group_size=64", "-S", "train.micro_batch_tokens=8192")
    assert held(other) > 1.05 * held(said) and (project / "params.yaml").read_bytes() == written
    wrong = plan(project, "--memory", "-S", "polcy=x", status=2)
    assert "did you mean 'policy'" in wrong


def held(said: str) -> float:
    """The GiB of training in a table of memory."""
    headings = next(line for line in said.splitlines() if "audit" in line and "train" in line).split()
    (line,) = (line for line in said.splitlines() if line.strip().startswith("together"))
    return float(line.split()[1:][[word for word in headings if word != "warm"].index("train")])


def test_without_a_pilot_it_says_what_to_do(project: Path) -> None:
    said = plan(project, status=1)
    assert "results/test/team-base.jsonl: no pilot; run `make pipeline` once" in said
    assert "--between and --within" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--memory", "--between", "0.05"), "--memory plans no data; leave --between out"),
        (("--memory", "--seeds", "3"), "--memory plans no data; leave --seeds out"),
        (("--within", "0.1"), "--within goes with --between"),
    ],
)
def test_what_nothing_would_read_is_refused(project: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in call(project, "python", "-m", "flows.plan", *arguments, status=2)
