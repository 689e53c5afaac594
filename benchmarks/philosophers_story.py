"""The figures and tables of docs/philosophers.md, drawn from runs of the chain.

    python -m benchmarks.philosophers_story shared=FOLDER separate=FOLDER teaching=FOLDER

Each FOLDER is a copy of the project in which an experiment was run: ``dvc exp run -S environment=philosophers``, the
same with ``-S policy.parameters=separate``, and with ``-S environment=philosophers-teaching -S audit.override=...``.
The figure of larger tables is drawn from what `benchmarks.philosophers_curriculum` measured.  Figures go to
docs/figures/, tables are printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.philosophers_curriculum import OUTPUT as TABLES
from pipeline_lib import storage
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.report.style import BLUE, GREEN, GREY, ORANGE, RED, Table, end_labels, figure, percent

FIGURES = Path("docs/figures")
COLOURS = {"shared": BLUE, "separate": GREEN, "teaching": RED}
ARMS = {"base": GREY, "five": ORANGE, "direct": BLUE, "curriculum": GREEN}
METRICS = ("deadlock", "meals_share", "fairness", "minimum_share", "reward")

Rows = list[dict[str, float]]


def training(folder: Path) -> dict[str, Rows]:
    """Return the metrics of every update, by run."""
    files = sorted((folder / "results" / "train").glob("team-*.jsonl"))
    if not files:
        raise SystemExit(f"{folder}: no training run lies there")
    return {path.stem: list(storage.read_jsonl(path)) for path in files}


def tested(folder: Path) -> dict[str, dict[str, float]]:
    """Return the means of `METRICS` on the held-out split, by tested team."""
    found = {}
    for path in sorted((folder / "results" / "test").rglob("*.jsonl")):
        episodes = [EpisodeRecord.from_json(row) for row in storage.read_jsonl(path)]
        name = str(path.relative_to(folder / "results" / "test").with_suffix(""))
        found[name] = {
            metric: mean(e.reward or 0.0 if metric == "reward" else e.metrics[metric] for e in episodes)
            for metric in METRICS
        }
    return found


def curves(axes: Axes, runs: dict[str, dict[str, Rows]], metric: str, title: str) -> None:
    """Draw a metric over updates: a thin line per seed, a thick one for their mean."""
    ends = []
    for name, seeds in runs.items():
        every = [[row[metric] for row in rows] for rows in seeds.values()]
        steps = [int(row["step"]) for row in next(iter(seeds.values()))]
        colour = COLOURS.get(name, GREY)
        for values in every:
            axes.plot(steps, values, color=colour, linewidth=0.6, alpha=0.45)
        thick = [mean(column) for column in zip(*every, strict=True)]
        axes.plot(steps, thick, color=colour)
        ends.append((thick[-1], name, colour))
    axes.set(title=title, xlabel="update", ylim=(0, 1.02))
    percent(axes.yaxis)
    end_labels(axes, ends, axes.get_xlim()[1])


def write(name: str, title: str, painter: Any, size: tuple[float, float]) -> None:
    """Write one figure, on white, because documents are read on dark pages too."""
    drawn = figure(name, title, "", painter, Table((), ()), (size[1], 3.1), size[0]).wide
    head, rest = drawn.split(">", 1)
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / f"{name}.svg").write_text(f'{head}><rect width="100%" height="100%" fill="white"/>{rest}\n')


def draw_training(runs: dict[str, dict[str, Rows]]) -> None:
    """Draw deadlocks and meals of all runs while they learn."""

    def paint(canvas: Canvas, _: bool) -> None:
        left, right = canvas.subplots(1, 2)
        curves(left, runs, "metrics/deadlock", "Episodes that end in deadlock")
        curves(right, runs, "metrics/meals_share", "Meals, of the exact optimum")

    write("philosophers-training", "Deadlocks and meals while learning", paint, (8.4, 3.0))


def draw_teaching(runs: dict[str, Rows]) -> None:
    """Draw reward and meals of the run with the vacuous reward."""

    def paint(canvas: Canvas, _: bool) -> None:
        axes = canvas.subplots()
        ends = []
        for metric, name, colour in (("reward/mean", "reward", RED), ("metrics/meals_share", "meals", BLUE)):
            every = [[row[metric] for row in rows] for rows in runs.values()]
            for values in every:
                axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=0.6, alpha=0.45)
            thick = [mean(column) for column in zip(*every, strict=True)]
            axes.plot(range(1, len(thick) + 1), thick, color=colour)
            ends.append((thick[-1], name, colour))
        axes.set(title="The teaching reward: paid in full for nothing", xlabel="update", ylim=(0, 1.05))
        percent(axes.yaxis)
        end_labels(axes, ends, axes.get_xlim()[1])

    write("philosophers-teaching", "Reward rises while meals vanish", paint, (5.2, 2.8))


def draw_tables(rows: list[dict[str, Any]]) -> None:
    """Draw meals on larger tables: a dot per seed, a bar at the mean, arm by arm."""
    sizes = sorted({row["philosophers"] for row in rows})

    def paint(canvas: Canvas, _: bool) -> None:
        for axes, n in zip(canvas.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True):
            for place, (arm, colour) in enumerate(ARMS.items()):
                values = [row["meals_share"] for row in rows if row["philosophers"] == n and row["arm"] == arm]
                axes.bar(place, mean(values), color=colour, alpha=0.3, width=0.6)
                axes.plot([place] * len(values), values, "o", color=colour, markersize=4)
            axes.set_xticks(range(len(ARMS)), list(ARMS))
            axes.set(title=f"{n} philosophers", ylim=(0, 1))
            percent(axes.yaxis)

    write("philosophers-tables", "Meals on larger tables by way of training", paint, (8.0, 2.8))


def print_tables(folders: dict[str, Path], rows: list[dict[str, Any]]) -> None:
    """Print what the document's tables say."""
    for name, folder in folders.items():
        teams = tested(folder)
        print(f"\n{name}\n| team | " + " | ".join(METRICS) + " |")
        for team, values in teams.items():
            print(f"| {team} | " + " | ".join(f"{values[metric]:.3f}" for metric in METRICS) + " |")
    for n in sorted({row["philosophers"] for row in rows}):
        print(f"\n{n} philosophers")
        for arm in ARMS:
            mine = [row for row in rows if row["philosophers"] == n and row["arm"] == arm]
            numbers = (
                f"{metric} {[row[metric] for row in mine]}" for metric in ("deadlock", "meals_share", "fairness")
            )
            print(f"  {arm}: {', '.join(numbers)}")


def main() -> None:
    """Draw and print whatever the folders on the command line hold."""
    folders = {name: Path(folder) for name, _, folder in (word.partition("=") for word in sys.argv[1:])}
    if unknown := set(folders) - set(COLOURS):
        raise SystemExit(f"{', '.join(sorted(unknown))}: name runs {', '.join(COLOURS)}, as in shared=FOLDER")
    runs = {name: training(folder) for name, folder in folders.items()}
    if runs:
        draw_training(runs)
    if "teaching" in runs:
        draw_teaching(runs["teaching"])
    rows: list[dict[str, Any]] = storage.read_json(TABLES) if TABLES.exists() else []
    if rows:
        draw_tables(rows)
    print_tables(folders, rows)


if __name__ == "__main__":
    main()
