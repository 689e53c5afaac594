"""Play a team on problems and record the episodes and their transcripts, the same way for every team and protocol.

All episodes are played side by side.  The random draws of an episode depend only on the seed, its problem and its
number, so episode j of a problem is paired between any two teams.  Every sampled token is counted.

Play subteams of a team: every subset of its agents, the others replaced by the environment's stub.

With up to `MOST_AGENTS` agents all 2^N subteams are played, from which `tested_teams` computes Shapley values without
an approximation; with more agents only the whole team and the team without each agent.  All subteams play the same
problems with the same random draws, side by side, so their programs are executed in one batch per turn; an action that
several subteams share is sampled once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.environment_api.task import Problem
from pipeline_lib.evaluation.episodes import EpisodeRecord, Guest
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.play import Decision, Player, Root, paired
from pipeline_lib.play.experience import add_amounts
from pipeline_lib.play.fixing import Fixed, FixedActions, SampledOnce
from pipeline_lib.play.watching import Watcher
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Environment, Outcome, Part
    from pipeline_lib.play.experience import Decision
    from pipeline_lib.play.roots import Root
    from pipeline_lib.policies.policy import Team

#: Source of what belongs to no part of the observation.
OTHER = "protocol, tool or chat template"


class TranscriptRecorder(Watcher):
    """Records the transcripts of episodes.

    Args:
        environment: the environment in which they are played.
        roots: their first states.

    Attributes:
        transcripts: a JSON object per root: ``agents``; ``told`` (first observation of each agent); ``turns`` (texts of
            all agents, by turn); and of the last joint action ``text``, ``language`` and ``checks`` (question, whether
            it passed, answer).  ``sampled`` and ``seen`` are there after `add_prompts`.
    """

    listens: ClassVar[bool] = False

    def __init__(self, environment: Environment[Any, Any], roots: Sequence[Root]) -> None:
        self._environment = environment
        self._places = {id(root): place for place, root in enumerate(roots)}
        self._states: list[Any] = []
        self._parts: list[list[dict[str, Sequence[Part]]]] = [[] for _ in roots]  # by episode, turn and agent
        self.transcripts: list[dict[str, Any]] = []
        for root in roots:
            agents = environment.agents(root.problem)
            state = environment.start(root.problem, root.chance.start())
            acting = environment.acting(state)
            observations = [
                environment.observe(state, number) if acting is None or number in acting else ""
                for number in range(len(agents))
            ]
            self._states.append(state)
            self.transcripts.append({"agents": list(agents), "told": observations, "turns": []})

    def judged(self, root: Root, turn: int, joint_action: Sequence[str], outcome: Outcome[Any]) -> None:
        """Add a turn to the transcript of an episode, if it is recorded."""
        if (place := self._places.get(id(root))) is None:
            return
        transcript, before = self.transcripts[place], self._states[place]
        names, acting = transcript["agents"], self._environment.acting(before)
        numbers = range(len(names)) if acting is None else acting
        self._parts[place].append({names[number]: self._environment.parts(before, number) for number in numbers})
        self._states[place] = outcome.state
        exhibit = self._environment.exhibit(outcome.state, joint_action)
        transcript["turns"].append(list(joint_action))
        transcript["text"], transcript["language"] = exhibit.text, exhibit.language
        transcript["checks"] = [[check.what, check.passed, check.answer] for check in exhibit.checks]

    def add_prompts(self, place: int, decisions: Sequence[Decision], team: Team) -> None:
        """Add to a transcript what its agents read: the prompts as the models got them, with the source of each part.

        ``sampled`` has a list per turn with agent, tokens and log-probability (natural, to three decimals) of each
        action.
        ``seen`` has a list per turn with an object per prompt: ``agent``, ``prompt`` (pairs of source and text) and
        ``answer``.  It is left out if there was one turn in which every agent read its first observation only.
        ``decisions`` are the turns of the episode number ``place``.  Tokens of a chat template that have no text are
        left out.
        """
        transcript = self.transcripts[place]
        transcript["sampled"] = [
            [
                [agent, len(action.ids), round(sum(action.logprobs), 3)]
                for agent, action in zip(decision.agents, decision.actions, strict=True)
            ]
            for decision in decisions
        ]
        seen = []
        for decision, parts in zip(decisions, self._parts[place], strict=True):
            read = zip(decision.agents, decision.policies, decision.prompts, decision.actions, strict=True)
            seen.append(
                [
                    {
                        "agent": agent,
                        "prompt": attributed(team.policies[policy].decode(prompt), parts[agent]),
                        "answer": action.text,
                    }
                    for agent, policy, prompt, action in read
                ]
            )
        if len(seen) > 1 or any(len(prompts) > len({one["agent"] for one in prompts}) for prompts in seen):
            transcript["seen"] = seen


def attributed(prompt: str, parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return a prompt as pairs of source and text, which joined are the prompt.

    Parts that were cut from the prompt are passed over.  Text that belongs to no part comes from the protocol (texts of
    other agents, requests) or from the chat template.
    """
    found: list[tuple[str, str]] = []

    def add(source: str, text: str) -> None:
        if found and found[-1][0] == source:
            found[-1] = source, found[-1][1] + text
        elif text:
            found.append((source, text))

    done = 0
    for part in parts:
        start = prompt.find(part.text, done) if part.text else -1
        if start >= 0:
            add(OTHER, prompt[done:start])
            add(part.source, part.text)
            done = start + len(part.text)
    add(OTHER, prompt[done:])
    return found


