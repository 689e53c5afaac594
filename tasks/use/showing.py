"""An episode in the terminal: prompts, tokens as they are sampled, the joint result, tests, reward term by term.

If the output is not a terminal, the same is written as plain lines.  Texts of agents are untrusted: terminal commands
and markup in them have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from pipeline_lib.environment_api.metrics import Metrics, describe
from pipeline_lib.report.text import harmless
from tasks.use.episode import AgentAnswer, Played, PlayedTurn, Show, facts

if TYPE_CHECKING:
    from pipeline_lib.play.watching import Generation

#: Most of a prompt, and most tests, that the terminal shows; ``--json`` has all of them.
SHOWN_LINES, SHOWN_CHECKS = 40, 20


class TerminalShow(Show):
    """Writes an episode while it is played; prompts that are ``known`` from other teams are not repeated."""

    def __init__(self, console: Console, metrics: Metrics, known: set[str] | None = None) -> None:
        self._console, self._metrics = console, metrics
        self._known = set() if known is None else known

    def prompted(self, generation: Generation) -> None:
        where = f" (turn {generation.turn + 1})" if generation.turn else ""
        where += f" (round {generation.round + 1})" if generation.round and not generation.tool else ""
        key = f"{generation.turn} {generation.round} {generation.agent}\n{generation.prompt}"
        if key in self._known:
            self._head(f"{generation.agent} is told the same, and writes{where}")
            return
        self._known.add(key)
        self._head(
            f"A tool answers {generation.agent}{where}" if generation.tool else f"{generation.agent} is told{where}"
        )
        self._console.print(Text(_shortened(harmless(generation.prompt)), style="dim"), soft_wrap=True)
        self._head(f"{generation.agent} writes{where}")

    def wrote(self, generation: Generation, text: str) -> None:
        self._console.print(Text(harmless(text)), end="", soft_wrap=True)

    def finished(self, generation: Generation, answer: AgentAnswer) -> None:
        cut = ", cut off" if answer.finish == "length" else ""
        self._console.print(
            Text(f"{'' if answer.text.endswith(chr(10)) else chr(10)}{answer.tokens} tokens{cut}", style="dim")
        )

    def turned(self, number: int, turn: PlayedTurn) -> None:
        self._head(f"Together, turn {number + 1}" if number else "Together")
        self._console.print(result_of(turn, self._metrics))

    def ended(self, played: Played) -> None:
        if len(played.turns) > 1:
            self._head("The whole episode")
            reward = "no reward" if played.reward is None else f"reward {played.reward:+.3f}"
            self._console.print(f"{len(played.turns)} turns, {reward}")

    def _head(self, text: str) -> None:
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left", style="dim"))


def result_of(turn: PlayedTurn, metrics: Metrics) -> RenderableType:
    """Return the joint result, what it was asked, and what it earned."""
    exhibit = turn.exhibit
    parts: list[RenderableType] = [_result(turn)]
    if exhibit is not None and exhibit.checks:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
        for check in exhibit.checks[:SHOWN_CHECKS]:
            table.add_row(_mark(check.passed), Text(harmless(check.what)), Text(harmless(check.answer), style="dim"))
        if (left := len(exhibit.checks) - SHOWN_CHECKS) > 0:
            table.add_row(Text(""), Text(f"and {left} more"))
        parts += [Text(""), table]
    parts += [Text(""), _reward(turn), Text(""), _metrics(turn, metrics)]
    if found := facts(turn):
        parts.append(Text(harmless("; ".join(found)), style="dim"))
    return Group(*parts)


def side_by_side(all_played: list[Played], metrics: Metrics) -> RenderableType:
    """Return the last turns of several teams side by side: results, then checks, one per line."""
    last = [played.turns[-1] for played in all_played]
    results = Table.grid(expand=True, padding=(0, 1))
    for _ in all_played:
        results.add_column(ratio=1)
    results.add_row(*(Panel(_result(turn), title=Text(p.team)) for p, turn in zip(all_played, last, strict=True)))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for played in all_played:
        table.add_column(Text(played.team), justify="right")
    checks = [turn.exhibit.checks if turn.exhibit else () for turn in last]
    asked = list(dict.fromkeys(check.what for found in checks for check in found))
    for what in asked[:SHOWN_CHECKS]:
        answers = [next((check.passed for check in found if check.what == what), None) for found in checks]
        table.add_row(Text(harmless(what)), *(_mark(answer) for answer in answers))
    if (left := len(asked) - SHOWN_CHECKS) > 0:
        table.add_row(f"and {left} more")
    for name in dict.fromkeys(name for turn in last for name in turn.terms):
        table.add_row(Text(f"reward, {name}"), *(_number(turn.terms.get(name)) for turn in last))
    table.add_row(Text("reward", style="bold"), *(_number(turn.reward) for turn in last))
    for name in dict.fromkeys(name for turn in last for name in turn.metrics):
        metric = describe(name, metrics)
        values = [turn.metrics.get(name) for turn in last]
        table.add_row(Text(metric.label), *("-" if value is None else metric.text(value) for value in values))
    return Group(results, table)


def _result(turn: PlayedTurn) -> RenderableType:
    exhibit = turn.exhibit
    if exhibit is None or not exhibit.text:
        return Text("(nothing)", style="dim")
    text = harmless(exhibit.text)
    return _syntax(text, exhibit.language) if exhibit.language else Text(text)


def _syntax(text: str, language: str) -> Syntax:
    """Return code in the terminal's own colours, whether it is dark or light."""
    return Syntax(text, language, theme="ansi_dark", background_color="default", word_wrap=True)


def _mark(passed: bool | None) -> Text:
    return Text("-") if passed is None else Text("passed", "green") if passed else Text("failed", "red")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:+.3f}"  # a price of nothing is -0.0


def _reward(turn: PlayedTurn) -> RenderableType:
    if turn.reward is None:
        return Text("No reward: nothing could be tested here.", style="yellow")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for name, value in turn.terms.items():
        table.add_row(Text(name), _number(value))
    table.add_row(Text("reward", style="bold"), Text(_number(turn.reward), style="bold"))
    return table


def _metrics(turn: PlayedTurn, metrics: Metrics) -> RenderableType:
    shown = [(describe(name, metrics), value) for name, value in turn.metrics.items()]
    return Columns([Text(f"{metric.label}: {metric.text(value)}") for metric, value in shown], padding=(0, 2))


def _shortened(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:SHOWN_LINES], f"... {len(lines) - SHOWN_LINES} more lines"])
