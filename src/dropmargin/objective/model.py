r"""Quadratic models of an objective at a point, and their minimum: the inner solve of Newton's method.

A model is the Hessian, or the majoriser of the paper's M-step. `make_model` chooses how it is solved:

- *compiled*: conjugate gradients as one call of compiled code, for one output on CSR rows in memory;
- *factorised*: the matrix and its Cholesky factor, for few features, or where a kink without noise makes the curvature
  too uneven for conjugate gradients;
- *iterative*: conjugate gradients over `Partitions.map_sum`, wherever the rows are and for all outputs at once,
  preconditioned by the eigenvectors of one Gram matrix of the rows, shared by all outputs, steps and values of ``C``
  (dense rows, up to a few thousand features), or else by the diagonal with deflation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrs

from dropmargin.data import Block, Variance
from dropmargin.objective import conjugate_gradient
from dropmargin.objective.conjugate_gradient import Deflation, Solution
from dropmargin.objective.gram import gram_inverse
from dropmargin.objective.hessians import factorise, hessians
from dropmargin.objective.objective import Objective, Piece, Point, Task, second_derivatives
from dropmargin.objective.row_losses import MomentRows, Second, SoftmaxRows
from dropmargin.objective.scores import GroupScores, Moments
from dropmargin.typing import Array

# A matrix is factorised for at most so many features, if it costs at most so many products per output (less for CSR
# rows, and for many outputs, whose products with dense rows are one); up to the last number of features near a kink
# without noise: conjugate gradients took 10 times as long on 600 x 60. With noise, a little is enough, they did not.
_FEW_FEATURES, _FEW_PRODUCTS, _FEW_PRODUCTS_SHARED, _DIRECT_FEATURES, _MANY_OUTPUTS = 100, 2**25, 2**20, 1500, 4
# The diagonal misses how classes, the features of a group, and features far from zero are coupled: with groups, or at
# most so many features, fewer steps say nothing about what is left.
_LEAST_STEPS, _ALWAYS = 8, 20
# A kink is sharp if more than this share of the weight is in rows whose scores vary by less than the smoothing.
_SHARP = 0.01


class Model(ABC):
    """A quadratic model ``g.x + x'Hx / 2`` at a point, one per output."""

    #: Whether the preconditioner is nearly the inverse, so that the model's prediction for a new gradient is reliable.
    is_well_preconditioned = False

    @abstractmethod
    def solve(self, right: Array, rtol: float, atol: Array, max_iter: int) -> Solution:
        """Return an approximate solution of ``H x = right``; see `conjugate_gradient.solve`."""

    @abstractmethod
    def decrease(self, gradient: Array, lowest: Array) -> Array:
        """Return a bound of ``g'H^-1 g / 2``, the decrease that the model predicts for another gradient."""


def make_model(point: Point, is_majoriser: bool = False, free: Array | None = None) -> Model:
    """Return a model at a point; ``free`` are the coefficients that may move, by default all."""
    objective = point.objective
    n_rows, p = objective.n_rows, objective.n_features
    is_moment = isinstance(objective.loss, MomentRows)
    n_free = p if free is None else int(free[:-1].sum())
    if is_moment and objective.penalty.is_diagonal and n_free <= _DIRECT_FEATURES:
        is_alone = objective.is_dense and objective.n_columns < _MANY_OUTPUTS
        most = _FEW_PRODUCTS if is_alone else _FEW_PRODUCTS_SHARED
        is_small = n_free <= _FEW_FEATURES and n_rows * (n_free + 1) ** 2 <= most
        is_quadratic = objective.is_dense and objective.loss.loss.is_quadratic and p <= n_rows
        if is_small or is_quadratic or (objective.is_noise_free and is_sharp(point).any()):
            model = FactorisedModel.of(point, is_majoriser, free)
            if model is not None:
                return model
    if is_moment and objective.penalty.is_diagonal and _is_compiled(objective):
        return CompiledModel(point, objective.data.single(), is_majoriser, free)
    return IterativeModel(point, is_majoriser, free)


