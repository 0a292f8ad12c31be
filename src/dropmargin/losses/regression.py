r"""Losses of regression: functions of the residual ``y - m``, for targets ``y`` that are any numbers.

With ``u = m - y``, ``r = sqrt(u^2 + v)`` and ``h`` the bound on the expected hinge loss (`radial`)::

    quadratic            u^2 + v                                     exact (`radial.Quadratic`)
    epsilon-insensitive  h(-u - epsilon, v) + h(u - epsilon, v)      h(z, v) = (z + sqrt(z^2 + v)) / 2
    Huber                r^2 / 2 up to delta, then delta r - delta^2 / 2

The Huber loss is a concave function of the squared residual, whose expectation is ``r^2``: by Jensen's inequality its
value at ``r`` is an upper bound of the expected loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.losses.base import SumOfLosses
from dropmargin.losses.radial import RadialLoss, SmoothedHinge, check_positive
from dropmargin.typing import Array


class EpsilonInsensitive(SumOfLosses):
    """The bound on the expected loss ``E max(0, |y - S| - epsilon)`` of support vector regression.

    The loss is the sum of two hinges, one for scores that are too low and one for scores that are too high. Each has
    the bound of Lemma 1 and its majoriser.

    Parameters
    ----------
    epsilon : float, default=0.1
        Residuals of up to this size have no loss.
    """

    has_majoriser = True
    suits_regression = True

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = check_positive("epsilon", epsilon, or_zero=True)
        # The solvers ask only whether there is a kink: its scale is that of the residuals, which the loss does not know
        self.kink = max(self.epsilon, float(np.finfo(float).tiny))
        self._hinge = SmoothedHinge(0.0)

    def terms(self, y: Array, m: Array, v: Array) -> Any:
        """Return the two hinges of margin 0: for scores that are too low, and for scores that are too high."""
        u, one = m - y, np.ones_like(m)
        return (1.0, self._hinge, (one, u + self.epsilon, v)), (1.0, self._hinge, (-one, u - self.epsilon, v))

    def smoothed(self, width: float | Array) -> EpsilonInsensitive:
        smoothed = EpsilonInsensitive(self.epsilon)
        smoothed._hinge = SmoothedHinge(0.0, 0.5 * width)  # half of the width each: the errors add up to that of one
        return smoothed


class Huber(RadialLoss):
    """The Huber loss at ``r``, an upper bound of the expected Huber loss: quadratic up to ``delta``, then linear.

    Parameters
    ----------
    delta : float, default=1.35
        The size of a residual from which on the loss is linear, in the units of the targets.
    """

    margin = 1.0

    def __init__(self, delta: float = 1.35) -> None:
        self.delta = check_positive("delta", delta)

    def tail(self, r: Array) -> Array:
        near = np.minimum(r, self.delta)
        return near * (r - 0.5 * near)

    def gamma(self, r: Array) -> Array:
        return np.minimum(1.0, self.delta / r)

    def kappa(self, r: Array) -> Array:
        return np.where(r <= self.delta, 0.0, -self.delta / (r * r * r))
