"""Settings of training that fight each other are refused with the reason."""

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline_lib.environments.coding.task import CodingTask
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.train import TrainSettings

PHILOSOPHERS = {"kind": "philosophers", "prompt": "compact"}
WITHOUT = {"evaluate": {"baselines": []}}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"loss": {"epochs": 2}}, "reuses a batch off-policy; set clip"),
        ({"loss": {"clip": 0.2}}, "has no effect in a single epoch"),
        ({"steps": 5, "checkpoint_every": 6}, "no checkpoint would be written"),
        ({"group_size": 1}, "greater than or equal to 2"),
        ({"discount": 0.0}, "greater than 0"),
        ({"overlap": 0}, "greater than or equal to 1"),
        ({"loss": {"importance_cap": 0.5}}, "greater than or equal to 1"),
        (
            {"advantage": {"baseline": "crossed"}},
            "'mean', 'leave_one_out', 'max', 'none', 'critic' or 'counterfactual'",
        ),
    ],
)
def test_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        TrainSettings.model_validate(given)


def test_a_tree_that_no_machine_samples_is_refused() -> None:
    values = {"environment": {"kind": "pettingzoo", "turns": 5}, "evaluate": {"baselines": []}}
    meals = {"environment": PHILOSOPHERS, "problems": {"kind": "scenarios", "family": {"horizon": [2, 5]}}} | WITHOUT
    for given in (values, meals):
        with pytest.raises(ValidationError, match=r"tree samples 8 \*\* 5 joint .*set train.groups to episodes"):
            Params.model_validate(given)
        for train in ({"groups": "episodes"}, {"group_size": 4}):
            assert Params.model_validate({**given, "train": train}).train.steps > 0
    two_turns = {"environment": {"kind": "reasoning_gym"}, "train": {"group_size": 65}} | WITHOUT
    with pytest.raises(ValidationError, match=r"tree samples 65 \*\* 2 joint"):
        Params.model_validate(two_turns)
    assert Params.model_validate({**two_turns, "environment": {"kind": "reasoning_gym", "agents": 1}}).train.steps > 0


def test_kl_needs_full_support() -> None:
    Params.model_validate({"train": {"loss": {"kl": 0.1}}})
    with pytest.raises(ValidationError, match="distributions with full support"):
        Params.model_validate({"train": {"loss": {"kl": 0.1}}, "rollouts": {"kind": "transformers", "top_k": 5}})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"train": {"credit": {"kind": "crossed"}}}, "'aligned', 'pairings', 'latin', 'cross', 'column', 'rem"),
        ({"train": {"credit": {"kind": "cross", "per_action": 2}}}, "Extra inputs"),
        ({"train": {"credit": {"kind": "pairings", "per_action": 1}}}, "greater than or equal to 2"),
        ({"train": {"credit": {"kind": "pairings", "per_action": 9}}}, "per_action .9. is more than the 8 actions"),
        ({"train": {"credit": {"kind": "latin"}, "groups": "episodes"}}, "set groups: tree, or credit"),
        (
            {
                "train": {"credit": {"kind": "latin"}},
                "rollouts": {"kind": "transformers", "protocol": "sequential_pipeline"},
            },
            "set train.credit to .kind: aligned. or .kind: replay.",
        ),
        ({"train": {"credit": {"kind": "replay"}}}, "set rollouts.protocol to sequential_pipeline"),
        (
            {
                "train": {"advantage": {"baseline": "counterfactual"}},
                "rollouts": {"kind": "transformers", "protocol": "sequential_pipeline"},
                "evaluate": {"baselines": []},
            },
            "in sequential_pipeline they read it; set baseline to critic",
        ),
        (
            {
                "train": {"credit": {"kind": "replay", "fan_out": [2, 2]}},
                "rollouts": {"kind": "transformers", "protocol": "sequential_pipeline"},
            },
            "the product of fan_out .2, 2. must be group_size .8.",
        ),
        ({"train": {"credit": {"kind": "cross"}}, "environment": PHILOSOPHERS}, "cross of 5 agents: 32768 executions"),
        (
            {"train": {"credit": {"kind": "latin"}, "group_size": 6}, "environment": PHILOSOPHERS},
            r"latin of 5 agents: no balanced array is known here .* choose group_size 5, 7, 8",
        ),
    ],
)
def test_credit_that_cannot_be_given_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Params.model_validate(given | WITHOUT)


def test_credit_that_can_be_given_is_taken() -> None:
    sequential = {"kind": "transformers", "protocol": "sequential_pipeline"}
    Params.model_validate(
        {"train": {"credit": {"kind": "replay", "fan_out": [4, 2]}}, "rollouts": sequential} | WITHOUT
    )
    for kind in ("aligned", "pairings", "latin", "cross", "column", "removal"):
        Params.model_validate({"train": {"credit": {"kind": kind}}})
        short = {"kind": "scenarios", "family": {"horizon": [4]}}
        environment = {**PHILOSOPHERS, "mode": "sequential"}
        Params.model_validate(
            {"train": {"credit": {"kind": kind}}, "environment": environment, "problems": short} | WITHOUT
        )


def test_an_environment_that_cannot_repeat_a_state_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CodingTask, "unrepeatable", lambda task, settings: "it is a running service")
    Params.model_validate({"train": {"credit": {"kind": "aligned"}}})
    with pytest.raises(ValidationError, match="cross needs several steps from one state: it is a running service"):
        Params.model_validate({"train": {"credit": {"kind": "cross"}}})


def test_credit_decides_results() -> None:
    assert result_settings(TrainSettings.model_validate({"credit": {"kind": "pairings", "per_action": 3}}))[
        "credit"
    ] == {"kind": "pairings", "per_action": 3}
