"""All test episodes to read: a page with filters, and their texts in files beside it, loaded when they are needed.

The page works from a file and without a network.  ``episodes/index.js`` has a row per episode; ``episodes/<n>.js`` has
the texts of tested team n.  They are scripts because a page that is opened from a file may load no other data.
``traces.json`` beside the page has some test episodes in the form in which tracking records them as traces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metric, Metrics
from pipeline_lib.evaluation.episodes import EpisodeRecord, value_of
from pipeline_lib.evaluation.verdict import BASE, SELECTED
from pipeline_lib.project import TRACES
from pipeline_lib.report.text import harmless

PAGE, FOLDER = "episodes.html", "episodes"
TEMPLATES = Path(__file__).parent / "templates"
#: Longest text kept, in characters; longer ones are cut.
MOST_TEXT = 20_000


@dataclass(frozen=True, slots=True)
class TestedTeam:
    """Test episodes of one team with one set of weights."""

    __test__ = False  # pytest would collect it by its name

    name: str  #: the team, as the verdict names it
    seed: int | None  #: training seed, or None if it was not trained
    step: int | None  #: number of updates, or None
    episodes: Sequence[EpisodeRecord]  #: all of them


def link(team: str) -> str:
    """Return the address of a team's episodes."""
    return f"{PAGE}#team={team.replace(' ', '%20')}"


def write_viewer(
    title: str, teams: Sequence[TestedTeam], metric: str, info: Metric, metrics: Metrics, folder: Path
) -> None:
    """Write the page and its data to the ``folder`` of the report; nothing if there are no teams."""
    if not teams:
        return
    problems = sorted({record.problem for team in teams for record in team.episodes})
    place = {problem: number for number, problem in enumerate(problems)}
    families = {record.problem: record.family for team in teams for record in team.episodes}
    solving = [name for name, known in metrics.items() if known.solves]
    index = {
        "title": title,
        "metric": {"label": info.label, "share": info.share},
        "base": next((number for number, team in enumerate(teams) if team.name == BASE), None),
        "problems": problems,
        "families": [families[problem] for problem in problems],
        "teams": [
            {
                "name": team.name,
                "seed": team.seed,
                "step": team.step,
                "rows": [[place[r.problem], r.sample, *_numbers(r, metric, info, solving)] for r in team.episodes],
            }
            for team in teams
        ],
    }
    _write_script(folder / FOLDER / "index.js", "index", index)
    for number, team in enumerate(teams):
        _write_script(folder / FOLDER / f"{number}.js", f"texts[{number}]", [_told(record) for record in team.episodes])
    storage.write_text(folder / PAGE, (TEMPLATES / "episodes.html").read_text(encoding="utf-8"))


def _numbers(record: EpisodeRecord, metric: str, info: Metric, solving: Sequence[str]) -> list[Any]:
    """Return reward, value of the metric, whether the episode succeeded (1 or 0), turns and status.

    A lost episode has no numbers.
    """
    status = str(record.details.get("status", ""))
    if record.reward is None:
        return [None, None, None, record.turns, "lost"]
    value = value_of(record, metric)
    assert value is not None  # the reward is there
    success = succeeded(record, metric, info, solving)
    return [_short(record.reward), _short(value), int(bool(success)), record.turns, status]


def succeeded(record: EpisodeRecord, metric: str, info: Metric, solving: Sequence[str]) -> bool | None:
    """Return whether an episode succeeded, or None if it was lost.

    Without a metric that says what a success is (``solving``), the greatest value of the primary metric is one.
    """
    value = value_of(record, metric)
    if record.reward is None or value is None:
        return None
    known = [record.metrics[name] for name in solving if name in record.metrics]
    return all(one >= 1 for one in known) if known else info.high is not None and value >= info.high


def _told(record: EpisodeRecord) -> dict[str, Any]:
    """Return what the page shows of an opened episode."""
    numbers = {"terms": record.terms, "metrics": record.metrics}
    found: dict[str, Any] = {
        title: {name: _short(value) for name, value in values.items()} for title, values in numbers.items()
    }
    schemes = [str(scheme) for scheme in record.details.get("schemes", ())]
    shown = {name: value for name, value in (record.shown or {}).items() if name != "sampled"}
    return {**found, "schemes": schemes, **_cleaned(shown)}


def _cleaned(value: Any) -> Any:
    """Return texts without control characters and cut to `MOST_TEXT`."""
    if isinstance(value, str):
        text = harmless(value[:MOST_TEXT])
        return text if len(value) <= MOST_TEXT else f"{text}\n... ({len(value) - MOST_TEXT:,} more characters)"
    if isinstance(value, Mapping):
        return {key: _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _short(value: float) -> float:
    return float(np.format_float_positional(value, 6, trim="-"))


def _write_script(path: Path, name: str, value: Any) -> None:
    content = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    storage.write_text(path, f"episodes.{name}={content}\n")


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
        _trace(run, team, record, metric, info, metrics)
        for team in first
        if team is not None
        for record in [record for record in team.episodes if record.sample == 0 and record.shown][:PROBLEMS]
    ]


def _trace(
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
