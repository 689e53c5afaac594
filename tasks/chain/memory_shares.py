"""The memory that stages side by side may take: one that would not fit beside the others waits until they end."""

from pathlib import Path

from pipeline_lib.assembly.memory import GIB, STAGES
from pipeline_lib.assembly.memory_check import computed_need, room
from pipeline_lib.memory import free_memory
from pipeline_lib.project import BASE, PROBLEMS
from pipeline_lib.settings import Params


class MemoryShares:
    """What the running stages of a run will need, at most.

    Each stage checks for itself that it fits, when it begins; two that begin together would count on the same memory.

    Args:
        params: the settings of the run; None if they cannot be read, which a stage tells: then no stage waits.
        project: folder of the project.
    """

    def __init__(self, params: Params | None, project: Path) -> None:
        self._params, self._project = params, project
        self._room, self._on_gpu = 0.0, False  # before the first of those that run now
        self._taken: dict[str, float] = {}

    def take(self, name: str) -> str:
        """Take a stage's share of the memory; return why it has to wait, empty if it may begin.

        One that is alone may begin in any case.
        """
        kind = name.partition("@")[0].removesuffix("_single")
        if self._params is None or kind not in STAGES:
            return ""
        if not self._taken:
            found, self._on_gpu = room(self._params.policy, now=True)
            self._room = found if self._on_gpu else free_memory()  # what this process holds stays its own
        left = self._room - sum(self._taken.values())
        needed = computed_need(self._params, kind, self._project / PROBLEMS, self._project / BASE, left, self._on_gpu)
        if self._taken and needed > left:
            beside = ", ".join(sorted(self._taken))
            return (
                f"{name} waits: it needs {needed / GIB:.1f} GiB of memory, beside {beside} there are {left / GIB:.1f}"
            )
        self._taken[name] = needed
        return ""

    def give_back(self, name: str) -> None:
        """Give back the share of a stage that has ended."""
        self._taken.pop(name, None)
