"""An environment as a user writes it, and one whose reward pays for nothing."""

import random
from collections.abc import Mapping

import symposium

PLACES = ("x", "y", "z")


class Rendezvous(symposium.TextTask):
    """Two agents who cannot talk go to the same place."""

    agents = ("left", "right")
    measures = {"met": symposium.Metric("meetings", share=True, solves=True)}
    reward_bounds = (0.0, 1.2)

    def draw(self, rng: random.Random) -> str:
        return "".join(rng.choices("abcdef", k=5))

    def observe(self, text: str, agent: str) -> str:
        return f"{agent} of {text}:"

    def example(self, text: str, agent: str, rng: random.Random) -> str:
        return rng.choice(PLACES)

    def score(self, text: str, actions: Mapping[str, str]) -> symposium.Score:
        left, right = (actions[agent].strip() for agent in self.agents)
        placed = left in PLACES and right in PLACES
        met = float(placed and left == right)
        return symposium.Score({"met": met, "place": 0.2 * placed}, {"met": met}, {"schemes": [left] if met else []})

    def teams(self, text: str) -> Mapping[str, tuple[str, list[str]]]:
        return {"both at x": ("working", ["x", "x"]), "apart": ("degenerate", ["x", "y"])}
