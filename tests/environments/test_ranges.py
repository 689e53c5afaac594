"""Every metric that the library's environments can be judged by has a declared range, and it is the true one."""

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find, names
from pipeline_lib.environments.philosophers import rewards
from pipeline_lib.environments.philosophers.settings import ScenarioFamily
from pipeline_lib.environments.philosophers.task import METRICS
from pipeline_lib.environments.reasoning_gym import ReasoningGymSettings


@pytest.mark.parametrize("kind", names())
def test_every_metric_that_a_verdict_can_be_about_has_a_range(kind: str) -> None:
    found = find(kind).metrics()
    # A verdict wants a greater value; the only metric without a range counts what the reward costs.
    unbounded = {name for name, info in found.items() if not np.isfinite(info.reach)}
    assert unbounded <= {"programs"} and all(found[name].better == "lower" for name in unbounded)
    assert not np.isfinite(describe("reward", found).reach), "`episode_bounds` of the environment are its range"


def test_no_table_of_philosophers_leaves_the_range_of_its_meals() -> None:
    """All philosophers that the settings accept begin a meal in every step: no table can do more."""
    seats, horizon = int(METRICS["meals_per_step"].high), int(METRICS["deadlocks"].high)
    assert METRICS["meals"].high == seats * horizon
    ScenarioFamily(philosophers=(seats,), horizon=(horizon,))
    for beyond in ({"philosophers": (seats + 1,)}, {"horizon": (horizon + 1,)}):
        with pytest.raises(ValueError, match="accepted"):
            ScenarioFamily(**beyond)
    counts = rewards.Counts(**{name: np.array([horizon]) for name in rewards.Counts.__dataclass_fields__})
    most = rewards.Summary(
        meals=np.full((seats, 1), horizon), deadlocked=np.array([False]), deadlock_time=np.ones(1), time=np.ones(1),
        optimum=np.array([seats * horizon]), horizon=np.array([horizon]), full=np.array([seats * horizon]),
        counts=counts,
    )  # fmt: skip
    found = rewards.metrics(most)
    for name in ("meals", "meals_per_step", "deadlocks"):
        assert found[name] == METRICS[name].high, name


def test_a_note_has_no_more_words_than_the_settings_accept() -> None:
    most = int(find("reasoning_gym").metrics()["note_words"].high)
    assert ReasoningGymSettings(note_words=most).note_words == most
    with pytest.raises(ValueError, match="less than or equal to"):
        ReasoningGymSettings(note_words=most + 1)
