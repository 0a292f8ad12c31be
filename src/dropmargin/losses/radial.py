"""The losses of the paper, which have one radial form.

With ``u = m - o``, ``o = l y`` and ``r = sqrt(u^2 + v)``::

    phi = psi(r) - k y m + const,      psi(r) = k r + tail(r)

| loss      | l      | k   | tail(r)          | gamma = psi'/r  | what it is                                         |
|-----------|--------|-----|------------------|-----------------|----------------------------------------------------|
| hinge     | margin | 1/2 | 0                | 1/(2r)          | the bound of Lemma 1, with q(lambda) optimised out |
| logistic  | 0      | 1/2 | log(1 + exp(-r)) | tanh(r/2)/(2r)  | the bound of Lemma 2, with q(lambda) optimised out |
| quadratic | 1      | 0   | r^2              | 2               | exact                                              |

Each is convex in the coefficients: ``psi`` is convex and increasing, and ``r`` is a norm of an affine map. ``gamma``
decreases with ``r``, so ``psi(r) <= gamma(r0) / 2 r^2 + const``: this quadratic majoriser is the M-step of the paper,
and ``gamma`` is its weight of a row. The hinge bound is also the worst case of the expected hinge loss over all noises
with this mean and variance (Scarf).
"""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit

from dropmargin.losses.base import MomentLoss
from dropmargin.typing import Array


