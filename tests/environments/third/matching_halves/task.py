"""The matching halves as Symposium knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matching_halves.settings import HalvesEnvironment, WordProblems
from pipeline_lib.environment_api.task import Task


class HalvesTask(Task):
    """Two agents, one letter each."""

    settings = HalvesEnvironment
    problems = (WordProblems,)
    primary = "match"
    guards = ({"metric": "letters", "slack": 0.1},)

    def make_problems(self, settings: WordProblems) -> Mapping[str, Sequence[Any]]:
        from matching_halves.game import draw

        return draw(settings)

    def read_problem(self, row: Mapping[str, Any]) -> Any:
        from matching_halves.game import Word

        return Word(**row)

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        from matching_halves.game import SIDES, observation

        return [observation(side, problem.word) for problem in problems for side in SIDES]

    def demonstrate(self, problems: Sequence[Any], count: int, mistakes: float, seed: int) -> Sequence[Any]:
        from matching_halves.game import demonstrate

        return demonstrate(problems, count, mistakes, seed)

    def make(self, settings: HalvesEnvironment, executor: Callable[[], Any]) -> Any:
        from matching_halves.game import Halves

        return Halves(settings)

    def unsuitable(self, protocol: str, settings: HalvesEnvironment) -> str:
        if protocol == "naive_concatenation" and settings.turns == 1:
            return "with environment.turns 1 it is the same as the base"
        return ""

    def metrics(self) -> Mapping[str, Any]:
        from matching_halves.measures import METRICS

        return METRICS

    def audit(self) -> Any:
        from matching_halves.examiner import HalvesExaminer

        return HalvesExaminer()

    def figures(self, data: Any) -> Sequence[Any]:
        from matching_halves.figures import letters

        return [letters(data)]
