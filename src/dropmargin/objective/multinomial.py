r"""The objective of the multinomial logistic loss: one softmax over all classes, in place of one problem per class.

For a row of class ``y``, with ``d_k = w_k - w_y``, the score differences ``m_k = d_k.x + b_k - b_y`` and their
variances ``v_k`` under the noise, Jensen's inequality and a normal score give the bound::

    phi = log sum_k exp(e_k)        e_k = m_k + v_k / 2        (e_y = 0)

of the expected loss. It is a log-sum-exp of convex quadratic functions, so convex. Without noise it is the multinomial
logistic loss itself. With ``p = softmax(e)``, and ``V`` the variances of the features of each row::

    by d_k             X'(s p_k) + V'(s p_k) * d_k                                         (k != y)
    along directions   X' q_k + V' q_k * d_k + V'(s p_k) * u_k,     q_k = s p_k (g_k - sum_j p_j g_j)
                       g_k = X u_k + V (d_k * u_k),     u_k the direction of d_k

and ``w_y`` takes the negative sum over ``k``. All rows of a class share ``d``, so products are computed class by class
and cost as much as those of one-vs-rest. With groups of features, the products with ``V`` are those of `data.groups`.

The classes are coupled, so a solver sees one output: the coefficients ``W`` of shape (n_features, n_classes), row by
row, followed by the intercepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.special import logsumexp

from dropmargin.data import Block, FeatureGroups, Partitions, PerPartition, Rows, products, target_summary
from dropmargin.noise import Variance
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.curvature import as_column
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# Up to this many features, a Gram matrix of the rows preconditions; it is computed from this many rows per feature.
_GRAM_FEATURES, _GRAM_ROWS = 2000, 8
# Its eigenvectors serve until the diagonal has changed by this factor. Smaller eigenvalues, as a share, are rounding.
_SIMILAR, _LEAST_EIGENVALUE = 3.0, 1e-12
# The noise's part of the Hessian is kept if it has at most this many numbers, and computed for each product otherwise.
_MOST_OF_NOISE = 2**22


class Coefficients(NamedTuple):
    """Coefficients of shape (n_features, n_classes), and intercepts of shape (n_classes,)."""

    coef: Array
    intercept: Array

    @classmethod
    def of_vector(cls, vector: Array, n_classes: int) -> Coefficients:
        """Return the coefficients in the form of a solver's column."""
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


