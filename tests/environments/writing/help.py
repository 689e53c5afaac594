"""Writing problems and what teams earn on them."""

import random
from functools import cache

from pipeline_lib.environment_api.reward import total
from pipeline_lib.environments.writing.problem import WritingProblem
from pipeline_lib.environments.writing.reading import read
from pipeline_lib.environments.writing.rewards import SoundReward, Work
from pipeline_lib.environments.writing.settings import SoundWritingReward
from pipeline_lib.environments.writing.world import WORLDS, World, draw_abstract, draw_post

SOUND = SoundReward(SoundWritingReward())


@cache
def problems(task: str, count: int = 20) -> tuple[WritingProblem, ...]:
    rng = random.Random(task)
    return tuple((draw_post if task == "summary" else draw_abstract)(rng) for _ in range(count))


def world_of(problem: WritingProblem) -> World:
    return WORLDS[problem.world]


def work(problem: WritingProblem, first: str, second: str) -> Work:
    return Work(problem, first, second, read(problem, first, second))


def reward(problem: WritingProblem, first: str, second: str) -> float:
    return total(SOUND.terms(work(problem, first, second)))
