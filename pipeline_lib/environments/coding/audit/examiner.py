"""The audit of a coding reward: scripted programs, and the reward for pretended teamwork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams, solutions_pass
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
