r"""The objective of the losses whose rows share their coefficients class by class.

The rows of class ``y`` have `Scores` ``z`` (`objective.scores`) at the coefficients ``D_y(W)``. The loss is a convex
function of ``z`` that increases with each of them, so ``J`` is convex::

    J = R(W) + sum_i s_i phi(z_i)                 z_i = z(D_y(W)) + D_y(b)         of a row of class y

    gradient     R' + sum_y D_y'[vjp(u)]          u = s phi'(z)
    Hessian p    R'' p + sum_y D_y'[vjp(s phi''(z) dz, u, along)]      dz, along = jvp(D_y(p))

- *Multinomial* (one softmax in place of one problem per class): a column per class, ``D_y(W) = W - w_y``, and
  ``phi = log sum_k exp(z_k)`` with ``z_y = 0``. With ``z = m + v / 2`` it is Jensen's bound of the expected loss for
  a normal score; with the log-MGF of the score it is Jensen's bound alone (MCF-logistic).
- *Two targets through the MGF*: one column, ``D_y(w) = -y w``, and ``phi`` a function of ``z = log E exp(-y score)``.

The part ``floor`` of the variance that all rows share needs sums over the rows of a class only::

    sum_d floor_d d_kd^2 = G_kk + G_yy - 2 G_ky,     d = D_y(W),     G = W' diag(floor) W

There is no quadratic majoriser; ``W = 0`` is a good start for Newton's method, whose steps a line search keeps finite.
A solver sees one output: the coefficients ``W`` of shape (n_features, n_columns), row by row, then the intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from dropmargin.data import Partitions, PerPartition, Rows, products, restrict_features, stored_entries, target_summary
from dropmargin.losses import MGFLoss
from dropmargin.noise import Variance
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.curvature import as_column
from dropmargin.objective.preconditioner import Preconditioner, diagonal, gram_preconditioner, suits_gram
from dropmargin.objective.scores import NoiseOfScores, Scores
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# Scores of all rows and columns are kept from one request to the next if they have at most this many numbers.
_MOST_KEPT = 2**24


@dataclass(frozen=True)
class ClassObjective(Objective):
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Rows
        Targets are +1 for the class of a row and -1 for all others, or one column; the weights include ``C``.
    noise : NoiseOfScores
    loss : MGFLoss or None
        Of two targets; ``None`` is the softmax.
    penalty : Penalty
        Its ``n_intercepts`` is the number of columns.
    fit_intercept : bool
    n_features : int
        The number of features of the rows.
    """

    data: Partitions[Rows]
    noise: NoiseOfScores
    loss: MGFLoss | None
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    n_outputs: int = 1
    has_quadratic_bound: bool = False
    is_stiff: bool = False
    is_well_preconditioned: bool = False

    @property
    def n_columns(self) -> int:
        return self.penalty.n_intercepts

    @property
    def has_coupled_classes(self) -> bool:  # type: ignore[override]
        return self.n_columns > 1

    @property
    def can_restrict(self) -> bool:  # type: ignore[override]
        return self.n_columns == 1

    @property
    def n_penalised(self) -> int:
        return self.n_features * self.n_columns

    @property
    def variance(self) -> Variance:
        return self.noise.variance

    @property
    def n_passes(self) -> float:
        return self.data.n_passes

    def restricted(self, features: Array) -> ClassObjective:
        noise = self.noise.take(features)
        data = restrict_features(self.data, features, None)
        return replace(self, data=data, noise=noise, n_features=len(features))

    def at(self, coef: Array) -> ClassPoint:
        return ClassPoint(self, coef)

    def value(self, coef: Array) -> Array:
        return self.at(coef).value

    def to_solver(self, coef: Array) -> Array:
        return self.less_common(coef).reshape(-1, 1)

    def less_common(self, coef: Array) -> Array:
        """Return coefficients, a column per class, less what all classes have in common, except for an l1 penalty.

        The loss does not change, and an l2 penalty is least without it: gradients and products have no such part. Along
        it the curvature is that of the penalty alone, so low that conjugate gradients would not see it.
        """
        return coef if self.penalty.l1 or self.n_columns == 1 else coef - coef.mean(axis=1, keepdims=True)

    def from_solver(self, coef: Array) -> Array:
        out = self.as_matrix(coef).copy()
        if self.n_columns > 1:  # a constant added to all intercepts changes nothing
            out[-1] -= out[-1].mean()
        return out

    def as_matrix(self, coef: Array) -> Array:
        """Return a solver's column as a matrix, intercepts in the last row."""
        return coef.reshape(self.n_features + 1, self.n_columns)

    @property
    def rows(self) -> PerPartition | None:
        """The rows of each partition by class, computed once, where values as large as the rows are kept."""
        if not self.data.keeps_large_values:
            return None
        if "rows by class" not in self.data.cache:
            self.data.cache["rows by class"] = self.data.map(rows_by_class, self.noise, self.loss)
        return self.data.cache["rows by class"]

    def of_floor(self, coef: Array, other: Array) -> Array | float:
        """Return ``sum_d floor_d d_kd u_kd`` for the differences of two matrices to each class."""
        if not np.any(self.noise.floor):
            return 0.0
        mixed = coef.T @ (as_column(self.noise.floor) * other)
        own = np.diag(mixed)
        return own + own[:, None] - mixed - mixed.T

    def by_floor(self, coef: Array, sums: Array) -> Array | float:
        """Return ``floor * d_k`` times the sums of each class, as a gradient by the coefficients."""
        if not np.any(self.noise.floor):
            return 0.0
        laplacian = np.diag(_of_both(sums)) - sums - sums.T
        return as_column(self.noise.floor) * (coef @ laplacian)


