"""The project's one statistical method: a mean over seeds and questions as crossed random effects.

Both the training seed and the question are samples of what could have been taken (Clark 1973, quasi-F). The variance of
the mean comes from the mean squares of seeds, questions and residuals, its degrees of freedom from Satterthwaite.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import nctdtrinc, stdtr, stdtrit

LEVEL = 0.05
"""Level of two-sided tests; intervals have the confidence 1 - LEVEL."""
POWER = 0.8


@dataclass(frozen=True)
class Effect:
    """A mean with its standard error; a single value has neither error nor degrees of freedom (0)."""

    value: float
    error: float
    freedom: float

    @property
    def p_value(self) -> float | None:
        """Two-sided, by Student's t; None where nothing varies."""
        if not self.error:
            return None
        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval; 0 where nothing varies."""
        return float(self.error * stdtrit(self.freedom, 1 - LEVEL / 2)) if self.error else 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the 95 % interval."""
        return self.value - self.margin, self.value + self.margin

    @property
    def detectable(self) -> float | None:
        """The smallest true mean that the test finds significant in four cases of five; None where nothing varies.

        >>> round(Effect(0.0, 1.0, 1000).detectable, 2), round(Effect(0.0, 1.0, 4).detectable, 2)
        (2.8, 3.76)
        """
        if not self.error:
            return None
        # The noncentrality at which t falls short of its critical value in one case of five.
        size = nctdtrinc(self.freedom, 1 - POWER, stdtrit(self.freedom, 1 - LEVEL / 2))
        return float(self.error * size)


def crossed(table: Any) -> Effect:
    """The mean of a table [seeds, questions] in which all seeds have the same questions.

    With one seed this is Student's t over questions, with one question Student's t over seeds.
    """
    seeds, questions = table.shape
    if seeds == 1 or questions == 1:
        return over_values(np.ravel(table))
    mean, by_seed, by_question = table.mean(), table.mean(1), table.mean(0)
    residuals = table - by_seed[:, None] - by_question + mean
    freedoms = np.array([seeds - 1, questions - 1, (seeds - 1) * (questions - 1)])
    squares = [questions * ((by_seed - mean) ** 2).sum(), seeds * ((by_question - mean) ** 2).sum()]
    mean_squares = np.array([*squares, (residuals**2).sum()]) / freedoms
    variance = mean_squares[0] + mean_squares[1] - mean_squares[2]
    freedom = 0.0
    if variance > 0:
        freedom = max(1.0, variance**2 / (mean_squares**2 / freedoms).sum())
    elif variance := mean_squares.max():  # no estimate of the components: the largest, and the fewest degrees
        freedom = float(seeds - 1)
    return Effect(float(mean), float(np.sqrt(variance / table.size)), float(freedom))


def over_values(values: Any) -> Effect:
    """Student's t over values [n]: questions of one seed, or seeds that were asked different questions."""
    n = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return Effect(float(np.mean(values)), error, n - 1)


def holm(p_values: Any) -> list[float | None]:
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
