"""The interface of an environment for the audit of its rewards: the wanted outcome, scripted teams and searches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pipeline_lib.audit.edits import words_of
from pipeline_lib.audit.ladder import bounded, compare, make_rung
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.audit.search import PROBLEMS, Texts, judge, search_edits
from pipeline_lib.environment_api.environment import Environment, Outcome

#: Called as ``progress(done, total, text)``.
Progress = Callable[[int, int, str], None]

#: Joint actions of scripted teams: by name, the role (``degenerate``, ``working`` or ``other``) and a text per agent.
Teams = Mapping[str, tuple[str, Sequence[str]]]


class Examiner(ABC):
    """Audits rewards of one environment; each audit uses a new one."""

    wanted: ClassVar[str]  #: the metric that the reward should increase
    words: ClassVar[str]  #: that metric in words
    idle: ClassVar[tuple[str, ...]] = ()  #: metrics that measure doing nothing

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

    turns: ClassVar[int | None] = None  #: maximum number of turns; None plays episodes to the end
    edited_on: ClassVar[int] = PROBLEMS  #: problems on which edits are played

    @abstractmethod
    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        """Return the scripted teams on a problem; ``other`` is another problem, for teams that mix them up."""

    def examine(
        self, environment: Any, problems: Sequence[Any], seed: int, progress: Progress
    ) -> tuple[list[Rung], list[Check]]:
        """Play every team on every problem, then edits of some of them."""
        played = ScriptedPlay(environment, problems, self.teams, self.turns)
        progress(len(played.names), len(played.names), "scripted teams")
        rungs = played.rungs(self.wanted)
        checks = [bounded(played.rewards, played.bounds)]
        if not rungs or checks[0].numbers == {}:  # nothing can be compared with what is no number
            return rungs, checks + played.lost()
        edited, again = self._edited(environment, problems, rungs)
        progress(len(edited), len(edited), "edits of scripted teams")
        checks[0] = bounded([*played.rewards, *(rung.reward for rung in edited)], played.bounds)
        counted = self.least([*rungs, *edited]), environment.reward_bounds[1]
        checks += [*compare(rungs, self.words), *judge(rungs, edited, self.words, counted, again)]
        checks += self.further(rungs, played)
        return sorted(rungs, key=lambda rung: -rung.reward), checks + played.lost()

    def _edited(
        self, environment: Any, problems: Sequence[Any], rungs: Sequence[Rung]
    ) -> tuple[list[Rung], list[Rung]]:
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

        def play(wanted: Texts) -> list[Rung]:
            asked = iter(
                {name: (role, actions[place]) for name, (role, actions) in wanted.items()}
                for place in range(len(chosen))
            )
            rungs = ScriptedPlay(environment, chosen, lambda *_: next(asked), self.turns).rungs(self.wanted)
            return [self.judged(rung, wanted[rung.name][1], chosen) for rung in rungs]

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
        states = [environment.start(problem) for problem in self.problems]
        self.outcomes: list[Outcome[Any]] = environment.step(states, texts)
        environment.refuse_unusable_metrics(self.outcomes)
        self._earned = [outcome.reward for outcome in self.outcomes]
        self._terms = [dict(outcome.terms) for outcome in self.outcomes]
        turns = 1
        while turns != max_turns and (
            waiting := [i for i, outcome in enumerate(self.outcomes) if not outcome.done and self._known(i)]
        ):
            turns += 1
            states = [self.outcomes[i].state for i in waiting]
            further = environment.step(states, [texts[i] for i in waiting])
            environment.refuse_unusable_metrics(further)
            for i, outcome in zip(waiting, further, strict=True):
                self.outcomes[i] = outcome
                earned = self._earned[i]
                self._earned[i] = None if earned is None or outcome.reward is None else earned + outcome.reward
                for name, value in outcome.terms.items():
                    self._terms[i][name] = self._terms[i].get(name, 0.0) + value
        self.rewards = [reward for reward in self._earned if reward is not None]
        self._environment, self._turns = environment, turns

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
