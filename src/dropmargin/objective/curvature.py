"""Hessian and majoriser of a moment objective: weights of the rows, and products in one pass (`objective.moment`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dropmargin.data import PerPartition, Rows, products
from dropmargin.objective.base import Curvature, DeflationSpace
from dropmargin.objective.preconditioner import Preconditioner
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.objective.moment import MomentObjective
    from dropmargin.objective.score_moments import ScoreMoments


@dataclass(frozen=True)
class MomentCurvature(Curvature):
    """The Hessian or the majoriser at a point.

    ``weights`` are `CurvatureWeights`. ``diagonal`` is the part of the penalty, and of the noise if that is a diagonal,
    of shape ``(n_features, n_outputs)``; ``of_noise`` is what products need of the noise otherwise.
    """

    objective: MomentObjective
    moments: ScoreMoments
    coef: Array
    diagonal: Array
    of_noise: tuple[Array, ...]
    weights: PerPartition
    preconditioner: Preconditioner | None = None
    deflation: DeflationSpace | None = None

    def product(self, direction: Array) -> Array:
        moments = self.moments
        along = moments.along(direction)
        sums = self.objective.data.map_sum(moments.row_product, self.weights, *along)
        return self._image(direction, *moments.product(sums, self.of_noise, along))

    def _image(self, direction: Array, of_rows: Array, by_intercept: Array) -> Array:
        """Return the product with ``direction`` from that of the rows."""
        objective = self.objective
        out = np.empty_like(direction)
        np.multiply(self.diagonal, direction[:-1], out=out[:-1])
        out[:-1] += of_rows
        out[-1] = by_intercept if objective.fit_intercept else direction[-1]
        of_penalty = objective.penalty.low_rank_product(direction)
        return out if of_penalty is None else out + of_penalty

    def known_directions(self, images: Array, totals: Array) -> DeflationSpace:
        """Return the coefficients and the intercept with their products, from those of the rows."""
        n = self.coef.shape[1]
        intercept = np.zeros_like(self.coef)
        intercept[-1] = 1.0
        coef_image = self._image(self.coef, images[:, :n], totals[:n])
        if not self.objective.fit_intercept:  # it is zero and coupled to nothing
            return DeflationSpace(self.coef, coef_image, intercept)
        return DeflationSpace(self.coef, coef_image, self._image(intercept, images[:, n:], totals[n : 2 * n]))

    def precondition(self, residual: Array) -> Array:
        assert self.preconditioner is not None
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> MomentCurvature:
        return MomentCurvature(
            self.objective.select(outputs),
            self.moments.select(outputs),
            np.ascontiguousarray(self.coef[:, outputs]),
            np.ascontiguousarray(self.diagonal[:, outputs]),
            tuple(np.ascontiguousarray(array[..., outputs]) for array in self.of_noise),
            self.objective.data.map(_select, self.weights, outputs),
            None if self.preconditioner is None else self.preconditioner.select(outputs),
            None if self.deflation is None else self.deflation.select(outputs),
        )


class CurvatureWeights(NamedTuple):
    """Second derivatives of the weighted loss by the moments of a partition's scores.

    ``values`` is ``s phi_mm``, or ``(s phi_mm, 2 s phi_mv, 4 s phi_vv)`` side by side, for ``n`` outputs, followed by
    ``h = 2 s phi_v`` for groups of features. The majoriser of independent features, and a problem without noise, have
    the first only.
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
        return self.values[:, 2 * self.n : 3 * self.n]

    @property
    def h(self) -> Array | float:
        """The weights of the variance's second derivative; zero where the noise's curvature is a diagonal."""
        return self.values[:, 3 * self.n :] if self.values.shape[1] > 3 * self.n else 0.0

    @property
    def n_active(self) -> Array:
        """The number of rows with curvature, one per output."""
        return np.count_nonzero(self.by_mean, axis=0)

    def select(self, outputs: Any) -> CurvatureWeights:
        parts = [part[:, outputs] for part in np.hsplit(self.values, self.values.shape[1] // self.n)]
        return CurvatureWeights(np.hstack(parts), parts[0].shape[1])


@products(0)
def _select(part: Rows, weights: CurvatureWeights, outputs: Any) -> CurvatureWeights:
    return weights.select(outputs)


def as_column(parameter: float | Array) -> Any:
    """Return a scalar as it is and one value per feature as a column."""
    return parameter if np.ndim(parameter) == 0 else np.asarray(parameter)[:, None]
