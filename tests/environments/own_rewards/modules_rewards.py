"""Rewards for programs of several modules."""

from pipeline_lib.environments.modules.rewards import Facts, Reward


class SystemOnly(Reward):
    """The tests of the whole program alone."""

    bounds = (0.0, 1.0)

    def terms(self, facts: Facts) -> dict[str, float]:
        return {"system": facts.system}


class NoBounds(SystemOnly):
    """A reward that does not say its greatest value."""

    bounds = (1.0, 1.0)
