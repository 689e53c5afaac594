"""The dialogue as an `Environment`: in every turn all agents speak at once, until the asker answers.

Everybody reads every message.  What a turn earns is what it adds to the reward of the whole episode.  Nothing is
random, no program is run, and no model is used.

With a tool, agents are shown the titles of their own documents only, and look up what these say before they speak.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline_lib.environment_api.environment import Check, Exhibit, Outcome, Part, ToolCall, ToolResult
from pipeline_lib.environment_api.reward import total
from pipeline_lib.environment_kit.dialogue import Dialogue, measure_talk, price_of, words_of
from pipeline_lib.environments.documents.problem import AGENTS, ASKER, SINGLE, DocumentsProblem
from pipeline_lib.environments.documents.reading import (
    Answer,
    is_about,
    is_useful,
    looked_up,
    normalised_answer,
    read_answer,
    told,
)
from pipeline_lib.environments.documents.rewards import Talk, make_reward
from pipeline_lib.environments.documents.settings import MOST_TOKENS, DocumentsSettings

_RULES = (
    "You are {name}, one of {count} agents who answer a question together. Each of you has other documents, only "
    "{asker} is told the question and answers it, and all read every message. Each word has a price: say what the "
    "others need, or else write only a dash.\n"
)
_ANSWERING = (
    "To answer, write the {labels} that prove it, and then the answer, with semicolons between them, for example: "
    "{example}\n"
)
_FINDING = (
    "Of your documents you see the titles. To read what they say about {example}, end your text with: find {example}. "
    "Then write again.\n"
)


@dataclass(frozen=True, slots=True)
class DocumentsState:
    """The state of an episode."""

    problem: DocumentsProblem  #: the question and its documents
    turns: tuple[tuple[str, ...], ...]  #: the messages of each turn by agent, empty for silence
    #: Numbers of the facts that the asker has read; those of its own documents count, looked up or not.
    read: frozenset[int]
    tokens: tuple[int, ...]  #: price of each agent's messages
    useless: tuple[int, ...]  #: price of those of each agent's messages that were of no use
    earned: Mapping[str, float] = field(default_factory=dict)  #: reward terms of the episode so far
    answer: Answer | None = None  #: None before the asker answers


class DocumentsEnvironment(Dialogue[DocumentsProblem, DocumentsState]):
    """Agents with different documents, or one with all; `task.METRICS` says what is measured."""

    def __init__(self, settings: DocumentsSettings) -> None:
        self._single = settings.team == SINGLE
        turns = 1 if self._single else settings.turns
        super().__init__(make_reward(settings.reward, turns), turns)
        if settings.tools is not None:
            self.tool_calls, self.tool_tokens = settings.tools.calls, settings.tools.tokens

    def agents(self, problem: DocumentsProblem) -> tuple[str, ...]:
        return (SINGLE,) if self._single else AGENTS[: problem.agents]

    def start(self, problem: DocumentsProblem, seed: int = 0) -> DocumentsState:
        count = len(self.agents(problem))
        return DocumentsState(problem, (), frozenset(self.own(problem, 0)), (0,) * count, (0,) * count)

    def own(self, problem: DocumentsProblem, agent: int) -> Sequence[int]:
        """Return the numbers of the facts in an agent's documents."""
        return range(len(problem.facts)) if self._single else problem.held(agent)

    def messages(self, state: DocumentsState) -> Sequence[Sequence[str]]:
        return state.turns

    def observed(self, state: DocumentsState, agent: int, cut: int) -> list[Part]:
        problem, names = state.problem, self.agents(state.problem)
        name, number = names[agent], len(state.turns) + 1
        own = self.own(problem, agent)
        if self.tool_calls:
            documents = f"{name} can find {'; '.join(facts[0].title for facts in problem.documents(own))}\n"
        else:
            documents = "\n".join([f"{name} knows", *_lines(problem, own), ""])
        return [
            *(_rules(problem, name, len(names), self.tool_calls > 0) if problem.plain else ()),
            Part("documents", documents),
            *([Part("question", f"question: {problem.question}\n")] if agent == 0 else ()),
            *self.transcript(state, names, cut),
            Part("", f"turn {number}\n{name}:"),
        ]

    def use_tools(self, calls: Sequence[ToolCall[DocumentsState]]) -> list[ToolResult]:
        """Let agents look names up, each in its own documents."""
        return [self._find(call) for call in calls]

    def _find(self, call: ToolCall[DocumentsState]) -> ToolResult:
        problem = call.state.problem
        name, agent = looked_up(call.text), self.agents(problem)[call.agent]
        if not name:
            return ToolResult()
        found = [number for number in self.own(problem, call.agent) if is_about(problem.facts[number], name)]
        return ToolResult("\n".join(["", f"{agent} finds", *(_lines(problem, found) or [" nothing"]), f"{agent}:"]))

    def outcome(self, state: DocumentsState, actions: Sequence[str]) -> Outcome[DocumentsState]:
        problem, names = state.problem, self.agents(state.problem)
        if len(actions) != len(names):
            raise ValueError(f"got {len(actions)} actions for the {len(names)} agents of {problem.id}")
        answer = read_answer(problem, actions[0], state.read)
        # What has no word is silence; an answer is no message.
        said = tuple(
            " ".join(text.split()) if words_of(text) and (agent or answer is None) else ""
            for agent, text in enumerate(actions)
        )
        prices = [price_of(text) for text in said]
        idle = [
            bool(text) and not is_useful(problem, text, state.read, asks=not agent) for agent, text in enumerate(said)
        ]
        after = replace(
            state,
            turns=(*state.turns, said),
            read=state.read.union(*(told(problem, text) for text in said[1:])),
            tokens=tuple(before + price for before, price in zip(state.tokens, prices, strict=True)),
            useless=tuple(
                before + price * each for before, price, each in zip(state.useless, prices, idle, strict=True)
            ),
            answer=answer,
        )
        earned, gained = self.gained(Talk(answer, sum(after.tokens), len(after.turns)), state.earned)
        return Outcome(
            reward=total(gained),
            terms=gained,
            metrics=measure(after, names),
            state=replace(after, earned=earned),
            done=answer is not None or len(after.turns) >= self.turns,
            details={"answer": normalised_answer(answer.text) if answer else ""},
        )

    def divided(self, problem: DocumentsProblem) -> bool:
        return not self._single

    def exhibit(self, state: DocumentsState, actions: Sequence[str]) -> Exhibit:
        problem = state.problem
        lines = [f"{name}: {text.strip()}" for name, text in zip(self.agents(problem), actions, strict=True) if text]
        answer = read_answer(problem, actions[0], state.read)
        if answer is None:
            return Exhibit("\n".join(lines))
        proven = answer.proving == answer.needed == answer.named
        wanted = "; ".join(problem.facts[number].label for number in problem.support)
        return Exhibit(
            "\n".join([f"question: {problem.question}", *lines]),
            checks=(
                Check(f"the answer is {problem.answer}", answer.right, answer.text),
                Check(f"its support is {wanted}", proven, f"{answer.proving} of {answer.needed}"),
            ),
        )


