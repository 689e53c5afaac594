"""Settings of training that fight each other are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pipeline_lib.settings import Params
from pipeline_lib.settings.train import TrainSettings


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
        ({"advantage": {"baseline": "crossed"}}, "'mean', 'leave_one_out', 'max' or 'none'"),
    ],
)
def test_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        TrainSettings.model_validate(given)


def test_kl_needs_full_support() -> None:
    Params.model_validate({"train": {"loss": {"kl": 0.1}}})
    with pytest.raises(ValidationError, match="distributions of full support"):
        Params.model_validate({"train": {"loss": {"kl": 0.1}}, "rollouts": {"kind": "transformers", "top_k": 5}})
