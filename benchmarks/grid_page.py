"""The tables and the figure of the calibration over a grid, from the numbers that calibration_grid.py measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from pipeline_lib.evaluation.evidence import wilson

RESULTS = Path(__file__).parent / "results" / "calibration-grid.md"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "calibration-grid.svg"
MEANINGS = {
    "normal": "normal differences",
    "skew": "fractions of tests passed, mostly all or nothing, 30 % on average in both teams",
    "floor": "the same, 6 % in both",
    "ceiling": "the same, 99 % in both",
    "gain": "the same, 20 % before and 80 % after",
    "rare gain": "the same, 96 % before and 99 % after: few families show anything",
    "lopsided": "most families lose a little, some gain much, nothing on average",
    "lognormal": "a metric with another range: lognormal family differences (sigma 1), of which the greatest in a "
    "hundred are cut off at the end of the range; nothing on average",
    "very lognormal": "the same, sigma 2",
    "Pareto": "the same, Pareto (index 3)",
    "heavy Pareto": "the same, Pareto (index 1.5: no variance)",
    "one in ten": "fractions of tests passed: one family in ten loses 90 points, the others gain as much together",
    "one in twenty": "the same, but one family in twenty gains 90 points and the others lose as much together",
    "one in a hundred, no range": "a metric without a declared range: one family in a hundred gains what the others "
    "lose, five points each",
    "lost": "fractions of tests passed by equal teams; the first lost 3 % of its episodes, its worst ones",
}
RATES = (("wrong", "wrong IMPROVED or WORSE"), ("equivalent", "wrong EQUIVALENT"), ("covers", "interval covers"))


def write(result: Mapping[str, Any]) -> None:
    """Write benchmarks/results/calibration-grid.md and its figure."""
    cells = result["cells"]
    figure(cells, FIGURE)
    RESULTS.write_text(
        TEXT.format(
            seconds=result["seconds"],
            runs=result["runs"],
            shapes="\n".join(f"| {name} | {meaning} |" for name, meaning in MEANINGS.items()),
            worst=_worst(cells),
            student=_worst([{**cell, **cell["student"]} for cell in cells]),
            more=100 * (_quantiles(0.025) / _quantiles(0.05) - 1),
            outside=_outside(cells),
            power="\n".join(_power_rows(result["power"])),
            table="\n".join(_rows(cells)),
        ),
        encoding="utf-8",
    )


def _worst(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return for each word the worst design, and those that are certainly above 5 %, a line each."""
    lines = []
    for key, label in RATES[:2]:
        spread = {_name(cell): wilson(round(cell[key] * cell["tests"]), cell["tests"]) for cell in cells}
        worst = max(cells, key=lambda cell: cell[key])
        limits = spread[_name(worst)]
        assert limits.low is not None and limits.high is not None
        certain = [name for name, found in spread.items() if found.low is not None and found.low > 0.05]
        lines.append(
            f"- {label}: at worst {100 * worst[key]:.1f} % (Monte Carlo {100 * limits.low:.1f} to "
            f"{100 * limits.high:.1f}), {_name(worst)}; certainly above 5 % in {len(certain)} of {len(cells)} designs"
            f"{': ' if certain else ''}{'; '.join(certain)}"
        )
    return "\n".join(lines)


def _quantiles(tail: float) -> float:
    """Return what the number of families is proportional to that finds equivalence of equal teams in 80 % of tests."""
    return float(stats.norm.isf(tail) + stats.norm.isf(0.1)) ** 2


