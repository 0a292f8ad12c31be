"""Rows at hand, for one column: their noisy scores, and the derivatives of their loss (see `objective.moment`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.data import Block
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
class StreamRows:
    """Rows with labels -1 or +1 and with ``C`` times the sample weights.

    ``where`` picks the features that the block's columns are, and the intercept, out of a vector of all coefficients.
    """

    block: Block
    labels: Array
    weights: Array
    where: Any

    def target_weights(self) -> Array:
        """Return the weight of the rows with label -1, and of those with +1."""
        positive = self.labels > 0.0
        # no difference of two sums: a label that is not there has no weight at all
        return np.array([self.weights[~positive].sum(), self.weights[positive].sum()])


@dataclass(frozen=True)
class Scores:
    """Mean and variance of the noisy score of each row."""

    mean: Array
    variance: Array


def project(rows: StreamRows, variance: Variance, direction: Array, by_variance: Sequence[Array]) -> list[Array]:
    """Return ``X p + p_b`` and ``V u`` for every ``u`` of ``by_variance``, in one sweep."""
    weights = direction[:-1]
    shifts = [float(np.broadcast_to(variance.floor, u.shape) @ u) if variance.has_floor else 0.0 for u in by_variance]
    n_columns = 1 + len(by_variance) if variance.moves_entries else 1
    factors = np.empty((len(weights), n_columns))
    factors[:, 0] = weights
    for k in range(1, n_columns):
        np.multiply(variance.slope, by_variance[k - 1], out=factors[:, k])
    out = rows.block.forward(factors, 1)
    mean = out[:, 0] + direction[-1]
    if n_columns == 1:
        return [mean, *(np.full(len(mean), shift) for shift in shifts)]
    return [mean, *(out[:, k] + shift for k, shift in enumerate(shifts, 1))]


class Derivatives:
    """The weighted loss of all rows, and of each its derivatives by mean and variance of the score, weighted."""

    def __init__(self, rows: StreamRows, setting: Setting, scores: Scores) -> None:
        self.rows, self.setting, self.scores = rows, setting, scores
        with np.errstate(over="ignore", invalid="ignore"):  # after a step too far, whose value is looked at
            of_loss = setting.loss.expand(rows.labels, scores.mean, scores.variance + setting.smoothing**2)
        self.value = float(rows.weights @ of_loss.value)
        self.by_mean, self.by_variance, self.mean_twice, self.mixed, self.variance_twice = (
            rows.weights * derivative for derivative in of_loss[1:]
        )

    def majorise(self) -> None:
        """Put the second derivatives of the re-weighted least-squares problem, the paper's M-step, instead."""
        at = (self.rows.labels, self.scores.mean, self.scores.variance + self.setting.smoothing**2)
        self.mean_twice = self.rows.weights * self.setting.loss.majoriser(*at)
        self.mixed = self.variance_twice = np.zeros_like(self.mean_twice)


def slope_and_diagonal(coef: Array, at: Derivatives) -> tuple[Array, Array]:
    """Return the gradient of the rows' loss at ``coef``, and the diagonal of its Hessian, by a product back."""
    back = _Back(at, [at.by_mean], [2.0 * at.by_variance])
    noise = back.by_variance(0)
    return back.vector(0, noise * coef[:-1]), back.diagonal(noise, 1.0)


def expand(coef: Array, at: Derivatives) -> RowsModel:
    """Return the rows' loss to second order at ``coef``, by a product back."""
    m, v = at.scores.mean, at.scores.variance
    mixed = 2.0 * at.mixed
    back = _Back(
        at,
        [at.by_mean, at.mean_twice * m + mixed * v, at.mean_twice],
        [2.0 * at.by_variance, mixed * m + 4.0 * at.variance_twice * v, mixed],
    )
    weights, noise = coef[:-1], back.by_variance(0)
    along = noise * weights
    return RowsModel(
        at.value,
        back.vector(0, along),
        back.diagonal(noise, DIAGONAL_SHARE),
        back.vector(1, along + back.by_variance(1) * weights),
        back.vector(2, back.by_variance(2) * weights),
        back.mean_curvature,
    )


class _Back:
    """Products with ``X'`` and ``V'``, in one sweep: as many factors of the one as of the other, and the squares."""

    def __init__(self, at: Derivatives, by_mean: list[Array], by_variance: list[Array]) -> None:
        setting = at.setting
        self._variance, self._fit_intercept, self._n = setting.variance, setting.fit_intercept, len(by_mean)
        self._sums = [float(factor.sum()) for factor in (*by_mean, *by_variance)]
        self.mean_curvature = float(at.mean_twice.sum())
        left = np.stack(by_mean + by_variance if setting.variance.moves_entries else by_mean, axis=1)
        products, squares = at.rows.block.backward_and_squares(left, self._n, at.mean_twice[:, None])
        # a row per product: all that follows is faster with whole rows
        self._products, self._squares = np.ascontiguousarray(products.T), np.ascontiguousarray(squares[:, 0])

    def by_variance(self, k: int) -> Array | float:
        """Return ``V'`` times the ``k``-th factor of the variances."""
        variance = self._variance
        out = variance.slope * self._products[self._n + k] if variance.moves_entries else 0.0
        return out + variance.floor * self._sums[self._n + k] if variance.has_floor else out

    def vector(self, k: int, rest: Array | float) -> Array:
        """Return ``X'`` times the ``k``-th factor of the means, plus ``rest``; then the intercept's entry."""
        out = np.empty(len(self._squares) + 1)
        np.add(self._products[k], rest, out=out[:-1])
        out[-1] = self._sums[k] if self._fit_intercept else 0.0
        return out

    def diagonal(self, noise: Array | float, share: float) -> Array:
        """Return what noise adds to the diagonal of the Hessian, and a share of the diagonal of ``X'AX``."""
        out = np.empty(len(self._squares) + 1)
        np.multiply(self._squares, share, out=out[:-1])
        out[:-1] += noise
        out[-1] = share * self.mean_curvature if self._fit_intercept else 0.0
        return out
