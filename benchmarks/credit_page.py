"""The table and the figures of `benchmarks.credit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FIGURE = Path("docs/figures/credit.svg")
CURVES = Path("docs/figures/credit_learning.svg")
COLOURS = {
    "aligned": "#5b6770",
    "2 pairings": "#9fc5e8",
    "4 pairings": "#6fa8dc",
    "latin": "#0b5394",
    "cross": "#b4443c",
    "column": "#e0a030",
    "removal": "#8e7cc3",
}
#: "90 %" is a share of hidden tests passed of this much in training, over as many updates.
ENOUGH, WINDOW = 0.9, 3
COLUMNS = ("correlation", "sign", "error", "spectator", "bias", "variance")
Curves = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]


def page(report: Mapping[str, Any], learning: Mapping[str, Any]) -> str:
    """Return the whole page as Markdown."""
    lines = [
        "# Credit against the truth",
        "",
        "Written by `python -m benchmarks.credit`; what it means: [docs/credit.md](../../docs/credit.md). Correlation,",
        "sign agreement and mean squared error are of an action's credit with its true advantage under the policies;",
        "spectator is the root mean square of the credit of an agent that changes nothing; bias and variance of the",
        "gradient for the policies' logits, relative to the squared exact gradient. G: actions per agent and group.",
        "",
    ]
    errors = ", ".join(f"{value:.3f} ({name})" for name, value in report["errors"].items())
    lines += [f"Standard error of the embedded teams' truth as that of the model's own policy: {errors}.", ""]
    titles = {
        "tokens": "At equal sampled tokens",
        "executions": "At equal executions",
        "in_turn": "One agent after the other (truth given what the agents before it did)",
    }
    for at, title in titles.items():
        lines += [f"## {title}", ""]
        for kind, plans in report[at].items():
            lines += [f"### {kind}", "", f"| credit | G | cells | executed | {' | '.join(COLUMNS)} |"]
            lines += ["|---|" + "---:|" * (len(COLUMNS) + 3)]
            for name, found in plans.items():
                cells = " | ".join(f"{found[column]:.3f}" if column in found else "" for column in COLUMNS)
                lines.append(
                    f"| {name} | {found['size']:.0f} | {found['cells']:.0f} | {found['executed']:.1f} | {cells} |"
                )
            lines.append("")
    if learning.get("curves"):
        lines += learned(learning["curves"])
    if learning.get("speed"):
        lines += seconds(learning["speed"])
    return "\n".join(lines).rstrip() + "\n"


def reached(rows: Sequence[Mapping[str, float]], window: int) -> int | None:
    """Return the update at which `ENOUGH` tests passed over the last ``window`` updates; None if they never did."""
    passed = [row["metrics/tests_passed"] for row in rows]
    ends = range(window, len(rows) + 1)
    return next((end for end in ends if np.mean(passed[end - window : end]) >= ENOUGH), None)


def learned(curves: Curves) -> list[str]:
    """Return the lines on learning: updates, tokens and executions until enough tests passed, seed by seed."""
    seeds = sorted(set.intersection(*(set(runs) for runs in curves.values())), key=int)
    lines = [
        f"## Learning, the embedded default ({len(seeds)} seeds)",
        "",
        f"Updates until {ENOUGH:.0%} of the hidden tests passed in training over {WINDOW} updates, and what was spent",
        "by then, in means; reward is that of the last five updates.",
        "",
        "| credit | updates, by seed | mean | sampled tokens | executions | reward at the end |",
        "|---|---|---:|---:|---:|---:|",
    ]
    updates: dict[str, list[int | None]] = {}
    for plan, runs in curves.items():
        updates[plan] = [reached(runs[seed], WINDOW) for seed in seeds]
        if None in updates[plan]:
            means = "not by all"
            spent = ["", ""]
        else:
            until = [runs[seed][:end] for seed, end in zip(seeds, updates[plan], strict=True)]
            means = f"{np.mean([u for u in updates[plan] if u]):.1f}"
            spent = [
                f"{np.mean([sum(row[name] for row in part) for part in until]):,.0f}"
                for name in ("actions/tokens", "executions/count")
            ]
        last = np.mean([row["reward/mean"] for seed in seeds for row in runs[seed][-5:]])
        by_seed = ", ".join("-" if u is None else str(u) for u in updates[plan])
        lines.append(f"| {plan} | {by_seed} | {means} | {spent[0]} | {spent[1]} | {last:.3f} |")
    known = [(a, b) for a, b in zip(*updates.values(), strict=True) if a and b] if len(updates) == 2 else []
    if len(known) > 1:
        from scipy import stats

        first, second = (np.array(side, dtype=float) for side in zip(*known, strict=True))
        difference = second - first
        half = float(stats.t.ppf(0.975, len(known) - 1) * difference.std(ddof=1) / np.sqrt(len(known)))
        names = list(updates)
        lines += [
            "",
            f"{names[1]} less {names[0]}, paired by seed: {difference.mean():+.1f} updates (95 % interval "
            f"{difference.mean() - half:+.1f} to {difference.mean() + half:+.1f}, {len(known)} seeds).",
        ]
    return [*lines, ""]


def seconds(runs: Curves) -> list[str]:
    """Return the lines on seconds per update, runs of the same seed taken in turn."""
    lines = [
        "## Seconds per update",
        "",
        "| credit | median | first three | last three | executions |",
        "|---|" + "---:|" * 4,
    ]
    for plan, by_seed in runs.items():
        steps = np.array([[row["time/step_s"] for row in rows[1:]] for rows in by_seed.values()])
        count = np.mean([row["executions/count"] for rows in by_seed.values() for row in rows[1:]])
        first, last = np.median(steps[:, :3]), np.median(steps[:, -3:])
        lines.append(f"| {plan} | {np.median(steps):.2f} | {first:.2f} | {last:.2f} | {count:.0f} |")
    return [*lines, ""]


def figure(report: Mapping[str, Any], learning: Mapping[str, Any]) -> None:
    """Draw correlation with the truth by plan and game, and learning curves."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 9})
    chart, axes = plt.subplots(1, 2, figsize=(7.6, 5.2), sharey=True, sharex=True, layout="constrained")
    kinds = list(report["tokens"])
    for axis, (at, title) in zip(axes, (("tokens", "equal tokens"), ("executions", "equal executions")), strict=True):
        for shift, (name, colour) in enumerate(COLOURS.items()):
            places = [(number, report[at][kind].get(name)) for number, kind in enumerate(kinds)]
            bars = [(number + (shift - 3) * 0.12, found["correlation"]) for number, found in places if found]
            axis.barh([bar[0] for bar in bars], [bar[1] for bar in bars], 0.11, color=colour, label=name)
        axis.set_yticks(range(len(kinds)), [kind.replace(", ", ",\n", 1) for kind in kinds])
        axis.set_xlabel(f"correlation with the truth, {title}")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    chart.legend(handles, labels, frameon=False, fontsize=8, ncols=7, loc="outside upper center")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(FIGURE, metadata={"Date": None})
    if learning.get("curves"):
        _curves(plt, learning["curves"])


def _curves(plt: Any, curves: Curves) -> None:
    chart, axes = plt.subplots(1, 2, figsize=(7.6, 2.8), sharey=True, layout="constrained")
    for plan, runs in curves.items():
        passed = np.array([[row["metrics/tests_passed"] for row in rows] for rows in runs.values()])
        executed = np.cumsum([[row["executions/count"] for row in rows] for rows in runs.values()], axis=1).mean(axis=0)
        for axis, x in zip(axes, (np.arange(1, passed.shape[1] + 1), executed), strict=True):
            axis.plot(x, passed.mean(axis=0), color=COLOURS[plan], label=plan)
            axis.fill_between(x, passed.min(axis=0), passed.max(axis=0), color=COLOURS[plan], alpha=0.15, linewidth=0)
    axes[0].set_xlabel("update (equal sampled tokens)")
    axes[1].set_xlabel("executions")
    axes[0].set_ylabel("hidden tests passed, training")
    axes[0].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.axhline(ENOUGH, color="#555555", linewidth=0.8, linestyle=":")
        axis.spines[["top", "right"]].set_visible(False)
    chart.savefig(CURVES, metadata={"Date": None})
