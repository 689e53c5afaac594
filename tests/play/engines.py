"""Engines that say what a test wants, at once, and remember what they were asked."""

from collections.abc import Mapping, Sequence

from pipeline_lib.policies.policy import Policy
from pipeline_lib.rollouts.engine import Action, Counters, Engine, Request, Sampling


class Scripted(Engine):
    """Answers every request with what `actions` returns."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.calls: list[list[Request]] = []

    def load(self, policies: Mapping[str, Policy]) -> None:
        return None

    def update(self, policy: Policy) -> None:
        return None

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        self.calls.append(list(requests))
        return [self.actions(request) for request in requests]

    def actions(self, request: Request) -> list[Action]:
        raise NotImplementedError
