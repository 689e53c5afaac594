"""Two different models under one joint reward: an environment made of a reward function and a prompt for each agent.

``environment: {kind: "joint_reward:Advert"}`` where Python finds this file; ``policy.models`` names a model per agent.
"""

import symposium

MADE, THINGS = ("wooden", "silent", "folding", "tiny"), ("lamp", "boat", "desk", "kite", "clock", "chair")
PRODUCTS = [f"a {made} {thing}" for made in MADE for thing in THINGS]


def reward(completions, prompts, **columns):
    """A reward function as TRL calls it, for both texts of a team together."""
    headings, texts = columns["heading"], columns["text"]
    return [
        0.5 * (len(heading.split()) <= 6) + 0.5 * (product.split()[-1] in heading and product.split()[-1] in text)
        for product, heading, text in zip(prompts, headings, texts, strict=True)
    ]


class Advert(symposium.TextTask):
    agents = ("heading", "text")
    measures = {"paid": symposium.Metric("joint reward", share=True, solves=True)}
    reward_bounds = (0.0, 1.0)

    def draw(self, rng):
        return rng.choice(PRODUCTS)

    def observe(self, text, agent):
        words = 6 if agent == "heading" else 20
        return f"Write the {agent} of an advertisement for {text}, and name it. At most {words} words."

    def score(self, text, actions):
        (earned,) = reward([" ".join(actions.values())], [text], **{name: [said] for name, said in actions.items()})
        return symposium.Score({"reward": earned}, {"paid": earned})

    def teams(self, text):
        return {"named": ("working", [f"Take {text}", f"This is {text}."]), "silent": ("degenerate", ["", ""])}
