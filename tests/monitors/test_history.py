"""What the report says of monitors: when one fired, whether it recovered, and which runs it ended."""

from pipeline_lib.report.alarms import alarms, endings, silence

HACKED = "monitors/reward_hacking"
TURN = "monitors/turn_instability/2"


def rows(name: str, *values: float) -> list[dict[str, float]]:
    return [{"step": step, "reward/mean": 1.0, name: value} for step, value in enumerate(values, 1)]


def test_first_update_and_recovery_are_told() -> None:
    (told,) = alarms({1: rows(TURN, 0, 1, 1, 0, 0)})
    assert told.startswith("Seed 1, turn instability (2): fired first at update 2")
    assert "it stopped after 2 updates." in told
    (told,) = alarms({1: rows(TURN, 0, 1, 0, 1, 1)})
    assert "it stopped after 1 update and fired in 3 updates in all." in told
    (told,) = alarms({0: rows(HACKED, 0, 0, 1)})
    assert "it never stopped" in told and "mend the reward" in told


def test_quiet_and_unwatched_runs_are_told_apart() -> None:
    quiet, unwatched = {0: rows(HACKED, 0, 0)}, {0: rows("terms/tests", 1, 1)}
    assert alarms(quiet) == alarms(unwatched) == []
    told = silence(quiet)
    assert told.startswith("No monitor of training fired. Judged: reward hacking. Too little evidence")
    assert told.endswith("trivial cooperation, turn instability, cascading errors.")
    assert silence(unwatched) == silence({0: rows(HACKED, 0, 1)}) == ""


def test_a_run_that_was_ended_is_named_with_its_last_update() -> None:
    ended = rows(HACKED, 0, 1)
    ended[-1]["monitors/ended/reward_hacking"] = 1.0
    assert endings({0: rows(HACKED, 0, 1), 2: ended, 3: []}) == [
        "Training of seed 2 was ended after update 2 by the monitor reward hacking (train.stop_when)."
    ]
    assert len(alarms({2: ended})) == 1, "the ending is no alarm of its own"
