"""The plans of credit: which combinations of a group's actions are executed, and each action's value.

`PLANS` has them by name.  The reducer of all plans except `column` is `row_means`: the value of an action is the mean
of its row.  With the cells C of a group and their rewards r, the value of action g of agent i is

    Q_i(g) = mean of r_c over the cells c in C with c_i = g

an estimate of E[r | agent i does g], averaged over the other agents' actions.  Minus the mean over g it is the row mean
minus the grand mean of MAGRPO's cross mode (arXiv 2508.04652), and the aristocrat utility of Wolpert & Tumer (2001)
over the sampled partners.  Lost cells are left out of their rows.

Pairings and squares are taken from finite fields.  Over a finite field of G elements the cells (g + s m_0, g + s m_1,
...) with different multipliers m are balanced for every pair of agents: g + s m_i = a and g + s m_j = b have exactly
one solution.  For fixed s they are a class in which every action of every agent occurs once, and s = 0 is the sampled
joint actions.  For a composite G the parts are computed side by side (MacNeish 1922), and balance holds as long as no
part has fewer elements than there are agents.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


def row_means(cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return Q_i(g), shape (agents, 1, G), or NaN if every cell of a row is lost.

    ``cells`` has shape (cells, agents), ``rewards`` (cells,), NaN where lost; ``size`` is the number of actions per
    agent (G).
    """
    known = ~np.isnan(rewards)
    found = []
    for actions in cells[known].T:
        counts = np.bincount(actions, minlength=size)
        sums = np.bincount(actions, rewards[known], minlength=size)
        found.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return np.stack(found)[:, None, :]


#: Maximum number of cells per group; each one is an execution.
MAX_CELLS = 4096

#: Stands in a cell for an agent whose action is replaced by one that contributes nothing (`Environment.stub`).
NOTHING = -1


