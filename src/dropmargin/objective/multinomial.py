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
MCF-logistic is Jensen's inequality alone, without a normal score: ``e_k = K(d_k) + b_k - b_y`` with the log-MGF ``K``
of `objective.log_mgf`, which is convex as well; ``X + V d_k`` becomes ``K'`` at ``d_k``, and ``V`` becomes ``K''``.
The intercepts, and the part ``floor`` of ``V`` that all rows share, need sums over the rows of a class only::

    sum_d floor_d d_kd^2 = G_kk + G_yy - 2 G_ky,     G = W' diag(floor) W

The classes are coupled, so a solver sees one output: the coefficients ``W`` of shape (n_features, n_classes), row by
row, followed by the intercepts. The preconditioners are those of one-vs-rest, one column per class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Partitions, PerPartition, Rows, stored_entries, target_summary
from dropmargin.noise import Variance
from dropmargin.objective import multinomial_rows as row_functions
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.curvature import as_column
from dropmargin.objective.multinomial_rows import Coefficients, LogMGF, ScoreVariance
from dropmargin.objective.preconditioner import Preconditioner, diagonal, gram_preconditioner, suits_gram
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# The derivatives of a log-MGF are kept for all rows and classes if they are at most twice this many numbers.
_MOST_OF_EXPANSION = 2**24
# The noise's part of the Hessian is kept if it has at most this many numbers, and computed for each product otherwise.
_MOST_OF_NOISE = 2**22


@dataclass(frozen=True)
class MultinomialObjective(Objective):
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Rows
        Targets are +1 for the class of a row and -1 for all others; the weights include ``C``.
    noise : ScoreVariance
    penalty : Penalty
        Its ``n_intercepts`` is the number of classes.
    fit_intercept : bool
    n_features : int
        The number of features of the rows.
    """

    data: Partitions[Rows]
    noise: ScoreVariance
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    n_outputs: int = 1
    has_quadratic_bound: bool = False
    is_stiff: bool = False
    is_well_preconditioned: bool = False
    has_coupled_classes: bool = True

    @property
    def n_classes(self) -> int:
        return self.penalty.n_intercepts

    @property
    def n_penalised(self) -> int:
        return self.n_features * self.n_classes

    @property
    def variance(self) -> Variance:
        return self.noise.variance

    @property
    def keeps_noise(self) -> bool:
        """Whether the noise's part of the Hessian, which the gradient computes, is small enough to keep."""
        return self.noise.is_diagonal and self.n_features * self.n_classes**2 <= _MOST_OF_NOISE

    @property
    def n_passes(self) -> float:
        return self.data.n_passes

    def at(self, coef: Array) -> MultinomialPoint:
        return MultinomialPoint(self, coef)

    def to_solver(self, coef: Array) -> Array:
        coef = self.less_common(coef)
        return Coefficients(coef[:-1], coef[-1]).to_vector()

    def less_common(self, coef: Array) -> Array:
        """Return coefficients, a column per class, less what all classes have in common, except for an l1 penalty.

        The loss does not change, and an l2 penalty is least without it: gradients and products have no such part. Along
        it the curvature is that of the penalty alone, so low that conjugate gradients would not see it.
        """
        return coef if self.penalty.l1 else coef - coef.mean(axis=1, keepdims=True)

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
            self.data.cache["rows by class"] = self.data.map(row_functions.rows_by_class, self.noise)
        return self.data.cache["rows by class"]

    def parts_at(self, coef: Array) -> PerPartition | None:
        """Return `parts` with what the noise computes of them at the coefficients, if that is small enough to keep."""
        if self.parts is None or not isinstance(self.noise, LogMGF):
            return self.parts
        if stored_entries(self.data) * self.n_classes > _MOST_OF_EXPANSION:
            return self.parts
        return self.data.map(row_functions.expand_parts, self.noise, coef, self.parts)

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


class MultinomialPoint(Point):
    """The objective at ``coef``; the gradient is computed when it is first used."""

    objective: MultinomialObjective

    def __init__(self, objective: MultinomialObjective, coef: Array) -> None:
        self.objective = objective
        self.coef = coef
        self.given = Coefficients.of_vector(coef, objective.n_classes)
        self.parts = objective.parts_at(self.given.coef)
        shared = _differences(self.given.intercept) + 0.5 * objective.of_floor(self.given.coef, self.given.coef)
        self._exponents = objective.data.map(
            row_functions.exponents, objective.noise, self.given.coef, shared, self.parts
        )

    def map_sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sums of a function of the rows by class; one that expands a log-MGF has one more product."""
        objective = self.objective
        objective.data.n_products += isinstance(objective.noise, LogMGF) and self.parts is objective.parts
        return objective.data.map_sum(function, *args)

    @cached_property
    def value(self) -> Array:  # type: ignore[override]
        (loss,) = self.objective.data.map_sum(row_functions.loss, self._exponents)
        return self.objective.penalty.value(self.coef) + loss

    @cached_property
    def probabilities(self) -> PerPartition:
        """``p`` of each row."""
        return self.objective.data.map(row_functions.probabilities, self._exponents)

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        """The loss's gradient but for ``floor``, ``sum s p_k`` of each class, and ``V'(s p_k)`` if that is kept."""
        objective = self.objective
        return self.map_sum(
            row_functions.gradient,
            objective.noise,
            self.given.coef,
            self.probabilities,
            self.parts,
            objective.keeps_noise,
        )

    @property
    def sums(self) -> Array:
        """``sum s p_k`` over the rows of each class, of shape (n_classes, n_classes)."""
        return self._evaluated[1]

    @property
    def of_noise(self) -> Array | None:
        """``V'(s p_k)`` for the rows of each class, of shape (n_classes, n_features, n_classes), if that is kept."""
        return self._evaluated[2] if self.objective.keeps_noise else None

    @cached_property
    def gradient(self) -> Array:  # type: ignore[override]
        objective, n = self.objective, self.objective.n_classes
        by_coef = self._evaluated[0] + objective.by_floor(self.given.coef, self.sums)
        gradient = Coefficients(by_coef, _by_intercept(self.sums)).to_vector()
        gradient[:-n] += objective.penalty.gradient(self.coef)
        if not objective.fit_intercept:
            gradient[-n:] = 0.0
        return gradient

    def hessian(self, direct: bool = False) -> MultinomialCurvature:
        return MultinomialCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError("The multinomial loss with noise has no quadratic majoriser.")

    def select(self, outputs: Any) -> MultinomialPoint:
        return self