class ClassPoint(Point):
    """The objective at ``coef``."""

    objective: ClassObjective

    def __init__(self, objective: ClassObjective, coef: Array) -> None:
        self.objective, self.coef, self.matrix = objective, coef, objective.as_matrix(coef)
        shared = 0.5 * np.asarray(objective.of_floor(self.matrix[:-1], self.matrix[:-1]))
        self.rows: Any = Recipe(objective.noise, objective.loss, self.matrix, shared)
        if objective.rows is not None and self._n_kept() <= _MOST_KEPT:
            self.rows = objective.data.map(rows_at, self.rows, objective.rows)

    def _n_kept(self) -> int:
        """Return the size of what scores keep of the rows: nothing for moments of independent features."""
        data, noise = self.objective.data, self.objective.noise
        if noise.noise is None and noise.groups is None:
            return 0
        n_entries = stored_entries(data)
        if noise.groups is not None:
            n_entries = min(n_entries, target_summary(data).n_rows * noise.groups.n_groups)
        return n_entries * self.objective.n_columns

    def sum(self, function: Any, *args: Any) -> tuple[Any, ...]:
        """Return the sums of a function of the rows at this point, which are computed anew if they are not kept."""
        data = self.objective.data
        data.n_products += isinstance(self.rows, Recipe)
        return data.map_sum(function, self.rows, *args)

    @cached_property
    def value(self) -> Array:  # type: ignore[override]
        if isinstance(self.rows, Recipe):
            return self._evaluated[0]
        return self.objective.penalty.value(self.coef) + self.sum(loss_of_rows)[0]

    @property
    def gradient(self) -> Array:  # type: ignore[override]
        return self._evaluated[1]

    @property
    def sums(self) -> Array:
        """``sum u`` over the rows of each class, of shape (n_classes, n_columns)."""
        return self._evaluated[2]

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        """Value, gradient and `sums`."""
        objective = self.objective
        loss, total, sums = self.sum(gradient)
        of_penalty, by_penalty = objective.penalty.at(self.coef)
        total[:-1] += objective.by_floor(self.matrix[:-1], sums)
        if not objective.fit_intercept:
            total[-1] = 0.0
        return of_penalty + loss, total.reshape(-1, 1) + by_penalty, sums

    def hessian(self, direct: bool = False) -> ClassCurvature:
        return ClassCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError("A loss that couples classes, or through the MGF, has no quadratic majoriser.")

    def select(self, outputs: Any) -> ClassPoint:
        return self


class ClassColumns(NamedTuple):
    """A point in the form that the preconditioners of one-vs-rest need: a column per class."""

    objective: ClassObjective
    coef: Array
    noise_curvature: Array


