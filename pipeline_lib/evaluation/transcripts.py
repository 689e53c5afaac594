"""Transcripts of episodes: prompts, texts, the joint result and its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.play.watching import Watcher

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Environment, Outcome, Part
    from pipeline_lib.play.experience import Decision
    from pipeline_lib.play.roots import Root
    from pipeline_lib.policies.policy import Team

#: Source of what belongs to no part of the observation.
OTHER = "protocol, tool or chat template"


class TranscriptRecorder(Watcher):
    """Records the transcripts of episodes.

    Args:
        environment: the environment in which they are played.
        roots: their first states.

    Attributes:
        transcripts: a JSON object per root: ``agents``; ``told`` (first observation of each agent); ``turns`` (texts of
            all agents, by turn); and of the last joint action ``text``, ``language`` and ``checks`` (question, whether
            it passed, answer).  ``sampled`` and ``seen`` are there after `add_prompts`.
    """

    listens: ClassVar[bool] = False

    def __init__(self, environment: Environment[Any, Any], roots: Sequence[Root]) -> None:
        self._environment = environment
        self._places = {id(root): place for place, root in enumerate(roots)}
        self._states: list[Any] = []
        self._parts: list[list[dict[str, Sequence[Part]]]] = [[] for _ in roots]  # by episode, turn and agent
        self.transcripts: list[dict[str, Any]] = []
        for root in roots:
            agents = environment.agents(root.problem)
            state = environment.start(root.problem, root.chance.start())
            acting = environment.acting(state)
            observations = [
                environment.observe(state, number) if acting is None or number in acting else ""
                for number in range(len(agents))
            ]
            self._states.append(state)
            self.transcripts.append({"agents": list(agents), "told": observations, "turns": []})

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        """Add a turn to the transcript of an episode, if it is recorded."""
        if (place := self._places.get(id(root))) is None:
            return
        transcript, before = self.transcripts[place], self._states[place]
        names, acting = transcript["agents"], self._environment.acting(before)
        numbers = range(len(names)) if acting is None else acting
        self._parts[place].append({names[number]: self._environment.parts(before, number) for number in numbers})
        self._states[place] = outcome.state
        exhibit = self._environment.exhibit(outcome.state, joint_action)
        transcript["turns"].append(list(joint_action))
        transcript["text"], transcript["language"] = exhibit.text, exhibit.language
        transcript["checks"] = [[check.what, check.passed, check.answer] for check in exhibit.checks]

    def add_prompts(self, place: int, decisions: Sequence[Decision], team: Team) -> None:
        """Add to a transcript what its agents read: the prompts as the models got them, with the source of each part.

        ``sampled`` has a list per turn with agent, tokens and log-probability (natural, to three decimals) of each
        action.
        ``seen`` has a list per turn with an object per prompt: ``agent``, ``prompt`` (pairs of source and text) and
        ``answer``.  It is left out if there was one turn in which every agent read its first observation only.
        ``decisions`` are the turns of the episode number ``place``.  Tokens of a chat template that have no text are
        left out.
        """
        transcript = self.transcripts[place]
        transcript["sampled"] = [
            [
                [agent, len(action.ids), round(sum(action.logprobs), 3)]
                for agent, action in zip(decision.agents, decision.actions, strict=True)
            ]
            for decision in decisions
        ]
        seen = []
        for decision, parts in zip(decisions, self._parts[place], strict=True):
            read = zip(decision.agents, decision.policies, decision.prompts, decision.actions, strict=True)
            seen.append(
                [
                    {
                        "agent": agent,
                        "prompt": attributed(team.policies[policy].decode(prompt), parts[agent]),
                        "answer": action.text,
                    }
                    for agent, policy, prompt, action in read
                ]
            )
        if len(seen) > 1 or any(len(prompts) > len({one["agent"] for one in prompts}) for prompts in seen):
            transcript["seen"] = seen


def attributed(prompt: str, parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return a prompt as pairs of source and text, which joined are the prompt.

    Parts that were cut from the prompt are passed over.  Text that belongs to no part comes from the protocol (texts of
    other agents, requests) or from the chat template.
    """
    found: list[tuple[str, str]] = []

    def add(source: str, text: str) -> None:
        if found and found[-1][0] == source:
            found[-1] = source, found[-1][1] + text
        elif text:
            found.append((source, text))

    done = 0
    for part in parts:
        start = prompt.find(part.text, done) if part.text else -1
        if start >= 0:
            add(OTHER, prompt[done:start])
            add(part.source, part.text)
            done = start + len(part.text)
    add(OTHER, prompt[done:])
    return found
