"""The documented example of a reward of one's own, and what is said of one that fails."""

import re
import sys
from dataclasses import dataclass
from typing import Any

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
        (None, "terms() of {path} returned None; it must return every term by name"),
        ({"tests": None, "form": 0}, "returned None for its term 'tests'; a term is a number"),
        ({"tests": "1", "form": 0}, "returned '1' for its term 'tests'; a term is a number"),
        ({"tests": 0.5}, "returned the terms tests, and before form, tests; return all of them every time"),
    ],
)
def test_a_reward_that_fails_is_named_with_what_it_did(then: Any, said: str) -> None:
    path = f"{__name__}:Failing"
    chosen = {"kind": "custom", "path": path, "options": {"then": then}}
    reward = make_reward(CodingSettings.model_validate({"reward": chosen}).reward, "pair")
    program = build_program(("def aux(x):\n    return x", "def main(x):\n    return aux(x)"), "main")
    assert reward.terms(Facts(program, 1.0)) == {"tests": 1.0, "form": True}
    expected = said if "\\" in said else re.escape(said.format(path=path))
    with pytest.raises(RewardError, match=f"^environment.reward.path: .*{expected}") as caught:
        reward.terms(Facts(program, 0.0))
    assert path in str(caught.value)
