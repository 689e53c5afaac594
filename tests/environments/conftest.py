"""Rewards as users write them."""

from pathlib import Path

import pytest


@pytest.fixture
def own_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the folder ``own_rewards`` importable.

    The identity of a user's reward is read from its whole top-level package, so these are not in ``tests``.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("own_rewards")))
