"""CPU starvation on a busy machine: how long a program has waited for a processor, and how long a judge was runnable.

The result is None if the kernel has no such statistics, or the process is not visible.
"""

from __future__ import annotations

from pathlib import Path


def waited_for_processor(jail: int) -> float | None:
    """Return the seconds that the program in a jail has been ready to run but did not.

    Args:
        jail: process id of the jail's outermost process; the program is the last of its descendants.

    Returns:
        The longest wait of any of the program's threads since it was forked.
    """
    try:
        program = leaf(jail)
        tasks = (Path("/proc") / str(program) / "task").iterdir()
        return max(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def runnable_s(pid: int) -> float | None:
    """Return the seconds that a single-threaded process has run or been ready to run since it was forked."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return None


def leaf(pid: int) -> int:
    """Return the youngest descendant of ``pid`` that has no children."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    while pid in children:
        pid = max(children[pid])
    return pid
