"""The readable part of an episode: prompts, texts, the joint result and its verdicts.

It is kept for the first episode on each problem only, because episodes are similar and texts are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.play.watching import Watcher

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Environment, Outcome
    from pipeline_lib.play.roots import Root


class Keeper(Watcher):
    """Keeps what is to be read of some episodes, as JSON.

    Args:
        environment: that they are played in.
        roots: where they begin.

    Attributes:
        kept: of each root, in their order: ``agents``; ``told`` (what each sees first); ``turns`` (what each wrote,
            turn by turn); and of the last joint action ``text``, ``language`` and ``checks`` (question, whether it
            held, answer).
    """

    listens: ClassVar[bool] = False

    def __init__(self, environment: Environment[Any, Any], roots: Sequence[Root]) -> None:
        self._environment = environment
        self._places = {id(root): place for place, root in enumerate(roots)}
        self.kept: list[dict[str, Any]] = []
        for root in roots:
            agents = environment.agents(root.problem)
            state = environment.start(root.problem, root.chance.start())
            acting = environment.acting(state)
            told = [
                environment.observe(state, number) if acting is None or number in acting else ""
                for number in range(len(agents))
            ]
            self.kept.append({"agents": list(agents), "told": told, "turns": []})

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        """Keep what an episode came to so far, if it is one of those that are kept."""
        if (place := self._places.get(id(root))) is None:
            return
        exhibit = self._environment.exhibit(outcome.state, joint_action)
        kept = self.kept[place]
        kept["turns"].append(list(joint_action))
        kept["text"], kept["language"] = exhibit.text, exhibit.language
        kept["checks"] = [[check.what, check.passed, check.answer] for check in exhibit.checks]
