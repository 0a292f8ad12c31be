"""Expected losses under a normal score ``S ~ N(m, v)`` (Wang and Manning 2013).

The score is a sum of many independent terms and therefore nearly normal. These losses are approximations of the
expected losses; those of `radial` are upper bounds. The hinge has a closed form. The logistic loss is a mixture of
hinges: ``log(1 + exp(-s))`` is the mean of ``max(0, L - s)`` over a logistic ``L``, and the logistic distribution is a
mixture of eight normal distributions to within 2e-9 (Monahan and Stefanski 1992). Each term is a Gaussian hinge of
margin 0 and variance ``v + 1 / rate^2``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from dropmargin.losses.base import JointLoss, SumOfLosses
from dropmargin.losses.radial import Hinge, Logistic, SmoothedHinge
from dropmargin.typing import Array

# Weights and rates of the normal mixture: expit(x) = sum_j weight_j * Phi(rate_j * x), error at most 2.2e-9.
_SHARES = (0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
           0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354)  # fmt: skip
_RATES = (1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
          0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306)  # fmt: skip
_TINY = 1e-100
_FAR = 38.0  # exp(-38^2 / 2) is nearly the smallest normal number


class _GaussianRamp(JointLoss):
    """``E max(0, margin - y S)`` for a normal score."""

    margin = 0.0

    def _standardised(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        """Return ``z = margin - y m``, its deviation ``sd``, ``z / sd``, and the density of ``N(z, v)`` at 0."""
        z, sd = self.margin - y * m, np.maximum(np.sqrt(v), _TINY)
        with np.errstate(over="ignore"):
            ratio = np.clip(z / sd, -_FAR, _FAR)
        return z, sd, ratio, np.exp(-0.5 * np.square(ratio)) / (np.sqrt(2.0 * np.pi) * sd)

    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        z, sd, ratio, density = self._standardised(y, m, v)
        below = ndtr(ratio)
        # z Phi + sd N is not negative, but cancellation can make it so where z is many standard deviations below zero
        return np.maximum(z * below + sd * (sd * density), 0.0), (-y * below, 0.5 * density)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        _, sd, ratio, density = self._standardised(y, m, v)
        return density, 0.5 * y * (density * ratio / sd), 0.25 * density * (np.square(ratio) - 1.0) / np.square(sd)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return SmoothedHinge(self.margin).majoriser(y, m, v)


class GaussianHinge(_GaussianRamp):
    """``E max(0, margin - y S) = z Phi(z / sd) + sd N(z / sd)``, with ``z = margin - y m`` and ``sd = sqrt(v)``.

    Parameters
    ----------
    margin : float, default=1.0
        As in `Hinge`.
    """

    def __init__(self, margin: float = 1.0) -> None:
        self.margin = self.kink = Hinge(margin).margin

    def without_noise(self) -> Hinge:
        return Hinge(self.margin)

    def smoothed(self, width: float | Array) -> SmoothedGaussianHinge:
        return SmoothedGaussianHinge(self, width)


class SmoothedGaussianHinge(SumOfLosses):
    """A weighted mean of `GaussianHinge` with a smoothed kink and, by a small weight, `SmoothedHinge`.

    Far from the kink the Gaussian loss has no curvature for Newton's method; `SmoothedHinge` has.
    """

    def __init__(self, loss: GaussianHinge, width: float | Array) -> None:
        self._gaussian, self._bound = loss, SmoothedHinge(loss.margin, width)
        self._variance, self._share = np.square(width), np.minimum(0.5, width / loss.margin)

    def terms(self, y: Array, m: Array, v: Array) -> Any:
        gaussian = 1.0 - self._share, self._gaussian, (y, m, v + self._variance)
        return gaussian, (self._share, self._bound, (y, m, v))

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._bound.majoriser(y, m, v)


class GaussianLogistic(SumOfLosses):
    """``E log(1 + exp(-y S))`` for a normal score, to within 1e-8."""

    scores_are_log_odds = True

    def terms(self, y: Array, m: Array, v: Array) -> Any:
        ramp = _GaussianRamp()
        return ((share, ramp, (y, m, v + rate**-2)) for share, rate in zip(_SHARES, _RATES, strict=True))

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return Logistic().majoriser(y, m, v)
