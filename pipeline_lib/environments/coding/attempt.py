"""One joint action while it is judged: the programs that have to be run for it, and the facts that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline_lib.environment_kit.programs import Attempt
from pipeline_lib.environments.coding.contract import contract
from pipeline_lib.environments.coding.hardness import hardness_of_tests, noticed, passed_cases, weighted_share
from pipeline_lib.environments.coding.mutants import mutants
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.program import HELPER, Program
from pipeline_lib.environments.coding.rewards import Facts, Reward
from pipeline_lib.sandbox import Job, Verdict

#: The stubs that replace the helper in an ablation: one returns None, one agrees with everything.
ABLATIONS = ("ablated by None", "ablated by agreement")

_MUTANT = "mutant "


@dataclass(slots=True)
class CodingAttempt(Attempt):
    """One joint action before it has an outcome.

    ``verdicts`` are those of the program on hidden tests (``hidden``) and on visible ones (``visible``), of its static
    analysis (``analysis``), of a program that returns None (``none``), of the helper alone (``contract``), and of the
    program with its helper replaced: by a stub (one of `ABLATIONS` each), or by one of its mutants; if these were run.
    """

    problem: CodingProblem
    program: Program
    last: bool

    def job(self, code: str) -> Job:
        """Return the job of running ``code`` on the hidden tests."""
        problem = self.problem
        return Job(problem.id, code, problem.hidden_tests, problem.entry_point, problem.prelude)

    def programs(self, reward: Reward) -> Iterator[tuple[str, Job]]:
        """Yield the jobs of the first batch, besides those of the feedback; ``reward`` says what to measure."""
        problem = self.problem
        if reward.needs_contract and len(self.program.roles) > 1 and self.program.roles[0].defined:
            tests = contract(problem)
            if tests and problem.hidden_tests:
                yield "contract", Job(problem.id, self.program.parts[0], tests, HELPER)
        if not self.program.main.defined or not problem.hidden_tests:
            return
        job = self.job(self.program.code)
        yield "hidden", job
        if reward.needs_baseline:
            yield "none", replace(job, code=f"def {problem.entry_point}(*args, **kwargs):\n    return None\n")

    def replacements(self, reward: Reward) -> Iterator[tuple[str, Job]]:
        """Yield the jobs that show whether and how the helper matters, if the program passes any test."""
        if self.failure is not None or self.passed("hidden") == 0:
            return
        for kind, code in zip(ABLATIONS, self.program.ablated, strict=False):
            yield kind, self.job(code)
        if self.program.ablated and reward.mutants:
            for number, source in enumerate(mutants(self.program.parts[0], reward.mutants)):
                yield f"{_MUTANT}{number}", self.job(self.program.with_helper(source))

    def facts(self, ladder: Sequence[Verdict], reward: Reward) -> Facts:
        """Return the facts that the reward depends on.

        Args:
            ladder: verdicts on almost right programs of the problem (`hardness`); empty if nothing is known of them.
            reward: says what was measured.
        """
        passed = self.passed("hidden")
        ablated = [self.passed(kind) for kind in ABLATIONS if kind in self.verdicts]
        adds = max(0.0, passed - max(ablated)) if ablated else 0.0
        weighted = killed = 0.0
        if reward.hardness is not None and (hidden := self.verdicts.get("hidden")) is not None:
            hardness = hardness_of_tests(ladder, hidden.total)
            weighted = weighted_share(passed_cases(hidden), hardness, reward.hardness)
        if adds > 0 and reward.mutants:
            changed = [verdict for kind, verdict in self.verdicts.items() if kind.startswith(_MUTANT)]
            killed = noticed(self.verdicts["hidden"], changed)
        return Facts(
            self.program, passed, self.passed("none"), adds > 0, adds, weighted, self.passed("contract"), killed
        )

    def metrics(self, facts: Facts, reward: Reward) -> dict[str, float]:
        """Return the metrics of the outcome; those beyond the default reward's only if the reward measures them."""
        program = facts.program
        pair = len(program.roles) > 1
        found = {
            "tests_passed": facts.passed,
            "all_passed": float(facts.passed >= 1.0),
            "structure": facts.structure,
            "syntax": float(program.parses),
            "cooperation": float(pair and facts.needs_helper),
            "calls_helper": float(program.calls_helper),
            "ignores_helper": float(program.ignores_helper),
            "thin_wrapper": float(program.thin_wrapper),
        }
        if reward.hardness is not None:
            found["tests_weighted"] = facts.passed_weighted
        if reward.needs_contract:
            found["contract_met"] = facts.contract
        if reward.mutants:
            found["mutants_noticed"] = facts.killed
        if reward.hardness is not None or reward.needs_contract or reward.mutants:
            found |= {"helper_adds": facts.helper_adds, "programs": float(len(self.verdicts))}
        return found