def evaluate_team(
    player: Player, problems: Sequence[Problem], samples: int, seed: int, keep_texts: bool = False
) -> list[EpisodeRecord]:
    """Play ``samples`` > 0 episodes on every problem, all draws from ``seed``; keep their transcripts if
    ``keep_texts``.

    Returns:
        One record per episode, grouped by problem in the order of ``problems``.  ``details`` contains, in addition to
            those of the environment: ``prompt_tokens``, ``requests`` and ``tool_calls`` (over all agents and rounds),
            ``critical_path_tokens`` (the latency of the team in tokens: of each round, the longest action), ``cut_off``
            (actions that reached the length limit), ``unread`` (prompts that a protocol or a result of a tool made too
            long for the policy's context; the agent then writes nothing), ``cut_turns`` and ``cut_tokens`` (what was
            cut from observations because earlier turns did not fit into a context), and each of the environment's
            ``costs``, summed over turns.

    Raises:
        ValueError: ids repeat, ``samples`` is not positive, or the protocol cannot be played by the agents.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}; it must be at least 1")
    if repeated := [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]:
        raise ValueError(f"problem {repeated[0]!r} occurs more than once; its episodes could not be told apart")
    roots = paired(problems, samples, seed)
    recorder = TranscriptRecorder(player.environment, roots) if keep_texts else None
    episodes = replace(player, watcher=recorder).play(roots).episodes()
    retries = player.environment.retries
    records = [
        record_of(problems[i // samples], i % samples, decisions, retries) for i, decisions in enumerate(episodes)
    ]
    if recorder is not None:
        for number, transcript in enumerate(recorder.transcripts):
            recorder.add_prompts(number, episodes[number], player.team)
            records[number] = replace(records[number], shown=transcript)
    return records


def roots_of(
    guest: Guest,
    invited: Sequence[Guest],
    agents: Callable[[Any], Sequence[str]],
    problems: Sequence[Problem],
    samples: int,
    seed: int,
) -> list[Root]:
    """Return the episodes of one of the ``invited`` guests.

    Every episode of the team (``samples`` per problem) has one guest, whose agent is one of the ``agents`` of that
    problem; they take turns, beginning with another one on every problem, so that all of them meet as many problems
    and draws as the numbers allow.
    """
    number = {problem.id: at for at, problem in enumerate(problems)}
    roots = []
    for root in paired(problems, samples, seed):
        here = [one for one in invited if one.agent in agents(root.problem)]
        if here and here[(number[root.problem.id] + getattr(root.chance, "sample", 0)) % len(here)] == guest:
            roots.append(root)
    return roots


def evaluate_guest(player: Player, guest: Guest, roots: Sequence[Root]) -> list[EpisodeRecord]:
    """Play the episodes of a guest, who already is in the player's team.

    Each record's ``details`` has ``guest``, with ``agent`` and ``run``; draws are those of the team's own episode of
    the same number.
    """
    records = []
    for root, decisions in zip(roots, player.play(roots).episodes(), strict=True):
        record = record_of(root.problem, getattr(root.chance, "sample", 0), decisions, player.environment.retries)
        records.append(replace(record, details={**record.details, "guest": guest._asdict()}))
    return records


def refuse_losses(records: Sequence[EpisodeRecord], share: float, who: str) -> None:
    """Raise EvaluationError if a greater share than ``share``, in [0, 1], of the episodes of ``who`` was lost."""
    lost = sum(record.reward is None for record in records)
    if lost > share * len(records):
        raise EvaluationError(
            f"{who}: {lost} of {len(records)} episodes were lost because the infrastructure failed, more than "
            f"sandbox.infra_error_share ({share:g}) allows; look at the sandbox's errors, then run the same command "
            "again: it plays these episodes anew and keeps those of other teams"
        )


#: Counts of a decision that are added up over an episode.
_COUNTED = ("tool_calls", "unread", "cut_turns", "cut_tokens")


def record_of(problem: Problem, sample: int, decisions: Sequence[Decision], retries: bool) -> EpisodeRecord:
    """Return a finished episode as a row.

    With ``retries`` turns are attempts at the same thing: each is recorded, and the reward is that of the last one.
    Their sum would be greater for a team that fails first.
    """
    actions = [action for decision in decisions for action in decision.actions]
    lost = any(decision.reward is None for decision in decisions)
    paid = decisions[-1:] if retries else decisions
    terms: dict[str, float] = {}
    costs: dict[str, float] = {}
    for decision in paid:
        add_amounts(terms, decision.terms)
    for decision in decisions:
        add_amounts(costs, decision.details.get("costs", {}))
    scored = [{"reward": float(d.reward), **d.metrics} for d in decisions if d.reward is not None]
    return EpisodeRecord(
        problem=problem.id,
        family=problem.family,
        sample=sample,
        reward=None if lost else float(sum(decision.reward or 0.0 for decision in paid)),
        turns=len(decisions),
        terms=terms,
        metrics=dict(decisions[-1].metrics),
        tokens=sum(len(action.ids) for action in actions),
        details={
            **{name: value for name, value in decisions[-1].details.items() if name != "costs"},
            **costs,
            "prompt_tokens": sum(len(prompt) for decision in decisions for prompt in decision.prompts),
            "critical_path_tokens": sum(_longest(decision) for decision in decisions),
            "requests": len(actions),
            "cut_off": sum(action.finish == "length" for action in actions),
            **{name: sum(getattr(one, name) for one in decisions) for name in _COUNTED},
        },
        attempts=scored if retries and not lost and len(scored) > 1 else (),
        wrote=digest([action.text.strip() for action in actions])[:16],
    )


def _longest(decision: Decision) -> int:
    """Return the sum over rounds of the tokens of the longest action."""
    longest: dict[int, int] = {}
    for number, action in zip(decision.rounds, decision.actions, strict=True):
        longest[number] = max(longest.get(number, 0), len(action.ids))
    return sum(longest.values())


#: Teams of up to this many agents are played in all subsets.
MOST_AGENTS = 4


def subsets(agents: int) -> list[tuple[int, ...]]:
    """Return the subteams that are played, the whole team first; each as numbers of the agents that are present."""
    if agents <= MOST_AGENTS:
        return [found for size in range(agents, -1, -1) for found in itertools.combinations(range(agents), size)]
    return [*itertools.combinations(range(agents), agents), *itertools.combinations(range(agents), agents - 1)]


def evaluate_subteams(player: Player, problems: Sequence[Problem], samples: int, seed: int) -> list[EpisodeRecord]:
    """Play ``samples`` > 0 episodes per problem and subteam; the whole team's are those of `evaluate_team` with
    ``seed``.

    Each record's ``details`` has ``agents`` (the names of all) and ``present`` (of those in the subteam), in addition
    to what `evaluate_team` records.
    """
    known = {problem.id: problem for problem in problems}
    roots: list[Root] = []
    named: list[dict[str, Any]] = []
    for root in paired(problems, samples, seed):
        agents = player.environment.agents(root.problem)
        for present in subsets(len(agents)):
            absent = frozenset(range(len(agents))) - set(present)
            roots.append(replace(root, problem=Fixed(root.problem, absent)))
            named.append({"agents": list(agents), "present": [agents[i] for i in present]})
    playing = replace(
        player, environment=FixedActions(player.environment), engine=SampledOnce(player.engine), watcher=None
    )
    records = []
    for root, names, decisions in zip(roots, named, playing.play(roots).episodes(), strict=True):
        sample = getattr(root.chance, "sample", 0)
        record = record_of(known[root.problem.id], sample, decisions, player.environment.retries)
        records.append(replace(record, details={**record.details, **names}))
    return records
