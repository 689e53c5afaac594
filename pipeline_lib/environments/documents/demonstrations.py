"""What agents who know how say about a generated world, and demonstrations of it for the warm start, with many
mistakes.

Whole dialogues are played, in which the asker asks hop by hop: one way of asking is learned sooner than two.
The mistakes are an answer before the support is read, or with another support, a wrong question, silence, and useless
talk.  Of holders mostly turns in which they speak are shown: to look a fact up is hard to learn, and silence is not.
Reinforcement learning has to find out who should speak when, and when to stop.

With the tool agents look up what they tell of their own documents, and what leads to their question; a further mistake
is to look up any name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence, Set

from pipeline_lib.environment_api.environment import ToolCall
from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environment_kit.dialogue import words_of
from pipeline_lib.environments.documents.problem import (
    ENTITIES,
    KINDS,
    RELATIONS,
    SINGLE,
    DocumentsProblem,
    draw_problem,
)
from pipeline_lib.environments.documents.reading import told
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment, DocumentsState
from pipeline_lib.environments.documents.settings import DocumentsSettings, GeneratedWorlds
from pipeline_lib.settings.environment import Tools
from pipeline_lib.storage import digest


def right_answer(problem: DocumentsProblem) -> str:
    """Return the right answer with its whole support."""
    return "; ".join([*(problem.facts[number].label for number in problem.support), f"answer {problem.answer}"])


def question(problem: DocumentsProblem, read: Set[int], whole: bool) -> str:
    """Return what an asker who has ``read`` these facts asks: the rest of the question, or its next hop only."""
    hops = hops_read(problem, read)
    who = problem.facts[problem.support[hops - 1]].label.split()[2] if hops else problem.path[0]
    relations = problem.path[1 + hops :]
    return f"{' '.join([who, *relations[: None if whole else 1]])}?"


def hops_read(problem: DocumentsProblem, read: Set[int]) -> int:
    """Return how many facts from the beginning of the support are among those that were ``read``."""
    return next((hop for hop, number in enumerate(problem.support) if number not in read), len(problem.support))


def looks_up(problem: DocumentsProblem, own: Collection[int], said: str, leads: Collection[int] = ()) -> list[str]:
    """Return the titles of the ``own`` facts that a text tells, or that lead to it, in the order of the support."""
    needed = {*own} & {*told(problem, said), *leads}
    ordered = [*(number for number in problem.support if number in needed), *sorted(needed - {*problem.support})]
    return list(dict.fromkeys(problem.facts[number].title for number in ordered))


def asker_says(state: DocumentsState, whole: bool) -> str:
    """Return what the asker says: the answer, nothing while somebody may go on with its question, or a question."""
    problem = state.problem
    if hops_read(problem, state.read) == len(problem.support):
        return right_answer(problem)
    waits = state.turns and ("?" in state.turns[-1][0] or (whole and told(problem, "; ".join(state.turns[-1][1:]))))
    return "" if waits else question(problem, state.read, whole)


def holder_says(state: DocumentsState, agent: int) -> str:
    """Return the facts with which an agent can go on from what was asked last and told since, if it has any."""
    problem, keys = state.problem, state.problem.keys()
    asked = [words_of(found) for messages in state.turns for found in re.findall(r"[^;?]+(?=\?)", messages[0])]
    known = {number for messages in state.turns for text in messages for number in told(problem, text)}
    who, *relations = (asked[-1] if asked else "").split() or [""]
    said = []
    for relation in relations:
        number = keys.get((who, relation), -1)
        if number in problem.held(agent) and number not in known:
            said.append(problem.facts[number].label)
        elif number not in known:
            break
        who = problem.facts[number].label.split()[2]
    return "; ".join(said)


#: Share of the questions that are demonstrated by one agent with all documents.
ALONE = 0.25

#: How often one of a holder's turns in which it speaks is shown, rather than any of its turns.
SPOKEN = 0.6

#: Mistakes of an asker that cannot answer yet, with their shares.
MISTAKES = {"early": 0.2, "wrong question": 0.5, "silence": 0.3}

#: Generated problems that are demonstrated in place of published ones.
OTHERS = 512


def demonstrate(
    problems: Sequence[DocumentsProblem], count: int, mistakes: float, seed: int, tools: Tools | None = None
) -> list[Demonstration]:
    """Return demonstrations, as `Task.demonstrate`; published documents are replaced by generated worlds.

    With the limits of a tool, all are of agents who have it.

    Raises:
        ValueError: there are no problems.
    """
    if not problems:
        raise ValueError("there are no questions to demonstrate")
    rng = random.Random(digest(["documents", seed]))
    if not all(problem.path for problem in problems):
        settings = GeneratedWorlds(agents=problems[0].agents, prompt="plain")
        hops = [each for each in settings.hops if tools is None or each <= tools.calls]
        problems = [draw_problem(settings, rng.choice(hops), rng) for _ in range(OTHERS)]
    team, alone = (DocumentsEnvironment(DocumentsSettings(team=name, tools=tools)) for name in ("team", SINGLE))
    shown: list[Demonstration] = []
    while len(shown) < count:
        problem = rng.choice(problems)
        shown += _alone(alone, problem, mistakes, rng) if rng.random() < ALONE else _team(team, problem, mistakes, rng)
    return shown[:count]


def _alone(
    environment: DocumentsEnvironment, problem: DocumentsProblem, mistakes: float, rng: random.Random
) -> list[Demonstration]:
    state = environment.start(problem)
    wrong = rng.random() < mistakes
    action = _wrong_answer(environment, state, rng) if wrong else right_answer(problem)
    return _written(environment, state, 0, action, mistakes, rng)


def _team(
    environment: DocumentsEnvironment, problem: DocumentsProblem, mistakes: float, rng: random.Random
) -> list[Demonstration]:
    """Return what the asker writes in a random turn of a dialogue, and what another agent does in one."""
    state, agents = environment.start(problem), len(environment.agents(problem))
    turns: list[list[list[Demonstration]]] = []
    done = False
    while not done:
        holders = range(1, agents)
        actions = [
            _asked(environment, state, mistakes, rng),
            *(_held(environment, state, each, mistakes, rng) for each in holders),
        ]
        turns.append([_written(environment, state, a, text, mistakes, rng) for a, text in enumerate(actions)])
        [outcome] = environment.step([state], [actions])
        state, done = outcome.state, outcome.done
    holder = rng.randrange(1, agents)
    spoken = [turn[holder] for turn in turns if turn[holder][-1].action]
    held = spoken if spoken and rng.random() < SPOKEN else [turn[holder] for turn in turns]
    return [*rng.choice(turns)[0], *rng.choice(held)]


def _written(
    environment: DocumentsEnvironment,
    state: DocumentsState,
    agent: int,
    action: str,
    mistakes: float,
    rng: random.Random,
) -> list[Demonstration]:
    """Return the texts of an agent in a turn: the names that it looks up, if there is a tool, and what it says."""
    problem, seen, most = state.problem, environment.observe(state, agent), environment.tool_calls
    calls: list[tuple[str, str]] = []
    found: list[Demonstration] = []
    if most:
        own = environment.own(problem, agent)
        leads = problem.support[: hops_read(problem, state.read)] if agent == 0 and "?" in action else ()
        names = looks_up(problem, own, action, leads)[:most]
        if len(names) < most and rng.random() < mistakes:
            names.insert(0, rng.choice([rng.choice([*KINDS]), problem.facts[rng.choice(own)].title]))
        for name in names:
            text = f" find {name}"
            found.append(Demonstration(seen, text, calls=tuple(calls), tool_tokens=environment.tool_tokens))
            others = len(environment.agents(problem)) - agent - 1
            [result] = environment.use_tools([ToolCall(state, agent, ("",) * agent + (text,) + ("",) * others)])
            calls.append((text, result.text or ""))
    return [*found, Demonstration(seen, _spaced(action), calls=tuple(calls), tool_tokens=environment.tool_tokens)]


def _asked(environment: DocumentsEnvironment, state: DocumentsState, mistakes: float, rng: random.Random) -> str:
    said = asker_says(state, whole=False)
    if rng.random() >= mistakes:
        return said
    mistake = rng.choices(list(MISTAKES), list(MISTAKES.values()))[0]
    if mistake == "early" or "answer" in said:
        return _wrong_answer(environment, state, rng)
    if mistake == "wrong question":
        who = question(state.problem, state.read, whole=False).split()[0]
        return f"{who} {rng.choice([*RELATIONS[KINDS[who]]])}?"
    return ""


def _held(
    environment: DocumentsEnvironment, state: DocumentsState, agent: int, mistakes: float, rng: random.Random
) -> str:
    """Return what a holder says; its mistake is to tell anything that it knows, or to keep silent."""
    said = holder_says(state, agent)
    if rng.random() >= mistakes:
        return said
    own = state.problem.held(agent)
    if said and rng.random() < 0.5:
        return ""
    return _listed(state.problem, rng.sample(own, len(own))[: environment.tool_calls or None])


def _wrong_answer(environment: DocumentsEnvironment, state: DocumentsState, rng: random.Random) -> str:
    """Return an answer of the right kind, mostly a wrong one, with any facts as support."""
    problem, read = state.problem, state.read
    given = rng.choice([problem.answer, rng.choice(ENTITIES[KINDS[problem.answer]])])
    named = rng.sample(sorted(read), rng.randint(0, min(5, len(read))))[: environment.tool_calls or None]
    return "; ".join([*filter(None, [_listed(problem, named)]), f"answer {given}"])


def _listed(problem: DocumentsProblem, numbers: Sequence[int]) -> str:
    return "; ".join(problem.facts[number].label for number in numbers)


def _spaced(action: str) -> str:
    """Return an action with a space before it, as words in observations have: they are the same tokens then."""
    return f" {action}" if action else ""
