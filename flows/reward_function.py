"""Audit a reward function, in the signature of TRL or of a rubric of verifiers, before training on it.

symposium audit --reward rewards:accuracy --problems problems.jsonl --metric last:answer
symposium audit --reward rewards:accuracy rewards:format --weights 1 0.2 --problems problems.parquet \\
    --metric rewards:is_right --solution '<answer>{answer}</answer>' --model smollm2-135m

Status 1 if the audit refuses the reward.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pipeline_lib.policies.policy import PolicyError
from tasks.runtime.arguments import ArgumentError, number, program_parser, whole
from tasks.runtime.exit_status import explained

if TYPE_CHECKING:
    from pipeline_lib.audit.result import AuditResult


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("reward_function", __doc__)
    found.add_argument("--reward", nargs="+", required=True, metavar="MODULE:FUNCTION", help="one, or several")
    found.add_argument("--problems", required=True, metavar="FILE", help="table: .jsonl, .csv, .tsv or .parquet")
    found.add_argument(
        "--metric",
        required=True,
        metavar="METRIC",
        help="how much of the task a text does, 0 to 1: MODULE:FUNCTION, equals:COLUMN, contains:COLUMN or last:COLUMN "
        "(last numbers are compared)",
    )
    found.add_argument("--solution", metavar="COLUMN", help="of texts that do the task; or a template with {COLUMN}")
    found.add_argument("--prompt", metavar="COLUMN", help="of the prompt (default: prompt, question, problem or input)")
    found.add_argument(
        "--weights", nargs="+", type=number(-1e9, 1e9), metavar="W", help="one per function (default: 1)"
    )
    found.add_argument(
        "--reward-range", nargs=2, type=number(-1e12, 1e12), metavar=("LOW", "HIGH"), help="of the reward, if known"
    )
    found.add_argument("--limit", type=whole(2, 64), default=16, help="most problems that are played (default: 16)")
    found.add_argument("--model", help="also judge completions of a pretrained model: what policy.models takes")
    found.add_argument("--samples", type=whole(2), default=4, help="completions of each prompt (default: 4)")
    found.add_argument("--longest", type=whole(1), default=128, help="tokens of a completion (default: 128)")
    found.add_argument("--json", action="store_true", help="print everything as JSON")
    return found


def run(asked: argparse.Namespace) -> AuditResult:
    """Audit the reward; raises ArgumentError if functions, problems, metric or solutions do not fit together."""
    # It loads scipy, which `--help` and a wrong argument can do without.
    from pipeline_lib.assembly.reward_functions import RewardFunctionError, audit_reward

    try:
        return audit_reward(
            asked.reward,
            asked.problems,
            prompt=asked.prompt,
            metric=asked.metric,
            solution=asked.solution,
            weights=asked.weights,
            reward_range=None if asked.reward_range is None else tuple(asked.reward_range),
            model=asked.model,
            samples=asked.samples,
            longest=asked.longest,
            limit=asked.limit,
        )
    except (RewardFunctionError, PolicyError) as error:
        raise ArgumentError(str(error)) from None


def _say(console: Console, text: str) -> None:
    """Print a line, in a terminal wrapped between words."""
    console.print(text, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def show(found: AuditResult) -> None:
    """Print the texts that were played, the checks, and the conclusion."""
    console = Console()
    table = Table("text", "earns", "does the task", "", box=None, pad_edge=False)
    for rung in found.ladder:
        table.add_row(rung.name, f"{rung.reward:.3f}", f"{rung.outcome:.0%}", rung.role)
    console.print(table)
    console.print()
    for check in found.checks:
        _say(console, f"{check.status}  {check.name}: {check.sentence}")
    _say(console, f"\n{found.status}: {found.summary}")


def main() -> None:
    """Print the audit: status 0 if the reward may be trained on, 1 if not, 2 if something given is wrong."""
    asked = parser().parse_args()
    with explained():
        with contextlib.redirect_stdout(sys.stderr):  # what functions print is no part of the result
            found = run(asked)
        if asked.json:
            print(json.dumps(found.to_json(), indent=1))
        else:
            show(found)
        sys.exit(found.status == "FAIL")


if __name__ == "__main__":
    main()
