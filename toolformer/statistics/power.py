"""Power of two-sided tests at 5 %: p corrected for the number of tests, and the least difference that n samples can show."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import nctdtrinc, stdtrit
from scipy.stats import binom

LEVEL = 0.05
POWER = 0.8
_NEGLIGIBLE = 1e-9


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of the p values that are known, in their order.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    # Not statsmodels' multipletests, which collects all garbage at each call: two seconds beside a loaded model.
    known = np.array([p for p in p_values if p is not None], dtype=float)
    order = known.argsort(kind="stable")
    times = np.arange(len(known), 0, -1)
    known[order] = np.minimum(np.maximum.accumulate(known[order] * times), 1.0)
    corrected = iter(known.tolist())
    return [None if p is None else next(corrected) for p in p_values]


def detectable_percent(n: int, discordant: int) -> float | None:
    """The least difference of two shares, in percentage points, that McNemar's exact test shows at 80 % power.

    Assumes that of `n` pairs as many differ as did here (or as the difference itself needs), each to one side or the other
    independently (Connor 1987, with exact binomial power). None if even n pairs that all differ are not significant.

    >>> round(detectable_percent(200, 40), 1), round(detectable_percent(200, 0), 1), detectable_percent(4, 2)
    (9.1, 3.9, None)
    """
    pairs = np.arange(n + 1)

    def excess(difference: float) -> float:
        """The test's power at a true difference of the shares, minus `POWER`."""
        differing = max(discordant / n, difference)
        if not differing:
            return -POWER
        chance = binom.pmf(pairs, n, differing)
        likely, chance = pairs[chance > _NEGLIGIBLE], chance[chance > _NEGLIGIBLE]
        fewest = binom.ppf(LEVEL / 2, likely, 0.5) - 1  # so few on one side have p < 0.05
        to_one = (1 + difference / differing) / 2
        rejected = binom.cdf(fewest, likely, to_one) + binom.sf(likely - fewest - 1, likely, to_one)
        return float(np.sum(chance * rejected)) - POWER

    return None if excess(1.0) < 0 else 100 * float(brentq(excess, 0.0, 1.0, xtol=1e-6))


def detectable_shift(error: float, freedom: float) -> float:
    """The least difference that a t test shows at 80 % power, from its standard error and degrees of freedom (at least 1).

    >>> round(detectable_shift(1.0, 1000), 2), round(detectable_shift(1.0, 4), 2)
    (2.8, 3.76)
    """
    # The noncentrality at which t falls short of its critical value in one case of five; the other tail is empty there.
    return float(error * nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - LEVEL / 2)))
