"""The tables of the shipped studies, from the numbers in docs/studies; writes benchmarks/results/studies.md.

.venv/bin/python -m benchmarks.studies [--keep studies/NAME]

`--keep` first takes numbers and figure of a study that was run in this checkout into docs/studies.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metric
from tasks.chain.study import cell_folder

KEPT = Path(__file__).parents[1] / "docs/studies"
DOC = Path(__file__).parent / "results/studies.md"
PASSED = Metric("hidden tests passed", share=True)
SHARES, WINDOW = (0.5, 0.9), 5
HEAD = """# Studies that were run

Written by `python -m benchmarks.studies` from the numbers beside the figures; what it means:
[docs/studies.md](../../docs/studies.md). The metric with 95 % intervals; comparisons are over training runs and
problems together, p is Holm's. Updates are those until 90 % of the metric on training problems, of each training run.
"""


def document() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(study(path) for path in sorted(KEPT.glob("*.json")))])


def study(path: Path) -> str:
    """Return question, plan, cells and comparisons of a study."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    against = {contrast["cells"][0][0]: contrast for contrast in kept["contrasts"] if len(contrast["cells"][0]) == 1}
    label, reference = kept.get("label", PASSED.label), kept["contrasts"][0]["cells"][1][0]
    rows = [_row(name, cell, against.get(name)) for name, cell in kept["cells"].items()]
    together = [
        f"\n{contrast['name'].capitalize()}: {_difference(contrast)}."
        for contrast in kept["contrasts"]
        if len(contrast["cells"][0]) > 1
    ]
    return "\n".join(
        [
            f"## {path.stem}\n\n{kept['question']} {kept['plan']} Problems: {kept['design']['problems']}.",
            f"([Numbers](../../docs/studies/{path.name}), [figure](../../docs/studies/{path.stem}.svg).)\n",
            f"| cell | base | {label} | against {reference} | updates | joint actions executed |",
            "|---|---:|---|---|---|---:|",
            *rows,
            *together,
            "",
        ]
    )


def _row(name: str, cell: Mapping[str, Any], contrast: Mapping[str, Any] | None) -> str:
    mean = cell["mean"]
    passed = f"{PASSED.text(mean['value'])} ({PASSED.text(mean['low'])} to {PASSED.text(mean['high'])})"
    updates = ", ".join("never" if one is None else str(one) for one in cell.get("updates_to_90_percent", ()))
    executed = cell["end_of_training"].get("executed joint actions")
    cells = (name, PASSED.text(cell["base"]), passed, _difference(contrast) if contrast else "", updates)
    return f"| {' | '.join(cells)} | {f'{executed:,}' if executed else ''} |"


def _difference(contrast: Mapping[str, Any]) -> str:
    test, p = contrast["test"], contrast["p_adjusted"]
    estimate, low, high = (PASSED.difference(test[key]).removesuffix(" points") for key in ("estimate", "low", "high"))
    return f"{contrast['verdict']}: {estimate} ({low} to {high}), {'p < 1e-6' if p < 1e-6 else f'p = {p:.2g}'}"


def keep(folder: Path) -> None:
    """Take a study's numbers, and its figure of the test problems, into docs/studies."""
    kept = storage.read_json(folder / "study.json")
    for name, cell in kept["cells"].items():
        files = sorted((cell_folder(folder.name, name) / "train").glob("*.jsonl"))
        runs = [list(storage.read_jsonl(file)) for file in files]
        executed = round(sum(row["executions/count"] for run in runs for row in run) / len(runs))
        cell["end_of_training"] = {"executed joint actions": executed}
        values = [[row[f"metrics/{kept['metric']}"] for row in run] for run in runs]
        cell |= {
            f"updates_to_{round(100 * share)}_percent": [updates(run, share) for run in values] for share in SHARES
        }
    drawn = re.search(
        r'<svg [^>]*aria-label="On the test problems".*?</svg>',
        (folder / "index.html").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    if drawn is None:
        raise ValueError(f"{folder / 'index.html'} has no figure")
    storage.write_json(KEPT / f"{folder.name}.json", kept)
    storage.write_text(KEPT / f"{folder.name}.svg", drawn[0])


def updates(values: Sequence[float], share: float) -> int | None:
    """Return the first update at which the mean of `WINDOW` is at least ``share``, or None."""
    means = (sum(values[end - WINDOW : end]) / WINDOW for end in range(WINDOW, len(values) + 1))
    return next((end for end, mean in enumerate(means, WINDOW) if mean >= share), None)


def main() -> None:
    """Keep a study if one is named, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="the folder of a study that was run in this checkout")
    if folder := parser.parse_args().keep:
        keep(folder)
    DOC.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
