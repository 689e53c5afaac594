"""The numbers behind every figure, as tables; the page shows them, and `write_plots` stores them for ``dvc plots``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import Figure, Table


def step_series(
    train: Mapping[int, Sequence[Mapping[str, float]]], name: str
) -> tuple[list[int], list[list[float | None]]]:
    """Return the steps of all seeds and, per step, the value of each seed (None where it has none)."""
    values = {seed: {int(row["step"]): float(row[name]) for row in rows if name in row} for seed, rows in train.items()}
    steps = sorted({step for found in values.values() for step in found})
    return steps, [[values[seed].get(step) for seed in sorted(values)] for step in steps]


def learning(data: ReportData) -> Table:
    """Reward and primary metric of every training step: the mean over seeds, then each seed, then baselines' seeds."""
    names = {"reward": "reward/mean"}
    if data.metric != "reward":
        names[data.metric] = f"metrics/{data.metric}"
    columns: dict[str, dict[int, float]] = {}
    for title, name in names.items():
        columns[title] = _means(data.train, name)
    for team, train in {"": data.train, **data.baseline_train}.items():
        for title, name in names.items():
            for seed, rows in sorted(train.items()):
                column = f"{title} {team} seed {seed}".replace("  ", " ")
                columns[column] = {int(row["step"]): float(row[name]) for row in rows if name in row}
    return _by_step({title: values for title, values in columns.items() if values})


def sweep(data: ReportData) -> Table:
    """Validation mean of every checkpoint, with pointwise interval and band; then the mean over seeds."""
    columns = ("seed", "step", "mean", "low", "high", "band low", "band high", "selected")
    rows: list[list[Any]] = []
    if base := data.selection.get("base"):
        rows.append(["base", 0, *limits(base, data.info), ""])
    for seed, chosen in data.selection["seeds"].items():
        for point in chosen["curve"]:
            mark = "selected" if point["step"] == chosen["step"] else "last" if point["step"] == chosen["last"] else ""
            rows.append([str(seed), point["step"], *limits(point, data.info), mark])
    rows += [["mean over seeds", point["step"], *limits(point, data.info), ""] for point in data.selection["curve"]]
    return Table(columns, rows)


def sweep_curve(data: ReportData) -> Table:
    """Validation mean over seeds at every step with interval and band, the base at step 0, then each seed's mean."""
    seeds = {seed: {p["step"]: p["mean"] for p in found["curve"]} for seed, found in data.selection["seeds"].items()}
    points = [*([data.selection["base"]] if data.selection.get("base") else []), *data.selection["curve"]]
    rows = [[p["step"], *limits(p, data.info), *(found.get(p["step"]) for found in seeds.values())] for p in points]
    return Table(("step", "mean", "low", "high", "band_low", "band_high", *(f"seed {seed}" for seed in seeds)), rows)


def checkpoint_metrics(data: ReportData) -> Table:
    """Shares of every checkpoint on the validation split, mean over training seeds; other units need another axis."""
    every = [metrics for by_step in data.sweep.values() for metrics in by_step.values()]
    common = set.intersection(*(set(metrics) for metrics in every)) if every else set()
    names = [
        name for name, metric in data.metrics.items() if metric.over_checkpoints and metric.share and name in common
    ]
    steps = sorted({step for by_step in data.sweep.values() for step in by_step})
    rows: list[list[Any]] = []
    for step in steps:
        present = [by_step[step] for by_step in data.sweep.values() if step in by_step]
        rows.append([step, *(sum(metrics[name] for metrics in present) / len(present) for name in names)])
    return Table(("step", *names), rows)


def effects(comparisons: Mapping[str, Mapping[str, Any]]) -> Table:
    """Difference of each comparison (as JSON), with interval, effect size and verdict."""
    columns = ("against", "difference", "low", "high", "p (Holm)", "Hedges' g", "P(better)", "verdict")
    rows = []
    for name, c in comparisons.items():
        difference = [c["difference"][key] for key in ("estimate", "low", "high")]
        rows.append([name, *difference, c["p_adjusted"], c["effect"]["g"], c["improvement"]["value"], c["verdict"]])
    return Table(columns, rows)


