"""Are the statistics honest?  Simulates data whose truth is known and counts how often each method is wrong.

    nice -n 10 .venv/bin/python -m benchmarks.calibration              (minutes; writes to results/)
    nice -n 10 .venv/bin/python -m benchmarks.calibration --runs 200   (a quick look; writes nothing)

The cases are in calibration_cases.py; in smaller number they are a test of the project.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.calibration_cases import CASES, HOLDS, MANY, NULL, WRONG, measure

RESULTS = Path(__file__).parent / "results" / "calibration.md"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "calibration.svg"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    lines = []
    for group in (NULL, MANY, HOLDS, WRONG):
        lines += [
            f"\n## {group}\n",
            "| what | measured | Monte Carlo 95 % | expected | runs |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            if row["group"] == group:
                low, high = row["accepted"]
                wanted = f"{100 * low:g} to {100 * high:g} %" if group != WRONG else "far from nominal"
                spread = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
                lines.append(f"| {row['name']} | {100 * row['rate']:.1f} % | {spread} | {wanted} | {row['runs']:,} |")
    return "\n".join(lines) + "\n"


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw measured rates beside the ranges they must lie in."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 9})
    parts = [[row for row in rows if row["group"] == group] for group in (NULL, MANY, HOLDS, WRONG)]
    chart, axes = plt.subplots(
        4, 1, figsize=(7.2, 11), height_ratios=[len(part) for part in parts], layout="constrained"
    )
    for axis, part in zip(axes, parts, strict=True):
        for y, row in enumerate(part):
            low, high = row["accepted"]
            if part is not parts[3]:
                axis.plot([100 * low, 100 * high], [y, y], color="#c9d3dd", linewidth=9, solid_capstyle="butt")
            right = low <= row["rate"] <= high
            axis.errorbar(
                100 * row["rate"], y, xerr=[[100 * (row["rate"] - row["low"])], [100 * (row["high"] - row["rate"])]],
                fmt="o", color="#0b5394" if right else "#b4443c", markersize=5, capsize=0,
            )  # fmt: skip
        axis.set_yticks(range(len(part)), [row["name"] for row in part])
        axis.invert_yaxis()
        axis.set_title(part[0]["group"], loc="left", fontweight="bold", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.axvline(95 if part is parts[2] else 5, color="#555555", linewidth=0.8, linestyle=":")
        if part is parts[2]:
            axis.set_xlim(90, 100)
        else:
            axis.set_xlim(left=0, right=None if part is parts[3] else 8)
    axes[-1].set_xlabel("per cent of simulated experiments\n(grey: accepted range; line: Monte Carlo interval)")
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, metadata={"Date": None})


TEXT = """# Are the statistics honest?

Made by `python -m benchmarks.calibration` ({seconds:.0f} CPU seconds). Each row simulates experiments whose truth is
known and counts how often a method is wrong (or, for intervals, right). The data are like those of an evaluation: 96
problems in 24 families with a correlation of 0.4 within a family, skewed fractions of tests passed, and different
training runs. [Another table](calibration-grid.md) does the same for verdicts, with 3 to 100 families of equal and
unequal size, at floor and ceiling, and for power.

The verdict on a whole comparison, and EQUIVALENT, are wrong less often than allowed: limits are widened for skewed
differences, and equivalence requires the whole 95 % interval within the margin. One trained team answers all problems,
so runs vary as a whole; the t test of `new_runs` is about that. The interval of a team's own mean is reliable near
floor and ceiling even with few families; with fewer than about twelve it is wider than necessary for 95 %.

![measured rates beside what they should be](../../docs/figures/calibration.svg)
"""


def main() -> None:
    """Run all cases; write table and figure when enough runs were made to mean something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000)
    arguments = parser.parse_args()
    start, rows = time.process_time(), []
    for case in CASES:
        before = time.process_time()
        rows.append(measure(case, arguments.runs))
        row = rows[-1]
        mark = "" if case.accepted[0] <= row["rate"] <= case.accepted[1] else "   <-- outside"
        print(f"{row['name']:44s} {100 * row['rate']:5.1f} %  ({time.process_time() - before:.1f} s){mark}", flush=True)
    seconds = time.process_time() - start
    print(f"{seconds:.0f} CPU seconds")
    if arguments.runs >= 5_000:
        figure(rows, FIGURE)
        RESULTS.write_text(TEXT.format(seconds=seconds) + table(rows))


if __name__ == "__main__":
    main()
