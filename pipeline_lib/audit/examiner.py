"""The interface of an environment for the audit of its rewards: the wanted outcome, scripted teams and searches.

One search is common to all: who earns what no scripted team earns?  A reward may pay for something that no scripted
team does: type hints, exclamation marks.  Each edit of `pipeline_lib.audit.edits` is played on the best working team
and on the best degenerate ones, a few of them also on one agent's texts alone; the edits that raise the reward or any
of its terms are then added one after the other as long as the reward rises.  What the edited teams earn is compared
with what they do of the task; and what nobody earns, although the reward's bounds promise it, counts as earned without
the task.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from pipeline_lib.audit.edits import PROGRAM, TEXT, Edit, edits_with, spoiled
from pipeline_lib.audit.result import (
    DOUBTFUL,
    UNDONE,
    Check,
    Rung,
    Status,
    best_policy,
    bounded,
    compare,
    form,
    make_rung,
)
from pipeline_lib.audit.reward_words import Words, words_of
from pipeline_lib.environment_api.environment import Environment, Outcome

#: Problems on which edits are played, and the most edits that are added to one team.
PROBLEMS, MOST = 3, 8

#: Gains below this share of the reward's range do not count.
_VISIBLE = 0.005

#: Change of a team's mean reward, as a share of the range, from which on a reward is said to depend on more than texts.
_MOVED = 0.1

#: Change of a team's mean reward that is a rounding error.
_ROUNDING = 1e-9

#: Edits that are also tried on the first and on the last agent alone.
ALONE: Mapping[str, Edit] = {
    "nothing": lambda text: "",
    "ten times": TEXT["ten times"],
    "only its first third": TEXT["only its first third"],
}

#: Changes the texts of all agents.
_ActionsEdit = Callable[[Sequence[str]], list[str]]
#: By name of a team: its role, and for each problem a text per agent.
Team = tuple[str, Sequence[Sequence[str]]]
Texts = Mapping[str, Team]
Play = Callable[[Texts], Sequence[Rung]]


class Edited(NamedTuple):
    """A team with edits, or without any, on the problems of the search."""

    base: str  #: the scripted team that it was made from
    rung: Rung


def search_edits(play: Play, texts: Texts, rungs: Sequence[Rung], words: Words) -> list[Edited]:
    """Return teams with edits, and the teams that they were made from.

    The best working team is also played `spoiled`: what it earns by the way is earned without the task.  So is the best
    team of all that do the task, whatever its role: it may be the only one that earns a term.

    Args:
        play: plays teams on the search's problems.
        texts: scripted teams on these problems.
        rungs: what scripted teams earn, on all problems.
        words: in the source of the reward (`words_of`).
    """
    edits = {name: _of_all(edit) for name, edit in {**TEXT, **PROGRAM, **edits_with(words)}.items()}
    agents = max((len(actions) for _, problems in texts.values() for actions in problems), default=0)
    for place in sorted({0, agents - 1}) if agents > 1 else ():
        edits |= {f"{name} for agent {place + 1} alone": _of_one(edit, place) for name, edit in ALONE.items()}

    def edited(team: Team, names: Sequence[str]) -> Team:
        return _changed(team, [edits[name] for name in names])

    ranked = [rung for rung in sorted(rungs, key=lambda rung: -rung.reward) if rung.name in texts]
    working = [rung.name for rung in ranked if rung.role == "working"][:1]
    wrong = [rung.name for rung in ranked if rung.role == "degenerate"]
    programs = [name for name in wrong if edited(texts[name], ["type hints"]) != texts[name]]
    bases = list(dict.fromkeys((*working, *wrong[:1], *programs[:1])))
    single: dict[tuple[str, ...], Team] = {(base,): texts[base] for base in bases}
    for base in bases:
        for name in edits:
            changed = edited(texts[base], [name])
            if changed not in single.values():
                single[base, name] = changed
    found = dict(zip(single, play(_named(single)), strict=True))
    span = max(rung.reward for rung in (*rungs, *found.values())) - min(
        rung.reward for rung in (*rungs, *found.values())
    )
    chosen: dict[str, list[str]] = {base: [] for base in bases}
    queues = {base: _useful(found, base, _VISIBLE * span) for base in bases}
    best = {base: found[base,].reward for base in bases}
    while any(queues.values()):
        tried = {(base, *chosen[base], queue.pop(0)): base for base, queue in queues.items() if queue}
        played = play(_named({way: edited(texts[base], way[1:]) for way, base in tried.items()}))
        for (way, base), rung in zip(tried.items(), played, strict=True):
            found[way] = rung
            if rung.reward > best[base] + _VISIBLE * span:
                chosen[base], best[base] = list(way[1:]), rung.reward
    wasted: dict[tuple[str, ...], Team] = {}
    most = max((rung.outcome for rung in ranked), default=0.0)
    doing = [rung.name for rung in ranked if rung.outcome >= DOUBTFUL * most > 0]
    for base in dict.fromkeys((*working, *doing[:1])):
        team = "degenerate", _changed(texts[base], [_of_all(spoiled)])[1]
        wasted |= {(f"{base}, spoiled", *names): edited(team, names) for names in ([], chosen.get(base, []))}
    found |= dict(zip(wasted, play(_named(wasted)), strict=True))
    return [Edited(way[0].removesuffix(", spoiled"), rung) for way, rung in found.items()]


def judge(
    rungs: Sequence[Rung], edited: Sequence[Edited], words: str, bounds: tuple[float, float], again: Sequence[Rung] = ()
) -> list[Check]:
    """Judge what scripted and edited teams earn.

    Args:
        rungs: scripted teams on all problems.
        edited: result of `search_edits`; may be empty.
        words: the wanted metric in words.
        bounds: least reward of any team that counts, and greatest reward of a turn by the reward's own bounds.
        again: some teams of ``edited``, played once more after the search.

    Returns:
        ``edits``: whether the edited team that earns most does the task (`result.best_policy`); ``form``: which share
        of the greatest reward is paid to a team that leaves the task undone, with what nobody earns added to it;
        ``repeatable``, if teams were played again: FAIL if they earn something else than before by more than a tenth of
        what separates the edited teams, WARN if by less.
    """
    played = [team.rung for team in edited]
    before = {rung.name: rung.reward for rung in played}
    same = bool(again) and all(math.isclose(rung.reward, before[rung.name], abs_tol=_ROUNDING) for rung in again)
    return [
        *_edits(played, words, same),
        _form(rungs, _on_all(rungs, edited), words, bounds),
        *_repeatable(played, again),
    ]


def _edits(edited: Sequence[Rung], words: str, same: bool) -> list[Check]:
    """Compare edited teams; if the ``same`` texts always earn the same, who earns less on these problems earns less."""
    if not edited:
        return []
    errors = [0.0 if same else r.error for r in edited]
    found = best_policy([r.reward for r in edited], [r.outcome for r in edited], errors)
    team = edited[found.index]
    numbers = {"tried": len(edited), "best": team.name, "reward": team.reward, "outcome": team.outcome}
    sentence = (
        f"Of {len(edited)} edits of scripted teams, '{team.name}' earns most or as much as any "
        f"({team.reward:.3f}), with {words} {team.outcome:.2f} of at most {found.most:.2f}."
    )
    status = found.status if found.most else Status.WARN
    mend = "" if status is Status.PASS else f"pay for {words} up to its maximum, and less for '{team.name}'."
    return [Check("edits", status, sentence, numbers, mend)]


def _on_all(rungs: Sequence[Rung], edited: Sequence[Edited]) -> list[Rung]:
    """Return what edited teams would earn on all problems: what their base earns there, and what the edits change.

    On the few problems of the search a constant may pass many tests by luck.
    """
    everywhere = {rung.name: rung for rung in rungs}
    here = {team.base: team.rung for team in edited if team.rung.name == team.base}
    found = []
    for base, rung in edited:
        if base in here:
            reward = rung.reward + everywhere[base].reward - here[base].reward
            outcome = max(0.0, rung.outcome + everywhere[base].outcome - here[base].outcome)
            rung = replace(rung, reward=reward, outcome=outcome)
        found.append(rung)
    return found


def _form(rungs: Sequence[Rung], edited: Sequence[Rung], words: str, bounds: tuple[float, float]) -> Check:
    every = (*rungs, *edited)
    most = max((rung.outcome for rung in every), default=0.0)
    undone = [rung for rung in every if rung.role == "degenerate" and rung.outcome < UNDONE * most]
    if not undone or not any(rung.role == "working" for rung in rungs):
        return Check("form", Status.WARN, "No team is known that does the task, so the possible reward is unknown.")
    top, best = max(undone, key=lambda rung: rung.reward), max(every, key=lambda rung: rung.reward)
    bottom, greatest = bounds
    span, unearned = best.reward - bottom, max(0.0, greatest - best.reward)
    share = (top.reward - bottom) / span if span > 0 else 1.0
    possible = (top.reward - bottom + unearned) / (span + unearned) if span + unearned > 0 else 1.0
    numbers = {"share": share, "team": top.name, "best": best.name, "unearned": unearned, "possible": possible}
    paid = (
        f"'{top.name}', with {words} {top.outcome:.2f}, earns {share:.0%} of what the best team, '{best.name}', earns "
        "above the least."
    )
    status = form(share)
    if status is not Status.FAIL and form(possible) is not status:
        return Check(
            "form",
            form(possible),
            f"{paid} No team that was tried earns more than {best.reward:.3f}, and the reward's bounds promise "
            f"{greatest:.3f}{_never_earned(every)}: whoever earns the rest may do so without the task, and would then "
            f"earn {possible:.0%} of the maximum.",
            numbers,
            "declare bounds that are reached, give that term less weight, or add a scripted team that earns it.",
        )
    mend = "" if status is Status.PASS else f"give {words} more weight than all that can be earned without it."
    return Check("form", status, paid, numbers, mend)


def _never_earned(rungs: Sequence[Rung]) -> str:
    """Return the terms that nobody earns as a clause; empty if there are none."""
    names = sorted({name for rung in rungs for name in rung.terms})
    never = [name for name in names if max(rung.terms.get(name, 0.0) for rung in rungs) <= 0.0]
    return f" (nobody earns anything by the term{'s' * (len(never) > 1)} {', '.join(never)})" if never else ""


def _repeatable(edited: Sequence[Rung], again: Sequence[Rung]) -> list[Check]:
    if not again:
        return []
    before = {rung.name: rung.reward for rung in edited}
    rewards = [rung.reward for rung in edited]
    span = max(rewards) - min(rewards)
    moved = max(again, key=lambda rung: abs(rung.reward - before[rung.name]))
    change = moved.reward - before[moved.name]
    numbers = {"team": moved.name, "before": before[moved.name], "after": moved.reward}
    if math.isclose(moved.reward, before[moved.name], abs_tol=_ROUNDING):
        return [Check("repeatable", Status.PASS, "The same texts earn the same before and after the search.", numbers)]
    much = abs(change) > _MOVED * span > 0
    sentence = (
        f"'{moved.name}' earned {before[moved.name]:.4g} before the search for edits and {moved.reward:.4g} for the "
        f"same texts after it: the reward depends on {'how often it was asked' if much else 'chance'}."
    )
    status = Status.FAIL if much else Status.WARN
    return [Check("repeatable", status, sentence, numbers, "let the reward depend on the episode only.")]


def _changed(team: Team, edits: Sequence[_ActionsEdit]) -> Team:
    role, problems = team
    texts = [list(actions) for actions in problems]
    for edit in edits:
        texts = [edit(actions) for actions in texts]
    return role, texts


def _of_all(edit: Edit) -> _ActionsEdit:
    return lambda actions: [edit(text) for text in actions]


def _of_one(edit: Edit, place: int) -> _ActionsEdit:
    """Edit the text of one agent alone: a reward may pay for texts that are unlike each other."""
    return lambda actions: [edit(text) if at == place else text for at, text in enumerate(actions)]


def _named(ways: Mapping[tuple[str, ...], Team]) -> dict[str, Any]:
    return {" with ".join((way[0], " and ".join(way[1:]))) if way[1:] else way[0]: team for way, team in ways.items()}


def _useful(found: Mapping[tuple[str, ...], Rung], base: str, least: float) -> list[str]:
    """Return the edits of a base that raise its reward or one of its terms, those that raise the reward most first."""
    plain = found[base,]
    gains = {}
    for way, rung in found.items():
        if way[0] != base or len(way) == 1:
            continue
        terms = [rung.terms[name] - plain.terms.get(name, 0.0) for name in rung.terms]
        gains[way[1]] = (rung.reward - plain.reward, max(terms, default=0.0))
    useful = {name: gain for name, gain in gains.items() if max(gain) > least}
    return sorted(useful, key=lambda name: (-useful[name][0], -useful[name][1]))[:MOST]


#: Called as ``progress(done, total, text)``.
Progress = Callable[[int, int, str], None]

#: Called as ``watch(played, episodes)``.
Watch = Callable[[int, int], None]

#: Joint actions of scripted teams: by name, the role (``degenerate``, ``working`` or ``other``) and a text per agent.
Teams = Mapping[str, tuple[str, Sequence[str]]]


class Examiner(ABC):
    """Audits rewards of one environment; each audit uses a new one."""

    wanted: ClassVar[str]  #: the metric that the reward should increase
    words: ClassVar[str]  #: that metric in words
    idle: ClassVar[tuple[str, ...]] = ()  #: metrics that measure doing nothing
    #: What the parts of `examine` take relative to each other; the progress of each begins at 0.
    parts: ClassVar[tuple[float, ...]] = (1.0,)

    def watched(self, environment: Any, problems: Sequence[Any]) -> Environment[Any, Any]:
        """Return the environment for the base policy: ``environment``, or a wrapper that records its episodes."""
        return environment

    @abstractmethod
    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        """Run every check that needs no model; return the ladder, best reward first, and the checks."""


class ScriptedExaminer(Examiner):
    """Plays scripted teams, which write the same in every turn, and checks the order of their rewards."""

    parts: ClassVar[tuple[float, ...]] = (1.0, 2.0)  # scripted teams, and edits of them
    turns: ClassVar[int | None] = None  #: maximum number of turns; None plays episodes to the end
    edited_on: ClassVar[int] = PROBLEMS  #: problems on which edits are played
    #: Episodes that are played between two reports of the progress; None: all at once, whatever they take.
    at_once: ClassVar[int | None] = 64

    @abstractmethod
    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return the scripted teams on a problem; ``other`` is another problem, for teams that mix them up."""

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        """Play every team on every problem, then edits of some of them."""

        def watch(done: int, episodes: int) -> None:
            progress(done, episodes, "scripted teams")

        played = ScriptedPlay(environment, problems, self.teams, self.turns, self.at_once, watch)
        rungs = played.rungs(self.wanted)
        checks = [bounded(played.rewards, played.bounds)]
        if not rungs or checks[0].numbers == {}:  # nothing can be compared with what is no number
            return rungs, checks + played.lost()
        edited, again = self._edited(environment, problems, rungs, progress)
        progress(len(edited), len(edited), "edits of scripted teams")
        checks[0] = bounded([*played.rewards, *(team.rung.reward for team in edited)], played.bounds)
        counted = self.least([*rungs, *(team.rung for team in edited)]), environment.reward_bounds[1]
        checks += [*compare(rungs, self.words), *judge(rungs, edited, self.words, counted, again)]
        checks += self.further(rungs, played)
        return sorted(rungs, key=lambda rung: -rung.reward), checks + played.lost()

    def _edited(
        self, environment: Any, problems: Sequence[Any], rungs: Sequence[Rung], progress: Progress
    ) -> tuple[list[Edited], list[Rung]]:
        """Return edited teams, and the best working one played again after the search."""
        chosen: list[Any] = []
        teams: list[Teams] = []
        for number, problem in enumerate(problems):
            own = self.teams(environment, problem, problems[(number + 1) % len(problems)])
            if len(chosen) < self.edited_on and any(role == "working" for role, _ in own.values()):
                chosen.append(problem)
                teams.append(own)
        if not chosen:
            return [], []
        names = [name for name in teams[0] if all(name in own for own in teams)]
        texts = {name: (teams[0][name][0], [own[name][1] for own in teams]) for name in names}
        before = 0  # teams of earlier batches

        def play(wanted: Texts) -> list[Rung]:
            nonlocal before
            earlier, before = before, before + len(wanted)

            def watch(done: int, episodes: int) -> None:
                # One team more, because the best one is played again after the last batch.
                progress(earlier + done * len(wanted) // max(1, episodes), before + 1, "edits of scripted teams")

            asked = iter(
                {name: (role, actions[place]) for name, (role, actions) in wanted.items()}
                for place in range(len(chosen))
            )
            played = ScriptedPlay(environment, chosen, lambda *_: next(asked), self.turns, self.at_once, watch)
            return [self.judged(rung, wanted[rung.name][1], chosen) for rung in played.rungs(self.wanted)]

        edited = search_edits(play, texts, rungs, words_of(environment.paid_by))
        best = max((rung for rung in rungs if rung.role == "working"), key=lambda rung: rung.reward).name
        return edited, play({best: texts[best]})

    def least(self, rungs: Sequence[Rung]) -> float:
        """Return the least reward of any team, above which others earn something."""
        return min(rung.reward for rung in rungs)

    def judged(self, rung: Rung, actions: Sequence[Sequence[str]], problems: Sequence[Any]) -> Rung:
        """Return what an edited team counts as, which wrote these ``actions`` on these ``problems``."""
        return rung

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        """Return further checks of the teams' rewards."""
        return []


class ScriptedPlay:
    """Episodes of scripted teams on some problems.

    Args:
        environment: in which they are played.
        problems: on which each team plays one episode.
        teams: returns the teams on a problem; the next problem is given, too (`ScriptedExaminer.teams`).
        max_turns: the most turns of an episode; None: it is played to its end.
        at_once: episodes that the environment is given at once; None: all.
        watch: called after each of these parts, with the number of episodes played and of all.

    Attributes:
        names: team of every episode.
        problems: problem of every episode.
        outcomes: of the last turn of every episode.
        rewards: sum over turns, of every episode that was not lost.
    """

    def __init__(
        self,
        environment: Environment[Any, Any],
        problems: Sequence[Any],
        teams: Callable[[Any, Any, Any], Teams],
        max_turns: int | None,
        at_once: int | None = None,
        watch: Watch = lambda played, episodes: None,
    ) -> None:
        self.names: list[str] = []
        self.problems: list[Any] = []
        self._roles: dict[str, str] = {}
        texts: list[Sequence[str]] = []
        for number, problem in enumerate(problems):
            other = problems[(number + 1) % len(problems)]
            for name, (role, actions) in teams(environment, problem, other).items():
                self._roles.setdefault(name, role)
                self.names.append(name)
                self.problems.append(problem)
                texts.append(actions)
        self._environment, self._at_once, self._watch = environment, at_once, watch
        self._played = 0  # turns, with those that an episode that has ended might have had
        most = max_turns or environment.turns
        watch(0, len(self.names))
        states = [environment.start(problem) for problem in self.problems]
        self.outcomes: list[Outcome[Any]] = self._step(states, texts, 1, most)
        self._earned = [outcome.reward for outcome in self.outcomes]
        self._terms = [dict(outcome.terms) for outcome in self.outcomes]
        turns = 1
        while turns != max_turns and (
            waiting := [i for i, outcome in enumerate(self.outcomes) if not outcome.done and self._known(i)]
        ):
            turns += 1
            states = [self.outcomes[i].state for i in waiting]
            further = self._step(states, [texts[i] for i in waiting], turns, most)
            for i, outcome in zip(waiting, further, strict=True):
                self.outcomes[i] = outcome
                earned = self._earned[i]
                self._earned[i] = None if earned is None or outcome.reward is None else earned + outcome.reward
                for name, value in outcome.terms.items():
                    self._terms[i][name] = self._terms[i].get(name, 0.0) + value
        self.rewards = [reward for reward in self._earned if reward is not None]
        self._turns = turns

    def _step(self, states: Sequence[Any], texts: Sequence[Sequence[str]], turn: int, most: int) -> list[Outcome[Any]]:
        """Return the outcomes of a turn, of at most ``most``, part by part."""
        outcomes: list[Outcome[Any]] = []
        size = self._at_once or max(1, len(states))
        for begin in range(0, len(states), size):
            part = self._environment.step(states[begin : begin + size], texts[begin : begin + size])
            self._environment.refuse_unusable_metrics(part)
            self._played += sum(most - turn + 1 if outcome.done else 1 for outcome in part)
            self._watch(min(len(self.names), self._played // most), len(self.names))
            outcomes += part
        return outcomes

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest reward of an episode."""
        least, greatest = self._environment.reward_bounds
        return min(least, least * self._turns), max(greatest, greatest * self._turns)

    def _known(self, episode: int) -> bool:
        return self._earned[episode] is not None

    def rungs(self, wanted: str) -> list[Rung]:
        """Return a rung for every team that was not lost everywhere, in the order of the teams."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            if self._known(i):
                found.setdefault(name, []).append(i)
        return [
            make_rung(
                name,
                self._roles[name],
                [float(self._earned[i] or 0.0) for i in episodes],
                [self.outcomes[i].metrics[wanted] for i in episodes],
                [self._terms[i] for i in episodes],
                [self.outcomes[i].metrics for i in episodes],
            )
            for name, episodes in found.items()
        ]

    def lost(self) -> list[Check]:
        """Return a check with the number of lost episodes, if there are any."""
        lost = len(self.names) - len(self.rewards)
        if not lost:
            return []
        return [
            Check(
                "infrastructure",
                Status.WARN if lost < 0.05 * len(self.names) else Status.FAIL,
                f"{lost} of {len(self.names)} programs got no verdict because the sandbox failed.",
                {"lost": lost, "played": len(self.names)},
            )
        ]


def solutions_pass(played: ScriptedPlay, metrics: Sequence[str]) -> Check:
    """Check that the solutions that problems came with, the teams ``reference...``, have the value 1 in these metrics.

    Where one does not, the full reward cannot be reached.
    """
    solved = [
        (problem.id, min(outcome.metrics[metric] for metric in metrics))
        for name, problem, outcome in zip(played.names, played.problems, played.outcomes, strict=True)
        if name.startswith("reference") and outcome.reward is not None
    ]
    if not solved:
        return Check("reference", Status.WARN, "No problem has a known solution, so no working team could be played.")
    if broken := [problem for problem, least in solved if least < 1.0]:
        sentence = (
            f"{len(broken)} of {len(solved)} known solutions fail tests, first that of '{broken[0]}': the full reward "
            "cannot be reached there."
        )
        return Check("reference", Status.FAIL, sentence, {"broken": broken})
    return Check("reference", Status.PASS, f"All {len(solved)} known solutions pass every test.")
