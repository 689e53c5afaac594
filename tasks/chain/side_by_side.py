"""Run the stages of the project; independent stages run in parallel.

Every stage is requested from DVC, which decides whether it must run.  If a stage fails, the stages that need it are not
started, the others continue, and the error names both.  When this process is interrupted, all stages end within
seconds; the same command continues them.
"""

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import task_run

from tasks.chain.graph import Stage, expected_seconds, params_of, remaining_s, remember_seconds
from tasks.chain.memory_shares import MemoryShares
from tasks.chain.stage_process import StageFailedError, StageLog, StageProcess, readable
from tasks.runtime.flow_runs import PARENT_TASK, untagged
from tasks.runtime.progress import duration
from tasks.services.end_with_parent import STOP_S

_UPDATE_S = 1.0
#: Seconds, expected and taken, with which the pace of a run begins, so that one slow start does not count too much.
_PRIOR_S = 20.0
#: Stages after which the prompts, or the model, are at hand that the expected seconds are computed from.
_LEARNT_FROM = ("prepare", "warm_start")


class ChainFailedError(RuntimeError):
    """Some stages failed; the message names them, their last output, and the stages that were not run."""


@dataclass(frozen=True, slots=True)
class ChainRun:
    """One run of the stages of a project."""

    name: str  #: of the run
    project: Path  #: folder with ``dvc.yaml``
    chain: Mapping[str, Stage]  #: the stages in topological order
    stale: set[str]  #: stages to request from DVC; the others are up to date
    jobs: int  #: number of stages that run in parallel
    variables: Mapping[str, str] = field(default_factory=dict)  #: further environment variables of the stages
    #: Where stages that did work are put, for their results to be sent (`tasks.chain.sharing`); else None.
    shared: "queue.SimpleQueue[str] | None" = None
    #: When the command began that the run belongs to, in seconds of the monotonic clock.
    began: float = field(default_factory=time.monotonic)