class ClassColumns(NamedTuple):
    """A point in the form that the preconditioners of one-vs-rest need: a column per class."""

    objective: MultinomialObjective
    coef: Array
    noise_curvature: Array


class MultinomialCurvature(Curvature):
    """The Hessian at a point, preconditioned class by class."""

    def __init__(self, point: MultinomialPoint) -> None:
        self.point = point
        self.of_penalty = point.objective.penalty.curvature(point.coef)
        self.preconditioner = self._make_preconditioner()

    def _make_preconditioner(self) -> Preconditioner:
        point, objective = self.point, self.point.objective
        shape = objective.n_features, objective.n_classes
        columns = ClassColumns(objective, np.empty((shape[0] + 1, shape[1])), np.empty(shape))
        expects_gram = suits_gram(columns)
        totals, of_noise, squares = self._diagonals(with_squares=not expects_gram)
        own = of_noise + np.reshape(self.of_penalty, shape if np.ndim(self.of_penalty) else ())
        columns = columns._replace(noise_curvature=of_noise)
        if expects_gram:
            n_rows = np.array([target_summary(objective.data).n_rows])
            found = gram_preconditioner(columns, n_rows, totals, own, not point.objective.variance.is_zero)
            if found is not None:
                return found
            *_, squares = self._diagonals(with_squares=True)
        assert squares is not None
        return diagonal(columns, squares, totals, own)

    def _diagonals(self, with_squares: bool) -> tuple[Array, Array, Array | None]:
        """Return the diagonal of the Hessian: of intercepts, of the noise and, ``with_squares``, of the rows."""
        point, objective, kept = self.point, self.point.objective, self.point.of_noise
        with_noise = kept is None and not objective.variance.is_zero
        totals, of_noise, squares = point.map_sum(
            row_functions.diagonals,
            objective.noise,
            point.given.coef,
            point.probabilities,
            point.parts,
            with_noise,
            with_squares,
        )
        if of_noise is None:
            of_noise = np.zeros((objective.n_features, objective.n_classes))
        if kept is not None:
            of_noise = kept.sum(axis=0) + kept.sum(axis=2).T
        return totals, of_noise + as_column(objective.noise.floor) * _of_both(point.sums), squares

    def product(self, direction: Array) -> Array:
        point, objective, n = self.point, self.point.objective, self.point.objective.n_classes
        along = Coefficients.of_vector(direction, n)
        with_noise = not (objective.keeps_noise or objective.variance.is_zero)
        shared = _differences(along.intercept) + objective.of_floor(point.given.coef, along.coef)
        by_coef, sums = point.map_sum(
            row_functions.hessian_product,
            objective.noise,
            point.given.coef,
            along.coef,
            shared,
            point.probabilities,
            point.parts,
            with_noise,
        )
        by_coef += objective.by_floor(point.given.coef, sums) + objective.by_floor(along.coef, point.sums)
        if point.of_noise is not None:
            for label, own in enumerate(point.of_noise):
                of_differences = own * (along.coef - along.coef[:, [label]])
                by_coef += of_differences
                by_coef[:, label] -= of_differences.sum(axis=1)
        image = Coefficients(by_coef, _by_intercept(sums)).to_vector()
        image[:-n] += self.of_penalty * direction[:-n]
        if not objective.fit_intercept:
            image[-n:] = direction[-n:]
        return image

    def precondition(self, residual: Array) -> Array:
        objective = self.point.objective
        solved = self.preconditioner.solve(np.vstack(Coefficients.of_vector(residual, objective.n_classes)))
        solved = objective.less_common(solved)
        return Coefficients(solved[:-1], solved[-1]).to_vector()

    def select(self, outputs: Any) -> MultinomialCurvature:
        return self


# Sums over the rows of each class, of shape (n_classes, n_classes) --------------------------------------------------


def _differences(values: Array) -> Array:
    """Return one value per class less that of each class."""
    return values - values[:, None]


def _by_intercept(sums: Array) -> Array:
    """Return sums for the differences to each class as a gradient by the intercepts."""
    return sums.sum(axis=0) - sums.sum(axis=1)


def _of_both(sums: Array) -> Array:
    """Return the sums that each class has part in, as the class of the rows or as another."""
    return sums.sum(axis=0) + sums.sum(axis=1)