class RadialLoss(MomentLoss):
    """A loss ``psi(r) - k y m + const``. A subclass defines `tail`, `tail_slope`, `gamma` and `kappa`."""

    has_majoriser = True
    #: The factor ``k`` of ``y m``, and the margin ``l`` of ``o = l y``.
    k = 0.0
    margin = 0.0

    @property
    def suits_regression(self) -> bool:  # type: ignore[override]
        return self.k == 0.0 and self.margin == 1.0

    @abstractmethod
    def tail(self, r: Array) -> Array:
        """Return ``psi(r) - k r``."""

    @abstractmethod
    def tail_slope(self, r: Array) -> Array:
        """Return ``psi'(r) - k``."""

    @abstractmethod
    def gamma(self, r: Array) -> Array:
        """Return ``psi'(r) / r``, which must not increase with ``r``."""

    @abstractmethod
    def kappa(self, r: Array) -> Array:
        """Return ``(psi''(r) - gamma(r)) / r^2``, which equals ``gamma'(r) / r``."""

    def _polar(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """Return ``u``, ``v`` and ``r``."""
        u = m - self.margin * y
        with np.errstate(over="ignore"):
            r = np.sqrt(u * u + v)
        # The square of a large u overflows, though r does not. hypot avoids that, but takes ten times as long.
        return u, v, r if np.isfinite(r).all() else np.hypot(u, np.sqrt(v))

    @staticmethod
    def _excess(y: Array, u: Array, v: Array, r: Array) -> Array:
        """Return ``r - y u`` without cancellation for large ``y u``."""
        along = y * u
        total = r + np.abs(along)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(along > 0.0, v / total, total)

    def value(self, y: Array, m: Array, v: Array) -> Array:
        u, v, r = self._polar(y, m, v)
        return self.k * self._excess(y, u, v, r) + self.tail(r)

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        return self.value_and_gradient(y, m, v)[1]

    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        u, v, r = self._polar(y, m, v)
        safe, excess = np.maximum(r, _TINY), self._excess(y, u, v, r)
        share = np.where(r > _TINY, excess / safe, 1.0)
        by_mean = self.tail_slope(r) * (u / safe) - self.k * y * share
        return self.k * excess + self.tail(r), (by_mean, 0.5 * self.gamma(safe))

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        u, _, r = self._polar(y, m, v)
        safe = np.maximum(r, _TINY)
        kappa = self.kappa(safe)
        return self.gamma(safe) + kappa * np.square(u), 0.5 * kappa * u, 0.25 * kappa

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self.gamma(np.maximum(self._polar(y, m, v)[2], _TINY))


def check_positive(name: str, value: Any, or_zero: bool = False) -> float:
    """Return a parameter of a loss after checking that it is a positive number, or zero."""
    number = float(value) if isinstance(value, Real) else np.nan
    if not (np.isfinite(number) and (number > 0.0 or (or_zero and number == 0.0))):
        raise ValueError(f"{name} must be a positive number{' or 0' if or_zero else ''}, got {value!r}.")
    return number


# A smaller radius is replaced by this, whose cube does not underflow.
_TINY = 1e-100


class Hinge(RadialLoss):
    """The bound on the expected hinge loss, ``(z + sqrt(z^2 + v)) / 2`` with ``z = margin - y m`` (Lemma 1).

    Parameters
    ----------
    margin : float, default=1.0
        The ``l`` of the paper. It is redundant with ``C``: ``w(C, l) = l w(C / l, 1)``. Tune one of the two.
    """

    k = 0.5

    def __init__(self, margin: float = 1.0) -> None:
        self.margin = self.kink = check_positive("margin", margin)

    def smoothed(self, width: float | Array) -> SmoothedHinge:
        return SmoothedHinge(self.margin, width)

    def tail(self, r: Array) -> Array:
        return np.zeros_like(r)

    def tail_slope(self, r: Array) -> Array:
        return np.zeros_like(r)

    def gamma(self, r: Array) -> Array:
        return 0.5 / r

    def kappa(self, r: Array) -> Array:
        return -0.5 / (r * r * r)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        _, mixed, by_variance = super().curvature(y, m, v)
        # gamma + kappa u^2 in closed form, v / (2 r^3), without cancellation for small v
        r = np.maximum(self._polar(y, m, v)[2], _TINY)
        return 0.5 * (v / r) / r / r, mixed, by_variance


class SmoothedHinge(RadialLoss):
    r"""`Hinge` smoothed at its kink, as the solvers minimise it.

    The bound of Lemma 1 is the least ``xi >= 0`` with ``xi (xi - z) >= v / 4``. With the logarithmic barrier
    ``-(width / 2) log(xi (xi - z) - v / 4)`` and the optimal ``xi`` it becomes, up to a constant, the radial loss of
    ``r = sqrt(u^2 + v + width^2)`` and ``psi(r) = r / 2 - (width / 2) log(r + width)``. It is self-concordant: far from
    the kink it still has the curvature ``width / (2 z^2)``, which Newton's method needs.

    Parameters
    ----------
    margin : float
    width : float or ndarray that broadcasts with the rows
    """

    k = 0.5

    def __init__(self, margin: float, width: float | Array) -> None:
        self.margin = margin
        self.width = width

    def _polar(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return super()._polar(y, m, v + np.square(self.width))

    def tail(self, r: Array) -> Array:
        return -0.5 * self.width * np.log((r + self.width) / (2.0 * self.width))

    def tail_slope(self, r: Array) -> Array:
        return -0.5 * self.width / (r + self.width)

    def gamma(self, r: Array) -> Array:
        return 0.5 / (r + self.width)

    def kappa(self, r: Array) -> Array:
        return -0.5 / (r * np.square(r + self.width))

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        u, _, r = self._polar(y, m, v)
        kappa = self.kappa(r)
        # gamma + kappa u^2 without cancellation far from the kink
        by_mean = -kappa * (v + self.width * (self.width + r))
        return by_mean, 0.5 * kappa * u, 0.25 * kappa


class Logistic(RadialLoss):
    """The bound on the expected logistic loss, ``log(2 cosh(r / 2)) - y m / 2`` with ``r^2 = m^2 + v`` (Lemma 2)."""

    scores_are_log_odds = True
    k = 0.5

    def tail(self, r: Array) -> Array:
        return np.log1p(np.exp(-r))

    def tail_slope(self, r: Array) -> Array:
        return -expit(-r)

    def gamma(self, r: Array) -> Array:
        return np.where(r < 1e-4, 0.25 - np.square(r) / 48.0, np.tanh(0.5 * r) / (2.0 * r))

    def kappa(self, r: Array) -> Array:
        # psi'' - gamma cancels for small r: use the first terms of the series
        small = r < 0.05
        square = np.square(np.where(small, r, 0.0))
        series = -1.0 / 24.0 + square * (1.0 / 120.0 - square * 17.0 / 13440.0)
        far = np.where(small, 1.0, r)
        slope = np.tanh(0.5 * far)
        return np.where(small, series, (expit(far) * expit(-far) - slope / (2.0 * far)) / np.square(far))


class Quadratic(RadialLoss):
    """The expected squared error ``(y - m)^2 + v``, exact under every noise (MCF-quadratic)."""

    is_quadratic = True
    margin = 1.0

    def tail(self, r: Array) -> Array:
        return np.square(r)

    def tail_slope(self, r: Array) -> Array:
        return 2.0 * r

    def gamma(self, r: Array) -> Array:
        return np.full_like(r, 2.0)

    def kappa(self, r: Array) -> Array:
        return np.zeros_like(r)
