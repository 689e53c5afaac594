"""An orchestrated team against fixed roles, on programs of three files and at equal tokens.

``python -m benchmarks.orchestration`` trains teams with fixed roles as ``environment=modules`` says, and orchestrated
ones (``environment=modules-orchestrated``) until they have sampled as many tokens in training as the one of the same
seed.  Each is played on held-out problems.  Finished runs are kept in ``benchmarks/results/orchestration.json``, and
shown in ``benchmarks/results/orchestration.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.modules import SAMPLES, measure, settings
from pipeline_lib.training.budget import Budget

RESULTS = Path("benchmarks/results/orchestration.json")
FIXED, ORCHESTRATED = "modules", "modules-orchestrated"
MODULES = 3


def keep(row: Mapping[str, Any]) -> None:
    """Add a row to the results, in place of an older one of the same run."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [other for other in known if (other["team"], other["seed"]) != (row["team"], row["seed"])]
    rows.append({name: value for name, value in row.items() if name != "curve"})
    RESULTS.write_text(json.dumps(sorted(rows, key=lambda one: (one["team"], one["seed"])), indent=1) + "\n")


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Modules: an orchestrated team and fixed roles at equal tokens",
        "",
        "Written by `python -m benchmarks.orchestration`; what it means:",
        "[docs/modules.md](../../docs/modules.md#orchestrated-teams). Shares of 128 held-out problems of level 1 with",
        f"{MODULES} files, {SAMPLES} episodes each. An orchestrated team is trained until it has used as many tokens",
        "as the team with fixed roles and the same seed. *One way*: hand-outs that tell the same way of every file.",
        "",
        "| team | seed | updates | tokens of training | tokens of an episode | system tests, base | trained "
        "| unit tests, base | trained | one way, base | trained |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [f"{row['updates']}", f"{row['tokens']:,.0f}", f"{row['after']['tokens']:.0f}"]
        for name in ("system_passed", "units_passed", "tells_one_way"):
            cells += [f"{100 * row[when][name]:.1f} %" if name in row[when] else "" for when in ("before", "after")]
        lines.append(f"| {row['team']} | {row['seed']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        budgets: dict[int, Budget | None] = dict.fromkeys(options.seeds)
        for team in (FIXED, ORCHESTRATED):
            params = settings(MODULES, Path(folder), team)
            for row in measure(params, budgets, Path(folder, team)):
                budgets[row["seed"]] = Budget("tokens", row["tokens"])
                keep({"team": team, "updates": len(row["curve"]), **row})
                RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
