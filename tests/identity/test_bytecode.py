"""Bytecode never outlives the source it was made from, whatever the times of files say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipeline_lib.identity.bytecode import forget_old_bytecode


def run(folder: Path) -> str:
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", "import package.module; print(package.module.VALUE)"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_source_of_the_same_size_and_time_is_run_as_it_is_now(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    source = package / "module.py"
    source.write_text("VALUE = 1\n")
    times = source.stat()
    assert run(tmp_path) == "1"
    assert forget_old_bytecode(package) == []
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run(tmp_path) == "1", "Python believes the time: this is what is mended"
    assert [path.name.partition(".")[0] for path in forget_old_bytecode(package)] == ["module"]
    assert run(tmp_path) == "2"
    assert forget_old_bytecode(package) == []
