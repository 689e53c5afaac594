"""Transcripts of episodes: prompts, texts, the joint result and its checks.

They are kept for the first episode on each problem only, because episodes are similar and texts are long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.play.watching import Watcher

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Environment, Outcome
    from pipeline_lib.play.roots import Root


class TranscriptRecorder(Watcher):
    """Records the transcripts of some episodes.

    Args:
        environment: the environment in which they are played.
        roots: their first states.

    Attributes:
        transcripts: a JSON object per root: ``agents``; ``told`` (first observation of each agent); ``turns`` (texts of
            all agents, by turn); and of the last joint action ``text``, ``language`` and ``checks`` (question, whether
            it passed, answer).
    """

    listens: ClassVar[bool] = False

    def __init__(self, environment: Environment[Any, Any], roots: Sequence[Root]) -> None:
        self._environment = environment
        self._places = {id(root): place for place, root in enumerate(roots)}
        self.transcripts: list[dict[str, Any]] = []
        for root in roots:
            agents = environment.agents(root.problem)
            state = environment.start(root.problem, root.chance.start())
            acting = environment.acting(state)
            observations = [
                environment.observe(state, number) if acting is None or number in acting else ""
                for number in range(len(agents))
            ]
            self.transcripts.append({"agents": list(agents), "told": observations, "turns": []})

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        """Add a turn to the transcript of an episode, if it is recorded."""
        if (place := self._places.get(id(root))) is None:
            return
        exhibit = self._environment.exhibit(outcome.state, joint_action)
        transcript = self.transcripts[place]
        transcript["turns"].append(list(joint_action))
        transcript["text"], transcript["language"] = exhibit.text, exhibit.language
        transcript["checks"] = [[check.what, check.passed, check.answer] for check in exhibit.checks]
