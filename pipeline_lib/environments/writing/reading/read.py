"""Choose how two texts are read: exactly for a generated source, by words for a published one."""

from __future__ import annotations

from pipeline_lib.environments.writing.problems.problem import WritingProblem
from pipeline_lib.environments.writing.reading.exact import read_exactly
from pipeline_lib.environments.writing.reading.lexical import read_by_words
from pipeline_lib.environments.writing.reading.reading import Reading


def read(problem: WritingProblem, first: str, second: str) -> Reading:
    """Return the analysis of two texts about the problem's source."""
    return (read_exactly if problem.world else read_by_words)(problem, first, second)
