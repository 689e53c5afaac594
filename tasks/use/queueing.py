"""Dynamic batching: a queue in front of one engine, served by one thread.

All questions that wait when the engine becomes free are one batch: one call of the engine for all questions to agents
with the same sampling settings, one play for all problems of the team.  If a batch fails, its questions are answered
one by one, so that one bad question does not fail the others.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.play import Player, Root
from pipeline_lib.play.roots import PairedChance
from pipeline_lib.play.watching import Generation, Watcher
from pipeline_lib.rollouts.actions import TextStream, cut_at_stop
from pipeline_lib.rollouts.engine import Action, Request, Sampling


class FullError(RuntimeError):
    """The queue is full."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question: texts, why each ended (``stop`` or ``length``), and tokens read and written."""

    texts: tuple[str, ...]
    finishes: tuple[str, ...]
    prompt_tokens: int
    completion_tokens: int


@dataclass(eq=False, slots=True)
class Question:
    """A question to an agent or the team."""

    sampling: Sampling  #: the sampling settings
    seed: int  #: of its draws
    done: Callable[[Answer | BaseException], None]  #: called with the answer or the error, in the serving thread
    agent: str = ""  #: name of the agent; empty: the team
    prompt: tuple[int, ...] = ()  #: token ids for an agent
    problem: Any = None  #: for the team
    n: int = 1  #: number of answers of an agent
    stop: tuple[str, ...] = ()  #: texts before which an answer ends
    notices: tuple[str, ...] = ()  #: what the client asked for and does not get, in sentences
    #: Called with the number of an answer and each new piece of its text, in the serving thread.
    wrote: Callable[[int, str], None] = lambda number, text: None
    gone: bool = False  #: the client has disconnected
    begun: bool = field(default=False, init=False)


class BatchQueue:
    """Answers questions in a separate thread.

    Args:
        make: creates the team, in the serving thread, which owns the processes of its sandbox.
        most_waiting: length of the queue.
    """

    def __init__(self, make: Callable[[], Player], most_waiting: int) -> None:
        self._make = make
        self._waiting: queue.Queue[Question | None] = queue.Queue(most_waiting)
        self._ready: queue.Queue[Player | BaseException] = queue.Queue(1)
        self._thread = threading.Thread(target=self._serve, name="batch_queue", daemon=True)
        self.batches: list[int] = []
        """Number of questions in each batch."""

    def open(self) -> Player:
        """Start, and return the team when it is ready; raises the error of ``make``."""
        try:
            self._thread.start()
            found = self._ready.get()
        except KeyboardInterrupt:  # Python aborts if it ends while the thread is in torch
            self.close()
            raise
        if isinstance(found, BaseException):
            raise found
        return found

    def ask(self, question: Question) -> None:
        """Put a question into the queue; FullError if that is full."""
        try:
            self._waiting.put_nowait(question)
        except queue.Full:
            raise FullError(f"{self._waiting.maxsize} requests wait already; try again in a moment") from None

    def close(self) -> None:
        """Answer the waiting questions, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        try:
            player = self._make()
        except BaseException as error:
            self._ready.put(error)
            return
        self._ready.put(player)
        open_ = True
        while open_:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            open_ = None not in batch
            alike: dict[tuple[bool, Sampling], list[Question]] = {}
            for question in batch:
                if question is not None and not question.gone:
                    alike.setdefault((bool(question.agent), question.sampling), []).append(question)
            for (agents, sampling), questions in alike.items():
                self._answer(_ask_agents if agents else _ask_team, player, sampling, questions)
        player.engine.close()
        player.environment.close()

    def _answer(
        self,
        ask: Callable[[Player, Sampling, Sequence[Question]], list[Answer]],
        player: Player,
        sampling: Sampling,
        questions: Sequence[Question],
    ) -> None:
        self.batches.append(len(questions))
        try:
            found: list[Any] = list(ask(player, sampling, questions))
        except Exception as error:
            found = [error]
            if len(questions) > 1:
                for question in questions:
                    if question.begun:  # streamed text cannot be withdrawn
                        question.done(error)
                    else:
                        self._answer(ask, player, sampling, [question])
                return
        for question, answer in zip(questions, found, strict=True):
            question.done(answer)


def _ask_agents(player: Player, sampling: Sampling, questions: Sequence[Question]) -> list[Answer]:
    policies = [player.team.policy_of(question.agent) for question in questions]
    requests = [
        Request(policy.name, question.prompt, question.n, question.seed)
        for policy, question in zip(policies, questions, strict=True)
    ]
    streams = [[TextStream(p, q.stop) for _ in range(q.n)] for p, q in zip(policies, questions, strict=True)]

    def on_token(request: int, number: int, token: int) -> None:
        if text := streams[request][number].add(token):
            questions[request].begun = True
            questions[request].wrote(number, text)

    player.engine.listener = on_token
    try:
        found = player.engine.generate(requests, sampling)
    finally:
        player.engine.listener = None
    answers = []
    for question, own, actions in zip(questions, streams, found, strict=True):
        texts = tuple(cut_at_stop(action.text, question.stop) for action in actions)
        for number, (stream, whole) in enumerate(zip(own, texts, strict=True)):
            if text := stream.end(whole):
                question.wrote(number, text)
        finishes = tuple("stop" if a.text != text else a.finish for a, text in zip(actions, texts, strict=True))
        answers.append(Answer(texts, finishes, len(question.prompt), sum(len(action.ids) for action in actions)))
    return answers


class _Results(Watcher):
    """Keeps the last joint action of each episode, and counts tokens."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._places = {id(root): place for place, root in enumerate(roots)}
        self.results: list[tuple[Sequence[str], Outcome[Any]] | None] = [None] * len(roots)
        self.cut = [False] * len(roots)

    def finished(self, generation: Generation, action: Action) -> None:
        self.cut[self._places[id(generation.root)]] |= action.finish == "length"

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        self.results[self._places[id(root)]] = joint_action, outcome


def _ask_team(player: Player, sampling: Sampling, questions: Sequence[Question]) -> list[Answer]:
    roots = [Root(q.problem, 1, PairedChance(q.seed, q.problem.id, 0)) for q in questions]
    results = _Results(roots)
    episodes = replace(player, sampling=sampling, watcher=results).play(roots).episodes()
    answers = []
    for place, decisions in enumerate(episodes):
        result = results.results[place]
        assert result is not None, "every episode has a turn"
        joint_action, outcome = result
        text = cut_at_stop(player.environment.exhibit(outcome.state, joint_action).text, questions[place].stop)
        read = sum(len(prompt) for decision in decisions for prompt in decision.prompts)
        written = sum(len(action.ids) for decision in decisions for action in decision.actions)
        answers.append(Answer((text,), ("length" if results.cut[place] else "stop",), read, written))
    return answers
