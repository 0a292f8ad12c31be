"""Functions of one partition for the multinomial objective: exponents, gradient and Hessian product, class by class.

See `objective.multinomial` for the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from dropmargin.data import Block, FeatureGroups, Rows, products
from dropmargin.noise import Variance
from dropmargin.objective.curvature import as_column
from dropmargin.typing import Array


class Coefficients(NamedTuple):
    """Coefficients of shape (n_features, n_classes), and intercepts of shape (n_classes,)."""

    coef: Array
    intercept: Array

    @classmethod
    def of_vector(cls, vector: Array, n_classes: int) -> Coefficients:
        """Return the coefficients of a solver's column."""
        return cls(vector[:-n_classes, 0].reshape(-1, n_classes), vector[-n_classes:, 0])

    def to_vector(self) -> Array:
        """Return the column for a solver."""
        return np.concatenate([self.coef.ravel(), self.intercept])[:, None]

    def differences(self, label: int) -> Coefficients:
        """Return the differences to those of a class."""
        return Coefficients(self.coef - self.coef[:, [label]], self.intercept - self.intercept[label])

    def add_differences(self, label: int, of_differences: Coefficients) -> None:
        """Add a gradient by the differences to a class to this gradient by the coefficients."""
        for total, own in zip(self, of_differences, strict=True):
            total += own
            total[..., label] -= own.sum(axis=-1)


class ClassPart(NamedTuple):
    """The rows of one class: its index, their numbers in the partition, and the rows as a block."""

    label: int
    numbers: Array
    block: Block


class HessianTerms(NamedTuple):
    """What a class contributes to a Hessian product.

    Attributes
    ----------
    at, along : Coefficients
        The differences ``d`` to the class, and their direction ``u``.
    weighted : ndarray of shape (n_rows, n_classes)
        ``s p``, and zero for the class itself.
    weigh : callable
        A slice of rows and ``g`` there to ``q``.
    """

    at: Coefficients
    along: Coefficients
    weighted: Array
    weigh: Callable[[slice, Array], Array]


class ScoreVariance(Protocol):
    """The variance ``v`` of score differences under the noise, and the products that it needs."""

    @property
    def variance(self) -> Variance:
        """The variance of each feature."""

    def exponents(self, block: Block, given: Coefficients) -> Array:
        """Return means and half the variances of scores, added up."""

    def gradient(self, block: Block, left: Array, given: Coefficients) -> tuple[Array, Array | float]:
        """Return ``X' left + V' left * d``, and ``V' left`` (0 for groups of features)."""

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> Coefficients:
        """Return a class's product, less ``V'(s p_k) * u_k`` unless ``with_noise``."""

    def diagonal(self, block: Block, left: Array) -> Array | float:
        """Return ``V' left``; of groups, that of independent features."""