class ClassCurvature(Curvature):
    """The Hessian at a point, preconditioned column by column."""

    def __init__(self, point: ClassPoint) -> None:
        self.point = point
        self.of_penalty = point.objective.penalty.curvature(point.coef)
        self.preconditioner = self._make_preconditioner()

    def _make_preconditioner(self) -> Preconditioner:
        point, objective = self.point, self.point.objective
        totals, of_noise, squares = point.sum(diagonals)
        if objective.loss is None:
            of_noise = of_noise + as_column(objective.noise.floor) * _of_both(point.sums)
        own = of_noise + np.reshape(self.of_penalty, of_noise.shape if np.ndim(self.of_penalty) else ())
        columns = ClassColumns(objective, point.matrix, of_noise)
        found = None
        if objective.loss is None and suits_gram(columns):
            n_rows, is_noisy = np.array([target_summary(objective.data).n_rows]), not objective.variance.is_zero
            (coupling,) = point.sum(class_coupling)
            found = gram_preconditioner(columns, n_rows, totals, own, is_noisy, coupling)
        return diagonal(columns, squares, totals, own) if found is None else found

    def product(self, direction: Array) -> Array:
        point, objective = self.point, self.point.objective
        along = objective.as_matrix(direction)
        total, sums = point.sum(hessian_product, along, objective.of_floor(point.matrix[:-1], along[:-1]))
        total[:-1] += objective.by_floor(point.matrix[:-1], sums) + objective.by_floor(along[:-1], point.sums)
        if not objective.fit_intercept:
            total[-1] = along[-1]
        image = total.reshape(-1, 1)
        image[: -objective.n_columns] += self.of_penalty * direction[: -objective.n_columns]
        return image

    def precondition(self, residual: Array) -> Array:
        objective = self.point.objective
        return objective.less_common(self.preconditioner.solve(objective.as_matrix(residual))).reshape(-1, 1)

    def select(self, outputs: Any) -> ClassCurvature:
        return self


def _of_both(sums: Array) -> Array:
    """Return the sums that each class has part in, as the class of the rows or as another."""
    return sums.sum(axis=0) + sums.sum(axis=1)


# Functions of one partition ---------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """What the rows at a point are computed from, besides the rows: ``shared`` is the part of ``floor``."""

    noise: NoiseOfScores
    loss: MGFLoss | None
    coef: Array
    shared: Array


class ClassRows(NamedTuple):
    """The rows of one class: the map ``D_y``, their numbers in the partition, their features, and the rows."""

    label: int
    sign: float  # 0 for the differences to class ``label``
    numbers: Array
    features: Array | None
    rows: Any

    def differences(self, coef: Array) -> Array:
        """Return ``D_y`` of coefficients, or of intercepts as one row."""
        return self.sign * coef if self.sign else coef - coef[:, [self.label]]

    def add(self, total: Array, by_coef: Array, by_intercept: Array, sign: float = -1.0) -> None:
        """Add ``D_y'`` of a gradient to one by coefficients and intercepts; with the sign 1, of a diagonal."""
        features = slice(None, -1) if self.features is None else self.features
        if self.sign:
            factor = self.sign if sign < 0.0 else 1.0
            total[features] += factor * by_coef
            total[-1] += factor * by_intercept
            return
        total[features] += by_coef
        total[features, self.label] += sign * by_coef.sum(axis=1)
        total[-1] += by_intercept
        total[-1, self.label] += sign * by_intercept.sum()


class RowsAt(NamedTuple):
    """The rows of one class at given coefficients.

    ``first`` is ``s phi'``; the second derivative times ``dz`` is ``second * dz``, less ``first`` times the sum of
    ``probabilities * dz`` if there are any. ``loss`` is the sum of ``s phi``.
    """

    of: ClassRows
    scores: Scores
    loss: float
    first: Array
    second: Array
    probabilities: Array | None
    weight: Array


def rows_by_class(part: Rows, noise: NoiseOfScores, loss: MGFLoss | None) -> list[ClassRows]:
    """Return the rows of each class that occurs, without the features that they do not have if that saves time."""
    labels = part.y.argmax(axis=1) if loss is None else (part.y[:, 0] > 0.0).astype(int)
    found = []
    for label in np.unique(labels).tolist():
        numbers = np.flatnonzero(labels == label)
        block, features = part.X.with_rows(numbers), None
        if noise.noise is None and noise.groups is None:
            block, features = block.without_empty_features()
        sign = 0.0 if loss is None else 1.0 - 2.0 * label
        found.append(ClassRows(label, sign, numbers, features, noise.rows(block)))
    return found


@products(1)
def rows_at(part: Rows, recipe: Recipe | list[RowsAt], rows: list[ClassRows] | None = None) -> list[RowsAt]:
    """Return the rows of each class at a point, computed here unless they are known."""
    if not isinstance(recipe, Recipe):
        return recipe
    noise, loss, coef, shared = recipe
    return [
        _row_loss(part, own, noise, loss, coef, shared)
        for own in (rows_by_class(part, noise, loss) if rows is None else rows)
    ]