class NoiseModel(NamedTuple):
    """The variance of scores, and its products: by feature, or with ``groups`` those of `data.groups`."""

    variance: Variance
    groups: FeatureGroups | None

    def moments(self, block: Block, given: Coefficients) -> tuple[Array, Array | float]:
        """Return the means and the variances of scores."""
        coef, intercept = given
        if self.groups is not None:
            mean, variances = block.group_moments(coef, self.groups)
            return mean + intercept, variances
        mean, variances = self._forward(block, coef, np.square(coef))
        return mean + intercept, variances

    def cross(self, block: Block, at: Coefficients, along: Coefficients) -> Array:
        """Return the derivatives of mean and half the variance along a direction, added up."""
        if self.groups is None:
            mean, covariances = self._forward(block, along.coef, at.coef * along.coef)
            return mean + along.intercept + covariances
        # By polarisation, with a direction of the length of the coefficients so that no digits are lost.
        size = np.linalg.norm(along.coef)
        scale = max(np.linalg.norm(at.coef), 1e-300) / size if size > 0.0 else 1.0
        (mean, above), (other, below) = (
            block.group_moments(at.coef + sign * scale * along.coef, self.groups) for sign in (1.0, -1.0)
        )
        return (0.5 * (mean - other) + 0.25 * (above - below)) / scale + along.intercept

    def transposed(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        """Return ``X' left + V' left * coef``, and ``V' left`` (0 for groups)."""
        if self.groups is not None:
            return block.group_products(np.hstack([left, left]), coef, None, None, self.groups)[0], 0.0
        n = left.shape[1]
        back = block.backward(np.hstack([left, left]) if self.variance.moves_entries else left, n)
        by_feature = self._by_feature(back[:, n:], left)
        return back[:, :n] + by_feature * coef, by_feature

    def variance_transposed(self, block: Block, left: Array, coef: Array) -> Array | float:
        """Return ``V' left * coef``."""
        if self.groups is not None:
            return block.group_products(np.hstack([np.zeros_like(left), left]), coef, None, None, self.groups)[0]
        return self.diagonal(block, left) * coef

    def diagonal(self, block: Block, left: Array) -> Array | float:
        """Return ``V' left``, for groups that of independent features."""
        return self._by_feature(block.backward(left, 0) if self.variance.moves_entries else None, left)

    def _forward(self, block: Block, coef: Array, squared: Array) -> tuple[Array, Array | float]:
        variance, n = self.variance, coef.shape[1]
        if not variance.moves_entries:
            mean, variances = block.forward(coef, n), 0.0
        else:
            both = block.forward(np.hstack([coef, as_column(variance.slope) * squared]), n)
            mean, variances = both[:, :n], both[:, n:]
        if variance.has_floor:
            variances = variances + (as_column(variance.floor) * squared).sum(axis=0)
        return mean, variances

    def _by_feature(self, by_entries: Array | None, left: Array) -> Array | float:
        variance = self.variance
        out: Array | float = as_column(variance.slope) * by_entries if variance.moves_entries else 0.0
        return out + as_column(variance.floor) * left.sum(axis=0) if variance.has_floor else out


@dataclass(frozen=True)
class MultinomialObjective(Objective):
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Rows
        Targets are +1 for the class of a row and -1 for all others; the weights include ``C``.
    noise : NoiseModel
    penalty : Penalty
        Its ``n_intercepts`` is the number of classes.
    fit_intercept : bool
    n_columns : int
        The number of features of the rows.
    """

    data: Partitions[Rows]
    noise: NoiseModel
    penalty: Penalty
    fit_intercept: bool
    n_columns: int
    n_outputs: int = 1
    has_quadratic_bound: bool = False
    is_stiff: bool = False
    is_well_preconditioned: bool = False

    @property
    def n_classes(self) -> int:
        return self.penalty.n_intercepts

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """The number of coefficients that are penalised."""
        return self.n_columns * self.n_classes

    @property
    def keeps_noise(self) -> bool:
        """Whether the noise's part of the Hessian, which the gradient computes, is small enough to keep."""
        is_diagonal = self.noise.groups is None and not self.noise.variance.is_zero
        return is_diagonal and self.n_columns * self.n_classes**2 <= _MOST_OF_NOISE

    @property
    def n_passes(self) -> float:
        return self.data.n_passes

    def at(self, coef: Array) -> MultinomialPoint:
        return MultinomialPoint(self, coef)

    def to_solver(self, coef: Array) -> Array:
        return Coefficients(coef[:-1], coef[-1]).to_vector()

    def from_solver(self, coef: Array) -> Array:
        found = Coefficients.of_vector(coef, self.n_classes)
        # A constant added to all intercepts changes nothing.
        return np.vstack([found.coef, found.intercept - found.intercept.mean()])

    def value(self, coef: Array) -> Array:
        return self.at(coef).value

    @property
    def parts(self) -> PerPartition | None:
        """The rows of each partition by class, computed once, where values as large as the rows are kept."""
        if not self.data.keeps_large_values:
            return None
        if "rows by class" not in self.data.cache:
            self.data.cache["rows by class"] = self.data.map(_rows_by_class)
        return self.data.cache["rows by class"]


class MultinomialPoint(Point):
    """The objective at ``coef``; the gradient is computed when it is first used."""

    objective: MultinomialObjective

    def __init__(self, objective: MultinomialObjective, coef: Array) -> None:
        self.objective = objective
        self.coef = coef
        self.given = Coefficients.of_vector(coef, objective.n_classes)
        self.exponents = objective.data.map(_exponents, objective.noise, self.given, objective.parts)

    @cached_property
    def value(self) -> Array:  # type: ignore[override]
        (loss,) = self.objective.data.map_sum(_loss, self.exponents)
        return self.objective.penalty.value(self.coef) + loss

    @cached_property
    def probabilities(self) -> PerPartition:
        """``p`` of each row."""
        return self.objective.data.map(_probabilities, self.exponents)

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        """Gradient by coefficients and intercepts, and ``V'(s p_k)`` for the rows of each class, if that is kept."""
        objective = self.objective
        return objective.data.map_sum(
            _gradient, objective.noise, self.given, self.probabilities, objective.parts, objective.keeps_noise
        )

    @property
    def of_noise(self) -> Array | None:
        """``V'(s p_k)`` for the rows of each class, of shape (n_classes, n_features, n_classes), if that is kept."""
        return self._evaluated[2] if self.objective.keeps_noise else None

    @cached_property
    def gradient(self) -> Array:  # type: ignore[override]
        objective = self.objective
        gradient = Coefficients(*self._evaluated[:2]).to_vector()
        n = objective.n_classes
        gradient[:-n] += objective.penalty.gradient(self.coef)
        if not objective.fit_intercept:
            gradient[-n:] = 0.0
        return gradient

    def hessian(self, direct: bool = False) -> MultinomialCurvature:
        return MultinomialCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError("The multinomial loss with noise has no quadratic majoriser.")

    def with_objective(self, objective: MultinomialObjective) -> MultinomialPoint:
        """Return this point of an objective with another penalty."""
        return MultinomialPoint(objective, self.coef)

    def select(self, outputs: Any) -> MultinomialPoint:
        return self


class MultinomialCurvature(Curvature):
    """The Hessian at a point, preconditioned class by class: by a Gram matrix of the rows, or by the diagonal."""

    def __init__(self, point: MultinomialPoint) -> None:
        self.point = point
        objective = point.objective
        self.of_penalty = objective.penalty.curvature(point.coef)
        n, n_columns = objective.n_classes, objective.n_columns
        uses_gram = objective.data.keeps_large_values and n_columns <= _GRAM_FEATURES
        diagonal, spread = objective.data.map_sum(
            _diagonal, objective.noise, point.probabilities, objective.parts, not uses_gram
        )
        diagonal += np.broadcast_to(
            np.reshape(self.of_penalty, (-1, n) if np.ndim(self.of_penalty) else ()), diagonal.shape
        )
        if not objective.fit_intercept:
            spread = np.ones(n)
        self.uses_gram = uses_gram
        if uses_gram:
            # The rows and the noise as one matrix for all classes, with a factor for each class.
            self.spread = np.maximum(spread, np.finfo(float).tiny)
            self.values, self.vectors = _eigenvectors(objective, (diagonal / self.spread).mean(axis=1))
        else:
            whole = Coefficients(diagonal, spread).to_vector()
            whole[~(whole > 0.0)] = 1.0
            self.inverse = 1.0 / whole

    def product(self, direction: Array) -> Array:
        point, objective = self.point, self.point.objective
        n = objective.n_classes
        along = Coefficients.of_vector(direction, n)
        found = objective.data.map_sum(
            _hessian_product,
            objective.noise,
            point.given,
            along,
            point.probabilities,
            objective.parts,
            objective.keeps_noise,
        )
        total = Coefficients(*found)
        if point.of_noise is not None:
            for label, own in enumerate(point.of_noise):
                image = own * along.differences(label).coef
                total.add_differences(label, Coefficients(image, np.zeros(n)))
        image = total.to_vector()
        image[:-n] += self.of_penalty * direction[:-n]
        if not objective.fit_intercept:
            image[-n:] = direction[-n:]
        return image

    def precondition(self, residual: Array) -> Array:
        if not self.uses_gram:
            return residual * self.inverse
        given = Coefficients.of_vector(residual, self.point.objective.n_classes)
        projected = self.vectors.T @ np.vstack([given.coef, given.intercept])
        solved = self.vectors @ (projected / np.outer(self.values, self.spread))
        if not self.point.objective.fit_intercept:
            solved[-1] = given.intercept
        return Coefficients(solved[:-1], solved[-1]).to_vector()

    def select(self, outputs: Any) -> MultinomialCurvature:
        return self


def _eigenvectors(objective: MultinomialObjective, diagonal: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of the Gram matrix of the rows, per unit of weight, plus a diagonal.

    The last feature is a constant, for the intercepts. Eigenvectors for about the same diagonal are used again.
    """
    cache = objective.data.cache
    if "gram" not in cache:
        every = max(1, target_summary(objective.data).n_rows // (_GRAM_ROWS * objective.n_columns))
        matrix, weight = objective.data.map_sum(_weighted_gram, every)
        cache["gram"] = matrix / weight
    known, *found = cache.get("gram eigenvectors", (None,))
    if known is None or not np.all((diagonal <= _SIMILAR * known) & (known <= _SIMILAR * diagonal)):
        matrix = cache["gram"].copy()
        matrix[np.arange(len(diagonal)), np.arange(len(diagonal))] += diagonal
        if not objective.fit_intercept:
            matrix[-1, :-1] = matrix[:-1, -1] = 0.0
        values, vectors = eigh(matrix, overwrite_a=True, check_finite=False)
        found = [np.maximum(values, _LEAST_EIGENVALUE * values[-1]), vectors]
        cache["gram eigenvectors"] = diagonal, *found
    return tuple(found)  # type: ignore[return-value]


# Functions of one partition ---------------------------------------------------------------------------------------


class _ClassPart(NamedTuple):
    """The rows of one class: its index, theirs, and the rows as a block."""

    label: int
    index: Array
    block: Block


def _rows_by_class(part: Rows) -> list[_ClassPart]:
    """Return the rows of each class that occurs."""
    block, labels = part.X, part.y.argmax(axis=1)
    found = []
    for label in np.unique(labels).tolist():
        index = np.flatnonzero(labels == label)
        found.append(_ClassPart(label, index, block.with_rows(index)))
    return found


def _class_parts(part: Rows, parts: list[_ClassPart] | None) -> Iterator[_ClassPart]:
    yield from _rows_by_class(part) if parts is None else parts


class Exponents(NamedTuple):
    """``e`` of each row, of shape (n_rows, n_classes), and its log-sum-exp."""

    values: Array
    total: Array


@products(0.5)
def _exponents(part: Rows, noise: NoiseModel, given: Coefficients, parts: list[_ClassPart] | None) -> Exponents:
    values = np.empty(part.y.shape)
    for label, index, block in _class_parts(part, parts):
        mean, variances = noise.moments(block, given.differences(label))
        values[index] = mean + 0.5 * variances
        values[index, label] = 0.0
    return Exponents(values, logsumexp(values, axis=1))


def _loss(part: Rows, exponents: Exponents) -> tuple[Array]:
    return (np.atleast_1d(part.sample_weight @ exponents.total),)


def _probabilities(part: Rows, exponents: Exponents) -> Array:
    return np.exp(exponents.values - exponents.total[:, None])


@products(0.5)
def _gradient(
    part: Rows,
    noise: NoiseModel,
    given: Coefficients,
    probabilities: Array,
    parts: list[_ClassPart] | None,
    keeps_noise: bool,
) -> tuple[Array, Array, Array]:
    n = len(given.intercept)
    total = Coefficients(np.zeros(given.coef.shape), np.zeros(n))
    of_noise = np.zeros((n if keeps_noise else 0, *given.coef.shape))
    for label, index, block in _class_parts(part, parts):
        left = part.sample_weight[index, None] * probabilities[index]
        left[:, label] = 0.0
        own, by_feature = noise.transposed(block, left, given.differences(label).coef)
        total.add_differences(label, Coefficients(own, left.sum(axis=0)))
        if keeps_noise:
            of_noise[label] = by_feature
    return *total, of_noise


@products(1)
def _hessian_product(
    part: Rows,
    noise: NoiseModel,
    given: Coefficients,
    along: Coefficients,
    probabilities: Array,
    parts: list[_ClassPart] | None,
    without_noise: bool,
) -> tuple[Array, Array]:
    """Return the product with the Hessian of the loss, less ``V'(s p_k) * u_k`` if that is computed elsewhere."""
    total = Coefficients(np.zeros(given.coef.shape), np.zeros(len(given.intercept)))
    for label, index, block in _class_parts(part, parts):
        at, direction, own = given.differences(label), along.differences(label), probabilities[index]
        change = noise.cross(block, at, direction)
        change[:, label] = 0.0
        weighted = part.sample_weight[index, None] * own
        left = weighted * (change - (own * change).sum(axis=1, keepdims=True))
        left[:, label] = weighted[:, label] = 0.0
        image, _ = noise.transposed(block, left, at.coef)
        if not (without_noise or noise.variance.is_zero):
            image = image + noise.variance_transposed(block, weighted, direction.coef)
        total.add_differences(label, Coefficients(image, left.sum(axis=0)))
    return tuple(total)


@products(0.5)
def _diagonal(
    part: Rows, noise: NoiseModel, probabilities: Array, parts: list[_ClassPart] | None, with_squares: bool
) -> tuple[Array, Array]:
    """Return the noise's part of the Hessian's diagonal, with that of the rows if asked for, and that of intercepts."""
    weights = part.sample_weight[:, None] * probabilities * (1.0 - probabilities)
    diagonal = np.zeros((part.X.n_features, probabilities.shape[1]))
    if not noise.variance.is_zero:
        for label, index, block in _class_parts(part, parts):
            left = part.sample_weight[index, None] * probabilities[index]
            left[:, label] = left.sum(axis=1) - left[:, label]
            diagonal += noise.diagonal(block, left)
    if with_squares:
        diagonal += part.X.squares_transposed(weights)
    return diagonal, weights.sum(axis=0)


@products(0.5)
def _weighted_gram(part: Rows, every: int) -> tuple[Array, Array]:
    """Return the Gram matrix of one row in ``every``, weighted, with a constant as last feature; and the weight."""
    index = np.arange(0, len(part.sample_weight), every)
    block, weights = part.X.with_rows(index), part.sample_weight[index]
    n = block.n_features
    matrix = np.empty((n + 1, n + 1))
    matrix[:n, :n] = block.weighted_gram(weights)
    matrix[n, :n] = matrix[:n, n] = block.transposed_times(weights)
    matrix[n, n] = weights.sum()
    return matrix, np.atleast_1d(weights.sum())
