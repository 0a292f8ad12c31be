r"""Losses of regression: functions of the residual ``y - m``, for targets ``y`` that are any numbers.

With ``u = m - y``, ``r = sqrt(u^2 + v)`` and ``h`` the bound on the expected hinge loss (`radial`)::

    quadratic            u^2 + v                                     exact (`radial.Quadratic`)
    epsilon-insensitive  h(-u - epsilon, v) + h(u - epsilon, v)      h(z, v) = (z + sqrt(z^2 + v)) / 2
    Huber                r^2 / 2 up to delta, then delta r - delta^2 / 2

The Huber loss is a concave function of the squared residual, whose expectation is ``r^2``: by Jensen's inequality its
value at ``r`` is an upper bound of the expected loss.
"""

from __future__ import annotations

import numpy as np

from dropmargin.losses.base import MomentLoss
from dropmargin.losses.radial import Hinge, RadialLoss, SmoothedHinge, check_positive
from dropmargin.typing import Array


class EpsilonInsensitive(MomentLoss):
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
        self._hinge: RadialLoss = _Ramp()

    def _sides(self, y: Array, m: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return targets and means of the two hinges of margin 0: for scores too low and for scores too high."""
        u, one = m - y, np.ones_like(m)
        return (one, u + self.epsilon), (-one, u - self.epsilon)

    def value(self, y: Array, m: Array, v: Array) -> Array:
        low, high = self._sides(y, m)
        return self._hinge.value(*low, v) + self._hinge.value(*high, v)

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        low, high = (self._hinge.gradient(*side, v) for side in self._sides(y, m))
        return low[0] + high[0], low[1] + high[1]

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        low, high = (self._hinge.curvature(*side, v) for side in self._sides(y, m))
        return low[0] + high[0], low[1] + high[1], low[2] + high[2]

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        low, high = self._sides(y, m)
        return self._hinge.majoriser(*low, v) + self._hinge.majoriser(*high, v)

    def smoothed(self, width: float | Array) -> EpsilonInsensitive:
        smoothed = EpsilonInsensitive(self.epsilon)
        smoothed._hinge = SmoothedHinge(0.0, 0.5 * width)  # half of the width each: the errors add up to that of one
        return smoothed


class _Ramp(Hinge):
    """`Hinge` of margin 0."""

    def __init__(self) -> None:
        self.margin, self.kink = 0.0, 1.0


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

    def tail_slope(self, r: Array) -> Array:
        return np.minimum(r, self.delta)

    def gamma(self, r: Array) -> Array:
        return np.minimum(1.0, self.delta / r)

    def kappa(self, r: Array) -> Array:
        return np.where(r <= self.delta, 0.0, -self.delta / (r * r * r))
