r"""The penalty ``R(w) = l2 / 2 |w|_2^2 + l1 |w|_1``; the intercept is not penalised.

Newton's method needs a smooth function, so ``l1 |w|`` is approached along the central path of an interior-point method.
It is the least ``l1 s`` with ``s >= |w|``. With the barrier ``-mu log(s^2 - w^2)`` and the best ``s`` it is::

    G(w) = l1 (s - s0) - mu log(s / s0),     s = s0 / 2 + r,     r = sqrt((s0 / 2)^2 + w^2),     s0 = 2 mu / l1

    G' = l1 w / s          G'' = l1 (s - w^2 / r) / s^2          majoriser: l1 / s

``0 <= G(w) <= l1 |w|``, and the minimum with ``G`` is at most ``mu (2 n_features)`` above the minimum with ``l1 |w|``.
``G`` is self-concordant: Newton's method takes about as many steps however small ``mu`` is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.typing import Array

# How sharply `Penalty.predict` tells coefficients that are zero at the optimum from the others.
_SHARPNESS = 8


@dataclass(frozen=True)
class Penalty:
    """A penalty on coefficients of shape ``(n_features + n_intercepts, n_outputs)``, whose last rows are intercepts.

    Parameters
    ----------
    l2 : float, or ndarray of shape (n_outputs,)
        Strength of the squared norm, the same for all outputs or one per output.
    l1 : float
        Strength of the absolute values.
    barrier : float, default=0.0
        ``mu`` of the module's docstring; zero is the exact penalty. The derivatives of ``l1 |w|`` are then those within
        the orthant of ``w``, and zero is taken for the derivative at zero.
    n_intercepts : int, default=1
        More than one in a multinomial problem, whose classes are one output.
    """

    l2: Any = 1.0
    l1: float = 0.0
    barrier: float = 0.0
    n_intercepts: int = 1

    @property
    def is_positive_diagonal(self) -> bool:
        """Whether the second derivative is a diagonal matrix, positive everywhere: most preconditioners rely on it."""
        return bool(np.min(self.l2) > 0.0) or self.barrier > 0.0

    def select(self, outputs: Any) -> Penalty:
        """Return the penalty of these outputs alone."""
        return self if np.ndim(self.l2) == 0 else replace(self, l2=self.l2[outputs])

    def value(self, coef: Array) -> Array:
        """Return ``R``, one value per output."""
        w = coef[: -self.n_intercepts]
        total = 0.5 * self.l2 * column_dots(w, w)
        if not self.l1:
            return total
        if not self.barrier:
            return total + self.l1 * np.abs(w).sum(axis=0)
        above = w * (w / self._bounds(w)[0])  # s - s0, without the difference
        rise = np.log1p(above * (0.5 * self.l1 / self.barrier))
        return total + self.l1 * above.sum(axis=0) - self.barrier * rise.sum(axis=0)

    def gradient(self, coef: Array) -> Array:
        """Return the derivative by the features' coefficients, of shape ``(n_features, n_outputs)``."""
        w = coef[: -self.n_intercepts]
        if not self.l1:
            return self.l2 * w
        return self.l2 * w + self.l1 * (w / self._bounds(w)[0] if self.barrier else np.sign(w))

    def curvature(self, coef: Array) -> Array | float:
        """Return the second derivative, of the shape of the gradient or a number that serves all entries."""
        if not self.barrier:
            return self.l2
        w = coef[: -self.n_intercepts]
        s, r = self._bounds(w)
        return self.l2 + self.l1 * (s - w * (w / r)) / np.square(s)

    def majoriser(self, coef: Array) -> Array | float:
        """Return the curvature of the quadratic function that lies above ``R`` and touches it at ``coef``."""
        return self.l2 + self.l1 / self._bounds(coef[: -self.n_intercepts])[0] if self.barrier else self.l2

    def at(self, coef: Array) -> tuple[Array, Array]:
        """Return the value, and the gradient by all coefficients; by the intercepts it is zero."""
        gradient = np.empty_like(coef)
        gradient[: -self.n_intercepts] = self.gradient(coef)
        gradient[-self.n_intercepts :] = 0.0
        return self.value(coef), gradient

    def low_rank_product(self, direction: Array) -> Array | None:
        """Return the part of the second derivative that is not diagonal, if there is one, times a direction."""
        return None

    def centred(self, squares: Array, intercept_image: Array) -> Array:
        """Return the diagonal of the rows' curvature for a preconditioner.

        ``squares`` is that diagonal, and ``intercept_image`` the product of the whole curvature with the intercept. A
        penalty that is a summary of rows returns the diagonal of centred features, less its own.
        """
        return squares

    def least_subgradient(self, coef: Array, gradient: Array) -> Array:
        """Return the smallest subgradient of the objective, given the gradient that takes zero for that of ``l1 |0|``.

        A coefficient at zero whose gradient is within ``l1`` has the subgradient zero.
        """
        at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - self.l1, 0.0)
        at_zero[-self.n_intercepts :] = gradient[-self.n_intercepts :]
        return np.where(coef != 0.0, gradient, at_zero)

    def project(self, coef: Array, start: Array, subgradient: Array) -> Array:
        """Return coefficients with zeros for those that have left the orthant of ``start``.

        Its signs are those of ``start``, and of the steepest descent where a coefficient of ``start`` is zero.
        """
        signs = np.where(start != 0.0, np.sign(start), -np.sign(subgradient))
        left = np.sign(coef) != signs
        left[-self.n_intercepts :] = False
        return np.where(left, 0.0, coef)

    def predict(self, coef: Array, barrier: float) -> Array:
        """Return coefficients near the minimum for a smaller barrier, if ``coef`` is the minimum for this one.

        A coefficient that is zero at the optimum is proportional to the barrier; its gradient ``l1 w / s`` is well
        inside the interval from ``-l1`` to ``l1``. The others hardly change.
        """
        w = coef[: -self.n_intercepts]
        inactive = 1.0 - np.abs(w / self._bounds(w)[0]) ** _SHARPNESS
        out = coef.copy()
        out[: -self.n_intercepts] -= (1.0 - barrier / self.barrier) * inactive * w
        return out

    def _bounds(self, w: Array) -> tuple[Array, Array]:
        """Return ``s`` and ``r``."""
        half = self.barrier / self.l1
        r = np.hypot(half, w)
        return half + r, r
