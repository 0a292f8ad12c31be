r"""Mean and variance of the scores at coefficients, and the products with the rows that their derivatives need.

`ScoreMoments` is the interface, `FeatureMoments` are those of independent features. With the variance
``V_id = slope_d f(x_id) + floor_d`` of each entry, the formulas are those of `objective.moment`. Those of groups of
features are in `objective.grouped`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dropmargin.data import Block, Rows, column_dots, products
from dropmargin.noise import Variance
from dropmargin.objective.curvature import CurvatureWeights, as_column
from dropmargin.objective.explicit import variances
from dropmargin.typing import Array

Sums = tuple[Any, ...]


class ScoreMoments(ABC):
    """The operand of products with the rows: coefficients, and what is derived from them.

    Methods that take a block return sums over its rows. `gradient`, `images` and `product` take the sums over all
    blocks, and return what they are needed for.
    """

    variance: Variance
    coef: Array  # (n_features, n_outputs)
    #: Whether the noise's part of the curvature is a diagonal.
    is_diagonal: bool
    #: The number of sums that `gradient_sums` returns.
    n_gradient_sums: int
    #: The function of a partition behind `product`, called with weights and what `along` returns. It is mapped itself,
    #: because every call between `fit` and a product costs time.
    row_product: Callable[..., Sums]

    @abstractmethod
    def scores(self, block: Block) -> tuple[Array, Array]:
        """Return the means of the scores, less the intercept, and their variances, of shape (n_rows, n_outputs)."""

    @abstractmethod
    def gradient_sums(self, block: Block, by_mean: Array, h: Array) -> Sums:
        """Return the sums for `gradient`; the slopes of the rows are ``by_mean = s phi_m`` and ``h = 2 s phi_v``."""

    @abstractmethod
    def gradient(self, h_total: Array, *sums: Any) -> tuple[Array, ...]:
        """Return the gradient of the loss, the noise's diagonal (`of_noise`), and what `product` needs of the noise."""

    @abstractmethod
    def image_sums(self, block: Block, left: Array, squared: Array | None) -> Sums:
        """Return ``(X * X)' squared``, and the sums for `images`.

        ``left`` is what ``X'`` multiplies for the coefficients, then for the intercept, and with curvature of the
        variance the same for the derivative of the variance.
        """

    @abstractmethod
    def images(self, totals: Array, *sums: Any) -> Array:
        """Return the products with the coefficients beside those with the intercept; ``totals`` is the sum of ``left``.

        The noise's diagonal is not included.
        """

    @abstractmethod
    def along(self, direction: Array) -> tuple[Any, ...]:
        """Return a direction, intercept last, in the form that `row_product` needs."""

    @abstractmethod
    def product(self, sums: Sums, of_noise: Sums, along: tuple[Any, ...]) -> tuple[Array, Array]:
        """Return the product with a direction, less the noise's diagonal, and its entry for the intercept."""

    @abstractmethod
    def half_slope(self, rows: Array, k: int) -> Array:
        """Return half the derivative of the variance of output ``k`` by the coefficients, for dense rows."""

    def noise_matrix(self, rows: Array, h: Array) -> Array:
        """Return the noise's part of the curvature as a matrix, for dense rows, if it is not a diagonal."""
        raise NotImplementedError

    def select(self, outputs: Any) -> Self:
        """Return the moments of these outputs alone."""
        return replace(self, coef=np.ascontiguousarray(self.coef[:, outputs]))  # type: ignore[type-var]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what is derived from them is not sent to a cluster."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def of_noise(self, by_entries: Array, h_total: Array) -> Array:
        """Return ``V' h`` from ``f(X)' h`` and the sum of ``h``: the noise's diagonal of independent features."""
        moves_entries = self.variance.moves_entries
        out = as_column(self.variance.slope) * by_entries if moves_entries else np.zeros(self.coef.shape)
        if self.variance.has_floor:
            out += as_column(self.variance.floor) * h_total
        return out


