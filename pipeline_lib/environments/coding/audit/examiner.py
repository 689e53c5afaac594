"""The audit of a coding reward: scripted programs, and the reward for pretended teamwork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environments.coding.audit.search import search_menu
from pipeline_lib.environments.coding.audit.teams import SHOWS, WITH_ITS_OWN, process_check, process_teams, teams
from pipeline_lib.environments.coding.problems.problem import CodingProblem


class CodingExaminer(ScriptedExaminer):
    """Plays scripted programs, checks the reward of pretended teamwork, and trains in miniature.

    Only the first turn of an episode is played.  Problems without a reference solution are used for the degenerate
    teams only.
    """

    wanted, words = "tests_passed", "tests passed"
    turns = 1

    def teams(self, environment: Environment[CodingProblem, Any], problem: Any, other: Any) -> Teams:
        """Return programs of known quality; for a reward that judges the helper itself, also attempts to please it."""
        found = teams(problem, other, environment.agents(problem), environment)
        if getattr(environment, "judges_helper", False) and "solo" in found:
            found |= process_teams(problem, found["solo"][1][1])
        return found

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        return [_teamwork(rungs), *process_check(rungs), _reference_passes(played)]

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        rungs, checks = super().examine(environment, problems, seed, progress)
        checks.append(search_menu(environment, problems, seed))
        progress(1, 1, "training in miniature")
        return rungs, checks


def _reference_passes(played: ScriptedPlay) -> Check:
    outcomes = played.outcomes
    references = [i for i, name in enumerate(played.names) if name == "reference" and outcomes[i].reward is not None]
    if not references:
        return Check(
            "reference", Status.WARN, "No problem has a reference solution, so no working team could be played."
        )
    broken = [played.problems[i].id for i in references if outcomes[i].metrics["tests_passed"] < 1.0]
    if broken:
        return Check(
            "reference",
            Status.FAIL,
            f"The reference solution of {len(broken)} of {len(references)} problems fails tests, first '{broken[0]}': "
            "the full reward cannot be reached there.",
            {"broken": broken},
        )
    return Check(
        "reference", Status.PASS, f"The reference solutions of all {len(references)} problems pass every test."
    )


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
