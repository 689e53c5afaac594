"""How a program ends that fails."""

import errno
import logging
import os
import signal
import subprocess
import sys

import httpx
import pytest
from prefect.exceptions import PrefectException, TerminationSignal
from safetensors import SafetensorError

from pipeline_lib.storage import CorruptFileError
from tasks.runtime.exit_status import (
    Terminated,
    explain_in_logs,
    explained,
    explanation,
    is_explained,
    sigterm_interrupts,
)


def test_a_full_disk_needs_no_traceback_whoever_reports_it():
    for words in ("I/O error: No space left on device (os error 28)", "(sqlite3) database or disk is full"):
        error = SafetensorError(words)
        assert explanation(OSError(explanation(error))) == explanation(error)
        assert is_explained(error) and explanation(error).startswith(f"{words}; the disk is full: free some space")
    assert not is_explained(SafetensorError("header too large"))


def test_memory_that_is_full_needs_no_traceback_either():
    code = "import resource, torch; resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2); torch.empty(1 << 36)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    words = done.stderr.splitlines()[-1].removeprefix("RuntimeError: ")
    for error in (RuntimeError(words), MemoryError()):
        assert is_explained(error) and "`symposium plan --memory`" in explanation(error)
    assert words[:40] in explanation(RuntimeError(words))
    assert not is_explained(RuntimeError("shapes cannot be multiplied"))


def test_a_damaged_file_is_a_sentence(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended, explained():
        raise CorruptFileError("data/train.jsonl: damaged; delete it and run the same command again")
    told = capsys.readouterr().err
    assert (ended.value.code, told) == (
        1,
        "error: data/train.jsonl: damaged; delete it and run the same command again\n",
    )


def test_sigterm_ends_a_program_as_ctrl_c_does(capsys: pytest.CaptureFixture[str]):
    before = signal.getsignal(signal.SIGTERM)
    closed = False
    with pytest.raises(SystemExit) as ended, explained(), sigterm_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            closed = True
    assert closed and ended.value.code == 143
    assert capsys.readouterr().err == "interrupted; run the same command again to continue\n"
    assert signal.getsignal(signal.SIGTERM) is before and issubclass(Terminated, KeyboardInterrupt)


def test_an_error_that_prefect_cannot_record_is_told_all_the_same(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended, explained():
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "data/problems/train.jsonl")
        except OSError as full:
            raise PrefectException("Server error '500 Internal Server Error'") from full.__cause__
    told = capsys.readouterr().err
    assert ended.value.code == 1 and told.count("\n") == 1
    assert "'data/problems/train.jsonl'; the disk is full: free some space" in told


def test_a_server_that_is_gone_is_told_in_words_unless_a_defect_is_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "_exit", sys.exit)  # it ends before Python's own end, which waits

    def ask() -> None:
        try:
            httpx.get("http://127.0.0.1:1/api")
        except httpx.ConnectError as error:
            raise RuntimeError("Failed to reach API at http://127.0.0.1:1/api/") from error

    with pytest.raises(SystemExit) as ended, explained():
        ask()
    told = capsys.readouterr().err
    assert ended.value.code == 1 and told.count("\n") == 1 and "the Prefect server of this run does not answer" in told
    with pytest.raises(SystemExit), explained():
        try:
            ask()
        except RuntimeError:
            raise ValueError("a defect")  # noqa: B904
    told = capsys.readouterr().err
    assert "Traceback" in told and "ValueError: a defect" in told
    for interrupt, status in ((KeyboardInterrupt, 130), (Terminated, 143), (TerminationSignal(signal.SIGTERM), 143)):
        with pytest.raises(SystemExit) as ended, explained():
            try:
                raise interrupt
            except BaseException:
                ask()
        assert ended.value.code == status
        assert capsys.readouterr().err == "interrupted; run the same command again to continue\n"


def test_a_crash_that_nobody_expected_has_its_traceback_once(capsys: pytest.CaptureFixture[str]):
    class Odd(BaseException):
        pass

    with pytest.raises(SystemExit) as ended, explained():
        raise Odd("a defect")
    told = capsys.readouterr().err
    assert ended.value.code == 1 and told.count("Traceback") == 1 and told.endswith("Odd: a defect\n")


def test_that_prefects_server_is_away_is_said_once(caplog: pytest.LogCaptureFixture):
    """A training said it every half minute, each time with all tags of its run."""
    explain_in_logs()
    for _ in range(3):
        logging.getLogger("prefect.events.clients").warning("Unable to connect to %r. Reason: %s", "ws://lab", "none")
        logging.getLogger("prefect._internal.concurrency").error(
            "Service %r failed to process item %r", "EventsWorker", "Event()"
        )
    logging.getLogger("prefect.events.clients").warning("something else")
    told = [record.getMessage() for record in caplog.records]
    assert told == [told[0], "something else"] and told[0].startswith("the Prefect server does not answer; ")
