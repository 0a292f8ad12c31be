"""Functions of one partition for the multinomial objective: exponents, gradient and Hessian product, class by class.

See `objective.multinomial` for the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from dropmargin.data import Block, FeatureGroups, GroupOperand, Rows, products
from dropmargin.noise import Noise, Variance
from dropmargin.objective.curvature import as_column
from dropmargin.objective.log_mgf import Expansion, expand
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


class ClassPart(NamedTuple):
    """The rows of one class: its index, their numbers in the partition, the features that they have, and a block."""

    label: int
    numbers: Array
    features: Array | slice
    block: Block

    def differences(self, coef: Array) -> Array:
        """Return the coefficients of these features less those of the class."""
        own = coef[self.features]
        return own - own[:, [self.label]]

    def add(self, total: Array, of_differences: Array, sign: float = -1.0) -> None:
        """Add a gradient by these differences to a gradient by the coefficients; with the sign 1, a diagonal."""
        total[self.features] += of_differences
        total[self.features, self.label] += sign * of_differences.sum(axis=1)


class HessianTerms(NamedTuple):
    """What a class contributes to a Hessian product.

    Attributes
    ----------
    at, along : ndarray of shape (n_features, n_classes)
        The differences ``d`` to the class, and their direction ``u``.
    weighted : ndarray of shape (n_rows, n_classes)
        ``s p``, and zero for the class itself.
    weigh : callable
        A slice of rows and ``g`` there, but for what all rows of the class share, to ``q``.
    """

    at: Array
    along: Array
    weighted: Array
    weigh: Callable[[slice, Array], Array]


class ScoreVariance(Protocol):
    """The variance ``v`` of score differences, but for its part that all rows share, and the products that it needs."""

    @property
    def variance(self) -> Variance:
        """The variance of each feature."""

    @property
    def floor(self) -> Array | float:
        """The variance of each feature that all rows share."""

    @property
    def is_diagonal(self) -> bool:
        """Whether the rows' part of the noise's curvature is one number per feature and class."""

    def take(self, features: Array | slice) -> ScoreVariance:
        """Return the variance of these features alone."""

    def exponents(self, block: Block, coef: Array) -> Array:
        """Return means and half the variances of scores, added up."""

    def gradient(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        """Return ``X' left + V' left * coef``, and ``V' left`` (0 for groups of features)."""

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> tuple[Array, Array]:
        """Return a class's product, less ``V'(s p_k) * u_k`` unless ``with_noise``, and the sums of ``q``."""

    def diagonal(self, block: Block, left: Array, coef: Array) -> Array:
        """Return ``V' left``; of groups, that of independent features."""


