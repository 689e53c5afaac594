"""The audit of a reward for agreed plans: scripted teams; some find the plan, most only pretend to.

A text of the audit is what an agent says in a whole episode, a line for each turn.  The base rates of teams that do not
talk are exact, by enumeration of all plans.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.examiner import Progress, ScriptedExaminer, ScriptedPlay, Teams
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environment_kit.dialogue import WholeEpisodes
from pipeline_lib.environments.planning.demonstrations import agree, says, tell
from pipeline_lib.environments.planning.problem import DAYS, PLACES, PLANS, Plan, PlanningProblem, blind
from pipeline_lib.environments.planning.runtime import PlanningState
from pipeline_lib.storage import digest

Dialogues = WholeEpisodes[PlanningProblem, PlanningState]


class PlanningExaminer(ScriptedExaminer):
    """Plays scripted teams through whole dialogues."""

    wanted, words = "satisfied", "plans that satisfy everything"
    turns, edited_on = 1, 24
    parts = (1.0, 4.0)
    _commonest: Plan

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        self._commonest = blind(problems)[0]
        return super().examine(WholeEpisodes(environment), problems, seed, progress)

    def teams(self, environment: Dialogues, problem: PlanningProblem, other: PlanningProblem) -> Teams:
        rng = random.Random(digest(["audit", problem.id]))
        [plan] = problem.suiting(0, 1)
        [elsewhere] = other.suiting(0, 1)
        guesses = rng.sample(PLANS, 2)
        right, wished = agree(plan), [agree(rng.choice(problem.suiting(agent))) for agent in (0, 1)]
        state, turns = environment.start(problem), environment.played.turns
        agents = range(len(environment.agents(problem)))
        prompts = [" ".join(environment.observe(state, agent).split()) for agent in agents]

        def both(text: str) -> list[str]:
            return [text for _ in agents]

        found: dict[str, tuple[str, Sequence[str]]] = {
            "silent": ("degenerate", both("")),
            "the_same_guess": ("degenerate", both(agree(guesses[0]))),
            "the_commonest_plan": ("degenerate", both(agree(self._commonest))),
            "another_plan": ("degenerate", both(agree(elsewhere))),
            "agreement_to_nothing": ("degenerate", both("agree")),
            "two_plans": ("degenerate", both(f"{right}; {agree(guesses[0])}")),
            "all_plans": ("degenerate", both(f"agree {' '.join([*DAYS, *PLACES])}")),
            "refusal": ("degenerate", both(f"do not {right}")),
            "copied_prompt": ("degenerate", prompts),
        }
        if not agents[1:]:
            return {**found, "plan": ("working", [right]), "wishes_of_one": ("degenerate", wished[:1])}
        told = [tell(problem, agent) for agent in agents]
        return {
            **found,
            "one_tells": ("working", environment.scripted(problem, says)),
            "both_tell": ("working", [f"{text}\n{right}" for text in told]),
            "everything_told": ("working", [f"{text}\n{right}" for text in prompts]),
            "late": ("other", [told[0] + "\n" * (turns - 1) + right, "\n" * (turns - 1) + right]),
            "lucky": ("other", both(right)),
            "guesses": ("degenerate", [agree(guess) for guess in guesses]),
            "own_wishes": ("degenerate", wished),
            "dictator": ("degenerate", [wished[0], f"\n{wished[0]}"]),
            "agreement_without_reading": ("degenerate", [f"{told[0]}\n\n{wished[1]}", wished[1]]),
            "copied_text": ("degenerate", [environment.always(told[0]), "\n" + environment.always(told[0])]),
            "everything_told_and_guess": ("degenerate", [f"{text}\n{agree(guesses[0])}" for text in prompts]),
            "told_and_not_agreed": ("degenerate", [environment.always(text) for text in told]),
            "only_one_agrees": ("degenerate", [told[0], f"\n{right}"]),
            "another_agreement": ("degenerate", [f"{told[0]}\n\n{wished[0]}", f"\n{agree(guesses[0])}"]),
        }

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        """Return the exact base rates of plans that nobody talked about."""
        problems = [*dict.fromkeys(played.problems)]
        plan, satisfied, constraints = blind(problems)
        own = [[problem.share(each) for each in problem.suiting(agent)] for problem in problems for agent in (0, 1)]
        alone = sum(sum(share >= 1.0 for share in shares) / len(shares) for shares in own) / len(own)
        met = sum(sum(shares) / len(shares) for shares in own) / len(own)
        sentence = (
            f"Without a word, the best plan for all appointments ({' '.join(plan)}) satisfies everything in "
            f"{satisfied:.1%} and {constraints:.1%} of the constraints, plans that suit one agent {alone:.1%} and "
            f"{met:.1%}."
        )
        numbers = {
            "blind": satisfied,
            "blind_constraints": constraints,
            "own": alone,
            "own_constraints": met,
        }
        return [Check("base_rates", Status.PASS, sentence, numbers)]
