"""The rollout loop: a team plays episodes of an environment by a protocol, for training, audit and evaluation alike."""

from pipeline_lib.play.experience import Decision, Experience, add_amounts, costs_of, join
from pipeline_lib.play.player import Player
from pipeline_lib.play.roots import Problem, Root, groups, paired

__all__ = [
    "Decision",
    "Experience",
    "Player",
    "Problem",
    "Root",
    "add_amounts",
    "costs_of",
    "groups",
    "join",
    "paired",
]
