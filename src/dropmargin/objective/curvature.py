"""Hessian and majoriser of a moment objective: weights of the rows, and products in one pass (`objective.moment`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dropmargin.data import PerPartition, Rows, column_dots, products
from dropmargin.objective.base import Curvature, DeflationSpace
from dropmargin.objective.preconditioner import Preconditioner
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.objective.moment import MomentObjective


@dataclass(frozen=True)
class MomentCurvature(Curvature):
    """The Hessian or the majoriser at a point.

    ``weights`` are `CurvatureWeights`, and ``is_coupled`` says whether they couple mean and variance. ``diagonal`` is
    the part of the penalty and of the noise, of shape ``(n_features, n_outputs)``.
    """

    objective: MomentObjective
    coef: Array
    diagonal: Array
    weights: PerPartition
    is_coupled: bool
    preconditioner: Preconditioner | None = None
    deflation: DeflationSpace | None = None

    @cached_property
    def _scale(self) -> Array | None:
        variance = self.objective.variance
        return as_column(variance.slope) * self.coef[:-1] if self.is_coupled and variance.moves_entries else None

    @cached_property
    def _floor_coef(self) -> Array:
        return as_column(self.objective.variance.floor) * self.coef[:-1]

    def product(self, direction: Array) -> Array:
        objective, p, n = self.objective, direction[:-1], direction.shape[1]
        variance = objective.variance
        shift = np.zeros(2 * n) if self.is_coupled else direction[-1]
        if self.is_coupled:
            shift[:n] = direction[-1]
            if variance.has_floor:
                shift[n:] = column_dots(self._floor_coef, p)
        back, sums = objective.data.map_sum(_curvature_product, self.weights, p, self._scale, shift)
        return self._image(direction, back, sums)

    def _image(self, direction: Array, of_rows: Array, sums: Array) -> Array:
        """Return the product with ``direction`` from that of the rows and its sums."""
        objective, n = self.objective, direction.shape[1]
        out = np.empty_like(direction)
        np.multiply(self.diagonal, direction[:-1], out=out[:-1])
        out[:-1] += of_rows
        if len(sums) > n and objective.variance.has_floor:
            out[:-1] += self._floor_coef * sums[n:]
        out[-1] = sums[:n] if objective.fit_intercept else direction[-1]
        add_low_rank(objective.penalty, direction, out)
        return out

    def known_directions(self, images: Array, sums: Array) -> DeflationSpace:
        """Return the coefficients and the intercept with their products, from those of the rows and their sums."""
        n = self.coef.shape[1]
        intercept = np.zeros_like(self.coef)
        intercept[-1] = 1.0
        coef_image, intercept_image = (
            self._image(
                direction,
                images[:, k * n : (k + 1) * n],
                np.concatenate([sums[k * n : (k + 1) * n], sums[(k + 2) * n : (k + 3) * n]]),
            )
            for k, direction in enumerate((self.coef, intercept))
        )
        if not self.objective.fit_intercept:  # it is zero and coupled to nothing
            intercept_image = intercept
        return DeflationSpace(self.coef, coef_image, intercept_image)

    def precondition(self, residual: Array) -> Array:
        assert self.preconditioner is not None
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> MomentCurvature:
        return MomentCurvature(
            self.objective.select(outputs),
            np.ascontiguousarray(self.coef[:, outputs]),
            np.ascontiguousarray(self.diagonal[:, outputs]),
            self.objective.data.map(_select, self.weights, outputs),
            self.is_coupled,
            None if self.preconditioner is None else self.preconditioner.select(outputs),
            None if self.deflation is None else self.deflation.select(outputs),
        )


class CurvatureWeights(NamedTuple):
    """Second derivatives of the weighted loss by the moments of a partition's scores.

    ``values`` is ``s phi_mm``, or ``(s phi_mm, 2 s phi_mv, 4 s phi_vv)`` side by side, for ``n`` outputs. The
    majoriser, and a problem without noise, have the first only.
    """

    values: Array
    n: int

    @property
    def is_coupled(self) -> bool:
        return self.values.shape[1] > self.n

    @property
    def by_mean(self) -> Array:
        return self.values[:, : self.n]

    @property
    def mixed(self) -> Array:
        return self.values[:, self.n : 2 * self.n]

    @property
    def by_variance(self) -> Array:
        return self.values[:, 2 * self.n :]

    @property
    def n_active(self) -> Array:
        """The number of rows with curvature, one per output."""
        return np.count_nonzero(self.by_mean, axis=0)

    def select(self, outputs: Any) -> CurvatureWeights:
        by_mean = self.by_mean[:, outputs]
        if not self.is_coupled:
            return CurvatureWeights(np.ascontiguousarray(by_mean), by_mean.shape[1])
        values = np.hstack([by_mean, self.mixed[:, outputs], self.by_variance[:, outputs]])
        return CurvatureWeights(values, by_mean.shape[1])


@products(0)
def _select(part: Rows, weights: CurvatureWeights, outputs: Any) -> CurvatureWeights:
    return weights.select(outputs)


@products(2)
def _curvature_product(
    part: Rows, weights: CurvatureWeights, direction: Array, scale: Array | None, shift: Array
) -> tuple[Array, Array]:
    """Return the rows' part of a curvature times a direction, and the sums of what ``X'`` and ``f(X)'`` multiply."""
    n = weights.n
    if scale is not None:
        return part.X.coupled_product(direction, scale, shift, weights.values)
    if len(shift) == n:
        return part.X.sandwich(direction, shift, weights.values, n)
    # The noise does not depend on X (Gaussian, Laplace): the same variance for every row.
    mean = part.X.forward(direction, n) + shift[:n]
    by_mean = weights.by_mean * mean + weights.mixed * shift[n:]
    by_variance = weights.mixed * mean + weights.by_variance * shift[n:]
    return part.X.backward(by_mean, n), np.concatenate([by_mean.sum(axis=0), by_variance.sum(axis=0)])


def add_low_rank(penalty: Penalty, direction: Array, image: Array) -> None:
    """Add what is not diagonal in a penalty's second derivative to a product with a direction, in place."""
    of_penalty = penalty.low_rank_product(direction)
    if of_penalty is not None:
        image += of_penalty


def as_column(parameter: float | Array) -> Any:
    """Return a scalar as it is and one value per feature as a column."""
    return parameter if np.ndim(parameter) == 0 else np.asarray(parameter)[:, None]
