"""Rows at hand, for one column: their noisy scores, and the derivatives of their loss (see `objective.moment`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from dropmargin.linalg import Block
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.online.past import DIAGONAL_SHARE, RowsModel
from dropmargin.typing import Array


@dataclass(frozen=True)
class Setting:
    """Everything about an objective but the rows; ``smoothing`` is the deviation of noise added to every score."""

    loss: MomentLoss
    variance: Variance
    l2: float
    fit_intercept: bool
    smoothing: float


@dataclass(frozen=True)
class Rows:
    """Rows with labels -1 or +1 and with ``C`` times the sample weights.

    ``where`` picks the features that the blocks' columns are, and the offset, out of a vector of all coefficients.
    """

    blocks: Sequence[Block]
    labels: Array
    weights: Array
    where: Any


@dataclass(frozen=True)
class Scores:
    """Mean and variance of the noisy score of each row."""

    mean: Array
    variance: Array


def project(rows: Rows, variance: Variance, direction: Array, by_variance: Sequence[Array]) -> list[Array]:
    """Return ``X p + p_b`` and ``V u`` for every ``u`` of ``by_variance``, in one sweep."""
    weights = direction[:-1]
    shifts = [float(np.broadcast_to(variance.floor, u.shape) @ u) if variance.has_floor else 0.0 for u in by_variance]
    n_columns = 1 + len(by_variance) if variance.moves_entries else 1
    factors = np.empty((len(weights), n_columns))
    factors[:, 0] = weights
    for k in range(1, n_columns):
        np.multiply(variance.slope, by_variance[k - 1], out=factors[:, k])
    out = np.concatenate([block.forward(factors, 1) for block in rows.blocks])
    mean = out[:, 0] + direction[-1]
    if n_columns == 1:
        return [mean, *(np.full(len(mean), shift) for shift in shifts)]
    return [mean, *(out[:, k] + shift for k, shift in enumerate(shifts, 1))]


class Derivatives:
    """Weighted loss of each row, and its derivatives by mean and variance of the score, each when first asked for."""

    def __init__(self, rows: Rows, setting: Setting, scores: Scores) -> None:
        self.rows, self.setting, self.scores = rows, setting, scores
        self._at = (rows.labels, scores.mean, scores.variance + setting.smoothing**2)

    @cached_property
    def value(self) -> float:
        """The weighted loss of all rows."""
        return float(self.rows.weights @ self.setting.loss.value(*self._at))

    @cached_property
    def first(self) -> tuple[Array, Array]:
        """The weighted derivatives by mean and by variance."""
        by_mean, by_variance = self.setting.loss.gradient(*self._at)
        return self.rows.weights * by_mean, self.rows.weights * by_variance

    def majorised(self) -> tuple[Array, Array, Array]:
        """Return the second derivatives of the re-weighted least-squares problem, the paper's M-step, instead."""
        weights = self.rows.weights * self.setting.loss.weight(*self._at)
        return weights, np.zeros_like(weights), np.zeros_like(weights)

    @cached_property
    def second(self) -> tuple[Array, Array, Array]:
        """The weighted second derivatives: by mean twice, by mean and variance, by variance twice."""
        mean_twice, mixed, variance_twice = self.setting.loss.curvature(*self._at)
        weights = self.rows.weights
        return weights * mean_twice, weights * mixed, weights * variance_twice


class Slope:
    """The gradient of the rows' loss at ``coef``, and what noise adds to the diagonal of the Hessian."""

    def __init__(self, coef: Array, at: Derivatives) -> None:
        by_mean, by_variance = at.first
        back = _Back(at, [by_mean], [2.0 * by_variance], None)
        self.coef, self.noise = coef, back.by_variance(0)
        self.gradient = back.vector(0, self.noise * coef[:-1])


class Expansion:
    """The rows' loss to second order, summed over the rows by a product back.

    ``slope`` and ``second`` belong to the same coefficients: the gradient there, and the second derivatives per row.
    """

    def __init__(self, at: Derivatives, slope: Slope, second: tuple[Array, Array, Array]) -> None:
        coef = slope.coef
        self._coef, self._fit_intercept = coef, at.setting.fit_intercept
        self._gradient, self._noise = slope.gradient, slope.noise
        m, v = at.scores.mean, at.scores.variance
        mean_twice, mixed, variance_twice = second[0], 2.0 * second[1], 4.0 * second[2]
        by_mean = [mean_twice * m + mixed * v, mean_twice]
        by_variance = [mixed * m + variance_twice * v, mixed]
        back = _Back(at, by_mean, by_variance, mean_twice)
        weights = coef[:-1]
        self.coef_image = back.vector(0, (self._noise + back.by_variance(0)) * weights)
        self.offset_image = back.vector(1, back.by_variance(1) * weights)
        assert back.squares is not None
        self._squares, self._offset = back.squares, float(mean_twice.sum())

    def diagonal(self, share: float) -> Array:
        """Return what noise adds to the diagonal of the Hessian, and a share of the diagonal of ``X'AX``."""
        out = np.empty_like(self._coef)
        np.multiply(self._squares, share, out=out[:-1])
        out[:-1] += self._noise
        out[-1] = share * self._offset if self._fit_intercept else 0.0
        return np.maximum(out, 0.0, out=out)

    def moved(self, value: float, slope: Slope) -> RowsModel:
        """Return the model of the rows at other coefficients, with the gradient there and the curvature from here.

        The product of the Hessian with the way from here to there is the difference of the gradients.
        """
        image = self.coef_image + (slope.gradient - self._gradient)
        return RowsModel(value, slope.gradient, self.diagonal(DIAGONAL_SHARE), image, self.offset_image)


class _Back:
    """Products with ``X'`` and ``V'``, in one sweep: as many factors of the one as of the other, and the squares."""

    def __init__(self, at: Derivatives, by_mean: list[Array], by_variance: list[Array], squared: Array | None) -> None:
        rows, setting = at.rows, at.setting
        self._variance, self._fit_intercept, self._n = setting.variance, setting.fit_intercept, len(by_mean)
        left = np.stack(by_mean + by_variance, axis=1)
        self._sums = left.sum(axis=0)
        left = left if setting.variance.moves_entries else np.ascontiguousarray(left[:, : self._n])
        products, squares, begin = [], [], 0
        for block in rows.blocks:
            own = slice(begin, begin + block.n_rows)
            begin = own.stop
            if squared is None:
                products.append(block.backward(left[own], self._n))
                continue
            back, of_squares = block.backward_and_squares(left[own], self._n, squared[own, None])
            products.append(back)
            squares.append(of_squares[:, 0])
        self._products = reduce(np.add, products)
        self.squares = reduce(np.add, squares) if squares else None

    def by_variance(self, k: int) -> Array | float:
        """Return ``V'`` times the ``k``-th factor of the variances."""
        variance = self._variance
        out = variance.slope * self._products[:, self._n + k] if variance.moves_entries else 0.0
        return out + variance.floor * self._sums[self._n + k] if variance.has_floor else out

    def vector(self, k: int, rest: Array | float) -> Array:
        """Return ``X'`` times the ``k``-th factor of the means, plus ``rest``; then the offset's entry."""
        out = np.empty(len(self._products) + 1)
        np.add(self._products[:, k], rest, out=out[:-1])
        out[-1] = self._sums[k] if self._fit_intercept else 0.0
        return out