def _row_loss(
    part: Rows, own: ClassRows, noise: NoiseOfScores, loss: MGFLoss | None, coef: Array, shared: Array
) -> RowsAt:
    by_class = coef[:-1] if own.features is None else coef[own.features]
    scores, weight = noise.at(own.rows, own.differences(by_class), own.features), part.sample_weight[own.numbers]
    z = scores.value + own.differences(coef[-1:]) + (shared[own.label] if shared.ndim else shared)
    if loss is not None:
        first, second = (weight[:, None] * values for values in (loss.slope(z), loss.curvature(z)))
        return RowsAt(own, scores, float(weight @ loss.value(z)[:, 0]), first, second, None, weight)
    z[:, own.label] = 0.0
    total = logsumexp(z, axis=1)
    probabilities = np.exp(z - total[:, None])
    first = weight[:, None] * probabilities
    first[:, own.label] = 0.0
    return RowsAt(own, scores, float(weight @ total), first, first, probabilities, weight)


def loss_of_rows(part: Rows, rows: Recipe | list[RowsAt]) -> tuple[Array]:
    """Return the weighted loss."""
    return (np.array([sum(own.loss for own in rows_at(part, rows))]),)


@products(1)
def gradient(part: Rows, rows: Recipe | list[RowsAt]) -> tuple[Array, Array, Array]:
    """Return the loss, its gradient by coefficients and intercepts but for ``floor``, and `ClassPoint.sums`."""
    (total, sums), loss = _zeros(part), 0.0
    for own in rows_at(part, rows):
        by_intercept = own.first.sum(axis=0)
        own.of.add(total, own.scores.vjp(own.first), by_intercept)
        sums[own.of.label] = by_intercept
        loss += own.loss
    return np.array([loss]), total, sums


@products(2)
def hessian_product(
    part: Rows, rows: Recipe | list[RowsAt], direction: Array, shared: Array | float
) -> tuple[Array, Array]:
    """Return the product with the Hessian but for ``floor``, and the sums over the rows of each class.

    ``shared`` is the part of ``floor`` in ``dz``.
    """
    total, sums = _zeros(part)
    for own in rows_at(part, rows):
        of = own.of
        by_class = direction[:-1] if of.features is None else direction[of.features]
        change, along = own.scores.jvp(of.differences(by_class))
        change += of.differences(direction[-1:]) + (shared[of.label] if isinstance(shared, np.ndarray) else shared)
        left = own.second * change
        if own.probabilities is not None:
            change[:, of.label] = 0.0
            left -= own.first * np.einsum("ik,ik->i", own.probabilities, change)[:, None]
        sums[of.label] = left.sum(axis=0)
        of.add(total, own.scores.vjp(left, own.first, along), sums[of.label])
    return total, sums


@products(1)
def diagonals(part: Rows, rows: Recipe | list[RowsAt]) -> tuple[Array, Array, Array]:
    """Return the diagonal of the Hessian: of intercepts, of the noise but for ``floor``, and of the rows."""
    (of_noise, _), (of_rows, _) = _zeros(part), _zeros(part)
    weights = np.zeros((len(part.y), of_rows.shape[1]))
    for own in rows_at(part, rows):
        nothing = np.zeros(of_rows.shape[1])
        own.of.add(of_noise, own.scores.diagonal(own.first), nothing, sign=1.0)
        if own.probabilities is None:
            own.of.add(of_rows, own.scores.squares(own.second), own.second.sum(axis=0), sign=1.0)
        else:
            weights[own.of.numbers] = own.weight[:, None] * own.probabilities * (1.0 - own.probabilities)
    if part.y.shape[1] > 1:
        return weights.sum(axis=0), of_noise[:-1], part.X.squares_transposed(weights)
    return of_rows[-1], of_noise[:-1], of_rows[:-1]


def class_coupling(part: Rows, rows: Recipe | list[RowsAt]) -> tuple[Array]:
    """Return the sum over the rows of ``s (diag(p) - p p')``, the second derivative of the softmax."""
    total = np.zeros((part.y.shape[1], part.y.shape[1]))
    for own in rows_at(part, rows):
        assert own.probabilities is not None
        weighted = own.weight[:, None] * own.probabilities
        total += np.diag(weighted.sum(axis=0)) - weighted.T @ own.probabilities
    return (total,)


def _zeros(part: Rows) -> tuple[Array, Array]:
    """Return zeros for coefficients and intercepts, and for sums by class and column."""
    n_columns = part.y.shape[1]
    return np.zeros((part.X.n_features + 1, n_columns)), np.zeros((max(2, n_columns), n_columns))
