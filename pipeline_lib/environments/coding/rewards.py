"""The terms of the coding reward, each defined once; training, evaluation and report all use these definitions.

A reward turns the facts of one joint action (`Facts`: from the syntax tree, the hidden tests and the ablation) into
named, weighted terms whose sum is the reward.  It never sees text and never runs anything.  A reward of your own is a
subclass of `Reward` (docs/rewards.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline_lib.environment_api import reward
from pipeline_lib.environment_api.reward import custom_reward

if TYPE_CHECKING:
    from pipeline_lib.environments.coding.program import Program
    from pipeline_lib.environments.coding.settings import CodingReward, FineCodingReward, SoundCodingReward

Team = Literal["pair", "single"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one joint action."""

    program: Program  #: the joined program
    passed: float  #: share of the hidden tests that it passes, in [0, 1]
    passed_by_none: float = 0.0  #: share that a program which always returns None passes, in [0, 1]
    #: The main function calls the helper, and passes fewer hidden tests with the helper replaced, both by a stub that
    #: returns None and by one whose value agrees with whatever it is compared with.
    needs_helper: bool = False
    #: Share of the hidden tests that it passes, and does not pass with the helper replaced by the better of these
    #: stubs, in [0, 1].
    helper_adds: float = 0.0
    passed_weighted: float = 0.0  #: like ``passed``, but a harder test counts more (`fine_measures`)
    #: Share of the tests of the helper alone that the helper passes, in [0, 1]; 0 if no contract is known.
    contract: float = 0.0
    #: Share of the mutants of the helper that hidden tests notice, in [0, 1]; 0 unless it needs the helper.
    killed: float = 0.0

    @property
    def structure(self) -> float:
        """Return the share of the required functions that are defined and return a value, in [0, 1]."""
        roles = self.program.roles
        return sum(role.returns for role in roles) / len(roles)


class Reward(reward.Reward[Facts, float]):
    """Named, weighted terms, and what has to be measured for them."""

    needs_baseline: bool = False  #: `Facts.passed_by_none` is used and must be measured
    #: Of `Facts.passed_weighted`, how much more than the easiest test the hardest one can count: with 1 twice as much.
    #: None: it is not used.
    hardness: float | None = None
    needs_contract: bool = False  #: `Facts.contract` is used and must be measured
    mutants: int = 0  #: greatest number of mutants run for `Facts.killed`; 0: it is not used

    def of_agents(self, facts: Facts) -> tuple[float, float]:
        """Return what helper and main agent of a pair earn by themselves, for form and tests, within the bounds.

        The helper's tests are those of the helper alone, the main agent's are the hidden tests of the program.
        """
        forms, tests = [role.returns for role in facts.program.roles], (facts.contract, facts.passed)
        low, high = self.bounds
        helper, main = (
            low + (high - low) * (0.1 * form + 0.9 * share) for form, share in zip(forms, tests, strict=True)
        )
        return helper, main


class SoundReward(Reward):
    """The default: syntax tree, hidden tests and ablation; nothing is gained by text that only looks right.

    - ``structure``: share of the required functions (of a single agent: the entry point) that are defined and return
      a value;
    - ``syntax``: everything the agents wrote parses;
    - ``tests``: share of the hidden tests passed;
    - ``cooperation`` (pairs only): the main function calls the helper, and fewer tests pass without it.

    A main function that solves everything alone and gives up on purpose when its helper returns None, another value
    or another type than expected is not paid for that.  What remains open to a team that can solve the problem in one
    function is to hide such a check from the agreeing stub (``type(x) is int``, the length of a list).  Problems that
    neither agent can solve alone leave no gain in it.
    """

    def __init__(self, weights: SoundCodingReward, team: Team) -> None:
        self._weights = weights
        self._cooperation = weights.cooperation if team == "pair" else 0.0
        self.needs_baseline = weights.above_none
        self.bounds = (0.0, weights.structure + weights.syntax + weights.tests + self._cooperation)

    def terms(self, facts: Facts) -> dict[str, float]:
        return {
            "structure": self._weights.structure * facts.structure,
            "syntax": self._weights.syntax * facts.program.parses,
            "tests": self._weights.tests * self._tests(facts),
            "cooperation": self._cooperation * facts.needs_helper,
        }

    def _tests(self, facts: Facts) -> float:
        if not self._weights.above_none or facts.passed_by_none >= 1.0:
            return facts.passed
        # A program that does worse than one that returns None is not worth less than it.
        return max(0.0, facts.passed - facts.passed_by_none) / (1.0 - facts.passed_by_none)


