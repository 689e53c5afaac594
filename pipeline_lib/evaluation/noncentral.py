"""The noncentral t distribution for all arguments.

`scipy.special.nctdtr` and `scipy.stats.nct.cdf` return NaN for many arguments that the power of large effects needs
(for example t = 170, parameter -123, 1.1 degrees of freedom).  Here the probability is computed by Gauss-Legendre
quadrature, accurate to 1e-9 (1e-5 between 1 and 2 degrees of freedom).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


@cache
def _nodes() -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(512)
    return points, weights


def noncentral_t_cdf(t: float, df: float, noncentrality: float) -> float:
    """Return P(T <= t) for T = (Z + noncentrality) / sqrt(C^2 / df), Z standard normal, C chi with df degrees."""
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -noncentrality)
    points, weights = _nodes()
    root = math.sqrt(df)
    if t * t <= 2 * df:
        # Average Phi(t C / sqrt(df) - nc) over C, whose standard deviation is about 0.7 for any df.
        low, high = max(0.0, root - 9), root + 9
        c = (low + high) / 2 + (high - low) / 2 * points
        log_density = (df - 1) * np.log(c) - c * c / 2 - (df / 2 - 1) * math.log(2) - special.gammaln(df / 2)
        mass = np.exp(log_density) * special.ndtr(t * c / root - noncentrality)
    else:
        # Here the integrand is too steep in C; average P(C >= (Z + nc) sqrt(df) / t) over Z instead.
        low, high = min(9.0, max(-9.0, -noncentrality)), 9.0
        z = (low + high) / 2 + (high - low) / 2 * points
        edge = (z + noncentrality) * root / t
        mass = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * special.gammaincc(df / 2, edge * edge / 2)
        sure = float(special.ndtr(low)) if low > -9 else 0.0  # below, Z + nc < 0, which any C exceeds
        return min(1.0, sure + float(weights @ mass) * (high - low) / 2)
    return min(1.0, max(0.0, float(weights @ mass) * (high - low) / 2))
