"""Starts the endpoint: the team in a thread of its own, HTTP by uvicorn on this machine only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pipeline_lib.play import Player
from pipeline_lib.problems.splits import load_split
from tasks.experiment.arms import PROBLEMS
from tasks.use.api_requests import TEAM_MODEL, Limits
from tasks.use.choosing import Choice, untrusted_problem
from tasks.use.endpoint import make_app
from tasks.use.local_server import address, listen, run
from tasks.use.opening import opened
from tasks.use.queueing import BatchQueue

if TYPE_CHECKING:
    from pipeline_lib.settings import Params


def serve(
    params: Params,
    choice: Choice,
    port: int,
    max_tokens: int,
    body_kb: int,
    waiting: int,
    key: str,
    ready: Callable[[str, list[str]], None],
) -> None:
    """Serve a team until the process is asked to end.

    Args:
        params: the settings.
        choice: which team.
        port: of 127.0.0.1; 0 takes a free one.
        max_tokens: largest number of tokens of an action.
        body_kb: largest body of a request, kibibytes.
        waiting: number of questions that may wait.
        key: bearer token that requests must have; empty: none.
        ready: called with the address and the names of the models as soon as requests are accepted.

    Raises:
        OSError: the port is taken.
        ChoiceError, ProblemsError, PolicyError: the team cannot be opened.
    """
    with listen(port) as listening, ExitStack() as stack:

        def make() -> Player:
            return stack.enter_context(opened(params, choice))

        batch_queue = BatchQueue(make, waiting)
        player = batch_queue.open()
        agents = max(map(player.environment.agents, load_split(PROBLEMS, "train")), key=len)
        limits = Limits(max_tokens, body_kb)
        app = make_app(player, agents, batch_queue, lambda text: untrusted_problem(params, text), limits, key)
        ready(address(listening), [TEAM_MODEL, *agents])
        try:
            run(app, listening)
        finally:
            batch_queue.close()
