"""Coding rewards whose answer is known; see `benchmarks.audit_rewards` for what the labels mean."""

from __future__ import annotations

from typing import Any, Literal

from benchmarks.audit_rewards import Entry, Label
from pipeline_lib.environments.coding.rewards import Facts, Reward, Team
from pipeline_lib.environments.coding.settings import CodingSettings

Formula = Literal[
    "all_passed",
    "squared",
    "parsed_only",
    "any_test",
    "third_of_tests",
    "calls",
    "calls_and_tests",
    "functions",
    "failing",
    "constant",
    "length",
]


class Written(Reward):
    """A reward of a single term, chosen by name."""

    def __init__(self, formula: Formula, team: Team) -> None:
        self._formula, self._team = formula, team
        greatest = {"third_of_tests": 1 / 3, "calls_and_tests": 2.0, "functions": 1.2, "length": 1.3}
        self.bounds = (-1.0 if formula == "parsed_only" else 0.0, greatest.get(formula, 1.0))

    def terms(self, facts: Facts) -> dict[str, float]:
        """Return the one term."""
        program, passed = facts.program, facts.passed
        values = {
            "all_passed": float(passed >= 1.0),
            "squared": passed**2,
            "parsed_only": passed - (not program.parses),
            "any_test": float(passed > 0),
            "third_of_tests": min(passed, 1 / 3),
            "calls": float(program.calls_helper),
            "calls_and_tests": passed + program.calls_helper,
            "functions": 0.2 * passed + min(1.0, sum(len(role.functions) for role in program.roles) / 3),
            "failing": 1.0 - passed,
            "constant": 1.0,
            "length": 0.3 * passed + min(1.0, len(program.code) / 100),
        }
        return {self._formula: values[self._formula]}


def _weights(name: str, label: Label, team: str = "pair", **weights: float | bool) -> Entry:
    return Entry(name, label, CodingSettings.model_validate({"team": team, "reward": {"kind": "sound", **weights}}))


def _fine(name: str, label: Label, team: str = "pair", **weights: float) -> Entry:
    return Entry(name, label, CodingSettings.model_validate({"team": team, "reward": {"kind": "fine", **weights}}))


def _written(name: str, label: Label, formula: Formula) -> Entry:
    reward: dict[str, Any] = {"kind": "custom", "path": f"{__name__}:Written", "options": {"formula": formula}}
    return Entry(name, label, CodingSettings.model_validate({"reward": reward}))


def _published(name: str, label: Label, team: str) -> Entry:
    return Entry(name, label, CodingSettings.model_validate({"team": team, "reward": {"kind": "paper"}}))


CODING: tuple[Entry, ...] = (
    _weights("the default", "sound"),
    _weights("the default, one agent", "sound", "single"),
    _weights("ten times the default", "sound", structure=4, syntax=2, tests=10, cooperation=4),
    _weights("hidden tests only", "sound", structure=0, syntax=0, cooperation=0),
    _weights("hidden tests and cooperation", "sound", structure=0, syntax=0),
    _weights("the default above a program that returns None", "sound", above_none=True),
    _weights("little for form", "sound", structure=0.1, syntax=0.1, tests=1, cooperation=0.2),
    _written("all tests or nothing", "sound", "all_passed"),
    _written("square of the tests", "sound", "squared"),
    _written("tests, less 1 for what does not parse", "sound", "parsed_only"),
    _published("published, a pair", "bad", "pair"),
    _weights("structure 1, syntax 1, tests 0.3", "bad", structure=1, syntax=1, tests=0.3, cooperation=0),
    _weights("the same, cooperation 0.4", "bad", structure=1, syntax=1, tests=0.3),
    _weights("structure 5, syntax 1, tests 0.2", "bad", structure=5, syntax=1, tests=0.2, cooperation=0),
    _weights("structure 1, tests 0.05, one agent", "bad", "single", structure=1, syntax=0, tests=0.05),
    _written("any test", "bad", "any_test"),
    _written("a third of the tests is enough", "bad", "third_of_tests"),
    _written("calls of the helper", "bad", "calls"),
    _written("tests and calls of the helper", "bad", "calls_and_tests"),
    _written("functions, and a little for tests", "bad", "functions"),
    _written("failing tests", "bad", "failing"),
    _written("a constant", "bad", "constant"),
    _written("length, and a little for tests", "bad", "length"),
    _published("published, one agent", "arguable", "single"),
    _weights("structure, syntax and tests alike", "arguable", structure=1, syntax=1, tests=1, cooperation=0),
    _weights("all four alike", "arguable", structure=1, syntax=1, tests=1, cooperation=1),
    _weights("cooperation 5, tests 0.1", "arguable", tests=0.1, cooperation=5),
    _fine("fine, the default", "sound"),
    _fine("fine, one agent", "sound", "single"),
    _fine("fine, hardness 10", "sound", hardness=10),
    _fine("fine, without a contract", "sound", contract=0),
    _fine("fine, tests and ablation only", "sound", structure=0, syntax=0, contract=0, mutation=0),
    _fine("fine, contract 9", "bad", contract=9),
    _fine(
        "fine, contract 1, tests 0.2, no more",
        "bad",
        structure=0,
        syntax=0,
        tests=0.2,
        contract=1,
        mutation=0,
        ablation=0,
    ),
    _fine("fine, structure 2, syntax 1, tests 0.2", "bad", structure=2, syntax=1, tests=0.2),
    _fine("fine, mutation 5", "arguable", mutation=5),
)