class FeatureVariance(NamedTuple):
    """The variance of scores if the features are independent, or without noise."""

    variance: Variance

    def exponents(self, block: Block, given: Coefficients) -> Array:
        right, shift = self._right(given.coef, 0.5 * np.square(given.coef))
        return self._sum(block.forward(right, given.coef.shape[1]), given.coef.shape[1]) + (shift + given.intercept)

    def gradient(self, block: Block, left: Array, given: Coefficients) -> tuple[Array, Array | float]:
        n = left.shape[1]
        back = block.backward(self._twice(left), n)
        by_feature = self._by_feature(back[:, n:], left.sum(axis=0))
        return back[:, :n] + by_feature * given.coef, by_feature

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> Coefficients:
        at, along, weighted, weigh = terms
        n = at.coef.shape[1]
        right, shift = self._right(along.coef, at.coef * along.coef)
        shift = shift + along.intercept
        is_third = with_noise and self.variance.moves_entries

        def left(where: slice, scores: Array) -> Array:
            own = self._twice(weigh(where, self._sum(scores, n) + shift))
            return np.hstack([own, weighted[where]]) if is_third else own

        back, sums = block.round_trip(right, n, left)
        image = back[:, :n] + self._by_feature(back[:, n : 2 * n], sums[:n]) * at.coef
        if with_noise:
            image += self._by_feature(back[:, 2 * n :], weighted.sum(axis=0)) * along.coef
        return Coefficients(image, sums[:n])

    def diagonal(self, block: Block, left: Array) -> Array | float:
        by_entries = block.backward(left, 0) if self.variance.moves_entries else np.zeros((0, 0))
        return self._by_feature(by_entries, left.sum(axis=0))

    def _right(self, linear: Array, quadratic: Array) -> tuple[Array, Array | float]:
        """Return the operands of ``X linear + V quadratic`` for a block, and its part that all rows share."""
        variance = self.variance
        right = np.hstack([linear, as_column(variance.slope) * quadratic]) if variance.moves_entries else linear
        return right, (as_column(variance.floor) * quadratic).sum(axis=0) if variance.has_floor else 0.0

    def _sum(self, scores: Array, n: int) -> Array:
        """Return the products with ``X`` and ``f(X)`` added up."""
        return scores[:, :n] + scores[:, n:] if self.variance.moves_entries else scores

    def _twice(self, left: Array) -> Array:
        """Return the operand of products with ``X'`` and ``f(X)'``."""
        return np.hstack([left, left]) if self.variance.moves_entries else left

    def _by_feature(self, by_entries: Array, sums: Array) -> Array | float:
        """Return ``V' left``, given ``f(X)' left`` and the sums of ``left``."""
        variance = self.variance
        out: Array | float = as_column(variance.slope) * by_entries if variance.moves_entries else 0.0
        return out + as_column(variance.floor) * sums if variance.has_floor else out


class GroupVariance(NamedTuple):
    """The variance of scores for groups of features (`data.groups`)."""

    variance: Variance
    groups: FeatureGroups

    def exponents(self, block: Block, given: Coefficients) -> Array:
        mean, variances = block.group_moments(given.coef, self.groups)
        return mean + 0.5 * variances + given.intercept

    def gradient(self, block: Block, left: Array, given: Coefficients) -> tuple[Array, Array | float]:
        return self._transposed(block, left, left, given.coef), 0.0

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> Coefficients:
        at, along = terms.at, terms.along
        # ``V (d * u)`` by polarisation, with a direction of the length of ``d`` so that no digits are lost.
        size = np.linalg.norm(along.coef)
        scale = max(np.linalg.norm(at.coef), np.finfo(float).tiny) / size if size > 0.0 else 1.0
        (mean, above), (other, below) = (
            block.group_moments(at.coef + sign * scale * along.coef, self.groups) for sign in (1.0, -1.0)
        )
        change = (0.5 * (mean - other) + 0.25 * (above - below)) / scale + along.intercept
        left = terms.weigh(slice(None), change)
        image = self._transposed(block, left, left, at.coef)
        if with_noise:
            image += self._transposed(block, np.zeros_like(left), terms.weighted, along.coef)
        return Coefficients(image, left.sum(axis=0))

    def diagonal(self, block: Block, left: Array) -> Array | float:
        return FeatureVariance(self.variance).diagonal(block, left)

    def _transposed(self, block: Block, of_mean: Array, of_variance: Array, coef: Array) -> Array:
        """Return ``X' of_mean + V' of_variance * coef``."""
        return block.group_products(np.hstack([of_mean, of_variance]), coef, None, None, self.groups)[0]


# Functions of one partition ---------------------------------------------------------------------------------------


def rows_by_class(part: Rows) -> list[ClassPart]:
    """Return the rows of each class that occurs."""
    labels, found = part.y.argmax(axis=1), []
    for label in np.unique(labels).tolist():
        index = np.flatnonzero(labels == label)
        found.append(ClassPart(label, index, part.X.with_rows(index)))
    return found