@dataclass
class Board:
    """The state of the stages, shared by the threads of one run."""

    chain: Mapping[str, Stage]
    jobs: int
    running: dict[str, tuple[StageProcess, float]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    stopping: bool = False
    took: dict[str, float] = field(default_factory=dict)  #: seconds of each stage that did work or failed
    failed: set[str] = field(default_factory=set)
    last: dict[str, str] = field(default_factory=dict)  #: last readable message of each stage
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: (expected seconds, seconds taken) of each finished stage.
    pace: list[tuple[float, float]] = field(default_factory=list)

    def remaining(self) -> tuple[float, float]:
        """Return (seconds done, seconds left): the expected times, scaled by the pace of this run so far."""
        with self.lock:
            now = time.monotonic()
            expected, took = (sum(column) for column in zip((_PRIOR_S, _PRIOR_S), *self.pace, strict=True))
            factor = took / expected
            left = {}
            for name, stage in self.chain.items():
                if name in self.finished:
                    continue
                left[name] = stage.seconds * factor
                if name in self.running:
                    process, since = self.running[name]
                    left[name] = left_of_stage(process.share(), now - since, left[name])
        above = {name: stage.above for name, stage in self.chain.items()}
        total = sum(stage.seconds for stage in self.chain.values()) * factor
        return max(total - sum(left.values()), 0.0), remaining_s(left, above, self.jobs)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take new expected seconds of the stages that have not begun."""
        with self.lock:
            begun = self.finished | self.running.keys()
            self.chain = {
                name: stage if name in begun else replace(stage, seconds=seconds[name])
                for name, stage in self.chain.items()
            }

    def stop(self) -> None:
        """End all running stages in parallel."""
        with self.lock:
            self.stopping = True
            processes = [process for process, _ in self.running.values()]
        threads = [threading.Thread(target=process.stop, args=(STOP_S,)) for process in processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def left_of_stage(share: float, took_s: float, expected_s: float) -> float:
    """Return the seconds that a running stage has left, by the ``share`` that is done (0 to 1; 0: it reports nothing).

    The weight of its own pace grows with the share done; at first most of its time was spent on starting up.  One that
    reports nothing and takes longer than expected goes on for as long as it is late.
    """
    if share <= 0.0:
        return max(abs(expected_s - took_s), 0.1 * expected_s)
    return (1 - share) * (took_s + (1 - share) * expected_s)


@task(name="stage", task_run_name="{name}", cache_policy=NO_CACHE)
def run_stage(name: str, run: ChainRun, board: Board) -> bool:
    """Ask DVC for one stage; return whether it did any work."""
    logger = get_run_logger()
    began = time.monotonic()
    with board.lock:
        if board.stopping:
            raise StageFailedError(f"stage {name} was not started: the run is being stopped")
        variables = {**run.variables, PARENT_TASK: str(task_run.id)}
        process = StageProcess(name, run.project, run.name, run.shared is not None, **variables)
        board.running[name] = (process, began)

    def record(line: str, is_reported: bool) -> None:
        log.write(line)
        if not is_reported and (text := readable(line)):
            board.last[name] = text
            logger.info("%s", text)

    try:
        with StageLog(run.name, name) as log:
            worked = process.wait(record)
    except StageFailedError as error:
        with board.lock:
            board.failed.add(name)
            board.took[name] = time.monotonic() - began
        raise StageFailedError(f"{error}\nfull output: {log.path}") from None
    finally:
        with board.lock:
            del board.running[name]
    took = time.monotonic() - began
    with board.lock:
        if worked:
            board.took[name] = took
            remember_seconds(run.project, name, took, process.work_s)
            board.pace.append((board.chain[name].seconds, took))
        board.finished.add(name)
    logger.info("done in %s" if worked else "up to date (%s)", duration(took))
    return worked


def run_chain(
    run: ChainRun, progress: Callable[[int, int, str], None], watch: Callable[[Board], None] = lambda board: None
) -> dict[str, bool]:
    """Bring the stages up to date; to be called in a flow with a thread-pool task runner.

    Args:
        run: what to do.
        progress: called about every second with the per cent done, which never decrease.
        watch: called with the board before the first stage starts, for a display.

    Returns:
        For each stage whether it did any work.

    Raises:
        ChainFailedError: at least one stage failed.
    """
    chain = run.chain
    board = Board(chain, run.jobs, finished=set(chain) - run.stale)
    watch(board)
    worked = dict.fromkeys(chain, False)
    failed: dict[str, BaseException] = {}
    waiting = [name for name in chain if name in run.stale]
    ended: queue.SimpleQueue[tuple[str, PrefectFuture[bool]]] = queue.SimpleQueue()
    running: set[str] = set()
    shares, held_up = MemoryShares(params_of(run.project), run.project), set[str]()
    share = 0.0
    with _stopped_when_interrupted(board):
        while waiting or running:
            for name in [name for name in waiting if chain[name].above <= board.finished]:
                if len(running) >= run.jobs:
                    break
                if name in held_up:
                    continue  # nothing has ended since
                if why := shares.take(name):
                    held_up.add(name)
                    get_run_logger().info("%s", why)
                    continue
                waiting.remove(name)
                running.add(name)
                with untagged():
                    future = run_stage.submit(name, run, board)
                future.add_done_callback(functools.partial(_hand_over, ended, name))
            if not running:
                break  # the rest depends on a stage that failed
            done_s, left_s = board.remaining()
            share = max(share, done_s / max(done_s + left_s, 1.0))  # the estimate of the total may grow
            progress(round(100 * share), 100, f"{duration(left_s)} left: {', '.join(sorted(running))}")
            try:
                name, future = ended.get(timeout=_UPDATE_S)
            except queue.Empty:
                continue
            running.discard(name)
            shares.give_back(name)
            held_up.clear()
            try:
                worked[name] = future.result()
                if run.shared is not None and worked[name]:
                    run.shared.put(name)
                if name in _LEARNT_FROM and worked[name]:
                    board.expect(expected_seconds(run.project, list(chain)))
            except Exception as error:
                failed[name] = error
    if failed:
        raise ChainFailedError(_report(failed, waiting))
    progress(100, 100, f"done; {sum(worked.values())} of {len(chain)} stages were run")
    return worked


def _hand_over(ended: queue.SimpleQueue[tuple[str, PrefectFuture[bool]]], name: str, done: PrefectFuture[bool]) -> None:
    ended.put((name, done))


@contextmanager
def _stopped_when_interrupted(board: Board) -> Iterator[None]:
    try:
        yield
    except BaseException:
        board.stop()
        raise


def _report(failed: Mapping[str, BaseException], waiting: list[str]) -> str:
    parts = [str(error) for error in failed.values()]
    if waiting:
        parts.append(f"not run, because they need a failed stage: {', '.join(waiting)}")
    parts.append("remove the cause and run the same command again; finished stages are not repeated")
    return "\n".join(parts)
