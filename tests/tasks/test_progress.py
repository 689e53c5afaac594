"""Progress: what people see on a terminal, in a file of lines, and what a parent process reads."""

import contextlib
import io
import json
import logging
import time
from pathlib import Path

import pytest
from rich.console import Console

from pipeline_lib.sampling_progress import receiver, sampling_shown_by
from tasks.runtime import progress
from tasks.runtime.progress import Estimate, Progress, duration


def test_the_estimate_is_the_pace_since_the_start_of_this_process() -> None:
    estimate = Estimate()
    assert estimate.remaining_s(40, 100, now=1000.0) is None  # found done on resuming: says nothing about pace
    assert estimate.remaining_s(50, 100, now=1020.0) == pytest.approx(100.0)
    assert estimate.remaining_s(100, 100, now=1200.0) == 0.0
    assert estimate.remaining_s(0, 552, now=1300.0) is None  # another part of the work: its units take another time
    assert estimate.remaining_s(52, 552, now=1352.0) == pytest.approx(500.0)


def test_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=200)
    with Progress("train seed 0", console=console) as shown:
        for step in range(81):
            shown(step, 80, f"reward {step / 80:.2f}")
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "train seed 0: 0/80    0%  reward 0.00"
    assert lines[-1] == "train seed 0: 80/80  100%  reward 1.00"
    assert len(lines) == 2, "a line for every step is too many"


def test_a_long_call_of_an_engine_shows_its_tokens_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_S", 0.0)
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=200)
    with Progress("audit", console=console) as shown, sampling_shown_by(shown.sampling):
        for share in (0.0, 0.1, 0.5):  # at once: nothing is shown of a short call
            receiver()(0, 32, 7, share)
        assert console.file.getvalue() == ""
        now += 20.0
        receiver()(8, 32, 400, 0.75)
        receiver()(0, 16, 0, 0.0)  # another call
    assert console.file.getvalue() == ("audit: 0/1    0%  sampling: 8 of 32 actions, 400 tokens  at most 7 s left\n")
    assert receiver() is None


def test_a_total_that_is_an_estimate_is_told_in_per_cent_only() -> None:
    console = Console(file=io.StringIO(), width=200)
    with Progress("experiment", own_estimate=False, console=console) as shown:
        shown(40, 100, "2 min left: train@0")
    assert console.file.getvalue() == "experiment:   40%  2 min left: train@0\n"


def test_a_bar_with_what_remains_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DRAW_S", 0.0)
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with Progress("train seed 0", console=console) as shown:
        shown(0, 80, "starting")
        shown(40, 80, "reward 0.50")
    drawn = console.file.getvalue()
    assert "train seed 0" in drawn
    assert "50%" in drawn
    assert "0 s left  reward 0.50" in drawn


def test_a_bar_on_the_console_of_prefects_log(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "_DRAW_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    from prefect.logging.handlers import PrefectConsoleHandler

    stream = Terminal()
    logger = logging.getLogger("prefect")
    monkeypatch.setattr(logger, "handlers", [PrefectConsoleHandler(stream)])
    for _ in range(2):
        with Progress("study") as shown:
            shown(0, 4, "first cell")
            shown(1, 4, "second cell")
    assert "second cell" in stream.getvalue()


def test_the_newest_state_in_a_file_for_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.FILE, str(tmp_path / "state.json"))
    with Progress("train", console=Console(file=io.StringIO())) as shown:
        shown(0, 2)
        assert json.loads((tmp_path / "state.json").read_text())["done"] == 0
        shown(2, 2, "done")
    state = json.loads((tmp_path / "state.json").read_text())
    assert state.pop("at") == pytest.approx(time.monotonic(), abs=60.0)
    assert state == {"title": "train", "done": 2, "total": 2, "text": "done", "remaining_s": 0.0, "share": 1.0}


def test_the_parent_is_told_the_share_of_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no stage for done at the end of a part, after which its time left would stand."""
    monkeypatch.setenv(progress.FILE, str(tmp_path / "state.json"))
    monkeypatch.setattr(progress, "_FILE_S", 0.0)
    shares = []
    with Progress("audit", console=Console(file=io.StringIO())) as shown:
        shown.expect_parts((1.0, 1.0, 2.0))
        for done, total in ((0, 4), (4, 4), (0, 50), (0, 50), (25, 50), (50, 50), (0, 9), (3, 9), (8, 8)):
            shown(done, total)
            shares.append(json.loads((tmp_path / "state.json").read_text())["share"])
    assert shares == pytest.approx([0.0, 0.25, 0.25, 0.25, 0.375, 0.5, 0.5, 0.5 + 0.5 / 3, 1.0])


def test_a_file_that_cannot_be_written_does_not_stop_the_work_and_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(progress.FILE, str(tmp_path / "file" / "state.json"))
    with Progress("train", console=Console(file=io.StringIO())) as shown:
        shown(2, 2)
        shown.worked(1.0)
    assert caplog.text.count("cannot write progress to") == 1


def test_a_prefect_server_that_cannot_be_told_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("the server is gone")

    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", refuse)
    monkeypatch.setattr(progress, "_POST_S", 0.01)
    with Progress("train", "train-progress", console=Console(file=io.StringIO())) as shown:
        shown(1, 2)
        time.sleep(0.2)
        shown(2, 2)
    message = "cannot show progress in the Prefect UI (ConnectionError: the server is gone); the stage continues"
    assert caplog.text.count(message) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_artifact_of_work_that_is_done_ends_at_100_per_cent_and_of_work_that_failed_where_it_was(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    told: list[float] = []
    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", lambda share, **_: told.append(share))
    with (
        contextlib.suppress(RuntimeError),
        Progress("sweep", "sweep-progress", console=Console(file=io.StringIO())) as shown,
    ):
        shown(3, 4)
        if fails:
            raise RuntimeError
    assert told == [75.0 if fails else 100.0]


def test_nothing_to_do_is_all_done() -> None:
    console = Console(file=io.StringIO(), width=200)
    with Progress("sweep", console=console) as shown:
        shown(0, 0)
    assert "100%" in console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
