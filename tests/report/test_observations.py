"""The page shows what the agents of one episode read in every turn, and where it came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.report.build import experiment, first_episodes
from tests.report.html import Document, build


def seen(turns: int, words: str) -> list[list[dict[str, Any]]]:
    """What two agents read and answered in some turns."""
    return [
        [
            {
                "agent": agent,
                "prompt": [["task", f"write for {agent}\n"], ["tests", f"- {words} {turn}\n"], ["", "Again:\n"]],
                "answer": f"def {agent}(): return '<b>{words} {turn}\x1b'",
            }
            for agent in ("helper", "main")
        ]
        for turn in range(1, turns + 1)
    ]


def page(tmp_path: Path, kept: dict[str, list[dict[str, Any]]]) -> tuple[str, Document]:
    return build(dataclasses.replace(experiment(), first_episodes=kept), tmp_path)


def test_the_longest_of_the_episodes_is_shown_turn_by_turn_with_sources(tmp_path: Path) -> None:
    kept = first_episodes()
    kept["selected"][2]["shown"]["seen"] = seen(2, "short")
    kept["selected"][5]["shown"]["seen"] = seen(3, "long")
    kept["selected"][5]["attempts"] = [{"reward": 0.5}, {"reward": 0.75}, {"reward": 1.25}]
    text, document = page(tmp_path, kept)
    section = text.partition('<section id="seen">')[2].partition("</section>")[0]
    assert "took most turns: p5." in section and "short" not in section
    assert [f"Turn {turn}: reward {reward}" in section for turn, reward in ((1, "+0.500"), (3, "+1.250"))] == [True] * 2
    assert section.count("<span>tests</span><pre>- long 2</pre>") == 2, "one for each agent"
    assert section.count("<span>request</span><pre>Again:</pre>") == 6
    assert "&lt;b&gt;long 3\ufffd" in section.replace("&#39;", "'") and "<b>" not in section
    assert "What agents see, turn by turn" in document.text and 'href="#seen"' in text


def test_episodes_of_one_turn_have_no_such_section(tmp_path: Path) -> None:
    text, _ = page(tmp_path, first_episodes())
    assert 'id="seen"' not in text and '"#seen"' not in text
