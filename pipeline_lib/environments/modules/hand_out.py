"""Orchestrated teams: the lead reads everything and hands out the files; workers write them and read only their lines.

The lead writes lines such as ``second: one.py: keep over 9; hand on minus 3 early``.  A line begins with the name of a
worker, who reads the rest of it.  A worker writes the files that its lines name (``one.py``); if several workers are
given a file, it is the first one's.  Lines that begin with another name are read by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_lib.environments.modules.problem import PACKAGE, SINGLE, ModulesProblem

LEAD = "lead"
#: As many as there are files.
WORKERS = ("first", "second", "third", "fourth")

_LINE = re.compile(r"\s*(\w+)[\s:]+([^\s:].*)")
_FILE = re.compile(r"\b(\w+)\.py\b")

_LEADING = (
    f"You are {LEAD}. You write no code: you hand out the files of the Python package {PACKAGE} to {{workers}}. They "
    "cannot see this page, and not what the others are told. Write a line for each file: the name of who writes it, "
    "the file, and everything that one must know to write it, for example: first: one.py: it defines ...\n"
)
_WORKING = (
    f"You are {{name}}. You write files of the Python package {PACKAGE}. Begin each file with its name in a comment, "
    "as # one.py. Answer with Python code only. This is what you are told:\n"
)


@dataclass(frozen=True, slots=True)
class HandOut:
    """What the lead has handed out."""

    #: By worker, what its lines say, a line each with its end; workers without a line are left out.
    told: Mapping[str, str]
    owners: Mapping[str, str]  #: by file that was handed out, the worker who writes it

    def files(self, worker: str) -> tuple[str, ...]:
        """Return the files that a worker writes, in the order in which they were handed out."""
        return tuple(part for part, owner in self.owners.items() if owner == worker)


def read_hand_out(text: str, parts: Sequence[str]) -> HandOut:
    """Return what a text hands out to as many workers as there are parts.

    Examples:
        >>> found = read_hand_out("first: one.py even\\nsecond main.py sum\\nnobody: two.py odd", ("one", "main"))
        >>> found.owners
        {'one': 'first', 'main': 'second'}
        >>> found.told["second"]
        'main.py sum\\n'
    """
    told: dict[str, str] = {}
    owners: dict[str, str] = {}
    for line in map(_LINE.fullmatch, text.splitlines()):
        if line is not None and line[1] in WORKERS[: len(parts)]:
            told[line[1]] = f"{told.get(line[1], '')}{line[2].rstrip()}\n"
            for part in _FILE.findall(line[2]):
                if part in parts:
                    owners.setdefault(part, line[1])
    return HandOut(told, owners)


def hand_out_text(lines: Mapping[str, str], ways: Mapping[str, str], owners: Mapping[str, str] | None = None) -> str:
    """Return the lead's text that hands out files.

    Args:
        lines: by file, what is said of it.
        ways: by file, in which way it should be written; nothing is said of a way that is empty.
        owners: by file, the worker who gets it; None: one for each.
    """
    owners = dict(zip(lines, WORKERS, strict=False)) if owners is None else owners
    return "".join(f"{f'{owners[part]}: {line} {ways[part]}'.rstrip()}\n" for part, line in lines.items())


def descriptions(observations: Mapping[str, str]) -> dict[str, str]:
    """Return by file, in their order, the line of a generated problem's observations that says what it must do."""
    named = [(line.partition(".py")[0], line) for line in observations[SINGLE].splitlines()]
    return {part: line for part, line in named if part in observations}  # a file of problems sorts observations


def is_plain(problem: ModulesProblem) -> bool:
    """Return whether agents are told in plain English what they are to do."""
    return len(descriptions(problem.observations)) < len(problem.observations[SINGLE].splitlines())


def led(problem: ModulesProblem) -> str:
    """Return what the lead sees."""
    workers = WORKERS[: len(problem.parts)]
    begin = _LEADING.format(workers=", ".join(workers)) if is_plain(problem) else f"{LEAD} {' '.join(workers)}\n"
    return begin + "".join(f"{line}\n" for line in descriptions(problem.observations).values())


def worked(problem: ModulesProblem, worker: str, hand_out: HandOut | None) -> str:
    """Return what a worker sees: its own lines, and nothing of the problem."""
    begin = _WORKING.format(name=worker) if is_plain(problem) else f"{worker}\n"
    return begin + (hand_out.told.get(worker, "") if hand_out else "")
