"""Coding teams whose worth is known: the reference solution, teams that pretend, and teams that work past each other.

All of them are texts that go through `Environment.step` like any policy's actions.  What a published reward was fooled
by (a helper's name in a comment, a call whose value does not matter, a wrapper, the prompt copied out) is on the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_lib.audit.ladder import compare, make_rung
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.environment import Environment
from pipeline_lib.environments.program import HELPER
from pipeline_lib.problems.problem import CodingProblem

#: What is wanted, as a metric of the environment's outcomes and in words.
WANTED = ("tests_passed", "tests passed")

_IDENTITY = f"def {HELPER}(*args, **kwargs):\n    return args[0] if args else None\n"
_CONSTANTS = {"constant_none": "None", "constant_zero": "0", "constant_true": "True", "constant_empty": "[]"}

Progress = Callable[[int, int, str], None]


def coding_ladder(
    environment: Environment[CodingProblem, Any], problems: Sequence[CodingProblem], progress: Progress | None = None
) -> tuple[list[Rung], list[Check]]:
    """Play the scripted teams on some problems and check the order of their rewards.

    Args:
        environment: the coding environment that is about to be trained in.
        problems: training problems; those without a reference solution are used for the degenerate teams only.
        progress: called after each piece of work.

    Returns:
        The rungs, best reward first, and the checks.
    """
    played: list[tuple[str, str, CodingProblem, list[str]]] = []
    for number, problem in enumerate(problems):
        other = problems[(number + 1) % len(problems)]
        agents = environment.agents(problem)
        for name, (role, texts) in teams(problem, other, agents, environment).items():
            played.append((name, role, problem, texts))
    states = [environment.start(problem) for _, _, problem, _ in played]
    outcomes = environment.step(states, [texts for *_, texts in played])
    if progress:
        progress(len(played), len(played), "scripted teams")
    found: dict[str, list[int]] = {}
    lost = 0
    for index, (name, *_) in enumerate(played):
        if outcomes[index].reward is None:
            lost += 1
            continue
        found.setdefault(name, []).append(index)
    rungs = [
        make_rung(
            name,
            played[indices[0]][1],
            [float(outcomes[i].reward or 0.0) for i in indices],
            [outcomes[i].metrics[WANTED[0]] for i in indices],
            [outcomes[i].terms for i in indices],
            [outcomes[i].metrics for i in indices],
        )
        for name, indices in found.items()
    ]
    checks = [*compare(rungs, WANTED[1]), _reference_passes(played, outcomes), _teamwork(rungs)]
    if lost:
        checks.append(
            Check(
                "infrastructure",
                Status.WARN if lost < 0.05 * len(played) else Status.FAIL,
                f"{lost} of {len(played)} programs got no verdict because the sandbox failed.",
                {"lost": lost, "played": len(played)},
            )
        )
    return sorted(rungs, key=lambda r: -r.reward), checks


def teams(
    problem: CodingProblem, other: CodingProblem, agents: Sequence[str], environment: Environment[CodingProblem, Any]
) -> dict[str, tuple[str, list[str]]]:
    """Return the joint actions of all scripted teams on a problem: role and a text per agent.

    Args:
        problem: what is to be solved.
        other: another problem, whose helper is the wrong one.
        agents: the environment's agents, one or two.
        environment: shows the observations, for the team that copies them.
    """
    entry = problem.entry_point
    state = environment.start(problem)
    seen = [environment.observe(state, number) for number in range(len(agents))]
    wrapper = f"def {entry}(*args, **kwargs):\n    return {HELPER}(*args, **kwargs)\n"
    words = f"# def {HELPER}(xs): return {HELPER}({entry}(xs))\n'''def {entry}(xs):\n    return {HELPER}(xs)'''\n"
    found: dict[str, tuple[str, list[str]]] = {
        "empty": ("degenerate", ["", ""]),
        "copied_prompt": ("degenerate", [seen[0], seen[-1]]),
        "keywords": ("degenerate", [words, words]),
        "wrapper_only": ("degenerate", [_IDENTITY, wrapper]),
        "useless_call": ("degenerate", [_IDENTITY, _useless_call(entry, "0")]),
    }
    for name, value in _CONSTANTS.items():
        found[name] = ("degenerate", [_constant(HELPER, value), _constant(entry, value)])
    if entry in problem.reference:
        helper, main = problem.reference.get(HELPER, _IDENTITY), problem.reference[entry]
        alone = _without_helper(problem)
        found["reference"] = ("working", [helper, main])
        if len(agents) == 2:
            found["solo"] = ("working", [_IDENTITY, alone])
            found["solo_useless_call"] = ("other", [_IDENTITY, _decorated(alone, entry)])
            found["wrong_helper"] = ("other", [other.reference.get(HELPER, _constant(HELPER, "None")), main])
    if len(agents) == 1:
        return {name: (role, ["\n".join(dict.fromkeys(texts))]) for name, (role, texts) in found.items()}
    return found


def _constant(function: str, value: str) -> str:
    return f"def {function}(*args, **kwargs):\n    return {value}\n"


def _useless_call(entry: str, value: str) -> str:
    return (
        f"def {entry}(*args, **kwargs):\n    # {HELPER}( {HELPER}(\n    found = {HELPER}(*args, **kwargs)\n"
        f"    note = str(found)\n    return {value} if note else {value}\n"
    )


def _without_helper(problem: CodingProblem) -> str:
    """Return one action that solves the problem alone: the reference with its helper under another name."""
    both = "\n".join(problem.reference.values())
    return re.sub(rf"\b{HELPER}\b", "own_part", both)


def _decorated(source: str, entry: str) -> str:
    """Return a solution that also calls the helper and makes a show of its value."""
    inner = re.sub(rf"\b{re.escape(entry)}\b", "solve_alone", source)
    return (
        f"{inner}\ndef {entry}(*args, **kwargs):\n    note = str({HELPER}(*args, **kwargs))\n"
        "    answer = solve_alone(*args, **kwargs)\n    return answer if note is not None else note\n"
    )


def _reference_passes(played: Sequence[tuple[str, str, CodingProblem, list[str]]], outcomes: Sequence[Any]) -> Check:
    references = [i for i, (name, *_) in enumerate(played) if name == "reference" and outcomes[i].reward is not None]
    if not references:
        return Check(
            "reference", Status.WARN, "No problem has a reference solution, so no working team could be played."
        )
    broken = [played[i][2].id for i in references if outcomes[i].metrics[WANTED[0]] < 1.0]
    if broken:
        return Check(
            "reference",
            Status.FAIL,
            f"The reference solution of {len(broken)} of {len(references)} problems fails tests, first '{broken[0]}': "
            "full marks cannot be reached there.",
            {"broken": broken},
        )
    return Check(
        "reference", Status.PASS, f"The reference solutions of all {len(references)} problems pass every test."
    )


def _teamwork(rungs: Sequence[Rung]) -> Check:
    """Warn when calling a helper pays although nobody needs it."""
    by_name = {rung.name: rung for rung in rungs}
    solo, show = by_name.get("solo"), by_name.get("solo_useless_call")
    if solo is None or show is None:
        return Check("teamwork", Status.PASS, "There is no pair with a reference solution: no teamwork to pretend.")
    spread = max(r.reward for r in rungs) - min(r.reward for r in rungs)
    numbers = {"solo": solo.reward, "solo_useless_call": show.reward}
    if show.reward > solo.reward + 0.05 * spread:
        return Check(
            "teamwork",
            Status.WARN,
            f"A main agent that solves everything alone earns {solo.reward:.3f}, and {show.reward:.3f} if it makes a "
            "show of calling its helper: the reward does not ask whether the helper is needed.",
            numbers,
        )
    return Check("teamwork", Status.PASS, "A show of calling the helper, without need, earns nothing extra.", numbers)
