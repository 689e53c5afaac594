"""Commands of `symposium` in this process, whose libraries are loaded: for what they print and how they end."""

import contextlib
import importlib
import io
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from symposium.cli import PROGRAMS


class Ended(NamedTuple):
    """A command that has ended: its exit status, and its two outputs."""

    status: int
    out: str
    err: str


def command(folder: Path, name: str, *words: object) -> Ended:
    """Run ``symposium <name> <words>`` in a folder, with the environment variables of this process."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", [f"symposium {name}", *map(str, words)]),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            importlib.import_module(PROGRAMS[name][0]).main()
        except SystemExit as ended:
            assert isinstance(ended.code, int | None), ended.code
            status = ended.code or 0
    return Ended(status, out.getvalue(), err.getvalue())
