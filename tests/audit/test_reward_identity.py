"""What was audited: the digest of a reward changes when its source or its settings do, and not otherwise."""

import importlib
import sys
from pathlib import Path

import pytest

from pipeline_lib.audit.result import describe_reward, reward_digest
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings

REWARD = """
from own_weights import WEIGHT
from pipeline_lib.environments.coding.rewards import Reward

class Mine(Reward):
    \"\"\"Pays for tests.\"\"\"
    def __init__(self, each: float = 1.0) -> None:
        self.each, self.bounds = each, (0.0, each * WEIGHT)

    def terms(self, facts):
        return {"tests": self.each * WEIGHT * facts.passed}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_reward.py").write_text(REWARD)
    (tmp_path / "own_weights.py").write_text("WEIGHT = 2.0\n")
    yield tmp_path
    for name in ("own_reward", "own_weights"):
        sys.modules.pop(name, None)


def mine(**options: float) -> CodingSettings:
    reward = {"kind": "custom", "path": "own_reward:Mine", "options": options}
    return CodingSettings.model_validate({"reward": reward})


def digest_now(section: CodingSettings) -> str:
    importlib.invalidate_caches()
    return reward_digest(section)


def test_source_imports_and_settings_count_and_comments_do_not(folder: Path):
    first = digest_now(mine())
    assert digest_now(mine(each=2.0)) != first
    (folder / "own_reward.py").write_text("# A comment.\n" + REWARD.replace("Pays for tests.", "Pays more."))
    assert digest_now(mine()) == first
    (folder / "own_weights.py").write_text("WEIGHT = 3.0\n")
    second = digest_now(mine())
    assert second != first
    (folder / "own_reward.py").write_text(REWARD.replace("facts.passed", "(1 - facts.passed)"))
    assert digest_now(mine()) not in (first, second)


def test_a_reward_has_one_digest_for_all_arms_of_an_experiment():
    assert reward_digest(CodingSettings(team="pair")) == reward_digest(CodingSettings(team="single"))
    assert reward_digest(CodingSettings()) != reward_digest(PhilosophersSettings())


def test_a_reward_is_described_by_kind_and_settings(folder: Path):
    assert describe_reward(mine(each=2.0)) == ("'coding / custom' (path: own_reward:Mine, options: {'each': 2.0})")
    assert "deadlock: 0.1" in describe_reward(PhilosophersSettings())