class FeatureVariance(NamedTuple):
    """The variance of scores if the features are independent, or without noise."""

    variance: Variance

    @property
    def floor(self) -> Array | float:
        return self.variance.floor

    @property
    def is_diagonal(self) -> bool:
        return self.variance.moves_entries

    def take(self, features: Array | slice) -> FeatureVariance:
        slope = self.variance.slope
        if isinstance(features, slice) or np.ndim(slope) == 0:
            return self
        return FeatureVariance(replace(self.variance, slope=np.asarray(slope)[features]))

    def exponents(self, block: Block, coef: Array) -> Array:
        return self._sum(block.forward(self._right(coef, 0.5 * np.square(coef)), coef.shape[1]), coef.shape[1])

    def gradient(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        n = left.shape[1]
        back = block.backward(self._twice(left), n)
        by_feature = self._by_feature(back[:, n:])
        return back[:, :n] + by_feature * coef, by_feature

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> tuple[Array, Array]:
        at, along, weighted, weigh = terms
        n, is_third = at.shape[1], with_noise and self.variance.moves_entries

        def left(where: slice, scores: Array) -> Array:
            own = self._twice(weigh(where, self._sum(scores, n)))
            return np.hstack([own, weighted[where]]) if is_third else own

        back, sums = block.round_trip(self._right(along, at * along), n, left)
        image = back[:, :n] + self._by_feature(back[:, n : 2 * n]) * at
        if is_third:
            image += self._by_feature(back[:, 2 * n :]) * along
        return image, sums[:n]

    def diagonal(self, block: Block, left: Array, coef: Array) -> Array:
        if not self.variance.moves_entries:
            return np.zeros(coef.shape)
        return as_column(self.variance.slope) * block.backward(left, 0)

    def _right(self, linear: Array, quadratic: Array) -> Array:
        """Return the operands of ``X linear + V quadratic`` for a block."""
        slope = as_column(self.variance.slope)
        return np.hstack([linear, slope * quadratic]) if self.variance.moves_entries else linear

    def _sum(self, scores: Array, n: int) -> Array:
        """Return the products with ``X`` and ``f(X)`` added up."""
        return scores[:, :n] + scores[:, n:] if self.variance.moves_entries else scores

    def _twice(self, left: Array) -> Array:
        """Return the operand of products with ``X'`` and ``f(X)'``."""
        return np.hstack([left, left]) if self.variance.moves_entries else left

    def _by_feature(self, by_entries: Array) -> Array | float:
        """Return ``V' left``, given ``f(X)' left``."""
        return as_column(self.variance.slope) * by_entries if self.variance.moves_entries else 0.0


class GroupVariance(NamedTuple):
    """The variance of scores for groups of features (`data.groups`)."""

    variance: Variance
    groups: FeatureGroups

    @property
    def floor(self) -> Array | float:
        return 0.0

    @property
    def is_diagonal(self) -> bool:
        return False

    def take(self, features: Array | slice) -> GroupVariance:
        return self

    def exponents(self, block: Block, coef: Array) -> Array:
        mean, variances = block.group_moments(GroupOperand(self.groups, coef))
        return mean + 0.5 * variances

    def gradient(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        return self._transposed(block, left, left, coef), 0.0

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> tuple[Array, Array]:
        at, along = terms.at, terms.along
        # ``V (d * u)`` by polarisation, with a direction of the length of ``d`` so that no digits are lost.
        sizes = np.linalg.norm(at), np.linalg.norm(along)
        scale = sizes[0] / sizes[1] if min(sizes) > 0.0 else 1.0
        (mean, above), (other, below) = (
            block.group_moments(GroupOperand(self.groups, at + sign * scale * along)) for sign in (1.0, -1.0)
        )
        left = terms.weigh(slice(None), (0.5 * (mean - other) + 0.25 * (above - below)) / scale)
        image = self._transposed(block, left, left, at)
        if with_noise:
            image += self._transposed(block, np.zeros_like(left), terms.weighted, along)
        return image, left.sum(axis=0)

    def diagonal(self, block: Block, left: Array, coef: Array) -> Array:
        of_entries = FeatureVariance(self.variance).diagonal(block, left, coef)
        return of_entries + as_column(self.variance.floor) * left.sum(axis=0)

    def _transposed(self, block: Block, of_mean: Array, of_variance: Array, coef: Array) -> Array:
        """Return ``X' of_mean + V' of_variance * coef``."""
        return block.group_products(np.hstack([of_mean, of_variance]), coef, None, None, self.groups)[0]


class LogMGF(NamedTuple):
    """The log-MGF of scores in place of mean and half variance, for independent features or groups of features.

    ``K'`` and ``K''`` at the coefficients (`objective.log_mgf`) are in place of ``X + V d_k`` and ``V``.
    """

    noise: Noise
    groups: FeatureGroups | None

    @property
    def variance(self) -> Variance:
        return self.noise.variance()

    @property
    def floor(self) -> float:
        return 0.0

    @property
    def is_diagonal(self) -> bool:
        return self.groups is None

    def take(self, features: Array | slice) -> LogMGF:
        return self

    def exponents(self, block: Block, coef: Array) -> Array:
        return np.stack([own.value for own in self.expand(block, coef)], axis=1)

    def gradient(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        image, second = np.empty(coef.shape), np.zeros(coef.shape)
        for k, own in enumerate(self.expand(block, coef)):
            image[:, k] = own.backward(left[:, k])
            if self.is_diagonal:
                second[:, k] = own.diagonal(left[:, k])
        return image, second

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> tuple[Array, Array]:
        expanded = list(self.expand(block, terms.at))
        changes, along = zip(*(own.forward(terms.along[:, k]) for k, own in enumerate(expanded)), strict=True)
        left = terms.weigh(slice(None), np.stack(changes, axis=1))
        image = np.empty(terms.at.shape)
        for k, own in enumerate(expanded):
            image[:, k] = own.backward(left[:, k], terms.weighted[:, k] if with_noise else None, along[k])
        return image, left.sum(axis=0)

    def diagonal(self, block: Block, left: Array, coef: Array) -> Array:
        return np.stack([own.diagonal(left[:, k]) for k, own in enumerate(self.expand(block, coef))], axis=1)

    def expand(self, block: Block | list[Expansion], coef: Array) -> Iterable[Expansion]:
        """Return the expansion of each column of coefficients, computed here unless it is known."""
        if isinstance(block, list):
            return block
        return (expand(block, self.noise, self.groups, own) for own in np.ascontiguousarray(coef.T))


# Functions of one partition ---------------------------------------------------------------------------------------


def rows_by_class(part: Rows, noise: ScoreVariance) -> list[ClassPart]:
    """Return the rows of each class that occurs, without the features that they do not have if that saves time."""
    labels, found = part.y.argmax(axis=1), []
    for label in np.unique(labels).tolist():
        numbers = np.flatnonzero(labels == label)
        block, features = part.X.with_rows(numbers), None
        if isinstance(noise, FeatureVariance):
            block, features = block.without_empty_features()
        found.append(ClassPart(label, numbers, slice(None) if features is None else features, block))
    return found


def expand_parts(part: Rows, noise: LogMGF, coef: Array, parts: list[ClassPart]) -> list[ClassPart]:
    """Return the rows of each class with their expansions in place of the block."""
    return [own._replace(block=list(noise.expand(own.block, own.differences(coef)))) for own in parts]  # type: ignore[arg-type]


class Exponents(NamedTuple):
    """``e`` of each row, of shape (n_rows, n_classes), and its log-sum-exp."""

    values: Array
    total: Array


@products(1)
def exponents(part: Rows, noise: ScoreVariance, coef: Array, shared: Array, parts: list[ClassPart] | None) -> Exponents:
    """Return the exponents of each row.

    ``shared`` is what all rows of a class have in common, of shape (n_classes, n_classes); ``parts`` are the rows by
    class, if they are known.
    """
    values = np.empty(part.y.shape)
    for own in rows_by_class(part, noise) if parts is None else parts:
        found = noise.take(own.features).exponents(own.block, own.differences(coef))
        values[own.numbers] = found + shared[own.label]
        values[own.numbers, own.label] = 0.0
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
    coef: Array,
    probabilities: Array,
    parts: list[ClassPart] | None,
    keeps_noise: bool,
) -> tuple[Array, Array, Array]:
    """Return the loss's gradient by the coefficients, ``sum s p_k`` of each class, and ``V'(s p_k)`` if it is kept."""
    n = coef.shape[1]
    total, sums = np.zeros(coef.shape), np.zeros((n, n))
    of_noise = np.zeros((n if keeps_noise else 0, *coef.shape))
    for own in rows_by_class(part, noise) if parts is None else parts:
        left = _weighted(part, own, probabilities)
        sums[own.label] = left.sum(axis=0)
        image, by_feature = noise.take(own.features).gradient(own.block, left, own.differences(coef))
        own.add(total, image)
        if keeps_noise:
            of_noise[own.label][own.features] = by_feature
    return total, sums, of_noise


@products(2)
def hessian_product(
    part: Rows,
    noise: ScoreVariance,
    coef: Array,
    direction: Array,
    shared: Array,
    probabilities: Array,
    parts: list[ClassPart] | None,
    with_noise: bool,
) -> tuple[Array, Array]:
    """Return the product with the Hessian, less ``V'(s p_k) * u_k`` unless ``with_noise``, and ``sum q_k`` by class.

    ``shared`` is what all rows of a class have in common in ``g``.
    """
    total, sums = np.zeros(coef.shape), np.zeros(shared.shape)
    for own in rows_by_class(part, noise) if parts is None else parts:
        weighted = _weighted(part, own, probabilities)
        weigh = partial(_row_weights, shared[own.label], own.label, probabilities[own.numbers], weighted)
        terms = HessianTerms(own.differences(coef), own.differences(direction), weighted, weigh)
        image, sums[own.label] = noise.take(own.features).hessian(own.block, terms, with_noise)
        own.add(total, image)
    return total, sums


def _weighted(part: Rows, own: ClassPart, probabilities: Array) -> Array:
    """Return ``s p`` of the rows of a class, and zero for the class itself."""
    weighted = part.sample_weight[own.numbers, None] * probabilities[own.numbers]
    weighted[:, own.label] = 0.0
    return weighted


def _row_weights(shared: Array, label: int, p: Array, weighted: Array, where: slice, change: Array) -> Array:
    """Return ``q`` of some rows of a class, given ``g`` but for ``shared``."""
    change = change + shared
    change[:, label] = 0.0
    return weighted[where] * (change - np.einsum("ik,ik->i", p[where], change)[:, None])


@products(1)
def diagonals(
    part: Rows,
    noise: ScoreVariance,
    coef: Array,
    probabilities: Array,
    parts: list[ClassPart] | None,
    with_noise: bool,
    with_squares: bool,
) -> tuple[Array, Array | None, Array | None]:
    """Return the diagonal of the Hessian: of intercepts, ``with_noise`` of ``V``, and ``with_squares`` of the rows."""
    weights = part.sample_weight[:, None] * probabilities * (1.0 - probabilities)
    squares = part.X.squares_transposed(weights) if with_squares else None
    if not with_noise:
        return weights.sum(axis=0), None, squares
    of_noise = np.zeros((part.X.n_features, probabilities.shape[1]))
    for own in rows_by_class(part, noise) if parts is None else parts:
        left = _weighted(part, own, probabilities)
        found = noise.take(own.features).diagonal(own.block, left, own.differences(coef))
        own.add(of_noise, found, sign=1.0)
    return weights.sum(axis=0), of_noise, squares
