"""Rewards for texts: a sound one, and one that pays for length."""

from pipeline_lib.environments.writing.rewards import Reward, Work


class Told(Reward):
    """Facts told, less what does not follow."""

    bounds = (-1.0, 1.0)

    def terms(self, work: Work) -> dict[str, float]:
        return {"told": work.reading.coverage, "wrong": -min(1.0, work.reading.unsupported)}


class Long(Reward):
    """Characters."""

    bounds = (0.0, 1.0)

    def terms(self, work: Work) -> dict[str, float]:
        return {"long": min(1.0, len(work.first + work.second) / 200)}