def _is_compiled(objective: Objective) -> bool:
    block = objective.data.single()
    return block is not None and objective.n_columns == 1 and block.compiled is not None


def is_sharp(point: Point) -> Array:
    """Return for which outputs the noise smooths a kink less than the smoothing does, in more than few rows."""
    objective = point.objective
    if objective.smooths_l1 or not objective.has_kink:
        return np.full(objective.n_outputs, objective.smooths_l1)
    return (point.sharp > _SHARP) | objective.is_noise_free


# Compiled -----------------------------------------------------------------------------------------------------------


class CompiledModel(Model):
    """One output on CSR rows in memory."""

    def __init__(self, point: Point, block: Block, is_majoriser: bool, free: Array | None) -> None:
        objective, coef = point.objective, point.coef
        ((piece, second),) = second_derivatives(block, point.task, coef, is_majoriser)
        own = np.broadcast_to(objective.penalty.curvature(coef), (len(coef) - 1, 1))[:, 0]
        if point.own is not None:
            own = own + 2.0 * point.own[:, 0]
        self.objective, self.block, self.w = objective, block, np.ascontiguousarray(coef[:-1, 0])
        self.coef_image, self.intercept_image, self.diagonal = np.zeros((3, len(coef)))
        self._model = {
            "w": self.w,
            "curvature": np.column_stack([own_part[:, 0] for own_part in second]),
            "by_variance": np.ascontiguousarray(piece.first[1][:, 0]),
            "mean": np.ascontiguousarray(piece.z[0][:, 0] - coef[-1, 0]),
            "variance": np.ascontiguousarray(piece.z[1][:, 0]),
            "own": np.ascontiguousarray(own),
            "free": None if free is None else np.ascontiguousarray(free[:-1, 0].astype(np.uint8)),
            "fit_intercept": int(objective.fit_intercept),
            "deflates_coef": int(free is None or objective.has_kink),
            "coef_image": self.coef_image,
            "intercept_image": self.intercept_image,
            "diagonal": self.diagonal,
        }

    def solve(self, right: Array, rtol: float, atol: Array, max_iter: int) -> Solution:
        found = self.block.compiled.solve(  # type: ignore[union-attr]
            self._model, np.ascontiguousarray(right[:, 0]), rtol, float(atol[0]), max_iter
        )
        self.objective.count(0.5 + len(found.steps))
        lowest = conjugate_gradient.lowest_ritz_values(found.steps[:, None], found.ratios[:, None])
        return Solution(found.x[:, None], np.array([found.left]), lowest)

    def decrease(self, gradient: Array, lowest: Array) -> Array:
        coef = np.append(self.w, 0.0)[:, None]
        intercept = self.intercept_image[:, None] if self.objective.fit_intercept else None
        deflation = Deflation(coef, self.coef_image[:, None], intercept)
        return conjugate_gradient.decrease_bound(deflation, lambda r: r / self.diagonal[:, None], gradient, lowest)


# Factorised ---------------------------------------------------------------------------------------------------------


