"""The documented example of a reward of one's own, and what is said of one that fails."""

import re
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.environments.coding.rewards import Facts, Reward, make_reward
from pipeline_lib.environments.coding.settings import CodingSettings
from tests.flows.project import ROOT


def test_the_example_of_the_docs_pays_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))
    chosen = {"kind": "custom", "path": "careful_reward:Careful", "options": {"power": 2}}
    reward = make_reward(CodingSettings.model_validate({"reward": chosen}).reward, "pair")
    assert reward.bounds == (-0.5, 1.0)
    helper = "def aux(x):\n    return x"
    right, broken = (
        build_program((helper, main), "main") for main in ("def main(x):\n    return aux(x)", "def main(x:")
    )
    assert reward.terms(Facts(right, 0.5)) == {"tests": 0.25, "unparsed": 0.0}
    assert reward.terms(Facts(broken, 0.0)) == {"tests": 0.0, "unparsed": -0.5}


@dataclass(frozen=True)
class Failing(Reward):
    """Returns, after one right answer, something else."""

    then: Any
    bounds = (0.0, 1.0)

    def terms(self, facts: Facts) -> dict[str, float]:
        if facts.passed == 1.0:
            return {"tests": 1.0, "form": True}
        if self.then == "exit":
            sys.exit(3)
        return {"tests": 1 / 0} if self.then == "raise" else self.then


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("raise", r"raised ZeroDivisionError: division by zero \(test_careful_reward.py, line \d+\)"),
        ("exit", r"raised SystemExit: 3 \(test_careful_reward.py, line \d+\)"),
        (None, "terms() of {path} returned None{place}; it must return every term by name"),
        ({"tests": None, "form": 0}, "returned None for its term 'tests'{place}; a term is one finite number"),
        ({"tests": "1", "form": 0}, "returned '1' for its term 'tests'{place}; a term is one finite number"),
        ({"tests": np.array([0.5]), "form": 0}, "returned array([0.5]) for its term 'tests'{place}; a term is one"),
        ({"tests": 0.5, "form": float("nan")}, "returned nan for its term 'form'{place}; a term is one finite number"),
        ({"tests": np.float32("-inf"), "form": 0}, "returned -inf for its term 'tests'{place}; a term is one finite"),
        ({"tests": 0.5, 3: 0.25}, "returned a term with the name 3, value 0.25{place}; the name of a term is a text"),
        ({"tests": 0.5}, "returned the terms tests, and before form, tests{place}; return all of them every time"),
    ],
)
def test_a_reward_that_fails_is_named_with_what_it_did(then: Any, said: str) -> None:
    path = f"{__name__}:Failing"
    chosen = {"kind": "custom", "path": path, "options": {"then": then}}
    reward = make_reward(CodingSettings.model_validate({"reward": chosen}).reward, "pair")
    program = build_program(("def aux(x):\n    return x", "def main(x):\n    return aux(x)"), "main")
    assert reward.terms(Facts(program, 1.0)) == {"tests": 1.0, "form": True}
    place = r" \(test_careful_reward\.py, line \d+\)"
    expected = said if "\\" in said else re.escape(said.format(path=path, place="@")).replace("@", place)
    with pytest.raises(RewardError, match=f"^environment.reward.path: .*{expected}") as caught:
        reward.terms(Facts(program, 0.0))
    assert path in str(caught.value)


class Bounded(Reward):
    """Declares the bounds that it is given."""

    def __init__(self, least: Any, greatest: Any) -> None:
        self.bounds = (least, greatest)

    def terms(self, facts: Facts) -> dict[str, float]:
        return {"tests": facts.passed}


@pytest.mark.parametrize(
    ("least", "greatest", "said"),
    [
        (0.0, float("inf"), "has the bounds 0 to inf; training needs two numbers from -1e+15 to 1e+15"),
        (-1.0, 1e300, "has the bounds -1 to 1e+300; training needs two numbers from -1e+15 to 1e+15"),
        (0.0, 1e-12, "has the bounds 0 to 1e-12; training leaves no difference that counts"),
        (0, "b", "must set its attribute 'bounds' to a tuple of the least and the greatest sum of its terms, got"),
    ],
)
def test_bounds_that_nothing_can_be_learned_with_are_those_of_the_class(least: Any, greatest: Any, said: str) -> None:
    path = f"{__name__}:Bounded"
    chosen = {"kind": "custom", "path": path, "options": {"least": least, "greatest": greatest}}
    with pytest.raises(ValueError, match=rf"^environment\.reward\.path: {re.escape(f'{path} {said}')}"):
        make_reward(CodingSettings.model_validate({"reward": chosen}).reward, "pair")
