"""The command lines of programs and stages: names, ranges of arguments, what was probably meant, lines that fit."""

import argparse
import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from pipeline_lib.settings.train import GREATEST_SEED
from tasks.experiment.arms import ARMS, TEAM

PORTS, SEEDS = (0, 65_535), (0, GREATEST_SEED)

_N = TypeVar("_N", int, float)


class ArgumentError(ValueError):
    """An argument of a program is wrong; the message says what is accepted."""


def arm_and_seed(description: str | None) -> dict[str, Any]:
    """Parse ``--arm`` and ``--seed``; ``--help`` explains them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--arm", choices=ARMS, default=TEAM, help="the team, or the single-agent baseline")
    parser.add_argument("--seed", type=whole(*SEEDS), required=True, help="training seed")
    return vars(parser.parse_args())


def program(name: str) -> str:
    """Return how a program of `flows` was called: ``symposium <command>``, or as a module."""
    return sys.argv[0] if sys.argv[0].startswith("symposium ") else f"python -m flows.{name}"


def program_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a program of `flows`, whose description is prose and blocks of commands."""
    return _Parser(prog=program(name), description=description, formatter_class=_Help)


def fit(text: str) -> str:
    """Return lines of text wrapped to the terminal's columns, 80 without one; words, such as paths, stay whole."""
    width = shutil.get_terminal_size().columns
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(
            line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
        )
        lines += wrapped if len(line) > width else [line]
    return "\n".join(lines)


def fit_terminal(text: str) -> str:
    """Return ``text`` as `fit` does if a person reads stderr, and unchanged for programs and logs."""
    return fit(text) if sys.stderr.isatty() else text


class _Help(argparse.HelpFormatter):
    """Wraps prose, and commands so that they can be copied: their comments, or what is too long, on lines below."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [block.splitlines() for block in text.strip().split("\n\n")]
        return "\n\n".join(
            "\n".join(_narrow(line, width) for line in block)
            if block[0].lower().startswith(("symposium", "python"))
            else textwrap.fill(" ".join(block), width)
            for block in blocks
        )


def _narrow(command: str, width: int) -> str:
    """Return a command with its comment in lines of at most ``width``."""
    if len(command) <= width:
        return command
    command, _, comment = command.partition(" # ")
    first, *options = re.split(r"\s+(?=-)", command.strip())
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) + 3 > width:
            lines.append(f"    {option}")
        else:
            lines[-1] += f" {option}"
    told = textwrap.wrap(comment, width, initial_indent="    # ", subsequent_indent="    # ")
    return "\n".join([" \\\n".join(lines), *told])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End the program with status 2; for a word that nothing takes, name the options that it resembles."""
        if message.startswith("unrecognized arguments: "):
            known = [option for action in self._actions for option in action.option_strings]
            message += meant(message.split()[2], known)
        super().error(fit_terminal(message))


def add_overrides(reader: argparse.ArgumentParser, what: str) -> None:
    """Add ``-S`` to a command line; ``what`` it changes."""
    reader.add_argument(
        "-S",
        "--set-param",
        action="append",
        default=[],
        metavar="section.key=value",
        help=f"change {what} first: a setting, or a whole section by a preset's name; may be repeated",
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs``, the number of stages that run at the same time."""
    parser.add_argument(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        help="number of stages that run at the same time (default: number of cores)",
    )


def meant(name: str, known: Collection[str]) -> str:
    """Return a question that names what ``name`` resembles, as the end of a message; empty if it resembles nothing."""
    close = get_close_matches(name, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def one_of(what: str, known: Collection[str]) -> Callable[[str], str]:
    """Return the type of an argument that is one of some names; ``what`` says in its message what it names."""

    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"there is no {what} {text!r}{meant(text, known) or '; there are: ' + ', '.join(known)}"
            )
        return text

    return read


def whole(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number in a range, whose ends belong to it."""
    return _in_range(int, "a whole number", least, most, "" if most == sys.maxsize else f" to {most}")


def number(least: float, most: float = sys.float_info.max) -> Callable[[str], float]:
    """Return the type of an argument that is a finite number in a range, whose ends belong to it."""
    return _in_range(float, "a number", least, most, "" if most == sys.float_info.max else f" to {most:g}")


def _in_range(read: Callable[[str], _N], what: str, least: _N, most: _N, upwards: str) -> Callable[[str], _N]:
    wanted = f"{what} from {least:g}{upwards}" if upwards else f"{what}, {least:g} or more"

    def read_in_range(text: str) -> _N:
        with contextlib.suppress(ValueError):
            if least <= (value := read(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"got {text!r}; give {wanted}")

    return read_in_range