class Plan(ABC):
    """Which combinations of a group's actions are executed.

    Equal plans (immutable dataclasses) have equal cells.  The actions of an agent are independent draws from one
    distribution, so the cells need not be drawn anew for every group.
    """

    name: ClassVar[str]  #: its kind in the settings
    #: Whether agents act one after the other, and several joint actions share the actions of earlier agents (`block`).
    #: Otherwise the agents act without seeing each other.
    nested: ClassVar[bool] = False

    def refuse(self, agents: int, size: int) -> str:
        """Return why the plan is impossible for this number of agents with ``size`` actions each; empty if possible."""
        return ""

    def block(self, place: int, agents: int, size: int) -> int:
        """Return how many consecutive joint actions share one action of the agent at ``place`` in the acting order."""
        return 1

    def cells(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells to execute, the sampled joint actions (g, ..., g) among them.

        They have the shape (cells, agents) for the ``agents`` > 0 that act in this state with ``size`` > 0 actions each
        (G): int64 in [0, size) or `NOTHING`, rows distinct; row c holds the number of each agent's action.  With one
        agent or one action, every plan is `Aligned`.  ValueError: see `refuse`.
        """
        return _cells(self, agents, size)

    @abstractmethod
    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells for more than one agent and more than one action; see `cells`."""

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return the value of every action in each of its comparisons (the reducer); arguments as in `row_means`.

        Returns:
            Shape (agents, 1, G) if all actions of an agent are compared with each other.  Shape (agents, G, G) if each
                has its own comparison: [i, g] holds the values with which action g of agent i is compared.  NaN:
                unknown.
        """
        return row_means(cells, rewards, size)


@functools.lru_cache(maxsize=256)
def _cells(plan: Plan, agents: int, size: int) -> NDArray[np.int64]:
    if agents == 1 or size == 1:
        found = aligned_cells(agents, size)
    elif reason := plan.refuse(agents, size):
        raise ValueError(f"credit plan {plan.name}: {reason}")
    else:
        found = plan.combine(agents, size)
    found.setflags(write=False)
    return found


def aligned_cells(agents: int, size: int) -> NDArray[np.int64]:
    """Return the joint actions as they are sampled: the g-th actions of all agents; shape (size, agents)."""
    return np.repeat(np.arange(size, dtype=np.int64)[:, None], agents, axis=1)


def too_many(cells: int) -> str:
    """Return a message if there are more cells than `MAX_CELLS`, else an empty text."""
    if cells <= MAX_CELLS:
        return ""
    return f"{cells} executions per group, more than {MAX_CELLS}; choose latin or pairings, or a smaller group_size"


def prime_powers(size: int) -> tuple[int, ...]:
    """Return the prime powers whose product is ``size`` > 1: (4, 3) for 12."""
    found = []
    prime = 2
    while size > 1:
        power = 1
        while size % prime == 0:
            size //= prime
            power *= prime
        if power > 1:
            found.append(power)
        prime += 1
    return tuple(found)


def pairing_classes(agents: int, size: int) -> NDArray[np.int64]:
    """Return (size, size, agents): class, cell, agent.  Each class has every action of every agent once; the first is
    aligned.

    All classes together are balanced for every pair of agents if no prime power of ``size`` is below ``agents``.
    """
    powers = prime_powers(size)
    digits = np.stack(np.unravel_index(np.arange(size), powers))  # (parts, size)
    found = np.zeros((size, size, agents), dtype=np.int64)
    for agent in range(agents):
        parts = []
        for power, digit in zip(powers, digits, strict=True):
            add, multiply = field_tables(power)
            shift = multiply[digit, agent % power]  # (size,), of every class
            parts.append(add[digit[None, :], shift[:, None]])
        found[:, :, agent] = np.ravel_multi_index(tuple(parts), powers)
    return found


@functools.lru_cache(maxsize=64)
def field_tables(order: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tables (order, order) of addition and multiplication of the field with ``order`` (a prime power)
    elements.

    Elements are polynomials over the prime field, numbered by their coefficients as digits, so 0 and 1 are 0 and 1.
    """
    prime = next(p for p in range(2, order + 1) if order % p == 0)
    degree = round(np.log(order) / np.log(prime))
    digits = np.stack(np.unravel_index(np.arange(order), (prime,) * degree))[::-1]  # (degree, order), lowest first
    weights = prime ** np.arange(degree)
    add = np.tensordot(weights, (digits[:, :, None] + digits[:, None, :]) % prime, axes=1)
    product = np.zeros((2 * degree - 1, order, order), dtype=np.int64)
    for i, j in itertools.product(range(degree), repeat=2):
        product[i + j] += digits[i][:, None] * digits[j][None, :]
    for low in range(order):  # x^degree = the polynomial with these coefficients; right if nothing divides zero
        rest = product.copy()
        for power in range(2 * degree - 2, degree - 1, -1):
            for k in range(degree):
                rest[power - degree + k] += rest[power] * digits[k, low]
        multiply = np.tensordot(weights, rest[:degree] % prime, axes=1)
        if (multiply[1:, 1:] != 0).all():
            return add, multiply
    raise ValueError(f"{order} is not a prime power")


def idempotent_square(size: int) -> NDArray[np.int64]:
    """Return a Latin square L of ``size`` > 2 symbols with L[g, g] = g; shape (size, size).

    For an odd size L[i, j] = (i + j) / 2 modulo the size.  For an even size, the square of size - 1 gets one more row
    and column: the entries next to the diagonal move there, and the new symbol replaces them.
    """
    odd = size if size % 2 else size - 1
    first, second = np.indices((odd, odd))
    square = (first + second) * (odd + 1) // 2 % odd
    if size == odd:
        return square.astype(np.int64)
    grown = np.full((size, size), odd, dtype=np.int64)
    grown[:odd, :odd] = square
    for i in range(odd):
        beside = (i + 1) % odd
        grown[i, odd] = grown[odd, beside] = square[i, beside]
        grown[i, beside] = odd
    return grown


@dataclass(frozen=True, slots=True)
class Aligned(Plan):
    """The paper's plan: the g-th actions of all agents form one joint action, and all share its advantage.

        cells  (g, g, ..., g)                 Q_i(g) = r(g, ..., g) for every agent i
        cost   G executions per group

    The noise from the other agents' actions stays in every advantage.  Source: MAGRPO, arXiv 2508.04652.
    """

    name: ClassVar[str] = "aligned"

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return (g, ..., g) for every g."""
        return aligned_cells(agents, size)


@dataclass(frozen=True, slots=True)
class Pairings(Plan):
    """Every action is executed with k different partners: between aligned (k = 1) and latin (k = G).

        cells  k classes of G cells; in each class every action of every agent occurs once, the first class is aligned
        value  Q_i(g) = mean of r over the k cells with c_i = g
        cost   k G executions per group

    If a balanced array exists, the classes are taken from it, so that no two agents' actions meet twice; otherwise
    they are cyclic shifts in every part of G.  Incomplete U-statistics: Blom 1976; Lee 1990.
    """

    per_action: int = 2  #: cells per action (k), the sampled joint action included; > 1
    name: ClassVar[str] = "pairings"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if there are fewer pairings or too many cells, else an empty text."""
        if self.per_action > size:
            return f"per_action ({self.per_action}) is more than the {size} actions of a group"
        return too_many(self.per_action * size)

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the first ``per_action`` classes, shape (per_action * size, agents)."""
        return pairing_classes(agents, size)[: self.per_action].reshape(-1, agents)


#: Group sizes that an error message may suggest.
_NEAR = range(2, 65)


@dataclass(frozen=True, slots=True)
class Latin(Plan):
    """A subset of all combinations in which every pair of agents is balanced: a Latin square, or an orthogonal array.

        cells  G^2, so that every pair of agents has each of its G x G pairs of actions exactly once
        value  Q_i(g) = mean of r over the G cells with c_i = g
        cost   G^2 executions per group, for any number of agents

    In a row every action of every other agent occurs once, so their main effects cancel exactly, as in `cross`;
    interactions among three agents do not.  For two agents it is `cross`.  Such an array (orthogonal, strength 2) that
    contains the sampled joint actions is constructed for N agents if no prime power in G is below N, and for three
    agents from G = 3 on; cyclic shifts alone would not be enough (they fail at G = 4, N = 3).  Sources: Rao 1947; for
    composite G MacNeish 1922.
    """

    name: ClassVar[str] = "latin"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message with possible group sizes if there is no such array, else an empty text."""
        if _can_be_made(agents, size):
            return too_many(size * size)
        sizes = [other for other in _NEAR if _can_be_made(agents, other)]
        near = sorted(sizes, key=lambda other: abs(other - size))[:3]
        return (
            f"no balanced array is known here for {agents} agents with {size} actions each; choose group_size "
            f"{', '.join(map(str, sorted(near)))}, or the plan pairings"
        )

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the array, shape (size**2, agents)."""
        if agents <= min(prime_powers(size)):
            return pairing_classes(agents, size).reshape(-1, agents)
        square = idempotent_square(size)
        first, second = np.indices((size, size), dtype=np.int64)
        return np.stack([first, second, square], axis=-1).reshape(-1, 3)


def _can_be_made(agents: int, size: int) -> bool:
    return agents <= min(prime_powers(size)) or (agents == 3 and size > 2)


@dataclass(frozen=True, slots=True)
class Cross(Plan):
    """Every combination of the sampled actions.

        cells  all of {0..G-1}^N              Q_i(g) = mean of r over the G^(N-1) cells with c_i = g
        cost   G^N executions per group

    The gradient is an N-sample U-statistic over all cells; `aligned` uses its diagonal only, so the variance of
    `cross` is never higher.  Main effects of the other agents cancel; interactions remain, divided by the number of
    partners.  Source: the joint mode "cross" of MAGRPO (arXiv 2508.04652), as a mean: a sum over the cells, as in the
    public implementation, would scale the gradient by G^(N-1).  Complete against incomplete U-statistics: Lee 1990.
    """

    name: ClassVar[str] = "cross"

    def refuse(self, agents: int, size: int) -> str:
        return too_many(size**agents)

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return all of {0..size-1}^agents."""
        return np.indices((size,) * agents, dtype=np.int64).reshape(agents, -1).T.copy()


@dataclass(frozen=True, slots=True)
class Column(Plan):
    """Compare all actions of one agent while the others' are fixed, as COMA and C3 do, but with executed rewards.

        cells  (g, .., k at i, .., g) for all agents i and actions g, k
        value  in the column of g, action k of agent i has value r(g, .., k at i, .., g); only action g gets an
               advantage
        cost   G + N G (G - 1) executions per group (G^2 for two agents)

    Unbiased.  The main effects of the other agents cancel.  Interactions remain in full, because each action is
    executed with one set of partners only; `cross` averages them.  For two agents it executes the same cells as
    `cross`, with more noise; it is here for comparison.  Sources: COMA, arXiv 1705.08926; C3, arXiv 2603.06859.
    """

    name: ClassVar[str] = "column"

    def refuse(self, agents: int, size: int) -> str:
        return too_many(size + agents * size * (size - 1))

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the columns of all agents through every sampled joint action, each cell once."""
        found = []
        for agent in range(agents):
            column = np.repeat(aligned_cells(agents, size), size, axis=0)
            column[:, agent] = np.tile(np.arange(size), size)
            found.append(column)
        return np.unique(np.concatenate(found), axis=0)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return shape (agents, G, G): entry [i, g, k] is the reward of k at agent i among g of all others."""
        agents = cells.shape[1]
        if agents == 1:
            return row_means(cells, rewards, size)
        found = np.full((agents, size, size), np.nan)
        for agent in range(agents):
            others = np.delete(cells, agent, axis=1)
            held = (others == others[:, :1]).all(axis=1)
            found[agent, others[held, 0], cells[held, agent]] = rewards[held]
        return found


@dataclass(frozen=True, slots=True)
class Removal(Plan):
    """Compare every joint action with what the team gets without one agent's part: difference rewards.

        cells  (g, .., g), and (g, .., nothing at i, .., g) for all agents i
        value  D_i(g) = r(g, .., g) - r(g, .., nothing at i, .., g)
        cost   G (N + 1) executions per group

    Nothing is `Environment.stub`: an empty text, or an action that contributes nothing.  Unbiased: what is subtracted
    does not depend on the action of agent i.  Effects of the other agents that do not depend on agent i cancel.  The
    variance may be higher than that of `aligned`, namely if the team earns nothing without an agent at some times
    only.  Source: difference rewards, Wolpert & Tumer 2001.
    """

    name: ClassVar[str] = "removal"

    def refuse(self, agents: int, size: int) -> str:
        return too_many(size * (agents + 1))

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the sampled joint actions, then those without the first agent, without the second, ..."""
        found = [aligned_cells(agents, size)]
        for agent in range(agents):
            without = aligned_cells(agents, size)
            without[:, agent] = NOTHING
            found.append(without)
        return np.concatenate(found)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return D_i(g), shape (agents, 1, G)."""
        agents = cells.shape[1]
        whole = rewards[:size]
        if agents == 1:
            return whole[None, None, :]
        return (whole - rewards[size:].reshape(agents, size))[:, None, :]


@dataclass(frozen=True, slots=True)
class Replay(Plan):
    """Alternatives from a fixed context, for agents that act one after the other and read each other.

        sampled  agent 1 has f_1 actions; below each, agent 2 has f_2 that read it; and so on.  G = f_1 f_2 ... f_N
        value    Q_i(a) = mean of the returns of all joint actions that contain a
        compared with the other alternatives for the same context, not with answers to other texts
        cost     G executions per group, and f_1 + f_1 f_2 + ... + G actions instead of N G

    With `aligned` each agent has G actions, but those of a later agent answer G different texts; an action that
    answers a good text is credited for that text.  Here the context is fixed, so the noise of what came before
    cancels.  Later agents continue with their current policies, hence unbiased given the context.  Source: C3, arXiv
    2603.06859.
    """

    fan_out: tuple[int, ...] = (2, 4)  #: alternatives per context, by the agent's place in the acting order; each > 1
    name: ClassVar[str] = "replay"
    nested: ClassVar[bool] = True

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if the alternatives do not make up the group, else an empty text."""
        if len(self.fan_out) != agents:
            return f"fan_out {list(self.fan_out)} must have one number for each of {agents} agents"
        if math.prod(self.fan_out) != size:
            return f"the product of fan_out {list(self.fan_out)} must be group_size ({size})"
        return ""

    def block(self, place: int, agents: int, size: int) -> int:
        """Return how many consecutive joint actions share an action of the agent at ``place``."""
        if agents == 1:
            return 1
        if reason := self.refuse(agents, size):
            raise ValueError(f"credit plan {self.name}: {reason}")
        return math.prod(self.fan_out[place + 1 :])

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the joint actions as they are sampled; nothing else is executed."""
        return aligned_cells(agents, size)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return shape (agents, G, G): [i, g] holds the values of the alternatives for the context of (i, g).

        Each alternative stands there once: that of g itself at g, the others at their first joint action.
        """
        agents = cells.shape[1]
        found = np.full((agents, size, size), np.nan)
        for agent in range(agents):
            block = self.block(agent, agents, size)
            context = block * (self.fan_out[agent] if agents > 1 else size)
            blocks = rewards.reshape(-1, block)
            known = ~np.isnan(blocks)
            sums = np.where(known, blocks, 0.0).sum(axis=1)
            values = np.where(known.any(axis=1), sums / np.maximum(known.sum(axis=1), 1), np.nan)
            for g in range(size):
                first = g - g % context
                siblings = np.arange(first, first + context, block)
                siblings[(g - first) // block] = g
                found[agent, g, siblings] = values[siblings // block]
        return found


PLANS: dict[str, type[Plan]] = {plan.name: plan for plan in (Aligned, Pairings, Latin, Cross, Column, Removal, Replay)}


def make_plan(kind: str, **options: Any) -> Plan:
    """Return the plan called ``kind``.

    Args:
        kind: a name in `PLANS`.
        options: the plan's own settings.
    """
    return PLANS[kind](**options)
