"""Tails of a t statistic of skewed data.

If most families lose a little and a few gain much, the standard error is small when the mean is too low, so the
distribution of t has a long lower tail and a short upper one.  To first order its quantile with probability q above
shifts by -g (2 z^2 + 1) / 6, where g is the skewness of the mean and z the normal quantile (Johnson 1978; Hall 1992).
A limit is only moved outwards, by ``caution`` times that shift (`evidence.Rule.caution`).  Symmetric data keep
Student's test, except for the skewness that they show by chance.
"""

from __future__ import annotations

import math

from scipy import optimize, special

#: Smallest p value.
_MIN_P = 1e-300


def upper_critical(q: float, df: float, skewness: float, caution: float) -> float:
    """Return the critical t for the one-sided level ``q``, in (0, 0.5].

    Args:
        q: maximum probability of a greater t if there is no difference.
        df: degrees of freedom of the standard error, at least 1.
        skewness: of the mean (see `clusters.ClusteredMean`).  For the lower limit, change its sign.
        caution: factor by which the shift for the observed skewness is multiplied.
    """
    return -float(special.stdtrit(df, q)) + _outwards(q, -skewness, caution)


def upper_tail(t: float, df: float, skewness: float, caution: float) -> float:
    """Return the one-sided p value of ``t``, in [1e-300, 1]: the least q for which it reaches `upper_critical`."""
    plain = float(special.stdtr(df, -t))
    if plain >= 0.5 or skewness >= 0:
        return max(plain, _MIN_P)
    if t <= _outwards(0.5, -skewness, caution):
        return 0.5
    low = math.log(max(plain, _MIN_P))

    def missing(log_q: float) -> float:
        return upper_critical(math.exp(log_q), df, skewness, caution) - t

    if missing(low) <= 0:
        return math.exp(low)
    return math.exp(float(optimize.brentq(missing, low, math.log(0.5), xtol=1e-10)))


def _outwards(q: float, lean: float, caution: float) -> float:
    z = float(special.ndtri(q))
    return caution * max(0.0, lean) * (2 * z * z + 1) / 6
