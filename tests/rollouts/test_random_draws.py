import numpy as np
from scipy import stats

from pipeline_lib.rollouts.sampling import _GOLDEN, _mix, uniforms


def table(pairs: list[tuple[int, int]], count: int) -> np.ndarray:
    seeds, actions = np.array(pairs, dtype=np.uint64).T
    return uniforms(seeds, actions, count)


def test_finaliser_is_splitmix64() -> None:
    # First outputs of the published generator with seed 0.
    counters = np.arange(1, 4, dtype=np.uint64) * _GOLDEN
    assert [hex(int(v)) for v in _mix(counters)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_draw_depends_on_seed_action_and_position_only() -> None:
    alone = table([(7, 3)], 9)[0]
    together = table([(0, 0), (7, 3), (7, 4), (2**64 - 1, 3)], 5)
    assert (together[1] == alone[:5]).all()
    assert len(np.unique(together)) == together.size


def test_uniform_and_uncorrelated() -> None:
    values = table([(s, j) for s in range(40) for j in range(8)], 64)
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3
    for other in (np.roll(values, 1, axis=0), np.roll(values, 1, axis=1), np.roll(values, 8, axis=0)):
        assert abs(np.corrcoef(values.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(values.size)


def test_never_reaches_the_total_in_single_precision() -> None:
    largest = np.float32((2**23 - 1) * 2.0**-23)
    totals = np.concatenate([np.linspace(0.5, 2, 100_001, dtype=np.float32), np.nextafter(np.float32(1), [0, 2])])
    totals = totals.astype(np.float32)
    assert (largest * totals < totals).all()
    assert float(table([(1, 1)], 100_000).max()) <= largest
