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
from scipy.special import expit, xlogy

from dropmargin.losses.base import JointLoss
from dropmargin.typing import Array


class RadialLoss(JointLoss):
    """A loss ``psi(r) - k y m + const``. A subclass defines `tail`, `gamma` and `kappa`."""

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

    def tail_slope(self, r: Array) -> Array:
        """Return ``psi'(r) - k``; a loss may have a form without cancellation."""
        return r * self.gamma(r) - self.k

    @abstractmethod
    def gamma(self, r: Array) -> Array:
        """Return ``psi'(r) / r``, which must not increase with ``r``."""

    @abstractmethod
    def kappa(self, r: Array) -> Array:
        """Return ``(psi''(r) - gamma(r)) / r^2``, which equals ``gamma'(r) / r``."""

    def _polar(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """Return ``u``, ``v`` and ``r``, which is at least so large that its cube does not underflow."""
        u = m - self.margin * y
        with np.errstate(over="ignore"):
            r = np.sqrt(u * u + v)
        # The square of a large u overflows, though r does not. hypot avoids that, but takes ten times as long.
        return u, v, np.maximum(r if np.isfinite(r).all() else np.hypot(u, np.sqrt(v)), _TINY)

    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        u, v, r = self._polar(y, m, v)
        along = y * u
        total = r + np.abs(along)
        with np.errstate(over="ignore", invalid="ignore"):
            excess = np.where(along > 0.0, v / total, total)  # r - y u, without cancellation
        by_mean = self.tail_slope(r) * (u / r) - self.k * y * (excess / r)
        return self.k * excess + self.tail(r), (by_mean, 0.5 * self.gamma(r))

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        u, _, r = self._polar(y, m, v)
        kappa = self.kappa(r)
        return self.gamma(r) + kappa * np.square(u), 0.5 * kappa * u, 0.25 * kappa

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self.gamma(self._polar(y, m, v)[2])


def check_positive(name: str, value: Any, or_zero: bool = False) -> float:
    """Return a parameter of a loss after checking that it is a positive number, or zero."""
    number = float(value) if isinstance(value, Real) else np.nan
    if not (np.isfinite(number) and (number > 0.0 or (or_zero and number == 0.0))):
        raise ValueError(f"{name} must be a positive number{' or 0' if or_zero else ''}, got {value!r}.")
    return number


_TINY = 1e-100


class SmoothedHinge(RadialLoss):
    r"""`Hinge` smoothed at its kink, as the solvers minimise it; without a width it is the bound of Lemma 1.

    The bound is the least ``xi >= 0`` with ``xi (xi - z) >= v / 4``. With the logarithmic barrier
    ``-(width / 2) log(xi (xi - z) - v / 4)`` and the optimal ``xi`` it becomes, up to a constant, the radial loss of
    ``r = sqrt(u^2 + v + width^2)`` and ``psi(r) = r / 2 - (width / 2) log(r + width)``. It is self-concordant: far from
    the kink it still has the curvature ``width / (2 z^2)``, which Newton's method needs.

    Parameters
    ----------
    margin : float
    width : float or ndarray that broadcasts with the rows, default=0.0
    """

    k = 0.5

    def __init__(self, margin: float, width: float | Array = 0.0) -> None:
        self.margin = margin
        self.width = width

    def _polar(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return super()._polar(y, m, v + np.square(self.width))

    def tail(self, r: Array) -> Array:
        return 0.5 * (xlogy(self.width, 2.0 * self.width) - xlogy(self.width, r + self.width))

    def tail_slope(self, r: Array) -> Array:
        return -0.5 * self.width / (r + self.width)

    def gamma(self, r: Array) -> Array:
        return 0.5 / (r + self.width)

    def kappa(self, r: Array) -> Array:
        return -0.5 / (r * np.square(r + self.width))

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        u, _, r = self._polar(y, m, v)
        kappa = self.kappa(r)
        # gamma + kappa u^2 without cancellation: far from the kink, or for a small v
        by_mean = -kappa * (v + self.width * (self.width + r))
        return by_mean, 0.5 * kappa * u, 0.25 * kappa


class Hinge(SmoothedHinge):
    """The bound on the expected hinge loss, ``(z + sqrt(z^2 + v)) / 2`` with ``z = margin - y m`` (Lemma 1).

    Parameters
    ----------
    margin : float, default=1.0
        The ``l`` of the paper. It is redundant with ``C``: ``w(C, l) = l w(C / l, 1)``. Tune one of the two.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(check_positive("margin", margin))
        self.kink = self.margin

    def smoothed(self, width: float | Array) -> SmoothedHinge:
        return SmoothedHinge(self.margin, width)


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

    def gamma(self, r: Array) -> Array:
        return np.full_like(r, 2.0)

    def kappa(self, r: Array) -> Array:
        return np.zeros_like(r)
