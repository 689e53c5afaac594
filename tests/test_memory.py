"""The memory that is free is that of the machine, of every control group, and of the process's own limits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib import memory
from tests.needs import memory_groups

MIB = 2**20
FREE = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")  # this process
Path(sys.argv[2]).write_bytes(bytes(200 << 20))
from pipeline_lib.memory import all_memory, free_memory
print(all_memory() >> 20, free_memory() >> 20)
"""


@pytest.mark.needs("memory groups")
def test_files_that_the_kernel_keeps_in_memory_are_free_memory(tmp_path: Path) -> None:
    """In a container they count as used; a model's files that were fetched or converted there would fill it."""
    (group := memory_groups() / f"symposium-free-{os.getpid()}").mkdir()
    try:
        limit = next(group / name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists())
        limit.write_text(str(600 * MIB))
        words = [sys.executable, "-c", FREE, str(group), str(tmp_path / "file")]
        whole, free = map(int, subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())
    finally:
        group.rmdir()
    assert whole == 600 and free > 500


@pytest.mark.parametrize(
    ("line", "limit", "none", "used", "stat"),
    [
        ("0::/pod/run", "memory.max", "max", "memory.current", "anon 7\ninactive_file {}\nactive_file {}\nfile 9\n"),
        (
            "4:cpu,memory:/pod/run", "memory.limit_in_bytes", f"{2**63 - 4096}", "memory.usage_in_bytes",
            "inactive_file 1\nactive_file 1\ntotal_inactive_file {}\ntotal_active_file {}\n",
        ),
    ],
    ids=["version 2", "version 1"],
)  # fmt: skip
def test_the_narrowest_of_the_groups_decides(
    line: str, limit: str, none: str, used: str, stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, most, now in (("pod/run", none, 50), ("pod", f"{100 * MIB}", 90)):
        (place := tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (place / limit).write_text(f"{most}\n")
        (place / used).write_text(f"{now * MIB}\n")
        (place / "memory.stat").write_text(stat.format(20 * MIB, 5 * MIB))
    name = "memory" if "memory:" in line else ""
    monkeypatch.setitem(memory._HIERARCHIES, name, (tmp_path, *memory._HIERARCHIES[name][1:]))
    own, read = tmp_path / "own", Path.read_text
    own.write_text(f"1:devices:/\n{line}\n")
    shown = {Path("/proc/self/cgroup"): own}
    monkeypatch.setattr(Path, "read_text", lambda path, **kept: read(shown.get(path, path), **kept))
    assert memory.all_memory() == 100 * MIB
    assert memory.free_memory() == (100 - 90 + 25) * MIB


def test_a_limit_of_address_space_is_one_of_memory() -> None:
    code = "from pipeline_lib.memory import all_memory, free_memory; print(all_memory() >> 20, free_memory() >> 20)"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); {code}"
    done = subprocess.run([sys.executable, "-c", limited], check=True, capture_output=True, text=True)
    whole, free = map(int, done.stdout.split())
    assert whole == 2048 and free < 2048