def measure(state: DocumentsState, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics of an episode so far; see `task.METRICS`."""
    answer = state.answer
    named = max(1, answer.named) if answer else 1
    right, support = (float(answer.right), answer.support) if answer else (0.0, 0.0)
    return {
        "proven": right * support,
        "all_proven": float(right * support >= 1.0),
        "right_answer": right,
        "support_share": support,
        "answered": float(answer is not None),
        "contradicted": answer.contradicted / named if answer else 0.0,
        "invented": answer.invented / named if answer else 0.0,
        "not_read": answer.unread / named if answer else 0.0,
        **measure_talk(names, state.tokens, state.useless, len(state.turns), MOST_TOKENS),
    }


def _lines(problem: DocumentsProblem, numbers: Collection[int]) -> list[str]:
    """Return facts as agents read them: in generated worlds a line for each document, else for each sentence."""
    documents = problem.documents(numbers)
    if problem.path:
        return [f" {'; '.join(fact.text for fact in facts)}" for facts in documents]
    return [f" {fact.label}: {fact.text}" for facts in documents for fact in facts]


def _rules(problem: DocumentsProblem, name: str, count: int, finds: bool) -> list[Part]:
    rules = _RULES.format(name=name, count=count, asker=ASKER) if count > 1 else ""
    if name in (ASKER, SINGLE):
        labels, example = "titles and numbers of the sentences", "Eiffel Tower 1; Gustave Eiffel 2; answer Paris"
        if problem.path:
            labels, example = "facts", "anna boss carl; carl home rome; answer rome"
            rules += "A fact is who, a relation, and a value: anna boss carl says that the boss of anna is carl.\n"
        rules += _ANSWERING.format(labels=labels, example=example)
    if finds:
        rules += _FINDING.format(example="anna" if problem.path else "Eiffel Tower")
    return [Part("rules", rules)]
