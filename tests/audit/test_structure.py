"""The audit warns where an untrained single agent does as well as the untrained team, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.audit.preflight import Played
from pipeline_lib.audit.result import Status
from pipeline_lib.audit.structure import cooperative_structure


def played(level: float, seed: int, problems: int = 32) -> Played:
    hardness = np.random.default_rng(99).normal(0, 0.2, (problems, 1))
    done = np.clip(level + hardness + np.random.default_rng(seed).normal(0, 0.1, (problems, 8)), 0, 1)
    return Played(done, {"done": done})


@pytest.mark.parametrize(("single", "expected"), [(0.8, Status.WARN), (0.5, Status.WARN), (0.3, Status.PASS)])
def test_a_single_agent_that_does_as_well_is_a_warning(single: float, expected: Status) -> None:
    check = cooperative_structure(played(0.5, 1), played(single, 2), "done", "what is wanted")
    assert check is not None and check.status is expected
    assert bool(check.mend) == (expected is Status.WARN)


def test_the_interval_is_the_paired_t_interval_over_problems() -> None:
    team, single = played(0.5, 1), played(0.45, 2)
    check = cooperative_structure(team, single, "done", "what is wanted")
    pair = stats.ttest_rel(single.metrics["done"].mean(axis=1), team.metrics["done"].mean(axis=1))
    low, high = pair.confidence_interval()
    assert check is not None
    assert (check.numbers["low"], check.numbers["high"]) == (pytest.approx(low), pytest.approx(high))
    assert "32 problems" in check.sentence


def test_few_problems_show_nothing_and_one_is_not_judged() -> None:
    few = cooperative_structure(played(0.5, 1, 3), played(0.45, 2, 3), "done", "what is wanted")
    assert few is not None and few.status is Status.PASS
    nothing = cooperative_structure(played(-9, 1), played(-9, 2), "done", "what is wanted")
    assert nothing is not None and nothing.status is Status.PASS and "cannot be compared" in nothing.sentence
    assert cooperative_structure(played(0.5, 1, 1), played(0.5, 2, 1), "done", "what is wanted") is None
    assert cooperative_structure(played(0.5, 1), played(0.5, 2), "other", "what is wanted") is None