class FineReward(Reward):
    """Beside the result, what each agent contributes to it: more terms, measured by more executions.

    - ``structure`` and ``syntax``: as in the default reward;
    - ``tests``: share of the hidden tests passed, where harder tests count more;
    - ``contract`` (pairs only): share of the tests of the helper alone that it passes, whatever the main function does;
    - ``mutation`` (pairs only): share of the helper's mutants that hidden tests notice, times the share of the tests
      passed; 0 unless the program needs its helper;
    - ``ablation`` (pairs only): share of the hidden tests that are passed with the helper and not without it.

    What remains open is what is open of ``cooperation`` in `SoundReward`; and a helper can be written so that tests
    notice more of its mutants, with conditions that are always true.  The audit plays such a team.
    """

    def __init__(self, weights: FineCodingReward, team: Team) -> None:
        self._weights = weights
        pair = team == "pair"
        self._contract, self._mutation, self._ablation = (
            weight if pair else 0.0 for weight in (weights.contract, weights.mutation, weights.ablation)
        )
        self.hardness = weights.hardness
        self.needs_contract = self._contract > 0
        self.mutants = weights.mutants if self._mutation > 0 else 0
        form = weights.structure + weights.syntax
        self.bounds = (0.0, form + weights.tests + self._contract + self._mutation + self._ablation)

    def terms(self, facts: Facts) -> dict[str, float]:
        return {
            "structure": self._weights.structure * facts.structure,
            "syntax": self._weights.syntax * facts.program.parses,
            "tests": self._weights.tests * facts.passed_weighted,
            "contract": self._contract * facts.contract,
            "mutation": self._mutation * facts.passed * facts.killed,
            "ablation": self._ablation * facts.helper_adds,
        }


class PaperReward(Reward):
    """The published reward (arXiv 2508.04652): at most 4.0 for a pair, 2.1 for a single agent.

    - ``structure``: 0.4 for a helper and 0.6 for a main function that return a value; without the latter, no more;
    - ``syntax``: 0.5 if everything parses; otherwise, no more;
    - ``tests``: 1.0 times the share of the hidden tests passed;
    - ``cooperation``: if any test passes and the main function calls the helper: 0.5, and 1.0 unless it is a thin
      wrapper, less 0.5 if every value of the helper is thrown away.

    The values and gates are the published ones.  The published code reads them off the text (a comment ``# aux(``
    counts as a call, a dummy statement hides a wrapper, the penalty never applies); here they mean what they say.  What
    is left of its weakness is its own: 1.5 of 4.0 need a call of the helper, not a helper that is needed.
    """

    def __init__(self, team: Team) -> None:
        self._pair = team == "pair"
        self.bounds = (0.0, 4.0 if self._pair else 2.1)

    def terms(self, facts: Facts) -> dict[str, float]:
        terms = dict.fromkeys(("structure", "syntax", "tests", "cooperation"), 0.0)
        program = facts.program
        terms["structure"] = 0.4 * (self._pair and program.roles[0].returns) + 0.6 * program.main.returns
        if not program.main.returns or not program.parses:
            return terms
        terms["syntax"] = 0.5
        terms["tests"] = facts.passed
        if self._pair and facts.passed > 0 and program.calls_helper:
            terms["cooperation"] = 0.5 + 1.0 * (not program.thin_wrapper) - 0.5 * program.ignores_helper
        return terms


def make_reward(settings: CodingReward, team: Team) -> Reward:
    """Return the reward that the settings describe; raises as `custom_reward`."""
    if settings.kind == "paper":
        return PaperReward(team)
    if settings.kind == "sound":
        return SoundReward(settings, team)
    if settings.kind == "fine":
        return FineReward(settings, team)
    return custom_reward(settings, Reward, {"team": team})  # type: ignore[type-abstract]