def problems(data: ReportData) -> Table:
    """Primary metric of every test problem before and after, in order of the base's."""
    rows = [
        # Means over episodes in another order differ by rounding.
        [name, values["base"], values["selected"], round(values["selected"] - values["base"], 9)]
        for name, values in data.verdict["problems"].items()
        if "base" in values and "selected" in values
    ]
    rows.sort(key=lambda row: (row[1], row[2], row[0]))
    return Table(("problem", "base", "selected", "difference"), rows)


def terms(data: ReportData) -> Table:
    """Each reward term at every training step, mean over seeds."""
    names = sorted({key for rows in data.train.values() for row in rows for key in row if key.startswith("terms/")})
    return _mean_over_seeds(data, {name.removeprefix("terms/"): name for name in names})


def behaviour(data: ReportData) -> Table:
    """Behaviour metrics of base and selected team on the test split."""
    before, after = (data.verdict["teams"][team]["metrics"] for team in ("base", "selected"))
    return Table(
        ("metric", "base", "selected"),
        [
            [name, before[name], after[name]]
            for name, metric in data.metrics.items()
            if metric.behaviour and name in before and name in after
        ],
    )


def schemes(data: ReportData) -> Table:
    """Share of test episodes that show each cooperation scheme, by team."""
    teams = {name: data.verdict["teams"][name]["schemes"] for name in ("base", "selected")}
    names = sorted({scheme for found in teams.values() for scheme in found})
    return Table(("scheme", *teams), [[name, *(found.get(name, 0.0) for found in teams.values())] for name in names])


def lengths(data: ReportData) -> Table:
    """Mean length of an action and the share cut off at every training step, mean over seeds."""
    names = {"tokens per action": "actions/length_mean", "share cut off": "actions/truncated_share"}
    return _mean_over_seeds(data, names)


#: What is known of each policy by itself at every training step: title and name in the log.
OF_POLICIES = {
    "tokens per action": "actions/length_mean",
    "entropy per token (nats)": "actions/entropy",
    "gradient norm": "update/gradient_norm",
}


def policies(data: ReportData) -> list[str]:
    """Return the names of the policies that were trained, as the log has them."""
    head = f"{OF_POLICIES['gradient norm']}/"
    names = {key.removeprefix(head) for rows in data.train.values() for row in rows for key in row if head in key}
    return sorted(names)


def by_policy(data: ReportData) -> Table:
    """What is known of each policy by itself at every training step, mean over seeds."""
    of = policies(data)
    return _mean_over_seeds(
        data, {f"{title}: {one}": f"{name}/{one}" for title, name in OF_POLICIES.items() for one in of}
    )


#: How near advantages were to the true ones, for each agent: title and name in the log.
FIDELITY = {"correlation": "fidelity/correlation", "same sign": "fidelity/sign"}


def measured_agents(data: ReportData) -> list[str]:
    """Return the agents whose advantages were compared with the true ones."""
    names = {key for rows in data.train.values() for row in rows for key in row}
    return sorted({key.rpartition("/")[2] for key in names if key.startswith("fidelity/error/")})


def fidelity(data: ReportData) -> Table:
    """How near advantages were to the true ones where that was measured, by agent, mean over seeds."""
    parts = {**FIDELITY, "squared error": "fidelity/error", "truth's own": "fidelity/truth_error"}
    of = measured_agents(data)
    return _mean_over_seeds(data, {f"{title}: {one}": f"{name}/{one}" for title, name in parts.items() for one in of})


TIMES = {
    "sampling": "time/generation_s",
    "waiting for programs": "time/waiting_s",
    "update": "time/update_s",
    "new weights to the engine": "time/refresh_s",
}


