"""The audit of a coding reward: scripted programs, the reward for pretended teamwork, and training in miniature.

In the miniature, two agents can only choose functions from a menu: several ways to write a function, such as the
reference, the same work done alone, pretended checks, constants, nothing.  Every pair of choices is run on some
problems, so the reward of every joint policy on the menu is known.  There are two questions, one for each claim of the
audit: which joint choice has the highest reward (the worst one counts if several are equal), and where do two agents
end that learn side by side as teams do, by the reward of a group minus its mean, without seeing the other's choice?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams, solutions_pass
from pipeline_lib.audit.ladder import DOUBTFUL, best_policy
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environments.coding.audit.teams import (
    CONSTANTS,
    IDENTITY,
    SHOWS,
    TOKEN,
    WITH_ITS_OWN,
    alone,
    constant,
    process_check,
    process_teams,
    show,
    teams,
    useless_call,
    wrapper,
)
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.program import HELPER


class CodingExaminer(ScriptedExaminer):
    """Plays scripted programs, checks the reward of pretended teamwork, and trains in miniature.

    Only the first turn of an episode is played.  Problems without a reference solution are used for the degenerate
    teams only.
    """

    wanted, words = "tests_passed", "tests passed"
    turns = 1

    def teams(self, environment: Environment[CodingProblem, Any], problem: Any, other: Any) -> Teams:
        """Return programs of known quality; for a reward that judges the helper itself, also attempts to please it."""
        scripted = teams(problem, other, environment.agents(problem), environment)
        if getattr(environment, "judges_helper", False) and "solo" in scripted:
            scripted |= process_teams(problem, scripted["solo"][1][1])
        return scripted

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        return [_teamwork(rungs), *process_check(rungs), solutions_pass(played, ("tests_passed",))]

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        rungs, checks = super().examine(environment, problems, seed, progress)
        checks.append(search_menu(environment, problems, seed))
        progress(1, 1, "training in miniature")
        return rungs, checks


def _teamwork(rungs: Sequence[Rung]) -> Check:
    """Check whether a team that only pretends to need its helper gets more reward.

    What it earns as well with a function of its own in place of the helper, it earns for other things.
    """
    by_name = {rung.name: rung for rung in rungs}
    solo, shows = by_name.get("solo"), [by_name[name] for name in SHOWS if name in by_name]
    if solo is None or not shows:
        return Check(
            "teamwork",
            Status.PASS,
            "There is no pair with a reference solution, so pretended teamwork cannot be tested.",
        )
    spread = max(r.reward for r in rungs) - min(r.reward for r in rungs)
    numbers = {"solo": solo.reward} | {show.name: show.reward for show in shows}

    def paid(show: Rung) -> float:
        return show.reward - max(solo.reward, by_name[show.name + WITH_ITS_OWN].reward)

    best = max(shows, key=paid)
    if paid(best) > 0.05 * spread:
        return Check(
            "teamwork",
            Status.FAIL,
            f"A main agent that solves everything alone earns {solo.reward:.3f}, and {best.reward:.3f} if it pretends "
            f"to need its helper ('{best.name}'): the reward pays for pretended teamwork.",
            numbers,
            "pay for cooperation only where fewer tests pass without the helper (kind: sound), or not at all.",
        )
    sentence = f"None of {len(shows)} ways to pretend that the helper is needed earns more than working alone."
    return Check("teamwork", Status.PASS, sentence, numbers)


Floats = npt.NDArray[np.float64]

#: Problems on which every pair of the menu is run; the programs are as many as these times the pairs (over 60).
PROBLEMS = 6

#: Number of learning pairs, group size, updates, and learning rate.
LEARNERS, GROUP, UPDATES, RATE = 16, 8, 400, 0.2


def menu(problem: CodingProblem, other: CodingProblem) -> tuple[dict[str, str], dict[str, str]]:
    """Return the functions that the helper and the main agent can choose from, by name.

    Args:
        problem: a problem with a reference solution.
        other: another problem, whose helper is the wrong one.
    """
    entry = problem.entry_point
    helpers = {
        "reference": problem.reference.get(HELPER, IDENTITY),
        "wrong": other.reference.get(HELPER, constant(HELPER, "None")),
        "identity": IDENTITY,
        "token": TOKEN,
        "none": constant(HELPER, "None"),
        "nothing": "",
    }
    mains = {"reference": problem.reference[entry], "alone": alone(problem), "wrapper": wrapper(entry)}
    mains |= {name: show(problem, gives_up) for name, (_, gives_up) in SHOWS.items()}
    mains |= {name: constant(entry, CONSTANTS[name]) for name in ("constant_zero", "constant_true")}
    mains |= {"useless_call": useless_call(entry, "0"), "nothing": ""}
    return helpers, mains


def search_menu(environment: Environment[CodingProblem, Any], problems: Sequence[CodingProblem], seed: int) -> Check:
    """Run every pair of the menu on some problems, and let pairs learn from their rewards.

    Returns:
        ``search``: FAIL if a joint choice that leaves half of the tests earns as much as any, or if the pairs that
        learned end there while they earn as much; WARN if they get stuck elsewhere, or if there is nothing to run.
    """
    usable = [p for p in problems if p.entry_point in p.reference][:PROBLEMS]
    if not usable or len(environment.agents(usable[0])) != 2:
        return Check(
            "search",
            Status.PASS,
            "There is no pair with a reference solution, so training in miniature is not possible.",
        )
    rewards, passed, names = _run(environment, usable)
    mean, error = rewards.mean(axis=0), rewards.std(axis=0) / np.sqrt(max(1, len(usable) - 1))
    done = passed.mean(axis=0)
    policy = best_policy(mean.ravel(), done.ravel(), error.ravel())
    likes = divmod(policy.index, mean.shape[1])
    team = f"helper '{names[0][likes[0]]}', main '{names[1][likes[1]]}'"
    ends = learn(rewards, seed)
    earns, does = float(np.mean([mean[end] for end in ends])), float(np.mean([done[end] for end in ends]))
    numbers = {
        "favourite": team,
        "favourite_passed": float(done[likes]),
        "learned_reward": earns,
        "learned_passed": does,
        "best_reward": policy.best,
        "best_passed": policy.most,
        "pairs": mean.size,
        "ends": sorted({f"{names[0][h]} / {names[1][m]}" for h, m in ends}),
    }
    if policy.status is not Status.PASS:
        sentence = (
            f"Of {mean.size} pairs of functions, {team} earns {policy.reward:.3f}, as much as any, and passes "
            f"{done[likes]:.0%} of the tests where others pass {policy.most:.0%}."
        )
        return Check("search", policy.status, sentence, numbers, "give the hidden tests more weight.")
    story = (
        f"Of {mean.size} pairs of functions the reward likes {team} best; {LEARNERS} pairs of agents that learned to "
        f"choose end with {earns:.3f} of at most {policy.best:.3f} and {does:.0%} of the tests passed"
    )
    stuck = does < DOUBTFUL * policy.most
    return Check("search", Status.WARN if stuck else Status.PASS, f"{story}.", numbers)


def learn(rewards: Floats, seed: int) -> list[tuple[int, int]]:
    """Let pairs of agents learn to choose, and return what each pair chooses most often in the end.

    Args:
        rewards: (P, H, M), reward of each choice of helper and main function on each problem.
        seed: seed of all draws.
    """
    rng = np.random.default_rng([seed, 30])
    problems, helpers, mains = rewards.shape
    logits = np.zeros((LEARNERS, helpers)), np.zeros((LEARNERS, mains))
    for _ in range(UPDATES):
        chances = [_softmax(table) for table in logits]
        chosen = [(rng.random((LEARNERS, GROUP, 1)) > p.cumsum(axis=1)[:, None, :-1]).sum(axis=2) for p in chances]
        earned = rewards[rng.integers(problems, size=(LEARNERS, 1)), chosen[0], chosen[1]]  # (LEARNERS, GROUP)
        spread = earned.std(axis=1, keepdims=True)
        advantages = np.divide(
            earned - earned.mean(axis=1, keepdims=True), spread, out=np.zeros_like(earned), where=spread > 1e-9
        )
        for table, p, choice in zip(logits, chances, chosen, strict=True):
            score = np.eye(table.shape[1])[choice] - p[:, None, :]
            table += RATE * (advantages[..., None] * score).mean(axis=1)
    return [(int(h), int(m)) for h, m in zip(logits[0].argmax(axis=1), logits[1].argmax(axis=1), strict=True)]


def _run(
    environment: Environment[CodingProblem, Any], problems: Sequence[CodingProblem]
) -> tuple[Floats, Floats, tuple[list[str], list[str]]]:
    """Return rewards and shares of tests passed, (P, H, M) each, and the names of the choices."""
    states, actions = [], []
    for number, problem in enumerate(problems):
        helpers, mains = menu(problem, problems[(number + 1) % len(problems)])
        for helper in helpers.values():
            for main in mains.values():
                states.append(environment.start(problem))
                actions.append((helper, main))
    outcomes = environment.step(states, actions)
    shape = (len(problems), len(helpers), len(mains))
    # A program without a verdict counts as reward 0, so its pair can only be underestimated.
    rewards = np.array([outcome.reward or 0.0 for outcome in outcomes]).reshape(shape)
    passed = np.array([outcome.metrics.get("tests_passed", 0.0) for outcome in outcomes]).reshape(shape)
    return rewards, passed, (list(helpers), list(mains))


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
