"""The dialogue as an `Environment`: both agents speak at once in every turn, until both have agreed to a plan.

An agreement is the word ``agree``, a day and a place, and nothing else.  It is an agent's last word: from then on it is
silent.  A plan is agreed if both agents have agreed to the same one.  Everything else that an agent says is a message,
which the other one reads.  Nothing is random, no program is run, and no model is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline_lib.environment_api.environment import Check, Exhibit, Outcome, Part
from pipeline_lib.environment_api.reward import total
from pipeline_lib.environment_kit.dialogue import Dialogue, measure_talk, price_of, words_of
from pipeline_lib.environments.planning.problem import AGENTS, PLANS, PRICES, SINGLE, Plan, PlanningProblem
from pipeline_lib.environments.planning.rewards import Talk, make_reward
from pipeline_lib.environments.planning.settings import MOST_TOKENS, PlanningSettings

_RULES = (
    "You are {name}. Find a day and a place that suit you and {other}{price}. Each word has a price, and a dash is "
    "silence. When you know the plan, agree, for example: agree mon park\n"
)
_RULES_ALONE = "Find a day and a place that suit first and second{price}. Write the plan, for example: agree mon park\n"
_PRICE = ", at a price within both budgets. The prices are " + ", ".join(
    f"{name} {price}" for name, price in PRICES.items()
)

_AGREEMENT = re.compile(r"\s*agree[\s:,]+(\w+)[\s,]+(\w+)[\s.!]*", re.IGNORECASE)


def read_agreement(text: str) -> Plan | None:
    """Return the plan that a text agrees to; None if it is a message.

    Examples:
        >>> read_agreement(" Agree: mon, park."), read_agreement("agree mon park or zoo")
        (('mon', 'park'), None)
    """
    found = _AGREEMENT.fullmatch(text)
    plan = (found[1].lower(), found[2].lower()) if found else None
    return plan if plan in PLANS else None


@dataclass(frozen=True, slots=True)
class PlanningState:
    """The state of an episode."""

    problem: PlanningProblem  #: the constraints
    turns: tuple[tuple[str, ...], ...]  #: what each agent said in each turn, empty for silence
    agreed: tuple[Plan | None, ...]  #: the plan that each agent has agreed to, if it has
    tokens: tuple[int, ...]  #: price of each agent's messages
    useless: tuple[int, ...]  #: price of the part of each agent's messages that told nothing new
    earned: Mapping[str, float] = field(default_factory=dict)  #: reward terms of the episode so far

    @property
    def plan(self) -> Plan | None:
        """Return the plan that all have agreed to, if there is one."""
        return self.agreed[0] if len(set(self.agreed)) == 1 else None

    def said(self, agent: int) -> set[str]:
        """Return the words that an agent has said."""
        return {word for turn in self.turns for word in words_of(turn[agent]).split()}


class PlanningEnvironment(Dialogue[PlanningProblem, PlanningState]):
    """Two agents with their constraints, or one with those of both; `task.METRICS` says what is measured."""

    def __init__(self, settings: PlanningSettings) -> None:
        self._single = settings.team == SINGLE
        self._agents = (SINGLE,) if self._single else AGENTS
        turns = 1 if self._single else settings.turns
        super().__init__(make_reward(settings.reward, turns), turns)

    def agents(self, problem: PlanningProblem) -> tuple[str, ...]:
        return self._agents

    def acting(self, state: PlanningState) -> Sequence[int]:
        return [agent for agent, plan in enumerate(state.agreed) if plan is None]

    def start(self, problem: PlanningProblem, seed: int = 0) -> PlanningState:
        count = len(self._agents)
        return PlanningState(problem, (), (None,) * count, (0,) * count, (0,) * count)

    def messages(self, state: PlanningState) -> Sequence[Sequence[str]]:
        return state.turns

    def observed(self, state: PlanningState, agent: int, cut: int) -> list[Part]:
        name, problem = self._agents[agent], state.problem
        price = _PRICE if problem.budgets else ""
        rules = (_RULES_ALONE if self._single else _RULES).format(name=name, other=AGENTS[1 - agent], price=price)
        told = [_constraints(problem, known) for known in (range(len(AGENTS)) if self._single else (agent,))]
        return [
            *([Part("rules", rules)] if problem.plain else ()),
            Part("constraints", "".join(told)),
            *self.transcript(state, self._agents, cut),
            Part("", f"turn {len(state.turns) + 1}\n{name}:"),
        ]

    def outcome(self, state: PlanningState, actions: Sequence[str]) -> Outcome[PlanningState]:
        names = self._agents
        if len(actions) != len(names):
            raise ValueError(f"got {len(actions)} actions for the {len(names)} agents of {state.problem.id}")
        # Whoever has agreed says no more, and what has no word is silence.
        said = tuple(
            " ".join(text.split()) if plan is None and words_of(text) else ""
            for text, plan in zip(actions, state.agreed, strict=True)
        )
        new = tuple(read_agreement(text) for text in said)
        prices = [0 if plan else price_of(text) for text, plan in zip(said, new, strict=True)]
        idle = [price - len(_news(state, agent, said[agent])) if price else 0 for agent, price in enumerate(prices)]
        after = replace(
            state,
            turns=(*state.turns, said),
            agreed=tuple(old or plan for old, plan in zip(state.agreed, new, strict=True)),
            tokens=tuple(before + price for before, price in zip(state.tokens, prices, strict=True)),
            useless=tuple(before + price for before, price in zip(state.useless, idle, strict=True)),
        )
        stated = sum(plan is not None for plan in after.agreed)
        share = state.problem.share(after.plan)
        talk = Talk(stated, after.plan is not None, share, sum(after.tokens), len(after.turns))
        earned, gained = self.gained(talk, state.earned)
        return Outcome(
            reward=total(gained),
            terms=gained,
            metrics=measure(after, names),
            state=replace(after, earned=earned),
            done=stated == len(names) or len(after.turns) >= self.turns,
            details={"answer": " ".join(after.plan or ())},
        )

    def divided(self, problem: PlanningProblem) -> bool:
        return not self._single

    def exhibit(self, state: PlanningState, actions: Sequence[str]) -> Exhibit:
        said = [f"{name}: {text.strip()}" for name, text in zip(self._agents, actions, strict=True) if words_of(text)]
        plans = [old or read_agreement(text) for old, text in zip(state.agreed, actions, strict=True)]
        if None in plans:
            return Exhibit("\n".join(said))
        same = len(set(plans)) == 1
        checks = [Check("both agree to the same plan", same, ", ".join(" ".join(plan) for plan in plans if plan))]
        if same and plans[0]:
            checks += [
                Check(f"it suits {name}", all(state.problem.satisfied(agent, plans[0])))
                for agent, name in enumerate(AGENTS)
            ]
        return Exhibit("\n".join(said), checks=tuple(checks))


def measure(state: PlanningState, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics of an episode so far; see `task.METRICS`."""
    share = state.problem.share(state.plan)
    return {
        "satisfied": float(share >= 1.0),
        "constraints": share,
        "agreed": float(state.plan is not None),
        "differed": float(None not in state.agreed and state.plan is None),
        **measure_talk(names, state.tokens, state.useless, len(state.turns), MOST_TOKENS),
    }


def _constraints(problem: PlanningProblem, agent: int) -> str:
    budget = f"budget {problem.budgets[agent]}; " if problem.budgets else ""
    return f"{AGENTS[agent]} {budget}days {' '.join(problem.days[agent])}; places {' '.join(problem.places[agent])}\n"


def _news(state: PlanningState, agent: int, text: str) -> set[str]:
    """Return the words of a text that tell what suits an agent, and that it has not said before."""
    if len(state.agreed) == 1:
        return set()  # nobody listens
    return ({*words_of(text).split()} & {*state.problem.told(agent)}) - state.said(agent)
