"""Command-line arguments of the stages that exist once per arm and training seed, and the names of programs."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from tasks.experiment.arms import ARMS, TEAM


def arm_and_seed(description: str | None) -> dict[str, Any]:
    """Parse ``--arm`` and ``--seed``; ``--help`` explains them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--arm", choices=ARMS, default=TEAM, help="the team, or the single-agent baseline")
    parser.add_argument("--seed", type=int, required=True, help="training seed")
    return vars(parser.parse_args())


def program(name: str) -> str:
    """Return how a program of `flows` was called: ``symposium <command>``, or as a module."""
    return sys.argv[0] if sys.argv[0].startswith("symposium ") else f"python -m flows.{name}"


def program_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a program of `flows`, whose description is shown as it is written, examples included."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=program(name), description=description, formatter_class=raw)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs``, the number of stages that run at the same time."""
    parser.add_argument(
        "--jobs",
        type=_at_least_one,
        default=os.cpu_count() or 1,
        help="number of stages that run at the same time (default: number of cores)",
    )


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; give a whole number, 1 or more")
    return int(text)
