"""The tables of the shipped studies, from the numbers in docs/studies; writes benchmarks/results/studies.md.

.venv/bin/python -m benchmarks.studies
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.environment_api.metrics import Metric

KEPT = Path(__file__).parents[1] / "docs/studies"
DOC = Path(__file__).parent / "results/studies.md"
PASSED = Metric("hidden tests passed", share=True)
HEAD = """# Studies that were run

Written by `python -m benchmarks.studies` from the numbers beside the figures; what it means:
[docs/studies.md](../../docs/studies.md). Hidden tests passed with 95 % intervals; comparisons are over training runs
and problems together, p is Holm's. Updates are those until 90 % of the hidden tests of training problems pass, of
each training run.
"""


def document() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(study(path) for path in sorted(KEPT.glob("*.json")))])


def study(path: Path) -> str:
    """Return question, plan, cells and comparisons of a study."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    against = {contrast["cells"][0][0]: contrast for contrast in kept["contrasts"] if len(contrast["cells"][0]) == 1}
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
            f"| cell | base | hidden tests passed | against {kept['contrasts'][0]['cells'][1][0]} | updates "
            "| joint actions executed |\n|---|---:|---|---|---|---:|",
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


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
