"""The card of an exported team, written from its verdict, in the format of the model hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.report.page import TEMPLATES


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported team."""

    task: str  #: kind of environment
    seed: int  #: training seed
    step: int  #: number of updates
    holds: Mapping[str, str]  #: by agent, the content of its folder (`pipeline_lib.policies.export`)
    prompts: Mapping[str, str]  #: by agent, its observation of one problem
    base_model: str  #: name of the pretrained model, empty for the embedded one
    snippet: str  #: a program that loads the agents
    tested: bool  #: whether this is a checkpoint that the verdict is about
    figure: float | None = None  #: its own mean of the primary metric in the test; None if it was not tested


def model_card(team: Exported, verdict: Mapping[str, Any], manifest: Mapping[str, Any], info: Metric) -> str:
    """Return the card as Markdown with its YAML head, from the JSON of verdict and manifest of problems."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    # Markdown, not HTML: nothing is escaped, and texts come from files of the project.
    environment = jinja2.Environment(loader=loader, autoescape=False, undefined=jinja2.StrictUndefined)
    text = environment.get_template("model_card.md.j2").render(
        task=team.task,
        agents=list(team.holds),
        adapter=all(held == "adapter" for held in team.holds.values()),
        license="other",
        base_model=team.base_model,
        tested=team.tested,
        figure=None if team.figure is None else info.text(team.figure),
        lines=verdict["lines"],
        caveats=[text for caveat in verdict["caveats"] for text in caveat["details"]],
        seed=team.seed,
        step=team.step,
        holds=team.holds,
        snippet=team.snippet.strip(),
        prompts={agent: prompt.removesuffix("\n") for agent, prompt in team.prompts.items()},
        newline=all(prompt.endswith("\n") for prompt in team.prompts.values()),
        counts={name: split["count"] for name, split in manifest["splits"].items()},
        source=manifest["source"],
        looks=_looks(verdict["looks"]),
        comparisons={name: _cell(found["sentence"]) for name, found in verdict["comparisons"].items()},
        metric=info.label,
        limits=(
            f"The licence is that of {team.base_model}; look there and set it in the head of this card."
            if team.base_model
            else "The base was built from nothing for this task only."
        ),
    )
    return text


def _looks(looks: Mapping[str, Any]) -> str:
    count = looks["count"]
    return "The test split was looked at once." if count == 1 else f"The test split was looked at {count} times."


def _cell(sentence: str) -> str:
    return sentence.replace("|", "\\|").replace("\n", " ")
