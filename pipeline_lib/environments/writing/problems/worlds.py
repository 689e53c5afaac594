"""The worlds by name."""

from __future__ import annotations

from pipeline_lib.environments.writing.problems.papers import PAPERS
from pipeline_lib.environments.writing.problems.posts import POSTS
from pipeline_lib.environments.writing.problems.world import World

WORLDS: dict[str, World] = {world.name: world for world in (POSTS, PAPERS)}
