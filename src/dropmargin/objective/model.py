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
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotrs

from dropmargin.data import Block, FeatureGroups, Variance
from dropmargin.objective import conjugate_gradient
from dropmargin.objective.conjugate_gradient import Deflation, Solution
from dropmargin.objective.objective import Objective, Piece, Point, Statistics, Task, _seconds
from dropmargin.objective.row_losses import MomentRows, Second, SoftmaxRows
from dropmargin.objective.scores import GroupScores, Moments
from dropmargin.typing import Array

# A matrix is factorised for at most so many features, if it costs at most so many products per output (less for CSR
# rows, and for many outputs, whose products with dense rows are one); up to the last number of features near a kink
# without noise: conjugate gradients took 10 times as long on 600 x 60. With noise, a little is enough, they did not.
_FEW_FEATURES, _FEW_PRODUCTS, _FEW_PRODUCTS_SHARED, _DIRECT_FEATURES, _MANY_OUTPUTS = 100, 2**25, 2**20, 1500, 4
# For products of entries of at most so many numbers, all outputs are one product with a table of them.
_TABLE = 2**21
# The Gram matrix is for at most so many features, and is computed from so many rows per feature.
_GRAM_FEATURES, _GRAM_ROWS = 2000, 8
# Its eigenvalues may exceed the penalty this many times: beyond, rounding errors of small ones are large.
_EIGEN_RANGE = 1e10
# Eigenvalues of the coupling of classes count as at least this share of the largest one.
_LEAST_COUPLING = 1e-10
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
        ((piece, second),) = _seconds(block, point.task, coef, is_majoriser)
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
        (matrices,) = objective.data.map_sum(_matrices, point.task, coef, is_majoriser, index)
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


def factorise(matrix: Array) -> Array | None:
    """Return the lower Cholesky factor, or ``None`` if the matrix is not safely positive definite."""
    # Scaling to a unit diagonal first: features of very different units cost no digits.
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    with np.errstate(over="ignore", invalid="ignore"):
        # LAPACK itself: SciPy's functions around it take longer than a small matrix.
        factor, info = dpotrf(matrix * scale * scale[:, None], lower=1)
    return factor / scale[:, None] if info == 0 and np.isfinite(factor).all() else None


def _matrices(block: Block, task: Task, coef: Array, is_majoriser: bool, index: Array) -> tuple[Array]:
    """Return the Hessians of the rows' loss by some features and the intercept, one per output."""
    size = len(index) + 1
    total = np.zeros((coef.shape[1], size, size))
    for piece, second in _seconds(block, task, coef, is_majoriser):
        X = piece.rows.dense()
        rows = np.ones((len(X), size))
        rows[:, :-1] = X[:, index]
        total += weighted_gram(rows, rows, second.by_mean)
        if isinstance(task.scores, GroupScores):
            total += _group_matrices(rows, task.scores.groups, coef, piece.first[1], second, index)
        elif isinstance(task.scores, Moments) and (task.scores.depends_on_x or task.scores.has_constant):
            total += _noise_matrices(rows, block.variance.take(index).of(X[:, index]), coef[index], second)
    return (total,)


def _noise_matrices(rows: Array, variances: Array, w: Array, second: Second) -> Array:
    """Return what the derivatives ``2 w_d V_d(x_id)`` of the variance contribute for independent features."""
    if not second.mixed.any() and not second.by_variance.any():
        return np.zeros((w.shape[1], rows.shape[1], rows.shape[1]))
    out = np.zeros((w.shape[1], rows.shape[1], rows.shape[1]))
    cross = weighted_gram(rows, variances, second.mixed) * (2.0 * w.T)[:, None, :]
    out[:, :, :-1] += cross
    out[:, :-1, :] += cross.transpose(0, 2, 1)
    own = weighted_gram(variances, variances, second.by_variance)
    out[:, :-1, :-1] += own * (4.0 * w.T[:, :, None] * w.T[:, None, :])
    return out


def _group_matrices(
    rows: Array, groups: FeatureGroups, coef: Array, by_variance: Array, second: Second, index: Array
) -> Array:
    """Return the same for groups, with the second-order term of the variance, which couples the features of a group."""
    numbers, deviations = groups.numbers[index], rows[:, :-1] - groups.reference[index]
    slope = groups.slope[numbers]
    same = numbers[:, None] == numbers
    out = np.zeros((coef.shape[1], rows.shape[1], rows.shape[1]))
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 0)) if len(numbers) else np.zeros(0, dtype=int)
    place = np.cumsum(np.append(True, np.diff(numbers) != 0)) - 1 if len(numbers) else starts
    for k, own in enumerate(out):
        scores = np.add.reduceat(deviations * coef[index, k], starts, axis=1) if len(starts) else deviations
        slopes = 2.0 * slope * scores[:, place] * deviations  # of the variance
        cross = rows.T @ (second.mixed[:, k, None] * slopes)
        own[:, :-1] += cross
        own[:-1, :] += cross.T
        own[:-1, :-1] += slopes.T @ (second.by_variance[:, k, None] * slopes)
        weighted = (by_variance[:, k, None] * deviations).T @ deviations
        own[:-1, :-1] += np.where(same, 2.0 * slope * weighted, 0.0)
    return out


