"""Keep the numbers of a run that the documentation tells: docs/runs/NAME.json.

    .venv/bin/python -m benchmarks.runs NAME 'symposium run -S environment=...'

They are those of the results in this checkout, which the command has made; stale ones are refused.  Minutes, and what
somebody has counted in the episodes, are added by hand.  The page's picture, docs/runs/NAME.png, is a screenshot of
``report/index.html``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from flows.report import about, tested_teams
from pipeline_lib import storage
from pipeline_lib.evaluation.episodes import EpisodeRecord, value_of
from pipeline_lib.settings import Params, load_params
from tasks.experiment.arms import RESULTS, TEAM, seeds_of, training_rows
from tasks.identity.files import refuse_stale

KEPT = Path("docs/runs")
DIGITS = 4


def numbers(params: Params, command: str) -> dict[str, Any]:
    """Return what the results say, figures with `DIGITS` digits.

    Raises:
        IdentityError: other code or settings than the present ones made them.
    """
    refuse_stale([(RESULTS / "verdict.json").as_posix()])
    verdict = storage.read_json(RESULTS / "verdict.json")
    selection = storage.read_json(RESULTS / "selection.json")[TEAM]["seeds"]
    metric, base = params.evaluate.metric, verdict["comparisons"]["base"]
    metrics = {
        team.name if team.seed is None else f"{team.name}, seed {team.seed}": means(team.episodes)
        for team in tested_teams(params)
    }
    found = {
        "command": command,
        "run": verdict["looks"]["history"][-1]["run"],
        "about": about(params).sentence(),
        "verdict": verdict["lines"],
        "caveats": [detail for caveat in verdict["caveats"] for detail in caveat["details"]],
        "price of the default": verdict["price_of_the_default"],
        "other runs": verdict["other_runs"],
        "comparisons": [compared(name, one) for name, one in verdict["comparisons"].items()],
        "in_words": [one["sentence"] for one in verdict["comparisons"].values()],
        "training_runs": [
            {"seed": one["seed"], "base": one["mean_b"], "selected": one["mean_a"], **interval(one["difference"])}
            for one in base["per_seed"]
        ],
        "metrics": metrics,
        "validation": {
            seed: {"selected": row["step"]} | {point["step"]: point["mean"] for point in row["curve"]}
            for seed, row in selection.items()
        },
        "learning": {
            f"{TEAM}-{seed}": [
                {
                    "step": row["step"],
                    "reward": row["reward/mean"],
                    metric: row[f"metrics/{metric}"],
                    "seconds": row["time/step_s"],
                    "resident (MB)": row["memory/resident_mb"],
                }
                for row in training_rows(TEAM, seed)
            ]
            for seed in seeds_of(params, TEAM)
        },
        "audit": storage.read_json(RESULTS / "audit.json")["summary"],
        "looks": {key: verdict["looks"][key] for key in ("number", "count")},
    }
    rounded: dict[str, Any] = round_all(found)
    return rounded


def compared(name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a comparison of the selected team."""
    return {
        "against": name,
        "mean": one["means"][1]["value"],
        "selected": one["means"][0]["value"],
        **interval(one["difference"]),
        "p (Holm)": one["p_adjusted"],
        "Hedges' g": one["effect"]["g"],
        "detectable": one["detectable"],
        "problems for the margin": one["problems_for_margin"],
        "verdict": one["verdict"],
    }


def interval(test: Mapping[str, Any]) -> dict[str, Any]:
    """Return a difference with its bounds."""
    return {"difference": test["estimate"], "low": test["low"], "high": test["high"]}


def means(episodes: Iterable[EpisodeRecord]) -> dict[str, float]:
    """Return the means of the reward and of every metric."""
    played = [record for record in episodes if record.reward is not None]
    names = ["reward", *(played[0].metrics if played else ())]
    values = {name: [value_of(record, name) for record in played] for name in names}
    return {name: fmean(there) for name, found in values.items() if (there := [v for v in found if v is not None])}


def round_all(value: Any) -> Any:
    """Return a value of JSON with all its figures rounded."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: round_all(inner) for key, inner in value.items()}
    return [round_all(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the files in docs/runs, without their endings")
    parser.add_argument("command", help="that has made the results")
    given = parser.parse_args()
    path = KEPT / f"{given.name}.json"
    storage.write_json(path, numbers(load_params(), given.command))
    print(path)


if __name__ == "__main__":
    main()
