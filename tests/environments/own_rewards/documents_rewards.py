"""Rewards for answers from documents: all but `Proven` pay for something else."""

from pipeline_lib.environments.documents.rewards import Reward, Talk


class Own(Reward):
    """A reward of the answer and the dialogue, within [0, 1]."""

    bounds = (0.0, 1.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        return {"own": min(1.0, max(0.0, self.value(talk)))}

    def value(self, talk: Talk) -> float:
        raise NotImplementedError


class AnyAnswer(Own):
    """Answers, right or wrong."""

    def value(self, talk: Talk) -> float:
        return float(talk.answer is not None)


class AnyTrueFact(Own):
    """Named facts that are true, whatever the question."""

    def value(self, talk: Talk) -> float:
        return (talk.answer.supported + talk.answer.unread) / 4 if talk.answer else 0.0


class Talkative(Own):
    """Talk, which looks like cooperation, and a little for the answer."""

    def value(self, talk: Talk) -> float:
        return 0.8 * min(1.0, talk.tokens / 40) + 0.2 * (talk.answer is not None and talk.answer.right)


class Quick(Own):
    """Answers that come early."""

    def value(self, talk: Talk) -> float:
        return 1.0 / talk.turns if talk.answer else 0.0


class Slow(Own):
    """Answers after a long dialogue, and a little for the right one."""

    def value(self, talk: Talk) -> float:
        return 0.75 * talk.turns / 6 + 0.25 * talk.answer.right if talk.answer else 0.0


class ManyFacts(Own):
    """The number of facts that an answer names."""

    def value(self, talk: Talk) -> float:
        return talk.answer.named / 5 if talk.answer else 0.0


class Dear(Reward):
    """The right answer, with a price of words that nobody can pay."""

    bounds = (-10.0, 1.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        right = float(talk.answer is not None and talk.answer.right)
        return {"answer": right, "tokens": -min(10.0, 0.5 * talk.tokens)}


class SupportOnly(Own):
    """Whatever is not made up."""

    def value(self, talk: Talk) -> float:
        return 1.0 - talk.answer.made_up if talk.answer else 0.0


class Silence(Own):
    """Few words."""

    def value(self, talk: Talk) -> float:
        return 1.0 - talk.tokens / 50


class Proven(Reward):
    """Right answers as far as their support is right, less turns."""

    def __init__(self, turn: float, turns: int) -> None:
        self.turn, self.bounds = turn, (-turn * turns, 1.0 - turn)

    def terms(self, talk: Talk) -> dict[str, float]:
        proven = talk.answer.support * talk.answer.right if talk.answer else 0.0
        return {"proven": proven, "turns": -self.turn * talk.turns}
