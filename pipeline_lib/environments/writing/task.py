"""The writing environment's implementation of `Task`, its metrics and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import TeamTask, check_steps
from pipeline_lib.environments.writing.audit import WritingExaminer
from pipeline_lib.environments.writing.datasets import read_dataset
from pipeline_lib.environments.writing.demonstrations import demonstrate
from pipeline_lib.environments.writing.problem import AGENTS, WritingProblem
from pipeline_lib.environments.writing.runtime import WritingEnvironment
from pipeline_lib.environments.writing.settings import GeneratedTexts, PublishedTexts, WritingSettings
from pipeline_lib.environments.writing.world import generate
from pipeline_lib.problems.splitting import split_problems
from pipeline_lib.report.style import BLUE, GREY, INK, Figure, Table, figure, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from pipeline_lib.report.data import ReportData

METRICS = {
    "coverage": Metric(
        "facts told",
        "share of the facts of the source that the two texts tell",
        share=True,
        over_checkpoints=True,
        at_k="coverage",
    ),
    "all_told": Metric(
        "all facts told and nothing else",
        "every fact is told, none twice, and no sentence says anything else",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "inventions": behaviour(
        "sentences that do not follow",
        "share of the sentences that do not follow from the source",
        better="lower",
        over_checkpoints=True,
    ),
    "copied": behaviour(
        "sentences copied or repeated",
        "share of the sentences that are copies of the source or repeat what was said",
        better="lower",
    ),
    "fitting": behaviour(
        "both lengths and their ratio as asked",
        "the lengths of both texts, and their ratio, lie within the limits",
        over_checkpoints=True,
    ),
    "complete": behaviour("complete sentences", "share of the sentences that begin and end as sentences do"),
    "style": behaviour(
        "facts told in one style", "share of the facts that are told in the prevailing style of both texts"
    ),
    "joints": behaviour(
        "joints between sentences",
        "share of the possible joints between neighbouring sentences that tell something new and share an entity",
    ),
    "published": Metric(
        "published reward, of 2.98",
        "the published reward as a share of its maximum; it never looks at the source",
        share=True,
        over_checkpoints=True,
    ),
    "published_structure": behaviour(
        "published: structure", "words, length and unique words, the first three terms of the published reward"
    ),
    "published_coherence": behaviour(
        "published: coherence", "kinds of connectives, the fourth term of the published reward"
    ),
    "published_consistency": behaviour(
        "published: style consistency", "words that both texts share, the last term of the published reward"
    ),
}


#: The terms of each built-in reward.
TERMS = {
    "sound": {
        "coverage": "facts that are told",
        "inventions": "taken for sentences that state nothing of the source",
        "repeats": "taken for sentences that repeat",
        "lengths": "how well both lengths and their ratio fit",
        "style": "facts that are told in the prevailing style",
        "coherence": "joints between neighbouring sentences",
        "judge": "the mark that a judge model gives",
    },
    "paper": {
        "words": "both texts have a number of words within the limits",
        "length": "ratio of the lengths of the texts",
        "unique": "ratio of their unique words",
        "connectives": "kinds of connectives that are used",
        "shared": "words that both texts share",
    },
}


#: Most characters of a text that the drawing shows; the table shows a hundred words.
SHOWN = 300


def texts(data: ReportData) -> list[Figure]:
    """Show the texts of base and selected team on the first test problems; nothing if the test kept no texts."""
    rows: list[list[Any]] = []
    for place, before in enumerate(data.examples.get("base", ())):
        for team, episode in (("base", before), ("selected", data.examples["selected"][place])):
            first, second = episode["details"].get("texts", ("", ""))
            rows.append([before["problem"], team, episode["metrics"]["coverage"], first, second])
    if not any(row[3] or row[4] for row in rows):
        return []

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        axes.axis("off")
        width, size = (48, 6.5) if narrow else (110, 7.5)
        lines: list[tuple[str, str]] = []
        for problem, team, coverage, first, second in rows:
            colour = GREY if team == "base" else BLUE
            lines.append((f"{team}, {coverage:.0%} of the facts told ({problem})", colour))
            for number, text in enumerate((first, second), 1):
                shown = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
                lines += [(f"    {line}", INK) for line in wrap(f"{number}. {shown or '(empty)'}", width).split("\n")]
        for place, (line, colour) in enumerate(lines):
            axes.text(
                0.0, 1.0 - place / len(lines), line, transform=axes.transAxes, fontsize=size, color=colour, va="top"
            )

    return [
        figure(
            "texts",
            "Texts before and after",
            "The first test episodes of the base and of the selected team: the first writer's text and the second's.",
            paint,
            Table(("problem", "team", "facts told", "first text", "second text"), rows),
            (0.9 * len(rows), 1.3 * len(rows)),
        )
    ]


class WritingTask(TeamTask):
    """Two writers, or one, tell what a text says: a short and a long summary, or the halves of an introduction."""

    settings = WritingSettings
    problems = (GeneratedTexts, PublishedTexts)
    problem = WritingProblem
    measures = METRICS
    primary = "coverage"
    examiner = WritingExaminer
    meanings = TERMS
    demonstrate = staticmethod(demonstrate)
    rewarded_in = "pipeline_lib.environments.writing.runtime:WritingEnvironment"  # it depends on how texts are read
    guards = (
        {"metric": "inventions", "better": "lower", "slack": 0.05},
        {"metric": "complete", "better": "higher", "slack": 0.05},
    )
    demonstrates_reading = True

    def make_problems(self, settings: GeneratedTexts | PublishedTexts) -> Mapping[str, Sequence[WritingProblem]]:
        if settings.kind == "world":
            return generate(settings)
        return split_problems(read_dataset(settings), settings.validation, settings.test, settings.seed)

    def prompts(self, problems: Sequence[WritingProblem]) -> list[str]:
        return [text for problem in problems for text in problem.observations.values()]

    def make(self, settings: WritingSettings, executor: Callable[[], Any]) -> WritingEnvironment:
        return WritingEnvironment(settings)

    def agent_names(self, params: Any) -> Sequence[str]:
        return AGENTS[params.environment.team]

    def check(self, params: Any) -> None:
        if params.problems.kind == "world":
            check_steps(params)

    def figures(self, data: Any) -> Sequence[Any]:
        return texts(data)