def time_per_seed(data: ReportData) -> Table:
    """Seconds of each training run by what they were spent on."""
    rows = []
    for team, train in {"team": data.train, **data.baseline_train}.items():
        for seed in sorted(train):
            parts = [sum(float(row.get(name, 0.0)) for row in train[seed]) for name in TIMES.values()]
            total = sum(float(row.get("time/step_s", 0.0)) for row in train[seed])
            tokens = sum(float(row.get("actions/tokens", 0.0)) for row in train[seed])
            rows.append([f"{team}, seed {seed}", *parts, max(0.0, total - sum(parts)), total, int(tokens)])
    return Table(("run", *(f"{name} (s)" for name in TIMES), "other (s)", "all (s)", "tokens sampled"), rows)


def write_plots(data: ReportData, folder: Path, own: Sequence[Figure] = ()) -> list[Path]:
    """Write each table as CSV for ``dvc plots``, and the headline numbers as JSON; return the files.

    These are a file per table below (``learning.csv`` calls the primary metric ``primary``, whatever it is),
    ``terms/<term>.csv``, a file per figure of ``own`` (those that only this environment has), and ``headline.json``.
    """
    tables: dict[str, Callable[[ReportData], Table]] = {
        "learning": _learning_of_any_metric,
        "sweep": sweep_curve,
        "checkpoints": checkpoint_metrics,
        "effects": lambda data: effects(data.verdict["comparisons"]),
        "problems": problems,
        "behaviour": behaviour,
        "schemes": schemes,
        "lengths": lengths,
        "policies": by_policy,
        "time": time_per_seed,
    }
    wide = terms(data)
    files = {name: make(data) for name, make in tables.items()}
    files |= {
        f"terms/{name}": Table(("step", "reward"), [[row[0], row[number]] for row in wide.rows])
        for number, name in enumerate(wide.columns)
        if number
    }
    files |= {figure.id: figure.table for figure in own}
    for name, table in files.items():
        storage.write_text(folder / f"{name}.csv", _csv(table))
    base = data.verdict["comparisons"]["base"]
    means = {name: mean["value"] for name, mean in zip(("selected", "base"), base["means"], strict=True)}
    headline = {"verdict": data.verdict["verdict"], "metric": data.metric, "base": means["base"], **means}
    headline |= {name: data.verdict[name] for name in ("difference", "low", "high")}
    storage.write_json(folder / "headline.json", headline)
    return [*(folder / f"{name}.csv" for name in files), folder / "headline.json"]


def _learning_of_any_metric(data: ReportData) -> Table:
    """Return the table of learning with the primary metric's mean in a column whose name every environment has."""
    table = learning(data)
    return Table(tuple("primary" if name == data.metric != "reward" else name for name in table.columns), table.rows)


def _mean_over_seeds(data: ReportData, names: Mapping[str, str]) -> Table:
    """Return metrics of every training step, mean over seeds; ``names`` has the name in the log by title."""
    return _by_step({title: _means(data.train, name) for title, name in names.items()})


def _by_step(columns: Mapping[str, Mapping[int, float]]) -> Table:
    """Return a row for every step that some column has."""
    steps = sorted({step for values in columns.values() for step in values})
    return Table(("step", *columns), [[step, *(values.get(step) for values in columns.values())] for step in steps])


def _means(train: Mapping[int, Sequence[Mapping[str, float]]], name: str) -> dict[int, float]:
    """Return the mean over seeds by step."""
    present = ((step, [v for v in row if v is not None]) for step, row in zip(*step_series(train, name), strict=True))
    return {step: sum(values) / len(values) for step, values in present}


def limits(point: Mapping[str, Any], info: Metric) -> list[float | None]:
    """Return mean, interval and band of a checkpoint; limits beyond the metric's range are that of the range."""
    low = -math.inf if info.low is None else info.low
    high = math.inf if info.high is None else info.high
    found = (point[key] for key in ("mean", "low", "high", "band_low", "band_high"))
    return [None if value is None else min(max(value, low), high) for value in found]


def _csv(table: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in table.rows])
    return buffer.getvalue()
