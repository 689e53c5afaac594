"""Rewards for programs in several files whose answer is known; see `benchmarks.audit_rewards` for the labels."""

from __future__ import annotations

from typing import Any, Literal

from benchmarks.audit_rewards import Entry, Label
from pipeline_lib.environments.modules.rewards import Facts, Reward
from pipeline_lib.environments.modules.settings import ModulesSettings

Formula = Literal["any_system_test", "failing", "constant", "best_part", "both", "defined_and_a_third", "any_and_units"]


class Written(Reward):
    """A reward of a single term, chosen by name."""

    def __init__(self, formula: Formula) -> None:
        self._formula = formula
        greatest = {"best_part": 1.1, "any_and_units": 2.0, "both": 2.0, "defined_and_a_third": 4 / 3}
        self.bounds = (0.0, greatest.get(formula, 1.0))

    def terms(self, facts: Facts) -> dict[str, float]:
        """Return the one term."""
        values = {
            "any_system_test": float(facts.system > 0),
            "failing": 1.0 - facts.system,
            "constant": 1.0,
            "best_part": max(facts.units.values()) + 0.1 * facts.system,
            "any_and_units": facts.unit + (facts.system > 0),
            "both": facts.system * (1.0 + facts.unit),
            "defined_and_a_third": facts.defined + min(facts.system, 1 / 3),
        }
        return {self._formula: values[self._formula]}


def _weights(name: str, label: Label, team: str = "modules", **weights: float) -> Entry:
    return Entry(name, label, ModulesSettings.model_validate({"team": team, "reward": {"kind": "sound", **weights}}))


def _written(name: str, label: Label, formula: Formula) -> Entry:
    reward: dict[str, Any] = {"kind": "custom", "path": f"{__name__}:Written", "options": {"formula": formula}}
    return Entry(name, label, ModulesSettings.model_validate({"reward": reward}))


#: The bad one that the audit accepted at first.
MISSED_LATER = "any system test, and unit tests"

MODULES: tuple[Entry, ...] = (
    _weights("the default", "sound"),
    _weights("the default, one agent", "sound", "single"),
    _weights("ten times the default", "sound", form=2, unit=4, system=10),
    _weights("little for form and units", "sound", form=0.05, unit=0.1),
    _written("system tests, doubled by unit tests", "sound", "both"),
    _weights("unit tests only", "bad", form=0, unit=1, system=0.01),
    _weights("form 2, unit tests 0.4, system tests 0.2", "bad", form=2, system=0.2),
    _written("any system test", "bad", "any_system_test"),
    _written(MISSED_LATER, "bad", "any_and_units"),
    _written("failing system tests", "bad", "failing"),
    _written("a constant", "bad", "constant"),
    _written("the best part, and a little for the system", "bad", "best_part"),
    _written("what is defined, and a third of the system tests", "bad", "defined_and_a_third"),
    _weights("system tests only", "arguable", form=0, unit=0),
    _weights("unit and system tests alike", "arguable", unit=1),
)
