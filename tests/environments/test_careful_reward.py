"""The documented example of a reward of one's own."""

import pytest

from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.environments.coding.rewards import Facts, make_reward
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
