"""Rewards for agreed plans: all but `Satisfied` and `Fines` pay for something else."""

from pipeline_lib.environments.planning.rewards import Reward, Talk


class Own(Reward):
    """A reward of the plan and the dialogue, within [0, 1]."""

    bounds = (0.0, 1.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        return {"own": min(1.0, max(0.0, self.value(talk)))}

    def value(self, talk: Talk) -> float:
        raise NotImplementedError


class Satisfied(Own):
    """Plans that satisfy everything."""

    def __init__(self, token: float = 0.001) -> None:
        self._token = token

    def value(self, talk: Talk) -> float:
        return (talk.share >= 1.0) - self._token * talk.tokens


class Fines(Reward):
    """A fine for everything but plans that satisfy everything."""

    bounds = (-1.0, 0.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        return {"fine": -float(talk.share < 1.0)}


class AnyAgreement(Own):
    """Agreements, to good plans and bad ones."""

    def value(self, talk: Talk) -> float:
        return float(talk.agreed)


class AnyStatement(Own):
    """Agents that agree, to the same plan or not."""

    def value(self, talk: Talk) -> float:
        return talk.stated / 2


class ShareOnly(Own):
    """The share of the constraints, of which one agent's wishes are more than the half."""

    def value(self, talk: Talk) -> float:
        return talk.share


class Talkative(Own):
    """Talk, which looks like cooperation, and a little for the plan."""

    def value(self, talk: Talk) -> float:
        return 0.8 * min(1.0, talk.tokens / 40) + 0.2 * (talk.share >= 1.0)


class TalkThenAgree(Own):
    """Agreements after a talk, to good plans and bad ones."""

    def value(self, talk: Talk) -> float:
        return talk.agreed * talk.tokens / 20


class Disagreement(Own):
    """Two different plans: nobody who does the task earns anything."""

    def value(self, talk: Talk) -> float:
        return float(talk.stated == 2 and not talk.agreed)


class Quick(Own):
    """Agreements that come early."""

    def value(self, talk: Talk) -> float:
        return 1.0 / talk.turns if talk.agreed else 0.0


class Silence(Own):
    """Few words."""

    def value(self, talk: Talk) -> float:
        return 1.0 - talk.tokens / 50


class Dear(Reward):
    """The right plan, with a price of words that nobody can pay."""

    bounds = (-10.0, 1.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        return {"plan": float(talk.share >= 1.0), "tokens": -min(10.0, 0.5 * talk.tokens)}
