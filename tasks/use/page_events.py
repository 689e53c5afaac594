"""An episode as events for a page: JSON values; texts of agents are sanitised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metrics, describe
from pipeline_lib.report.code import coloured
from pipeline_lib.report.text import harmless
from tasks.use.playing import AgentAnswer, PlayedTurn, Show, facts

if TYPE_CHECKING:
    from pipeline_lib.play.watching import Generation
    from tasks.use.playing import Played


class PageShow(Show):
    """Sends the events of an episode to a page.

    Args:
        side: number of the team on the page.
        metrics: of the environment.
        send: called with each event, which has ``kind`` and ``side``; an exception ends the episode.
    """

    def __init__(self, side: int, metrics: Metrics, send: Callable[[dict[str, Any]], None]) -> None:
        self._side, self._metrics, self._send_event = side, metrics, send

    def prompted(self, generation: Generation) -> None:
        self._send(
            "prompted",
            agent=generation.agent,
            turn=generation.turn,
            round=generation.round,
            prompt=harmless(generation.prompt),
        )

    def wrote(self, generation: Generation, text: str) -> None:
        self._send("wrote", text=harmless(text))

    def finished(self, generation: Generation, answer: AgentAnswer) -> None:
        self._send("finished", tokens=answer.tokens, cut=answer.finish == "length")

    def turned(self, number: int, turn: PlayedTurn) -> None:
        exhibit = turn.exhibit
        described = ((describe(name, self._metrics), value) for name, value in turn.metrics.items())
        self._send(
            "turned",
            turn=number,
            result=coloured(exhibit.text, exhibit.language) if exhibit else [],
            checks=[[harmless(c.what), c.passed, harmless(c.answer)] for c in (exhibit.checks if exhibit else ())],
            reward=turn.reward,
            terms=list(turn.terms.items()),
            metrics=[[metric.label, metric.text(value)] for metric, value in described],
            facts=[harmless(fact) for fact in facts(turn)],
        )

    def ended(self, played: Played) -> None:
        self._send("ended", turns=len(played.turns), reward=played.reward)

    def _send(self, kind: str, **values: Any) -> None:
        self._send_event({"kind": kind, "side": self._side, **values})