def weighted_gram(left: Array, right: Array, weights: Array) -> Array:
    """Return ``left' diag(h) right`` for each column ``h`` of the weights."""
    n, p, q = len(left), left.shape[1], right.shape[1]
    if weights.shape[1] > 1 and n * p * q <= _TABLE:
        table = (left[:, :, None] * right[:, None, :]).reshape(n, p * q)
        return (weights.T @ table).reshape(-1, p, q)
    # BLAS computes one triangle of a product with the own transpose; one buffer: allocations take as long.
    sign = -1.0 if weights.max(initial=0.0) <= 0.0 else 1.0
    is_square = left is right and weights.size > 0 and float((sign * weights).min()) >= 0.0
    factors = np.sqrt(sign * weights) if is_square else weights
    out, buffer = np.empty((weights.shape[1], p, q)), np.empty(right.shape)
    for own, factor in zip(out, factors.T, strict=True):
        np.multiply(right, factor[:, None], out=buffer)
        np.matmul((buffer if is_square else left).T, buffer, out=own)
    return sign * out if is_square else out


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
    for piece, second in _seconds(block, task, coef, is_majoriser):
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


# The shared Gram matrix ---------------------------------------------------------------------------------------------


def gram_inverse(point: Point, is_majoriser: bool) -> Any:
    """Return the inverse of ``l2 + sum(h) (X'SX + N)``, or ``None`` where it does not suit the data.

    ``N`` is the mean curvature of the noise at the first step: an approximation, so that one decomposition serves all
    outputs, all steps and every ``C``. Classes of a softmax are coupled by the sums of ``diag(p) - p p'``, so that the
    inverse is that of a Kronecker product.
    """
    objective = point.objective
    penalty, p = objective.penalty, objective.n_features
    suits = objective.is_dense and p <= min(_GRAM_FEATURES, objective.n_rows) and penalty.is_ridge
    if not suits or not (isinstance(objective.scores, Moments | GroupScores)):
        return None
    found = point.statistics(is_majoriser)
    totals, rotation = found.totals, None
    if found.coupling is not None:
        totals, rotation = np.linalg.eigh(found.coupling)
        # A constant added to all classes changes nothing but the penalty.
        totals = np.maximum(totals, _LEAST_COUPLING * totals[-1])
    values, vectors, means = _eigenvectors(objective, found)
    values = penalty.l2 + totals * np.maximum(values, 0.0)[:, None]
    if not (np.isfinite(values).all() and np.all(totals > 0.0) and np.all(values <= _EIGEN_RANGE * penalty.l2)):
        return None

    def inverse(residual: Array) -> Array:
        residual = residual if rotation is None else residual @ rotation
        out = np.empty_like(residual)
        # With an intercept of centred features, the residual of the coefficients is less the means times its own.
        out[:-1] = vectors @ ((vectors.T @ (residual[:-1] - np.outer(means, residual[-1]))) / values)
        out[-1] = residual[-1] / totals - means @ out[:-1] if objective.fit_intercept else residual[-1]
        return out if rotation is None else out @ rotation.T

    return inverse


def _eigenvectors(objective: Objective, found: Statistics) -> tuple[Array, Array, Array]:
    """Return eigenvalues and eigenvectors of the Gram matrix of centred rows and their noise, and the means."""
    variance, cache = objective.variance, objective.cache
    strength = tuple(float(np.mean(own)) for own in (variance.linear, variance.quadratic, variance.constant))
    key = "eigenvectors", strength, variance.groups is None, found.coupling is None
    if key not in cache:
        if "gram" not in cache:
            every = max(1, objective.n_rows // (_GRAM_ROWS * objective.n_features))
            gram, total = objective.data.map_sum(_gram, every)
            cache["gram"] = gram / total
        gram = cache["gram"]
        means = gram[-1, :-1] * objective.fit_intercept
        matrix, raw = gram[:-1, :-1] - np.outer(means, means), gram[:-1, :-1]
        ratio = 1.0
        if found.coupling is None:
            ratio = float(np.mean(2.0 * found.by_variance / np.maximum(found.totals, np.finfo(float).tiny)))
        if variance.groups is None:
            own = variance.quadratic * np.diag(raw) + variance.linear * gram[-1, :-1] + variance.constant
            matrix[np.diag_indices_from(matrix)] += ratio * own
        else:
            groups = objective.scores.groups  # type: ignore[attr-defined]
            same = groups.numbers[:, None] == groups.numbers
            matrix += ratio * np.where(same, groups.slope[groups.numbers] * raw, 0.0)
        cache[key] = *eigh(matrix, driver="evd", check_finite=False, overwrite_a=True), means
    return cache[key]


def _gram(block: Block, every: int) -> tuple[Array, float]:
    """Return the Gram matrix of one in so many rows, with a one appended, weighted, and the sum of all weights.

    Rows are drawn, always the same ones: they may come in an order that has a period.
    """
    weights, X = block.sample_weight, block.X
    total = float(weights.sum())
    if every > 1:
        taken = np.sort(np.random.default_rng(0).permutation(len(weights))[: max(1, len(weights) // every)])
        X, weights = X[taken], weights[taken]
        weights = weights * (total / max(float(weights.sum()), np.finfo(float).tiny))
    size = X.shape[1]
    out = np.empty((size + 1, size + 1))
    scaled = X * np.sqrt(weights)[:, None].astype(X.dtype)
    out[:-1, :-1] = scaled.T @ scaled  # BLAS computes one triangle of a product with the own transpose
    out[:-1, -1] = out[-1, :-1] = weights.astype(X.dtype) @ X
    out[-1, -1] = weights.sum()
    return out, total