class FactorisedModel(Model):
    """The matrix of each output, by its Cholesky factor."""

    is_well_preconditioned = True

    def __init__(self, factors: list[Array], index: Array, shape: tuple[int, int]) -> None:
        self.factors, self.index, self.shape = factors, index, shape

    @classmethod
    def of(cls, point: Point, is_majoriser: bool, free: Array | None) -> FactorisedModel | None:
        """Return the model; ``None`` if a matrix is not safely positive definite."""
        objective, coef = point.objective, point.coef
        index = np.arange(objective.n_features) if free is None else np.flatnonzero(free[:-1, 0])
        objective.count(1.0)
        (matrices,) = objective.data.map_sum(hessians, point.task, coef, is_majoriser, index)
        own = np.broadcast_to(objective.penalty.curvature(coef), coef[:-1].shape)
        own = own if point.own is None else own + 2.0 * point.own
        diagonal = np.arange(len(index))
        matrices[:, diagonal, diagonal] += own[index].T
        if not objective.fit_intercept:
            matrices[:, -1] = matrices[:, :, -1] = 0.0
        # Far from its kinks a hinge has hardly any curvature along the intercept.
        least = np.finfo(float).eps * (objective.weight if objective.fit_intercept else 1.0)
        matrices[:, -1, -1] = np.maximum(matrices[:, -1, -1], least if objective.fit_intercept else 1.0)
        factors = [factorise(matrix) for matrix in matrices]
        if any(factor is None for factor in factors):
            return None
        return cls(factors, np.append(index, len(coef) - 1), coef.shape)  # type: ignore[arg-type]

    def solve(self, right: Array, rtol: float, atol: Array, max_iter: int) -> Solution:
        out = np.zeros(self.shape)
        for k, factor in enumerate(self.factors):
            out[self.index, k] = dpotrs(factor, right[self.index, k], lower=1)[0]
        return Solution(out, np.zeros(len(self.factors)), np.ones(len(self.factors)))

    def decrease(self, gradient: Array, lowest: Array) -> Array:
        return 0.5 * np.einsum("ij,ij->j", gradient, self.solve(gradient, 0.0, lowest, 0).x)


# Iterative ----------------------------------------------------------------------------------------------------------


class IterativeModel(Model):
    """Conjugate gradients over the partitions, with one product for all outputs."""

    def __init__(self, point: Point, is_majoriser: bool = False, free: Array | None = None) -> None:
        self.point, self.is_majoriser, self.free = point, is_majoriser, free
        self.objective = point.objective
        self.deflation: Deflation | None = None
        self.diagonal: Any = None
        inverse = None if free is not None else gram_inverse(point, is_majoriser)
        self.is_well_preconditioned = inverse is not None
        # What is added to the coefficients of all classes of a softmax changes only the penalty: their mean stays zero.
        self.is_centred = self.objective.is_centred and inverse is None and free is None
        is_rough = isinstance(self.objective.scores, GroupScores) or self.objective.n_features <= _ALWAYS
        self.least_steps = _LEAST_STEPS if is_rough and self.objective.is_coupled and inverse is None else 1
        if inverse is not None and not self.objective.is_coupled and point.coef[:-1].any():
            self._deflate_coef()
        self._inverse: Any = self._diagonal_inverse() if inverse is None else inverse

    def product(self, direction: Array) -> Array:
        """Return the model times a direction."""
        objective, point = self.objective, self.point
        image = point.product(direction, self.is_majoriser)
        image[:-1] += objective.penalty.curvature(point.coef) * direction[:-1]
        image += objective.penalty.low_rank_product(direction)
        if not objective.fit_intercept:
            image[-1] = direction[-1]
        return image if self.free is None else image * self.free

    def precondition(self, residual: Array) -> Array:
        """Return an approximate inverse times a residual."""
        if self.is_centred:
            residual = residual - residual.mean(axis=1, keepdims=True)
        out = self._inverse(residual)
        if self.is_centred:
            out -= out.mean(axis=1, keepdims=True)
        return out if self.free is None else out * self.free

    def _deflate_coef(self) -> None:
        """Set the deflation of the coefficients alone: the shared Gram matrix knows the intercept."""
        coef = self.point.coef.copy()
        coef[-1] = 0.0
        self.deflation = Deflation(coef, self.product(coef), None)

    def _diagonal_inverse(self) -> Any:
        """Return the inverse of the diagonal, after setting the deflation of the coefficients and the intercept."""
        point, objective = self.point, self.objective
        objective.count(1.5)
        found = objective.data.map_sum(_images, point.task, point.coef, self.is_majoriser)
        diagonal, coef_image, intercept_image = found
        penalty = objective.penalty.curvature(point.coef)
        diagonal[:-1] += penalty
        if point.own is not None:
            diagonal[:-1] += 2.0 * point.own
        if not objective.fit_intercept:
            diagonal[-1] = 1.0
        diagonal[diagonal <= 0.0] = 1.0
        if not objective.is_coupled:
            coef = np.vstack([point.coef[:-1], np.zeros((1, objective.n_columns))])
            coef_image[:-1] += penalty * coef[:-1]
            if point.own is not None:
                coef_image[:-1] += 2.0 * point.own * coef[:-1]
            coef_image += objective.penalty.low_rank_product(coef)
            extra = np.zeros_like(coef)
            extra[-1] = 1.0
            intercept_image += objective.penalty.low_rank_product(extra)
            if objective.fit_intercept:
                diagonal[:-1] = objective.penalty.centred(diagonal[:-1], intercept_image)
            else:
                coef_image[-1] = 0.0
            mask = 1.0 if self.free is None else self.free
            if self.free is not None and not objective.has_kink:
                coef, coef_image = np.zeros_like(coef), np.zeros_like(coef)
            intercept = intercept_image * mask if objective.fit_intercept else None
            self.deflation = Deflation(coef, coef_image * mask, intercept)
        self.diagonal = diagonal
        return lambda residual: residual / diagonal

    def solve(self, right: Array, rtol: float, atol: Array, max_iter: int) -> Solution:
        right = right if self.free is None else right * self.free
        return conjugate_gradient.solve(self, right, rtol, atol, max_iter, self.objective.dot)

    def decrease(self, gradient: Array, lowest: Array) -> Array:
        dot = self.objective.dot
        return conjugate_gradient.decrease_bound(self.deflation, self.precondition, gradient, lowest, dot)