class Exponents(NamedTuple):
    """``e`` of each row, of shape (n_rows, n_classes), and its log-sum-exp."""

    values: Array
    total: Array


@products(1)
def exponents(part: Rows, noise: ScoreVariance, given: Coefficients, parts: list[ClassPart] | None) -> Exponents:
    """Return the exponents of each row; ``parts`` are the rows by class, if they are known."""
    values = np.empty(part.y.shape)
    for label, index, block in rows_by_class(part) if parts is None else parts:
        values[index] = noise.exponents(block, given.differences(label))
        values[index, label] = 0.0
    return Exponents(values, logsumexp(values, axis=1))


def loss(part: Rows, exponents: Exponents) -> tuple[Array]:
    """Return the weighted loss."""
    return (np.atleast_1d(part.sample_weight @ exponents.total),)


def probabilities(part: Rows, exponents: Exponents) -> Array:
    """Return ``p`` of each row."""
    return np.exp(exponents.values - exponents.total[:, None])


@products(1)
def gradient(
    part: Rows,
    noise: ScoreVariance,
    given: Coefficients,
    probabilities: Array,
    parts: list[ClassPart] | None,
    keeps_noise: bool,
) -> tuple[Array, Array, Array]:
    """Return the loss's gradient by coefficients and intercepts, and ``V'(s p_k)`` of each class if that is kept."""
    n = len(given.intercept)
    total = Coefficients(np.zeros(given.coef.shape), np.zeros(n))
    of_noise = np.zeros((n if keeps_noise else 0, *given.coef.shape))
    for label, index, block in rows_by_class(part) if parts is None else parts:
        left = part.sample_weight[index, None] * probabilities[index]
        left[:, label] = 0.0
        own, by_feature = noise.gradient(block, left, given.differences(label))
        total.add_differences(label, Coefficients(own, left.sum(axis=0)))
        if keeps_noise:
            of_noise[label] = by_feature
    return *total, of_noise


@products(2)
def hessian_product(
    part: Rows,
    noise: ScoreVariance,
    given: Coefficients,
    along: Coefficients,
    probabilities: Array,
    parts: list[ClassPart] | None,
    with_noise: bool,
) -> tuple[Array, Array]:
    """Return the product with the Hessian of the loss, less ``V'(s p_k) * u_k`` unless ``with_noise``."""
    total = Coefficients(np.zeros(given.coef.shape), np.zeros(len(given.intercept)))
    for label, index, block in rows_by_class(part) if parts is None else parts:
        p = probabilities[index]
        weighted = part.sample_weight[index, None] * p
        # The score of the class itself does not differ from itself.
        weighted[:, label] = 0.0

        def weigh(where: slice, change: Array, p: Array = p, weighted: Array = weighted, label: int = label) -> Array:
            change[:, label] = 0.0
            return weighted[where] * (change - np.einsum("ik,ik->i", p[where], change)[:, None])

        terms = HessianTerms(given.differences(label), along.differences(label), weighted, weigh)
        total.add_differences(label, noise.hessian(block, terms, with_noise))
    return total.coef, total.intercept


@products(1)
def diagonals(
    part: Rows, noise: ScoreVariance, probabilities: Array, parts: list[ClassPart] | None, with_squares: bool
) -> tuple[Array, Array, Array | None]:
    """Return the diagonal of the Hessian: of the noise, of intercepts and, ``with_squares``, of the rows."""
    weights = part.sample_weight[:, None] * probabilities * (1.0 - probabilities)
    of_noise = np.zeros((part.X.n_features, probabilities.shape[1]))
    if not noise.variance.is_zero:
        for label, index, block in rows_by_class(part) if parts is None else parts:
            left = part.sample_weight[index, None] * probabilities[index]
            left[:, label] = left.sum(axis=1) - left[:, label]
            of_noise += noise.diagonal(block, left)
    return of_noise, weights.sum(axis=0), part.X.squares_transposed(weights) if with_squares else None
