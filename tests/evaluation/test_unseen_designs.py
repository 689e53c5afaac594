"""The verdict on data that it was not calibrated on, from episodes to word.

Nothing here is shared with benchmarks/: families of very unequal size (Dirichlet, 1.5), beta-binomial abilities, heavy
ceilings, both agents of an episode sharing its luck, three training runs against one base.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import wilson
from pipeline_lib.settings.evaluate import VerdictSettings
from tests.evaluation.build import compare

SETTINGS = VerdictSettings(resamples=200)
REPEATS = 120
Rng = np.random.Generator
Design = Callable[[Rng], tuple[np.ndarray, np.ndarray, np.ndarray]]


def sizes(rng: Rng, families: int, problems: int) -> np.ndarray:
    drawn = np.maximum(1, np.round(rng.dirichlet(np.full(families, 1.5)) * problems)).astype(int)
    return np.repeat(np.arange(families), drawn)


def both_agents(rng: Rng, ability: np.ndarray, runs: int, samples: int = 2) -> np.ndarray:
    """Share of an episode's two agents that succeed, (runs, problems, samples): they share half of their luck."""
    luck = rng.random((runs, ability.size, samples))
    own = rng.random((2, runs, ability.size, samples))
    same = rng.random((2, runs, ability.size, samples)) < 0.5
    return (np.where(same, luck, own) < ability[:, None]).mean(axis=0)


def few_families(rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three to twelve families of any ability; three runs that learned nothing."""
    codes = sizes(rng, int(rng.integers(3, 13)), 60)
    ability = rng.beta(0.9, 2.1, codes.max() + 1)[codes]
    return codes, both_agents(rng, ability, 3), both_agents(rng, ability, 1)


def ceiling(rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sixteen families, nearly everything solved by both teams, each failing where it likes."""
    codes = sizes(rng, 16, 60)
    first, second = rng.beta(5.7, 0.3, (2, codes.max() + 1))
    return codes, both_agents(rng, first[codes], 3), both_agents(rng, second[codes], 1)


def five_points(rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sixty families of which one in ten gained half of its tests: exactly the margin apart, on average."""
    codes = sizes(rng, 60, 90)
    ability = np.full(codes.size, 0.4)
    gained = (rng.random(codes.max() + 1) < 0.1)[codes]
    return codes, both_agents(rng, ability + 0.5 * gained, 3), both_agents(rng, ability, 1)


def one_in_ten_collapses(rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twenty families of which one in ten loses six tenths and the others gain as much together: no difference."""
    codes = sizes(rng, 20, 90)
    collapses = (rng.random(codes.max() + 1) < 0.1)[codes]
    selected = np.where(collapses, 0.1, 0.7 + 0.6 / 9)
    return codes, both_agents(rng, selected, 3), both_agents(rng, np.full(codes.size, 0.7), 1)


def long_tails(rng: Rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thirty families whose gains are lognormal about their mean: most lose a little, one or two gain a lot."""
    codes = sizes(rng, 30, 90)
    gains = 0.1 * (rng.lognormal(0, 1, codes.max() + 1) - np.exp(0.5))
    return (
        codes,
        both_agents(rng, 0.3 + np.minimum(gains, 0.7)[codes], 3),
        both_agents(rng, np.full(codes.size, 0.3), 1),
    )


def episodes(codes: np.ndarray, values: np.ndarray) -> Iterator[EpisodeRecord]:
    for problem, row in enumerate(values):
        for sample, value in enumerate(row):
            yield EpisodeRecord(
                f"p{problem}", f"f{codes[problem]}", sample, float(value), 1, {}, {"tests_passed": float(value)}, sample
            )


def judge(design: Design) -> list[tuple[str, str, bool | None]]:
    """Return word and sentence of each repeat, and whether the interval covers (None where there is none)."""
    rng = np.random.default_rng(99)
    truth = 0.05 if design is five_points else 0.0
    found = []
    for _ in range(REPEATS):
        codes, selected, base = design(rng)
        teams = {seed: list(episodes(codes, row)) for seed, row in enumerate(selected)}
        verdict = compare(teams, list(episodes(codes, base[0])), SETTINGS)
        low, high = verdict.difference.low, verdict.difference.high
        covers = None if low is None or high is None else low <= truth <= high
        found.append((verdict.verdict, verdict.sentence, covers))
    return found


@pytest.mark.parametrize(
    ("design", "wrong"),
    [
        (few_families, ("IMPROVED", "WORSE")),
        (ceiling, ("IMPROVED", "WORSE")),
        (five_points, ("EQUIVALENT", "WORSE")),
        (one_in_ten_collapses, ("IMPROVED", "WORSE")),
        (long_tails, ("IMPROVED", "WORSE")),
    ],
)
def test_words_and_intervals_hold_on_designs_never_seen(design: Design, wrong: tuple[str, ...]) -> None:
    found = judge(design)
    mistakes = sum(word in wrong for word, _, _ in found)
    assert wilson(mistakes, REPEATS).low <= 0.05, mistakes
    silent = [sentence for _, sentence, covers in found if covers is None]
    assert all("families" in sentence for sentence in silent)
    # Where an interval is given and no caution beside it, it covers.
    cautions = "carry the variation", "may be missing from these"
    plain = [
        covers for _, said, covers in found if covers is not None and not any(caution in said for caution in cautions)
    ]
    if plain:
        assert wilson(sum(plain), len(plain)).high >= 0.93
