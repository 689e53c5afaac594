"""The interpreter's code goes on working where the fork server moves it."""

import subprocess
import sys

from pipeline_lib.sandbox.runtime import FLAGS, INSIDE
from tests.needs import needs

_SCRIPT = f"""
import ctypes, sys
sys.path.insert(0, {str(INSIDE)!r})
import huge_pages

def mapping():
    place = ctypes.cast(ctypes.pythonapi.PyObject_Repr, ctypes.c_void_p).value
    for line in open("/proc/self/maps"):
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= place < last:
            return len(line.split()) > 5, line.split()[1]

code = ctypes.string_at(ctypes.pythonapi.PyObject_Repr, 64)
print(*mapping())
huge_pages.move_interpreter()
print(*mapping())
import decimal, os, re
assert ctypes.string_at(ctypes.pythonapi.PyObject_Repr, 64) == code
if os.fork() == 0:
    os._exit(int(re.sub("[^0-9]", "", str(decimal.Decimal(7) / 2))))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@needs("x86-64")
def test_the_interpreter_runs_on_in_memory_of_its_own_that_nobody_can_write() -> None:
    command = [sys.executable, *FLAGS, "-c", _SCRIPT]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True r-xp", "False r-xp", "35"]
