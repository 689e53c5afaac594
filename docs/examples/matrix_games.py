"""Games of two agents with payoffs of their own: what is best for each need not be best for the team.

``environment: {kind: "matrix_games:Prisoners"}`` or ``"matrix_games:StagHunt"``, where Python finds this file.  With
``train.individual_reward: 1`` each agent is trained on its own payoff, with 0 on the mean of both.
"""

import itertools

import symposium

MOVES = ("A", "B")  # A: cooperate, or hunt the stag; B: defect, or catch a hare


def payoffs(text):
    """Return the payoffs of row and column by their moves; a text is ``AA 4 4, AB 0 5, BA 5 0, BB 1 1``."""
    cells = [cell.split() for cell in text.split(", ")]
    return {tuple(moves): (int(row), int(column)) for moves, row, column in cells}


def best(text):
    """Return the moves with the greatest sum of payoffs."""
    return max(payoffs(text), key=lambda moves: sum(payoffs(text)[moves]))


def equilibria(text):
    """Return the pure Nash equilibria: moves from which neither agent gains by another move of its own."""
    table = payoffs(text)
    return [
        (row, column)
        for row, column in itertools.product(MOVES, MOVES)
        if all(table[other, column][0] <= table[row, column][0] for other in MOVES)
        and all(table[row, other][1] <= table[row, column][1] for other in MOVES)
    ]


class _Game(symposium.TextTask):
    agents = ("row", "column")
    measures = {
        "payoff_share": symposium.Metric("payoff of the best", share=True, solves=True),
        "payoff": symposium.Metric("mean payoff", low=0.0, high=75.0),  # of a stag
        "cooperation": symposium.Metric("both cooperate", share=True, behaviour=True),
        "equilibrium": symposium.Metric("an equilibrium of own payoffs", share=True, behaviour=True),
    }
    reward_bounds = (0.0, 1.0)
    rewards_agents = True

    def observe(self, text, agent):
        return f"{agent} of {text}:"

    def example(self, text, agent, rng):  # the warm start prefers nothing
        return rng.choice(MOVES)

    def score(self, text, actions):
        table, moves = payoffs(text), tuple(actions[agent].strip() for agent in self.agents)
        earned = table.get(moves, (0, 0))
        most = sum(table[best(text)])
        share = sum(earned) / most
        metrics = {"payoff_share": share, "payoff": sum(earned) / 2}
        metrics |= {"cooperation": moves == ("A", "A"), "equilibrium": moves in equilibria(text)}
        own = {agent: 2 * payoff / most for agent, payoff in zip(self.agents, earned, strict=True)}
        return symposium.Score({"payoff": share}, metrics, agent_rewards=own)

    def teams(self, text):
        return {
            "both cooperate": ("working", ["A", "A"]),
            "one defects": ("other", ["A", "B"]),
            "both defect": ("degenerate", ["B", "B"]),
            "silent": ("degenerate", ["", ""]),
        }


class Prisoners(_Game):
    """The prisoner's dilemma: to defect pays more whatever the other does, and both would have more if they did not."""

    def draw(self, rng):
        nothing, punished = rng.randint(0, 9), rng.randint(10, 19)
        rewarded = rng.randint(punished + 5, punished + 20)
        tempted = rng.randint(rewarded + 1, 2 * rewarded - nothing - 1)
        return f"AA {rewarded} {rewarded}, AB {nothing} {tempted}, BA {tempted} {nothing}, BB {punished} {punished}"


class StagHunt(_Game):
    """The stag hunt: a stag needs both, a hare one; while the other may not come, the hare is the safer choice."""

    def draw(self, rng):
        hare = rng.randint(20, 60)
        stag, alone = rng.randint(hare + 2, hare + hare // 4), rng.randint(0, hare // 5)
        return f"AA {stag} {stag}, AB {alone} {hare}, BA {hare} {alone}, BB {hare} {hare}"
