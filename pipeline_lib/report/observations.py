"""What agents see in each turn of an example: every prompt in parts with their sources, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib.report.code import coloured
from pipeline_lib.report.episodes import MOST_TEXT, EpisodePair
from pipeline_lib.report.text import harmless


@dataclass(frozen=True, slots=True)
class Reading:
    """What one agent read and answered.

    Attributes:
        agent: its name.
        parts: source and text of each part of the prompt; the source may be empty.
        answer: with syntax colours.
    """

    agent: str
    parts: Sequence[tuple[str, str]]
    answer: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Example:
    """An episode of several turns.

    Attributes:
        problem: its id.
        turns: of each turn, the reward as text (empty if it is not known by turn), and what agents read in it.
    """

    problem: str
    turns: Sequence[tuple[str, Sequence[Reading]]]


def example(episodes: Mapping[str, Sequence[Mapping[str, Any]]], pairs: Sequence[EpisodePair]) -> Example | None:
    """Return the first of the episodes on the page in which the selected team took most turns; None without prompts.

    Args:
        episodes: as for `pick_episodes`.
        pairs: the episodes on the page, in their order.
    """
    kept = {str(episode["problem"]): episode for episode in episodes.get("selected", ())}
    found = [episode for pair in pairs if (episode := kept[pair.problem])["shown"].get("seen")]
    if not found:
        return None
    chosen = max(found, key=lambda episode: len(episode["shown"]["seen"]))
    shown, attempts = chosen["shown"], chosen.get("attempts") or ()
    turns = []
    for number, prompts in enumerate(shown["seen"]):
        reward = f"{attempts[number]['reward']:+.3f}" if number < len(attempts) else ""
        turns.append((reward, [_reading(one, str(shown.get("language", ""))) for one in prompts]))
    return Example(str(chosen["problem"]), turns)


def _reading(seen: Mapping[str, Any], language: str) -> Reading:
    parts = [(str(source), _cut(harmless(text)).strip("\n")) for source, text in seen["prompt"] if text.strip("\n")]
    return Reading(str(seen["agent"]), parts, coloured(_cut(str(seen["answer"])), language))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n... ({len(text) - MOST_TEXT:,} more characters)"
