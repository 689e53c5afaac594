"""Hostile programs, each with the verdict it must get.

All are judged by `TESTS`, five cases of ``f(x) == x + 1``.  A program that is no honest solution must never pass
them all; what it may pass at most it passes by answering a case correctly, which is no forgery.

The programs stand in text files, one per family.  Each begins with a line ``=== name: verdicts, at most n`` (or
``exactly n`` for honest ones, and ``hangs`` for those that only end because they are stopped).  ``@send`` and
``@call`` stand for the helpers below.
"""

from dataclasses import dataclass
from pathlib import Path

FAMILIES = ("controls", "forging", "hanging", "resources", "escapes")
TESTS = """
def check(candidate):
    assert candidate(0) == 1
    assert candidate(1) == 2
    assert candidate(7) == 8
    assert candidate(-5) == -4
    assert candidate(41) == 42
"""

# Writes frames as the fork server's child does; `call` makes a system call by its number on x86-64 and on ARM.
_HELPERS = {
    "@send": """
import json, os, struct

def put(message, fd=3):
    data = json.dumps(message).encode()
    try:
        os.write(fd, struct.pack("!I", len(data)) + data)
    except OSError:
        pass
""",
    "@call": """
import ctypes, os
_libc = ctypes.CDLL(None, use_errno=True)

def call(x86, arm, *args):
    number = {"x86_64": x86, "aarch64": arm}[os.uname().machine]
    return _libc.syscall(number, *args)
""",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the corpus.

    Attributes:
        name: unique.
        statuses: what its verdict may be.
        passed: how many cases it may pass at most; honest programs must pass exactly so many.
        code: its source.
        hangs: it only ends because it is stopped, so it is run with short limits.
        honest: it has to pass ``passed`` cases, not at most.
        family: the file it stands in, empty for those that stand in none.
    """

    name: str
    statuses: tuple[str, ...]
    passed: int
    code: str
    hangs: bool = False
    honest: bool = False
    family: str = ""


def corpus() -> list[Program]:
    """Return all programs: those in the text files, and those that are too long or too odd for one."""
    programs = [
        Program("empty", ("load_error",), 0, ""),
        Program("null_byte", ("load_error",), 0, "def f(x):\n    return x + 1\n\0"),
        Program("nested_brackets", ("load_error", "oom"), 0, "A = " + "[" * 5000 + "]" * 5000 + "\ndef f(x): pass\n"),
        Program("long_expression", ("load_error", "oom", "crash"), 0, "A = " + "-" * 200_000 + "1\ndef f(x): pass\n"),
    ]
    for family in FAMILIES:
        text = (Path(__file__).parent / f"{family}.txt").read_text()
        programs += [_parse(part, family) for part in text.split("\n=== ")[1:]]
    return programs


def _parse(part: str, family: str) -> Program:
    head, _, code = part.partition("\n")
    name, _, rest = head.partition(": ")
    words = rest.split(", ")
    (share,) = [word for word in words if word.startswith(("at most ", "exactly "))]
    for helper, source in _HELPERS.items():
        code = code.replace(helper + "\n", source)
    return Program(
        name=name,
        statuses=tuple(word for word in words if word not in (share, "hangs")),
        passed=int(share.rpartition(" ")[2]),
        code=code,
        hangs="hangs" in words,
        honest=share.startswith("exactly"),
        family=family,
    )


@dataclass(frozen=True, slots=True)
class OwnTests:
    """A program with tests and a prelude of its own, the status of its verdict and the cases that it passes."""

    name: str
    status: str
    passed: int
    code: str
    tests: str
    prelude: str


def own_tests() -> list[OwnTests]:
    """Return the programs of ``own_tests.txt``: unusual but right ones, and wrong ones that common tests let pass."""
    text = (Path(__file__).parent / "own_tests.txt").read_text()
    return [_parse_own(part) for part in text.split("\n=== ")[1:]]


def _parse_own(part: str) -> OwnTests:
    head, _, body = part.partition("\n")
    name, status, passed = head.replace(": ", ", ").split(", ")
    code, _, rest = body.partition("\n--- tests\n")
    tests, _, prelude = rest.partition("\n--- prelude\n")
    return OwnTests(name, status, int(passed), code, tests, prelude)


def pairs(file: str, heading: str) -> dict[str, tuple[str, str]]:
    """Return programs and their tests by name, which stand below a heading of a file."""
    text = (
        (Path(__file__).parent / f"{file}.txt").read_text().partition(f"##### {heading}\n")[2].partition("\n#####")[0]
    )
    heads = (part.partition("\n") for part in text.split("\n=== ")[1:])
    return {name: (body.partition("--- tests\n")[0], body.partition("--- tests\n")[2]) for name, _, body in heads}
