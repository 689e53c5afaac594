"""Rewards thought of after the audit was written, with the answers expected before it saw them.

They are classes as a user writes them, found by import path and made with options; `benchmarks.audit_rewards` says what
the labels mean.  What the audit answered wrongly at first is kept (`MISSED`), because a table that one has mended the
audit by flatters it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.audit_rewards import Entry, Label
from pipeline_lib.environments.coding import rewards as coding
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.environments.philosophers.rewards import Floats, Reward, Summary
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings


class Dinner(Reward):
    """A philosophers' reward of a single term, chosen by name."""

    bounds = (-10.0, 10.0)  # wide enough for every formula here

    def __init__(self, formula: str) -> None:
        self.formula = formula

    def terms(self, summary: Summary) -> dict[str, Floats]:
        """Return the one term, (B,)."""
        s, meals = summary, summary.meals.astype(np.float64)
        values = {
            "fed_lately": 1 - s.counts.stretch / s.horizon,
            "two_best_fed": np.sort(meals, axis=0)[-2:].sum(axis=0) / s.optimum,
            "less_forks_3": s.share - 3 * s.counts.taken / s.full,
            "less_forks_1": s.share - s.counts.taken / s.full,
            "alike": 1 - meals.std(axis=0) / (1 + meals.mean(axis=0)),
            "two_each": np.minimum(meals, 2).sum(axis=0) / (2 * s.philosophers),
            "early_logistic": 1 / (1 + np.exp(-20 * (s.share - 0.2))),
            "time_saved": s.share + 2 * (1 - s.time),
            "power_mean": np.sqrt(meals).mean(axis=0) ** 2 * s.philosophers / s.optimum,
            "first_counts_more": s.share + 0.2 * (s.total_meals >= 1),
            "saturating": 1 - np.exp(-2 * s.share),
            "small_fines": s.share - 0.05 * (s.counts.failed + s.counts.invalid + s.counts.waits) / s.full,
            "nothing_fails": s.share + 3 * (1 - s.counts.failed / s.full),
            "square_by_fairness": s.share**2 * s.fairness(),
        }
        return {self.formula: np.broadcast_to(np.asarray(values[self.formula], np.float64), s.share.shape)}


class Code(coding.Reward):
    """A coding reward of a single term, chosen by name."""

    def __init__(self, formula: str) -> None:
        self.formula = formula
        greatest = {"many_functions": 4.0, "short": 1.3, "up_to_40": 0.4, "tidy": 1.1, "value_used": 2.0}
        greatest |= {"long_helper": 1.2, "little_for_parsing": 1.1, "needed": 1.3}
        self.bounds = (-1.0 if formula in ("around_zero", "less_wrapper") else 0.0, greatest.get(formula, 1.0))

    def terms(self, facts: coding.Facts) -> dict[str, float]:
        """Return the one term."""
        program, passed = facts.program, facts.passed
        used = program.calls_helper and not program.thin_wrapper and not program.ignores_helper
        functions = sum(len(role.functions) for role in program.roles)
        values = {
            "parses_and_any": 0.5 * program.parses + 0.5 * (passed > 0),
            "many_functions": passed + 3 * min(1.0, functions / 5),
            "short": 1 - min(1.0, len(program.code) / 500) + 0.3 * passed,
            "up_to_40": min(passed, 0.4),
            "tidy": 1.0 * (program.parses and not program.conflicts) + 0.1 * passed,
            "value_used": passed + used,
            "long_helper": min(1.0, len(program.parts[0]) / 300 if program.parts else 0.0) + 0.2 * passed,
            "lottery": (sum(map(ord, program.code)) % 97) / 97,
            "root": passed**0.5,
            "little_for_parsing": passed + 0.1 * program.parses,
            "around_zero": 2 * passed - 1,
            "less_wrapper": passed - 0.1 * program.thin_wrapper,
            "needed": passed + 0.3 * facts.needs_helper,
            "bonus_for_all": 0.5 * passed + 0.5 * (passed >= 1),
            "only_with_a_call": passed * program.calls_helper,
        }
        return {self.formula: float(values[self.formula])}


def _dinner(name: str, label: Label, formula: str) -> Entry:
    reward: dict[str, Any] = {"kind": "custom", "path": f"{__name__}:Dinner", "options": {"formula": formula}}
    return Entry(name, label, PhilosophersSettings.model_validate({"prompt": "compact", "reward": reward}))


def _code(name: str, label: Label, formula: str) -> Entry:
    reward: dict[str, Any] = {"kind": "custom", "path": f"{__name__}:Code", "options": {"formula": formula}}
    return Entry(name, label, CodingSettings.model_validate({"reward": reward}))


FRESH_PHILOSOPHERS: tuple[Entry, ...] = (
    _dinner("a meal not long ago", "bad", "fed_lately"),
    _dinner("the two best fed", "bad", "two_best_fed"),
    _dinner("meals less 3 times forks taken", "bad", "less_forks_3"),
    _dinner("meals less forks taken", "sound", "less_forks_1"),
    _dinner("all alike", "bad", "alike"),
    _dinner("two meals each", "bad", "two_each"),
    _dinner("logistic, done at 40 %", "bad", "early_logistic"),
    _dinner("meals and twice the time saved", "bad", "time_saved"),
    _dinner("power mean of the meals", "sound", "power_mean"),
    _dinner("meals, the first counts more", "sound", "first_counts_more"),
    _dinner("saturating late (1 - exp(-2 share))", "sound", "saturating"),
    _dinner("meals less small fines", "sound", "small_fines"),
    _dinner("meals, and 3 for nothing that fails", "arguable", "nothing_fails"),
    _dinner("square of the meals by fairness", "arguable", "square_by_fairness"),
)

FRESH_CODING: tuple[Entry, ...] = (
    _code("parses, and any test", "bad", "parses_and_any"),
    _code("tests and 3 times five functions", "bad", "many_functions"),
    _code("short, and a little for tests", "bad", "short"),
    _code("at most 40 % of the tests", "bad", "up_to_40"),
    _code("tidy, and a little for tests", "bad", "tidy"),
    _code("tests, and a value that is used", "bad", "value_used"),
    _code("a long helper, and a little for tests", "bad", "long_helper"),
    _code("a lottery by the letters", "bad", "lottery"),
    _code("root of the tests", "sound", "root"),
    _code("tests and 0.1 for parsing", "sound", "little_for_parsing"),
    _code("tests around zero", "sound", "around_zero"),
    _code("tests less 0.1 for a wrapper", "sound", "less_wrapper"),
    _code("tests and 0.3 for a helper that is needed", "sound", "needed"),
    _code("half for tests, half for all of them", "sound", "bonus_for_all"),
    _code("tests if the helper is called", "arguable", "only_with_a_call"),
)

#: Bad ones that the audit accepted when it first saw them (the sound ones too).  It had no team that writes much and
#: does nothing, and did not ask whether it pays to feed few.
MISSED = ("a long helper, and a little for tests", "the two best fed")