def _outside(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the designs whose intervals certainly cover less than 93 or more than 97 %, a line each."""
    lines = []
    for cell in cells:
        if cell["covers"] is None or cell["given"] < 50:
            continue
        limits = wilson(round(cell["covers"] * cell["given"]), cell["given"])
        assert limits.low is not None and limits.high is not None
        if limits.high < 0.93 or limits.low > 0.97:
            lines.append(f"- {_name(cell)}: {100 * cell['covers']:.1f} % of {cell['given']:,}")
    return "\n".join(lines) or "- none"


def _name(cell: Mapping[str, Any]) -> str:
    runs = f", {cell['runs']} training run{'s' if cell['runs'] > 1 else ''}"
    return f"{cell['shape']}, {cell['families']} {'equal' if cell['equal'] else 'unequal'} families{runs}"


def _power_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {(row["families"], row["equal"], row["others"]): row["power"] for row in rows}
    beside = {(row["families"], row["equal"]): row for row in rows}
    return [
        f"| {count} {'equal' if equal else 'unequal'} | {100 * found[count, equal, 'nothing']:.1f} % | "
        f"{100 * found[count, equal, 'clear']:.1f} % | {100 * beside[count, equal]['silent']:.0f} % | "
        f"{100 * beside[count, equal]['price']:.0f} % |"
        for count, equal in dict.fromkeys((row["families"], row["equal"]) for row in rows)
    ]


def _rows(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"| {cell['shape']} | {cell['families']} {'equal' if cell['equal'] else 'unequal'} | {cell['runs']} | "
        f"{100 * cell['wrong']:.1f} % | {100 * cell['equivalent']:.1f} % | {_covers(cell)} | "
        f"{100 * cell['silent']:.0f} % |"
        for cell in cells
    ]


def _covers(cell: Mapping[str, Any]) -> str:
    """Return the coverage; of fewer than 50 intervals none that means something."""
    return "-" if cell["given"] < 50 else f"{100 * cell['covers']:.1f} %"


def figure(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw error rates and coverage over the number of families, a row of panels per shape."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 8})
    shapes = list(MEANINGS)
    counts = sorted({cell["families"] for cell in cells})
    chart, axes = plt.subplots(len(shapes), 3, figsize=(7.2, 1.5 * len(shapes)), layout="constrained", sharex=True)
    for row, shape in zip(axes, shapes, strict=True):
        for axis, (key, label) in zip(row, RATES, strict=True):
            low, high = (93, 97) if key == "covers" else (0, 5)
            axis.axhspan(low, high, color="#dfe6ed", zorder=0)
            for equal, colour in ((True, "#0b5394"), (False, "#b45f06")):
                for runs, line in ((1, "-"), (3, "--"), (8, ":")):
                    points = [
                        (counts.index(cell["families"]), 100 * cell[key])
                        for cell in cells
                        if (cell["shape"], cell["equal"], cell["runs"]) == (shape, equal, runs)
                        and (key != "covers" or cell["given"] >= 50)
                    ]
                    axis.plot(
                        *zip(*points, strict=True), line, marker="o", markersize=3, color=colour
                    ) if points else None
            least = min(
                (cell["covers"] or 1.0 for cell in cells if cell["shape"] == shape and cell["given"] >= 50), default=1
            )
            most = max(cell[label] for cell in cells if cell["shape"] == shape for label in ("wrong", "equivalent"))
            axis.set_ylim(*((85 if least > 0.85 else 0, 100) if key == "covers" else (0, 12 if most < 0.12 else 100)))
            axis.set_xticks(range(len(counts)), counts)
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_title(f"{shape}: {label}", loc="left", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("families (blue: equal, brown: unequal; dashed: 3 runs, dotted: 8)")
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, metadata={"Date": None})
    plt.close(chart)


TEXT = """# Are verdicts correct with 3 to 100 families?

Made by `python -m benchmarks.calibration_grid` ({seconds:,} CPU seconds), {runs:,} simulated tests per design. A
design is a shape of the differences, a number of families of 128 to 400 problems, their sizes (equal, or in proportions
drawn from a Dirichlet distribution of 1.5, so that one family may have half of the problems), and a number of training
runs, whose mean is compared with one base. All rates are those of the product's own verdict. With this number of tests,
a design with 5 % errors shows 3.7 to 6.5 %; one that shows more than 5 % is measured again with eight times as many.

| shape | what it is |
|---|---|
{shapes}

## Results

A verdict is wrong if it is IMPROVED or WORSE for teams without a difference (or in the wrong direction), or EQUIVALENT
for teams that differ by exactly the margin, five points:

{worst}

With few families, or few families that show a difference, the verdict says so and has no interval (the last column of
the table below). This keeps the verdicts correct there. If there is an interval, it covers between 93 and 97 % within
the precision of this number of tests, with these exceptions:

{outside}

Coverage above 97 %: the families differ much in size, or most show no difference; the degrees of freedom are then
conservative. Coverage below 93 %: a few families gain (or lose) much more than the others, and so few families were
evaluated that those may be missing. A kind of family that is rarer than one in G / 3 is missing from G families in more
than 5 % of cases, and no method can detect it (tried: t, CR2 with four kinds of degrees of freedom, sign flips, wild
cluster bootstrap, Hall's transformed t). So a verdict is given only if it holds whatever such a kind would show;
else it is INCONCLUSIVE. Without this rule half of the verdicts on 10 families of "one in twenty" are wrong.

A metric with another declared range is a share in another unit, so the same rule serves it: the wider the range, the
more families a verdict needs.

**Without a declared range the verdict is INCONCLUSIVE**, always, since nothing bounds what a missing kind of family
shows (Bahadur and Savage 1956). In the design "no range" most samples lack the kind; p values and intervals are wrong
as often as the tables say. If the range of the values that were seen stood for the declared one, up to 73 % of the
verdicts would be wrong there.

## Why these rules

With skewed differences Student's t test is wrong on one side. Without the widening of limits, and with the same rule
for too few families, it would be wrong more often:

{student}

EQUIVALENT, which depends on one tail only, suffers most. Moving a limit outwards by the shift that follows from the
observed skewness corrects most of this. The skewness that is seen in few families is too small: 8, 12 and 24
exponential families show 53, 61 and 75 % of theirs on average, which 1 + 7 / df corrects. Limits are moved by one and a
half times the shift so corrected. In addition, EQUIVALENT requires the whole 95 % interval within the margin, not only
the 90 % interval of two tests at 5 % each. The price: if differences are in fact symmetric, the detectable difference
is greater (in part the last column of the next table), and showing that there is none needs {more:.0f} % more families.

![error rates and coverage over the number of families](../../docs/figures/calibration-grid.svg)

## Power in a family of six

The true difference is the one that is promised with 80 % power after the correction (`detectable`); differences are
normal. The five other comparisons show nothing, or are significant after any correction. The rates count only tests
that are made; without a test, nothing is promised. The price is how much greater the difference has to be than for
Student's t (the others being clear), for skewness and for kinds of family that may be missing.

| families | others show nothing | others are clear | no test | price |
|---|---|---|---|---|
{power}

## All designs

| shape | families | runs | wrong IMPROVED or WORSE | wrong EQUIVALENT | interval covers | no test |
|---|---|---|---|---|---|---|
{table}
"""
