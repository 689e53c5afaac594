"""Training asks the audit: about this very reward, and whether it passed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.train import allow_by_audit
from pipeline_lib import storage
from pipeline_lib.audit.result import Status, describe_reward, reward_digest
from pipeline_lib.settings import Params, SettingsError
from tasks.experiment.arms import RESULTS

OWN = "from pipeline_lib.environments.coding.rewards import SoundReward\n\nclass Own(SoundReward):\n    FACTOR = 1\n"


class Run:
    """Remembers what it is told."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.tags: dict[str, str] = {}
        self.tracked = SimpleNamespace(tag=self.tags.update)


def write_audit(params: Params, status: Status = Status.PASS) -> None:
    content = {
        "status": status,
        "summary": "'wait' wins.",
        "reward": describe_reward(params.environment),
        "identity": {"reward": reward_digest(params.environment)},
    }
    storage.write_json(RESULTS / "audit.json", content)


def settings(**sections: Any) -> Params:
    return Params.model_validate(sections)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_audit_of_this_reward_lets_training_start_and_of_another_does_not():
    write_audit(settings())
    allow_by_audit(Run(settings()))
    allow_by_audit(Run(settings(train={"steps": 30}, environment={"kind": "coding", "turns": 2})))
    other = settings(environment={"kind": "coding", "reward": {"kind": "sound", "tests": 0.9}})
    with pytest.raises(SettingsError, match="the reward was edited after the audit: run the audit stage again"):
        allow_by_audit(Run(other))


def test_an_edited_class_is_another_reward(tmp_path: Path):
    (tmp_path / "own_bound_reward.py").write_text(OWN)
    params = settings(environment={"kind": "coding", "reward": {"kind": "custom", "path": "own_bound_reward:Own"}})
    write_audit(params)
    allow_by_audit(Run(params))
    (tmp_path / "own_bound_reward.py").write_text(OWN.replace("1", "2"))
    with pytest.raises(SettingsError, match="edited after the audit"):
        allow_by_audit(Run(params))


def test_a_failed_audit_needs_a_reason_which_is_recorded():
    write_audit(settings(), Status.FAIL)
    with pytest.raises(SettingsError, match=r"'wait' wins.*audit\.override"):
        allow_by_audit(Run(settings()))
    run = Run(settings(audit={"override": "to see it collapse"}))
    allow_by_audit(run)
    assert run.tags == {"symposium.audit.override": "to see it collapse"}


def test_an_override_does_not_excuse_a_reward_that_nobody_audited():
    write_audit(settings(), Status.FAIL)
    other = settings(audit={"override": "why not"}, environment={"kind": "coding", "reward": {"kind": "paper"}})
    with pytest.raises(SettingsError, match="edited after the audit"):
        allow_by_audit(Run(other))
