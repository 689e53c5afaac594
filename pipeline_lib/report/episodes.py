"""The episodes on the page, picked by a rule that the page states.

The first episode of every test problem is stored with its texts, for the base and for the selected team of one training
run; the rule picks among these, so none is chosen by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.report.code import coloured
from pipeline_lib.report.text import harmless

RULE = (
    "Of every test problem the first episode of the base and of the selected team of the first training run is kept "
    "with its texts. Shown are, by rule and not by choice: greatest gain and greatest loss, the selected team's "
    "best and worst by reward, the one whose value is nearest to its median, and the first of each status of a failure "
    "and of each cooperation scheme; where several are alike, the first in the order of the problems. The other kept "
    "episodes follow in the order of the problems, as far as the page has room."
)
#: Number of ways to fail, and of schemes, that are shown.
MOST_KINDS = 6
#: Longest text shown, in characters; longer ones are cut.
MOST_TEXT = 6000
#: Most characters of all episodes that no rule picked; their size on the page is about three times as large.
MOST_OTHERS = 300_000

Episode = Mapping[str, Any]


@dataclass(slots=True)
class EpisodePair:
    """One problem on the page.

    Attributes:
        problem: its id.
        anchor: id on the page.
        titles: reasons of the rule; empty if it did not pick the episode.
        before, after: values of the metric.
        told: each agent with its observation, with markup.
        sides: the base and the selected team: texts of the agents, the result, checks, and reward terms.
    """

    problem: str
    anchor: str
    titles: list[str]
    before: str
    after: str
    told: list[tuple[str, str]]
    sides: list[dict[str, Any]] = field(default_factory=list)


def pick_episodes(episodes: Mapping[str, Sequence[Episode]], metric: str, info: Metric) -> list[EpisodePair]:
    """Return the episodes that the page shows, by `RULE`, in its order.

    Args:
        episodes: of ``base`` and ``selected``, one per problem, in the same order of problems
            (`EpisodeRecord.to_json`); those without texts are left out.
        metric: the primary metric.
        info: its label, unit and format.
    """
    pairs = [
        (base, selected)
        for base, selected in zip(episodes.get("base", ()), episodes.get("selected", ()), strict=True)
        if base.get("shown") and selected.get("shown")
        if base["reward"] is not None and selected["reward"] is not None
    ]
    titles: dict[int, list[str]] = {}
    for place, title in _chosen(pairs, metric):
        titles.setdefault(place, []).append(title)
    found, room = [], MOST_OTHERS
    for place in (*titles, *(place for place in range(len(pairs)) if place not in titles)):
        base, selected = pairs[place]
        if place not in titles:
            room -= sum(len(str(one["shown"])) - len(str(one["shown"].get("seen", ""))) for one in (base, selected))
            if room < 0:
                break
        told = zip(selected["shown"]["agents"], selected["shown"]["told"], strict=True)
        found.append(
            EpisodePair(
                problem=str(selected["problem"]),
                anchor=f"episode-{place}",
                titles=titles.get(place, []),
                before=info.text(_value(base, metric)),
                after=info.text(_value(selected, metric)),
                told=[(agent, harmless(text)) for agent, text in told if text],
                sides=[_side("base", base), _side("selected team", selected)],
            )
        )
    return found


def _chosen(pairs: Sequence[tuple[Episode, Episode]], metric: str) -> list[tuple[int, str]]:
    """Return place and reason of every episode that the rule picks."""
    if not pairs:
        return []
    places = range(len(pairs))
    gains = [_value(selected, metric) - _value(base, metric) for base, selected in pairs]
    values = [_value(selected, metric) for _, selected in pairs]
    rewards = [float(selected["reward"]) for _, selected in pairs]
    median = sorted(values)[(len(values) - 1) // 2]
    found = []
    if max(gains) > 0:
        found.append((max(places, key=gains.__getitem__), "greatest gain"))
    if min(gains) < 0:
        found.append((min(places, key=gains.__getitem__), "greatest loss"))
    found.append((max(places, key=rewards.__getitem__), "best"))
    found.append((min(places, key=rewards.__getitem__), "worst"))
    found.append((min(places, key=lambda place: abs(values[place] - median)), "typical"))
    failures: dict[str, int] = {}
    schemes: dict[str, int] = {}
    for place, (_, selected) in enumerate(pairs):
        status = str(selected["details"].get("status", ""))
        if status not in ("", "passed"):
            failures.setdefault(status, place)
        for scheme in selected["details"].get("schemes", ()):
            schemes.setdefault(str(scheme), place)
    found += [(place, f"status {kind.replace('_', ' ')}") for kind, place in list(failures.items())[:MOST_KINDS]]
    found += [(place, f"scheme {kind.replace('_', ' ')}") for kind, place in list(schemes.items())[:MOST_KINDS]]
    return found


def _value(episode: Episode, metric: str) -> float:
    return float(episode["reward"] if metric == "reward" else episode["metrics"][metric])


def _side(title: str, episode: Episode) -> dict[str, Any]:
    """Return one team's episode for the template; texts of agents are escaped."""
    shown = episode["shown"]
    language = str(shown.get("language", ""))
    last = shown["turns"][-1] if shown["turns"] else []
    return {
        "title": title,
        "turns": len(shown["turns"]),
        "wrote": [(agent, _code(text, language)) for agent, text in zip(shown["agents"], last, strict=True) if text],
        "result": _code(str(shown.get("text", "")) or "(nothing)", language if shown.get("text") else ""),
        "checks": [(harmless(what), passed, harmless(answer)) for what, passed, answer in shown.get("checks", ())],
        "terms": [(name, f"{value:+.3f}") for name, value in episode["terms"].items()],
        "reward": f"{episode['reward']:+.3f}",
    }


def _code(text: str, language: str) -> list[tuple[str, str]]:
    """Return text with syntax colours if its language is known, cut to `MOST_TEXT` characters."""
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}\n... ({len(text) - MOST_TEXT:,} more characters)"
    return coloured(text, language)
