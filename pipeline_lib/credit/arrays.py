"""Balanced arrays from finite fields, and Latin squares for three agents.

Over a finite field of G elements the cells (g + s m_0, g + s m_1, ...) with different multipliers m are balanced for
every pair of agents: g + s m_i = a and g + s m_j = b have exactly one solution.  For fixed s they are a class in which
every action of every agent occurs once, and s = 0 is the sampled joint actions.  For a composite G the parts are
computed side by side (MacNeish 1922), and balance holds as long as no part has fewer elements than there are agents.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray


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
    """Return ``size`` classes of ``size`` cells; each contains every action of every agent once; the first is aligned.

    All classes together are balanced for every pair of agents if no prime power of ``size`` is below ``agents``.

    Returns:
        Shape (size, size, agents): class, cell, agent.
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
    """Return the tables of addition and multiplication of the field with ``order`` (a prime power) elements.

    Elements are polynomials over the prime field, numbered by their coefficients as digits, so 0 and 1 are 0 and 1.

    Returns:
        Two arrays of shape (order, order).
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
