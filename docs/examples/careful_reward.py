"""A reward of your own for the environment coding (docs/rewards.md).

Put this file into the folder of your project:

    symposium run -S 'environment.reward={kind: custom, path: "careful_reward:Careful", options: {power: 2}}'
"""

from pipeline_lib.environments.coding.rewards import Facts, Reward, Team


class Careful(Reward):
    """The share of tests passed to a power, less a penalty for programs that do not parse."""

    def __init__(self, power: int, team: Team, unparsed: float = 0.5) -> None:
        self.power, self.unparsed = power, unparsed
        self.bounds = (-unparsed, 1.0)

    def terms(self, facts: Facts) -> dict[str, float]:
        """Return every term with its weight; the reward is their sum."""
        return {
            "tests": facts.passed**self.power,
            "unparsed": -self.unparsed * (not facts.program.parses),
        }
