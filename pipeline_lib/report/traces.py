"""Some test episodes in the form in which tracking records them as traces: ``traces.json`` beside the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metric, Metrics
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.verdict import BASE, SELECTED
from pipeline_lib.project import TRACES
from pipeline_lib.report.viewer import MOST_TEXT, TestedTeam, succeeded

#: Problems whose first episode is recorded, of the base and of the first selected team.
PROBLEMS = 8


def traced(run: str, teams: Sequence[TestedTeam], metric: str, info: Metric, metrics: Metrics) -> list[dict[str, Any]]:
    """Return the first episodes of base and selected team as JSON objects.

    Each has ``id`` (with a digest of its content), ``team``, ``problem``, ``sample``, ``tags``, ``actions`` (``agent``,
    ``turn`` from 0, ``prompt``, ``text``, ``tokens``, ``log_probability`` of the whole text, natural logarithm),
    ``result``, ``checks``, and ``feedback``: ``verdict`` (success, failure or lost), the reward with its terms, and the
    metrics.

    Args:
        run: name of the run.
        teams: those that were tested.
        metric, info, metrics: the primary metric, and all metrics of the environment.
    """
    first = [next((team for team in teams if team.name == name), None) for name in (BASE, SELECTED)]
    return [
        _told(run, team, record, metric, info, metrics)
        for team in first
        if team is not None
        for record in [record for record in team.episodes if record.sample == 0 and record.shown][:PROBLEMS]
    ]


def _told(
    run: str, team: TestedTeam, record: EpisodeRecord, metric: str, info: Metric, metrics: Metrics
) -> dict[str, Any]:
    shown = record.shown or {}
    success = succeeded(record, metric, info, [name for name, known in metrics.items() if known.solves])
    verdict = "lost" if success is None else "success" if success else "failure"
    seed = "" if team.seed is None else f" seed {team.seed}"
    told = {
        "team": f"{team.name}{seed}",
        "problem": record.problem,
        "sample": record.sample,
        "tags": {"team": team.name, "verdict": verdict, "problem": record.problem},
        "actions": _actions(shown),
        "result": str(shown.get("text", ""))[:MOST_TEXT],
        "checks": list(shown.get("checks", ())),
        "feedback": {
            **record.metrics,
            "verdict": verdict,  # also if a metric of the environment has this name
            **({} if record.reward is None else {"reward": record.reward}),
            **{f"reward: {name}": value for name, value in record.terms.items()},
        },
    }
    return {"id": storage.digest([run, told])[:24], **told}


def _actions(shown: Any) -> list[dict[str, Any]]:
    """Return every action of a transcript, in the order in which they were sampled."""
    actions = []
    for turn, sampled in enumerate(shown.get("sampled", ())):
        prompts = iter(shown["seen"][turn]) if "seen" in shown else None
        for agent, tokens, log_probability in sampled:
            if prompts is not None:
                read = next(prompts)
                prompt, text = "".join(part for _, part in read["prompt"]), read["answer"]
            else:
                place = shown["agents"].index(agent)
                prompt, text = shown["told"][place], shown["turns"][turn][place]
            actions.append(
                {
                    "agent": agent,
                    "turn": turn,
                    "prompt": prompt[:MOST_TEXT],
                    "text": text[:MOST_TEXT],
                    "tokens": tokens,
                    "log_probability": log_probability,
                }
            )
    return actions


def write_traces(
    run: str, teams: Sequence[TestedTeam], metric: str, info: Metric, metrics: Metrics, folder: Path
) -> None:
    """Write `traced` to the ``folder`` of the report."""
    storage.write_json(folder / TRACES, traced(run, teams, metric, info, metrics))
