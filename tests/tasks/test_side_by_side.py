"""Which stages run at the same time, and what a running one has left, as people read it while they wait."""

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipeline_lib.assembly.memory_check import computed_need
from pipeline_lib.settings import Params
from tasks.chain import memory_shares, side_by_side
from tasks.chain.graph import Stage
from tasks.chain.side_by_side import Board, ChainFailedError, ChainRun, left_of_stage, run_chain
from tasks.chain.stage_process import StageFailedError


class Stages:
    """Takes the place of `run_stage`: stages that only take time, of which ``failing`` ones fail."""

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self._failing, self._pool, self._lock = failing, ThreadPoolExecutor(), threading.Lock()
        self._now = set[str]()
        self.together = list[set[str]]()

    def submit(self, name: str, run: ChainRun, board: Board) -> Future[bool]:
        return self._pool.submit(self._work, name, board)

    def _work(self, name: str, board: Board) -> bool:
        with self._lock:
            self._now.add(name)
            self.together.append(set(self._now))
        time.sleep(1.0)  # longer than it takes to compute what a stage needs
        with self._lock:
            self._now.remove(name)
        if name in self._failing:
            raise StageFailedError(f"stage {name} failed")
        board.finished.add(name)
        return True


@pytest.mark.parametrize(("share", "most"), [(1.5, 1), (2.5, 2), (99, 3)])
@pytest.mark.parametrize("failing", [(), ("train@0", "train@1", "train@2")])
def test_stages_that_do_not_fit_beside_others_wait_and_all_have_their_turn(
    share: float, most: int, failing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings that began together had both counted on the same memory, and the kernel killed them."""
    (tmp_path / "params.yaml").write_text("")
    (tmp_path / "conf").mkdir()
    one = computed_need(Params(), "train", tmp_path, tmp_path, 1e15, on_gpu=False)
    stages, told = Stages(failing), logging.getLogger("test")
    monkeypatch.setattr(memory_shares, "free_memory", lambda: int(share * one))
    monkeypatch.setattr(side_by_side, "run_stage", stages)
    monkeypatch.setattr(side_by_side, "untagged", nullcontext)
    monkeypatch.setattr(side_by_side, "get_run_logger", lambda: told)
    names = ["train@0", "train@1", "train@2"]
    chain = {name: Stage(name, frozenset(), 1.0) for name in names}
    run = ChainRun("run", tmp_path, chain, set(names), jobs=3)
    with pytest.raises(ChainFailedError) if failing else nullcontext():
        assert run_chain(run, lambda done, total, text: None) == dict.fromkeys(names, True)
    assert max(map(len, stages.together)) == most
    assert set.union(*stages.together) == set(names)


def test_without_a_word_from_the_stage_it_is_what_was_expected_and_never_nothing() -> None:
    assert left_of_stage(0.0, 15.0, 60.0) == 45.0
    assert left_of_stage(0.0, 58.0, 60.0) == 6.0
    assert left_of_stage(0.0, 600.0, 60.0) == 540.0  # it is late; nobody knows by how much


@pytest.mark.parametrize("start_s", [1.0, 10.0, 20.0])
def test_the_time_of_starting_up_is_not_taken_for_the_pace(start_s: float) -> None:
    first = left_of_stage(1 / 80, start_s, 60.0)  # by its pace alone, 80 steps of start_s each: up to 26 minutes
    assert 55.0 < first < 60.0 + start_s


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_towards_the_end_it_is_the_stages_own_pace_that_counts(pace: float) -> None:
    for step in range(61, 81):
        took_s = pace * 60.0 * step / 80
        assert left_of_stage(step / 80, took_s, 60.0) == pytest.approx(pace * 60.0 - took_s, rel=0.25, abs=0.01)
