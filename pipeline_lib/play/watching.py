"""The interface for watching a team: it receives each prompt, token, action and outcome as it happens.

Watching changes nothing: the same episodes are played, with the same random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.rollouts.actions import TextStream

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Outcome
    from pipeline_lib.play.roots import Root
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.rollouts.engine import Action


@dataclass(frozen=True, slots=True)
class Generation:
    """What an agent writes for one prompt."""

    root: Root  #: first state of the episode
    turn: int  #: number of the turn, from 0
    round: int  #: number of the round within the turn, from 0
    agent: str  #: name of the agent
    prompt: str  #: text of the prompt, before any chat template
    #: The prompt is the result of a tool; the agent reads it below what it has read and written before in this turn.
    tool: bool = False


class Watcher:
    """Receives events; each method does nothing unless it is overridden."""

    #: Whether it receives prompts and texts, in the thread that samples; otherwise it receives only `judged`.
    listens: ClassVar[bool] = True

    def prompted(self, generation: Generation) -> None:
        """An agent is prompted; if several are prompted at the same time, the calls come one after the other."""

    def wrote(self, generation: Generation, text: str) -> None:
        """The agent has written more text; an engine outside this process gives the whole text at once."""

    def finished(self, generation: Generation, action: Action) -> None:
        """The agent has finished."""

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        """The environment has executed the joint action of a turn."""


class Listening:
    """Convert the tokens of one call of an engine into calls of a watcher.

    Args:
        watcher: the receiver.
        generations: for each request, one generation per action, in the order of the actions.
        policies: the policy of each request.
    """

    def __init__(
        self, watcher: Watcher, generations: Sequence[Sequence[Generation]], policies: Sequence[Policy]
    ) -> None:
        self._watcher = watcher
        self._generations = generations
        self._streams = [[TextStream(policy) for _ in own] for policy, own in zip(policies, generations, strict=True)]
        for own in generations:
            for generation in own:
                watcher.prompted(generation)

    def token(self, request: int, action: int, token: int) -> None:
        """Pass on the text that a token adds (`pipeline_lib.rollouts.engine.Listener`)."""
        if text := self._streams[request][action].add(token):
            self._watcher.wrote(self._generations[request][action], text)

    def finished(self, found: Sequence[Sequence[Action]]) -> None:
        """Pass on the remaining text and the actions."""
        for streams, generations, actions in zip(self._streams, self._generations, found, strict=True):
            for stream, generation, action in zip(streams, generations, actions, strict=True):
                if text := stream.end(action.text):
                    self._watcher.wrote(generation, text)
                self._watcher.finished(generation, action)
