"""Expected losses under a normal score ``S ~ N(m, v)`` (Wang and Manning 2013).

The score is a sum of many independent terms and therefore nearly normal. These losses are approximations of the
expected losses; those of `radial` are upper bounds. The hinge has a closed form. The logistic loss is a mixture of
hinges: ``log(1 + exp(-s))`` is the mean of ``max(0, L - s)`` over a logistic ``L``, and the logistic distribution is a
mixture of eight normal distributions to within 2e-9 (Monahan and Stefanski 1992). Each term is a Gaussian hinge of
margin 0 and variance ``v + 1 / rate^2``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from dropmargin.losses.base import MomentLoss
from dropmargin.losses.radial import Hinge, Logistic
from dropmargin.typing import Array

# Weights and rates of the normal mixture: expit(x) = sum_j weight_j * Phi(rate_j * x), error at most 2.2e-9.
_SHARES = (0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
           0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354)  # fmt: skip
_RATES = (1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
          0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306)  # fmt: skip
_TINY = 1e-100
_FAR = 38.0  # exp(-38^2 / 2) is nearly the smallest normal number
#: Takes the mean and the variance of a normal variable.
_RampFunction = Callable[[Array, Array], tuple[Array, Array, Array]]


class _ExpectedRamp(MomentLoss):
    """The expectation of ``max(0, L - y S)`` for a normal score and a constant or random ``L``."""

    @abstractmethod
    def _moments(self, function: _RampFunction, along: Array, v: Array) -> tuple[Array, Array, Array]:
        """Return the expectations over ``L`` of what a function of mean and variance of ``L - y S`` returns.

        ``along`` is ``y m``.
        """

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self._moments(_ramp, y * m, v)[0]

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        _, below, density = self._moments(_ramp, y * m, v)
        return -y * below, 0.5 * density

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        by_mean, mixed, by_variance = self._moments(_ramp_curvature, y * m, v)
        return by_mean, -y * mixed, by_variance


class GaussianHinge(_ExpectedRamp):
    """``E max(0, margin - y S) = z Phi(z / sd) + sd N(z / sd)``, with ``z = margin - y m`` and ``sd = sqrt(v)``.

    Parameters
    ----------
    margin : float, default=1.0
        As in `Hinge`.
    """

    def __init__(self, margin: float = 1.0) -> None:
        self._bound = Hinge(margin)
        self.margin = self.kink = float(margin)

    def _moments(self, function: _RampFunction, along: Array, v: Array) -> tuple[Array, Array, Array]:
        return function(self.margin - along, v)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._bound.majoriser(y, m, v)

    def without_noise(self) -> Hinge:
        return self._bound

    def smoothed(self, width: float | Array) -> SmoothedGaussianHinge:
        return SmoothedGaussianHinge(self, width)


class SmoothedGaussianHinge(MomentLoss):
    """A weighted mean of `GaussianHinge` with a smoothed kink and, by a small weight, `SmoothedHinge`.

    Far from the kink the Gaussian loss has no curvature for Newton's method; `SmoothedHinge` has.
    """

    def __init__(self, loss: GaussianHinge, width: float | Array) -> None:
        self._gaussian, self._bound = loss, loss._bound.smoothed(width)
        self._variance = np.square(width)
        self._share = np.minimum(0.5, width / loss.margin)

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self._mean(self._gaussian.value(y, m, v + self._variance), self._bound.value(y, m, v))

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        parts = zip(self._gaussian.gradient(y, m, v + self._variance), self._bound.gradient(y, m, v), strict=True)
        by_mean, by_variance = (self._mean(*part) for part in parts)
        return by_mean, by_variance

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        parts = zip(self._gaussian.curvature(y, m, v + self._variance), self._bound.curvature(y, m, v), strict=True)
        by_mean, mixed, by_variance = (self._mean(*part) for part in parts)
        return by_mean, mixed, by_variance

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._bound.majoriser(y, m, v)

    def _mean(self, gaussian: Array, bound: Array) -> Array:
        return (1.0 - self._share) * gaussian + self._share * bound


class GaussianLogistic(_ExpectedRamp):
    """``E log(1 + exp(-y S))`` for a normal score, to within 1e-8."""

    scores_are_log_odds = True

    def _moments(self, function: _RampFunction, along: Array, v: Array) -> tuple[Array, Array, Array]:
        first, second, third = (np.zeros_like(along) for _ in range(3))
        for share, rate in zip(_SHARES, _RATES, strict=True):
            parts = function(-along, v + rate**-2)
            first += share * parts[0]
            second += share * parts[1]
            third += share * parts[2]
        return first, second, third

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return Logistic().majoriser(y, m, v)


def _standardised(z: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return the standard deviation ``sd``, ``z / sd``, and the density of ``N(z, v)`` at 0."""
    sd = np.maximum(np.sqrt(v), _TINY)
    with np.errstate(over="ignore"):
        ratio = np.clip(z / sd, -_FAR, _FAR)
    return sd, ratio, np.exp(-0.5 * np.square(ratio)) / (np.sqrt(2.0 * np.pi) * sd)


def _ramp(z: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return ``E max(0, Z)``, ``P(Z > 0)`` and the density of ``Z`` at 0, for ``Z ~ N(z, v)``."""
    sd, ratio, density = _standardised(z, v)
    below = ndtr(ratio)
    # z Phi + sd N is not negative, but cancellation can make it so where z is many standard deviations below zero
    return np.maximum(z * below + sd * (sd * density), 0.0), below, density


def _ramp_curvature(z: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return the second derivatives of ``E max(0, Z)``: by ``z`` twice, by ``z`` and ``v``, by ``v`` twice."""
    sd, ratio, density = _standardised(z, v)
    return density, -0.5 * density * ratio / sd, 0.25 * density * (np.square(ratio) - 1.0) / np.square(sd)