@dataclass(frozen=True, eq=False)
class FeatureMoments(ScoreMoments):
    """The moments of independent features."""

    variance: Variance
    coef: Array
    is_diagonal = True
    n_gradient_sums = 1

    @cached_property
    def scaled(self) -> Array:
        """``slope * w``."""
        return as_column(self.variance.slope) * self.coef

    @cached_property
    def _floor_coef(self) -> Array:
        return as_column(self.variance.floor) * self.coef

    @cached_property
    def _factors(self) -> Array:
        """The factors of ``X`` and ``f(X)``."""
        return np.hstack([self.coef, self.scaled * self.coef]) if self.variance.moves_entries else self.coef

    @cached_property
    def _constant(self) -> Array:
        """The part of the variances that all rows share."""
        return self._by_floor(self.coef)

    def _by_floor(self, direction: Array) -> Array:
        return column_dots(self._floor_coef, direction) if self.variance.has_floor else np.zeros(direction.shape[1])

    def scores(self, block: Block) -> tuple[Array, Array]:
        n = self.coef.shape[1]
        found = block.forward(self._factors, n)
        if not self.variance.moves_entries:
            return found, np.broadcast_to(self._constant, found.shape)
        return found[:, :n], found[:, n:] + self._constant

    def gradient_sums(self, block: Block, by_mean: Array, h: Array) -> Sums:
        left = np.hstack([by_mean, h]) if self.variance.moves_entries else by_mean
        return (block.backward(left, by_mean.shape[1]),)

    def gradient(self, h_total: Array, *sums: Any) -> tuple[Array, ...]:
        (back,), n = sums, len(h_total)
        of_noise = self.of_noise(back[:, n:], h_total)
        return back[:, :n] + of_noise * self.coef, of_noise

    def image_sums(self, block: Block, left: Array, squared: Array | None) -> Sums:
        n_x = 2 * self.coef.shape[1]
        if left.shape[1] > n_x and self.variance.moves_entries:
            images, squares = block.images(left, self.scaled, squared)
        else:
            images, squares = block.images(left[:, :n_x], None, squared)
        return squares, images

    def images(self, totals: Array, *sums: Any) -> Array:
        (images,), n_x = sums, 2 * self.coef.shape[1]
        if len(totals) > n_x and self.variance.has_floor:
            images = images + np.hstack([self._floor_coef, self._floor_coef]) * totals[n_x:]
        return images

    def along(self, direction: Array) -> tuple[Array, Array | None, Array]:
        scale = self.scaled if self.variance.moves_entries else None
        return direction[:-1], scale, np.concatenate([direction[-1], self._by_floor(direction[:-1])])

    @staticmethod
    @products(2)
    def row_product(part: Rows, weights: CurvatureWeights, direction: Array, scale: Array | None, shift: Array) -> Sums:
        """Return the rows' part of a product, and the sums of what ``X'`` and ``f(X)'`` multiply.

        ``scale`` is ``slope * w``; ``None`` if the noise does not depend on ``X``.
        """
        n = weights.n
        if not weights.is_coupled:
            return part.X.sandwich(direction, shift[:n], weights.values, n)
        if scale is not None:
            return part.X.coupled_product(direction, scale, shift, weights.values)
        # Gaussian and Laplace noise: the same variance for every row.
        mean = part.X.forward(direction, n) + shift[:n]
        by_mean = weights.by_mean * mean + weights.mixed * shift[n:]
        by_variance = weights.mixed * mean + weights.by_variance * shift[n:]
        return part.X.backward(by_mean, n), np.concatenate([by_mean.sum(axis=0), by_variance.sum(axis=0)])

    def product(self, sums: Sums, of_noise: Sums, along: tuple[Any, ...]) -> tuple[Array, Array]:
        (image, totals), n = sums, self.coef.shape[1]
        if len(totals) > n and self.variance.has_floor:
            image += self._floor_coef * totals[n:]
        return image, totals[:n]

    def half_slope(self, rows: Array, k: int) -> Array:
        return variances(rows, self.variance) * self.coef[:, k]
