"""Bytecode never outlives the source it was made from, whatever the times of files say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.bytecode import forget_old_bytecode


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


@pytest.mark.parametrize("place", ["task.py", "mine/task.py", "mine/deep/helper.py", "helper.py"])
def test_code_that_settings_name_is_run_as_it_is_now_with_what_lies_beside_it(tmp_path: Path, place: str) -> None:
    """The module, its package, and modules beside it, which it may import."""
    for folder in ("mine", "mine/deep"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    source = tmp_path / place
    source.write_text("VALUE = 1\n")
    times = source.stat()
    module = place.removesuffix(".py").replace("/", ".")
    named = "mine.deep" if "deep" in place or place == "helper.py" else module
    program = "from pipeline_lib.environment_api.registry import import_by_name; import sys; sys.path.insert(0, '.'); "
    program += f"import_by_name({named!r}); import {module} as found; print(found.VALUE)"
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def ran() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert ran() == "1"
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert ran() == "2"
