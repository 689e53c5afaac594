"""A program that is known to run: whoever looks from outside finds it by the memory that it holds."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

_MB = 100  # no fork server, judge or program that has not begun holds so much
#: Program and tests: the first call holds memory for two seconds of its own time.
HOLDER = f"""
import time
def f(x):
    held = b"x" * ({_MB + 20} << 20)
    time.sleep(2.0)
    return x + 1
"""


def stopped_holder(among: Callable[[], list[psutil.Process]]) -> psutil.Process:
    """Return a process below those that ``among`` returns that runs `HOLDER`, and wait until there is one.

    It is stopped, so that it will still run it when it is killed.
    """
    while True:
        for process in among():
            with suppress(psutil.NoSuchProcess):
                for program in [process, *process.children(recursive=True)]:
                    if _holds(program):
                        program.send_signal(signal.SIGSTOP)
                        if _holds(program):  # it has not ended in the meantime
                            return program
                        program.send_signal(signal.SIGCONT)
        time.sleep(0.02)


def _holds(program: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(program.memory_info().rss > _MB << 20)
    return False
