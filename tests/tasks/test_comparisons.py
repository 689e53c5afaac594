"""Which teams the selected one is compared with, and what a reader is told of them."""

from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.environment_api.registry import find
from pipeline_lib.protocols import PROTOCOLS
from pipeline_lib.sandbox import Executor
from pipeline_lib.settings import Params, load_params
from tasks.experiment.plans import UNTRAINED, comparisons, family_size, notes, outside

ROOT = Path(__file__).parents[2]
READER = {"kind": "pretrained", "models": ["some/model"]}
NAIVE = "same as the baseline naive concatenation"


def params(**sections: Any) -> Params:
    return Params.model_validate(sections)


def test_the_primary_comes_first_and_every_baseline_has_a_name():
    assert comparisons(params()) == (
        "base",
        "last",
        "single-agent GRPO",
        "untrained single agent",
        "untrained sequential pipeline",
        "untrained one-round discussion",
    )
    nothing = params(seeds={"single_agent": []}, evaluate={"baselines": []})
    assert comparisons(nothing) == ("base", "last")
    assert set(UNTRAINED) == set(PROTOCOLS) - {"decentralised", "single_model"}


def test_baselines_that_cannot_read_are_outside_the_family():
    tiny, real = outside(params()), outside(params(policy=READER))
    assert set(tiny) == {"last", "untrained sequential pipeline", "untrained one-round discussion"}
    assert "never seen quoted text" in tiny["untrained one-round discussion"]
    assert set(real) == {"last"}  # where it is the selected one
    assert (family_size(params()), family_size(params(policy=READER))) == (4, 6)
    two = params(environment={"kind": "coding", "turns": 2}, evaluate={"baselines": ["naive_concatenation"]})
    assert set(outside(two)) == {"last"}  # it reads nothing
    assert comparisons(two)[-1] == "first turn" and family_size(two) == 6


def test_environments_and_tasks_agree_on_whether_turns_are_attempts(tmp_path: Path):
    for preset in ("coding-two-turns", "philosophers", "writing"):
        (tmp_path / "params.yaml").write_text(f"environment: {preset}\n")
        section = load_params(tmp_path / "params.yaml", ROOT / "conf").environment
        task = find(section.kind)
        assert task.make(section, Executor).retries == task.retries == (preset != "philosophers"), preset


def test_a_tiny_model_that_was_shown_quoted_text_is_compared_as_one_that_reads(tmp_path: Path):
    (tmp_path / "params.yaml").write_text("environment: writing\n")
    writers = load_params(tmp_path / "params.yaml", ROOT / "conf")
    assert writers.policy.kind == "embedded"
    assert set(outside(writers)) == {"last"} and family_size(writers) == 6
    assert "outside the family" not in " ".join(notes(writers))


def test_a_tiny_models_low_numbers_are_not_oversold():
    tiny, real = (" ".join(notes(found)) for found in (params(), params(policy=READER)))
    assert "does not read it" in tiny and "outside the family" in tiny
    assert "does not read it" not in real and "outside the family" not in real
    assert "In the sequential pipeline and the one-round discussion, untrained" in tiny and tiny.startswith(real[:120])
    (one, _) = notes(params(evaluate={"baselines": ["one_round_discussion"]}))
    assert one.startswith("In the one-round discussion, untrained")


def test_naive_concatenation_is_the_base_where_there_is_one_turn():
    assert NAIVE in " ".join(notes(params()))
    assert NAIVE in " ".join(notes(params(evaluate={"baselines": []})))
    two = params(environment={"kind": "coding", "turns": 2}, evaluate={"baselines": ["naive_concatenation"]})
    assert notes(two) == []


def test_a_protocol_that_the_team_is_trained_with_is_the_bases_too():
    pipeline = params(
        rollouts={"kind": "transformers", "protocol": "sequential_pipeline"},
        evaluate={"baselines": ["one_round_discussion"]},
    )
    assert notes(pipeline)[0] == "The trained team and its base play the sequential pipeline."
    assert NAIVE not in " ".join(notes(pipeline))
    assert comparisons(pipeline)[-1] == "untrained one-round discussion"


def test_what_is_left_out_is_said(tmp_path: Path):
    (said, _) = notes(params(evaluate={"baselines": []}))
    assert said.endswith("are left out: evaluate.baselines is empty.")
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"environment": "philosophers"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(shipped))
    (said,) = notes(load_params(tmp_path / "params.yaml", ROOT / "conf"))
    assert said.endswith(
        "are left out: environment.prompt is compact, a line of letters without space for the texts of others."
    )
