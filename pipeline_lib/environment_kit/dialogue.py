"""What environments share in which agents talk: the price of a text, what it measures, whole dialogues as turns."""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pipeline_lib.environment_api.environment import Environment, Outcome, Part, refuse_outside
from pipeline_lib.environment_api.metrics import Metric, Metrics, behaviour
from pipeline_lib.environment_api.reward import Reward, total

P = TypeVar("P")  # the problem type
S = TypeVar("S")  # the state type


@functools.lru_cache(maxsize=65536)
def words_of(text: str) -> str:
    """Return the words of a text in lower case with single spaces: texts that differ in marks only are equal."""
    return " ".join(re.findall(r"\w+", text.lower()))


def price_of(text: str) -> int:
    """Return the number of tokens of a text that are paid for, whatever the model: marks, and eight letters of a word.

    Joined words thus cost what separate ones do.

    Examples:
        >>> price_of("anna boss?"), price_of("annabosscarlhome"), price_of(" ")
        (3, 2, 0)
    """
    return len(re.findall(r"\w{1,8}|[^\w\s]", text))


def talk_metrics(names: Sequence[str], turns: str, useless: str, most_tokens: int, most_turns: int) -> Metrics:
    """Return the metrics of a dialogue that `measure_talk` measures.

    Args:
        names: of all agents that there can be.
        turns: what ``turns_used`` counts, in words.
        useless: which share of the messages' tokens is useless, in words.
        most_tokens: at which count ends.
        most_turns: of a dialogue.
    """
    return {
        "message_tokens": Metric(
            "tokens of messages",
            "marks, and eight letters of a word each, of all messages",
            better="lower",
            low=0.0,
            high=float(most_tokens),
            over_checkpoints=True,
        ),
        "turns_used": Metric("turns", turns, better="lower", low=0.0, high=float(most_turns), over_checkpoints=True),
        "useless_talk": behaviour("useless talk", useless, better="lower", over_checkpoints=True),
        **{
            f"useless_{name}": behaviour(f"useless talk of {name}", f"the same share for {name} alone", better="lower")
            for name in names
        },
    }


def measure_talk(
    names: Sequence[str], tokens: Sequence[int], useless: Sequence[int], turns: int, most_tokens: int
) -> dict[str, float]:
    """Return the metrics of `talk_metrics`, given the price of each agent's messages, and of its useless ones."""
    shares = {f"useless_{name}": idle / max(1, price) for name, idle, price in zip(names, useless, tokens, strict=True)}
    return {
        "message_tokens": float(min(most_tokens, sum(tokens))),
        "turns_used": float(turns),
        "useless_talk": sum(useless) / max(1, sum(tokens)),
        **(shares if len(names) > 1 else {}),
    }


class Dialogue(Environment[P, S]):
    """A dialogue, in which a turn earns what it adds to the reward of the whole episode."""

    def __init__(self, reward: Reward[Any, float], turns: int) -> None:
        self._reward = reward
        self.turns = turns
        least, greatest = reward.bounds
        # A turn moves the episode's reward from one value within its bounds to another, the first turn from 0.
        self.reward_bounds = (min(least, least - greatest), max(greatest, greatest - least))

    @property
    def episode_bounds(self) -> tuple[float, float]:
        """The bounds of the reward: the last turn moves an episode's reward to where it ends."""
        return self._reward.bounds

    @property
    def paid_by(self) -> object:
        return self._reward

    def observe(self, state: S, agent: int) -> str:
        return "".join(part.text for part in self.parts(state, agent))

    def parts(self, state: S, agent: int) -> Sequence[Part]:
        return self.observed(state, agent, 0)

    def shortened(self, state: S, agent: int, cut: int) -> str | None:
        if cut >= len(self.messages(state)):
            return None
        return "".join(part.text for part in self.observed(state, agent, cut))

    @abstractmethod
    def messages(self, state: S) -> Sequence[Sequence[str]]:
        """Return the messages of each turn by agent, empty for silence."""

    @abstractmethod
    def observed(self, state: S, agent: int, cut: int) -> list[Part]:
        """Return the parts of what an agent is told, without the first ``cut`` turns."""

    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        return [self.outcome(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    @abstractmethod
    def outcome(self, state: S, actions: Sequence[str]) -> Outcome[S]:
        """Return what comes of the messages of a turn."""

    def gained(self, talk: Any, earned: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the terms of an episode so far, given as the reward reads it, and what they add to those earned.

        Raises:
            RewardError: together they are outside of the reward's bounds.
        """
        terms = self._reward.terms(talk)
        # What turns add has wider bounds, in which an episode may leave its own.
        refuse_outside("an episode", total(terms), terms, self._reward.bounds)
        return terms, {name: value - earned.get(name, 0.0) for name, value in terms.items()}

    def transcript(self, state: S, names: Sequence[str], cut: int) -> list[Part]:
        """Return what was said from the turn ``cut`` on, as at most one part."""
        lines = [
            f"{speaker}: {text}\n"
            for texts in self.messages(state)[cut:]
            for speaker, text in zip(names, texts, strict=True)
            if text
        ]
        return [Part("dialogue", "".join(lines))] if lines else []


class WholeEpisodes(Environment[P, S]):
    """Dialogues as single turns, in which each agent hands in a line for every turn of the dialogue.

    An audit so plays scripted teams that say another thing in every turn.
    """

    turns = 1

    def __init__(self, played: Environment[P, S]) -> None:
        self.played = played
        self.reward_bounds = played.episode_bounds

    @property
    def paid_by(self) -> object:
        """What computes the reward of the dialogues."""
        return self.played.paid_by

    def agents(self, problem: P) -> tuple[str, ...]:
        return self.played.agents(problem)

    def start(self, problem: P, seed: int = 0) -> S:
        return self.played.start(problem, seed)

    def observe(self, state: S, agent: int) -> str:
        """Return what an agent is told before the dialogue's first turn."""
        return self.played.observe(state, agent)

    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        """Play each dialogue to its end."""
        return [self._play(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def scripted(self, problem: P, says: Callable[[S, int], str]) -> list[str]:
        """Return by agent what it says in a dialogue in which all follow a script, a line for each turn."""
        state, done, turns = self.start(problem), False, []
        while not done:
            acting = self.played.acting(state)
            agents = range(len(self.agents(problem)))
            said = [says(state, agent) if acting is None or agent in acting else "" for agent in agents]
            turns.append(said)
            [outcome] = self.played.step([state], [said])
            state, done = outcome.state, outcome.done
        return ["\n".join(texts) for texts in zip(*turns, strict=True)]

    def always(self, text: str) -> str:
        """Return a text that says the same in every turn."""
        return "\n".join([text] * self.played.turns)

    def _play(self, state: S, actions: Sequence[str]) -> Outcome[S]:
        lines = [text.splitlines() for text in actions]
        terms: dict[str, float] = {}
        for turn in range(self.played.turns):
            said = [own[turn] if turn < len(own) else "" for own in lines]
            [outcome] = self.played.step([state], [said])
            state = outcome.state
            terms = {name: terms.get(name, 0.0) + value for name, value in outcome.terms.items()}
            if outcome.done:
                break
        return Outcome(total(terms), terms, outcome.metrics, state, done=True, details=outcome.details)
