"""Problems that several test modules look at; made once."""

import pytest

from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.settings.problems import SplitSizes

#: The default settings with somewhat larger splits.
MANY = GeneratedProblems(sizes=SplitSizes(train=1600, validation=150, test=300))
EVERY_LEVEL = GeneratedProblems.model_validate(
    {"levels": [1, 2, 3, 4], "sizes": {"train": 40, "validation": 8, "test": 16}}
)


@pytest.fixture(scope="session")
def many_splits() -> dict[str, list[CodingProblem]]:
    """More than two thousand problems, all at level 1."""
    return generate(MANY)


@pytest.fixture(scope="session")
def level_splits() -> dict[str, list[CodingProblem]]:
    """A few problems of every level."""
    return generate(EVERY_LEVEL)