def _images(block: Block, task: Task, coef: Array, is_majoriser: bool) -> tuple[Array, Array, Array]:
    """Return the diagonal of the rows' curvature, and the images of the coefficients and of the intercept.

    Along the coefficients, the derivatives of mean and variance are the mean, without the intercept, and twice the
    variance. Classes that are coupled have a diagonal alone.
    """
    diagonal, along, level = np.zeros_like(coef), np.zeros_like(coef), np.zeros_like(coef)
    for piece, second in second_derivatives(block, task, coef, is_majoriser):
        if isinstance(second, Second):
            (mean, variance), ones = piece.z, np.ones_like(piece.z[0])
            weights = second.by_mean
            left = second((mean - coef[-1], 2.0 * variance))
            is_diagonal = isinstance(task.scores, Moments)
            own = np.vstack([coef[:-1], np.zeros((1, coef.shape[1]))])
            along += task.scores.vjp(piece.rows, coef, left, None if is_diagonal else (piece.first, own))
            level += task.scores.vjp(piece.rows, coef, second((ones, np.zeros_like(ones))))
            if not is_diagonal:
                diagonal[:-1] += 2.0 * _of_noise(task, piece, block.variance)
        else:
            weights = np.abs(second(tuple(np.ones_like(part) for part in piece.z))[0])
            if isinstance(task.loss, SoftmaxRows):
                shares = piece.first[0]
                weights = np.maximum(shares - np.square(shares) / np.maximum(piece.weights, 1e-300), 0.0)
            own = _of_noise(task, piece, block.variance)
            diagonal[:-1] += 2.0 * np.abs(task.loss.adjoint(np.vstack([own, own[:1]]), piece.number))[:-1]
        diagonal[:-1] += piece.rows.squares_backward(weights)
        diagonal[-1] += weights.sum(axis=0)
    return diagonal, along, level


def _of_noise(task: Task, piece: Piece, variance: Variance) -> Array:
    """Return ``sum_i u_i V_d(x_id)``; ``u`` is the derivative by the variance, for a log-MGF half that by its value."""
    if piece.own is not None:
        return piece.own
    u = piece.first[1] if len(piece.first) > 1 else 0.5 * piece.first[0]
    if not isinstance(task.scores, GroupScores):
        constant = np.reshape(variance.constant, (-1, 1))
        return piece.rows.backward(u, u)[1] + constant * u.sum(axis=0)
    groups = task.scores.groups
    reference = groups.reference[:, None]
    squares = piece.rows.squares_backward(u) - 2.0 * reference * piece.rows.backward(u)[0]
    return groups.slope[groups.numbers][:, None] * (squares + np.square(reference) * u.sum(axis=0))
