"""How a program ends that fails."""

from __future__ import annotations

import os
import signal

import pytest
from safetensors import SafetensorError

from tasks.runtime.exit_status import Terminated, explained, explanation, is_explained, sigterm_interrupts


def test_a_full_disk_needs_no_traceback_whoever_reports_it():
    for words in ("I/O error: No space left on device (os error 28)", "(sqlite3) database or disk is full"):
        error = SafetensorError(words)
        assert is_explained(error) and explanation(error).startswith(f"{words}; the disk is full: free some space")
    assert not is_explained(SafetensorError("header too large"))


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
