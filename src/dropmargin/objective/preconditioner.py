"""Approximate inverses of a curvature, chosen by the shape of the data.

- `Cholesky`: the curvature itself, factorised; for a few hundred features the best there is.
- `Woodbury`: the same for a few hundred rows.
- `shared_gram`: one Gram matrix ``X'SX`` for all columns and all steps, each column scaling it by its mean weight and
  adding its own diagonal; for moderate width.
- `Diagonal`: for everything wide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from dropmargin.data import stack_blocks
from dropmargin.objective.base import shape_of
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.data import Block, PerPartition
    from dropmargin.objective.base import Labelled
    from dropmargin.objective.curvature import CurvatureWeights
    from dropmargin.objective.moment import MomentObjective, MomentPoint


# Up to this many features, or rows if there are fewer, a step that is to be exact is worth a factorisation per column.
_DIRECT_SIZE = 1500
# Up to this many features a Cholesky factor is preferred: features of very different units cost it no digits.
_FEW_FEATURES = 100
# Without noise, the products of so many rows with each other are worth keeping from step to step.
_KEPT_ROWS = 2500
# Up to this many rows, any step is.
_FEW_ROWS = 200
# Up to this many features, one Gram matrix shared by all columns and all steps does.
_GRAM_FEATURES = 2000
# So many rows per feature are enough for it.
_GRAM_ROWS = 8
# For so many columns its eigenvectors are worth their price; beyond this ratio of its numbers they are not exact.
_MANY_COLUMNS = 4
_EIGEN_RANGE = 1e10
# The least curvature of the offset, as a share of the total weight.
_OFFSET_FLOOR = 1e-14


class Preconditioner(ABC):
    """An approximate inverse of a curvature, one per column."""

    #: Whether it is the curvature's inverse but for rounding, or nearly so.
    is_exact = False

    @abstractmethod
    def solve(self, residual: Array) -> Array:
        """Return the approximate inverse times ``residual``."""

    @abstractmethod
    def select(self, columns: Any) -> Preconditioner:
        """Return the preconditioner of these columns alone."""


class Diagonal(Preconditioner):
    """The inverse of the diagonal."""

    def __init__(self, diagonal: Array) -> None:
        self.inverse = 1.0 / diagonal

    def solve(self, residual: Array) -> Array:
        return residual * self.inverse

    def select(self, columns: Any) -> Diagonal:
        out = object.__new__(Diagonal)
        out.inverse = np.ascontiguousarray(self.inverse[:, columns])
        return out


class Cholesky(Preconditioner):
    """The inverse of one matrix per column, by its Cholesky factor."""

    def __init__(self, factors: list[Any], is_exact: bool) -> None:
        self.factors = factors
        self.is_exact = is_exact

    def solve(self, residual: Array) -> Array:
        out = np.empty_like(residual)
        for k, factor in enumerate(self.factors):
            out[:, k] = cho_solve(factor, residual[:, k], check_finite=False)
        return out

    def select(self, columns: Any) -> Cholesky:
        return Cholesky([self.factors[k] for k in np.arange(len(self.factors))[columns]], self.is_exact)


class Eigenvectors(Preconditioner):
    """The inverse of matrices that share their eigenvectors, once the features are centred.

    With feature means ``mu`` and an intercept ``c`` of the centred features, ``b = c - mu'w``: so the residual of ``w``
    is less ``mu`` times that of the intercept, and the two parts are independent.
    """

    def __init__(self, values: Array, vectors: Array, feature_means: Array, of_intercept: Array) -> None:
        self.values = values
        self.vectors = vectors
        self.feature_means = feature_means
        self.of_intercept = of_intercept

    def solve(self, residual: Array) -> Array:
        out = np.empty_like(residual)
        centred = residual[:-1] - np.outer(self.feature_means, residual[-1])
        out[:-1] = self.vectors @ ((self.vectors.T @ centred) / self.values)
        out[-1] = residual[-1] / self.of_intercept - self.feature_means @ out[:-1]
        return out

    def select(self, columns: Any) -> Eigenvectors:
        values = np.ascontiguousarray(self.values[:, columns])
        return Eigenvectors(values, self.vectors, self.feature_means, self.of_intercept[columns])


class Woodbury(Preconditioner):
    """The inverse of ``diag(a) + X' diag(h) X`` for few rows, by the matrix ``I + h^1/2 X diag(1/a) X' h^1/2``.

    The offset, which has no entry in ``a``, is eliminated from the bordered system.
    """

    is_exact = True

    def __init__(self, columns: list[Callable[[Array], Array]]) -> None:
        self.columns = columns

    def solve(self, residual: Array) -> Array:
        return np.stack([solve(residual[:, k]) for k, solve in enumerate(self.columns)], axis=1)

    def select(self, columns: Any) -> Woodbury:
        return Woodbury([self.columns[k] for k in np.arange(len(self.columns))[columns]])


def may_be_exact(point: MomentPoint, direct: bool) -> bool:
    """Return whether it is worth asking for an `exact_preconditioner`, before any other product."""
    return direct or shape_of(point.objective.data).n_rows <= _FEW_ROWS


def exact_preconditioner(
    point: MomentPoint, weights: PerPartition, of_penalty: Array | float, direct: bool
) -> Preconditioner | None:
    """Return the curvature's inverse, if there are few rows with curvature, or few features; else ``None``."""
    (n_active,) = point.objective.data.map_sum(_count, weights)
    few_features = direct and point.objective.n_features <= _FEW_FEATURES
    if suits_woodbury(point, n_active, direct) and not few_features:
        found = woodbury(point, weights, of_penalty + point.noise_curvature)
        if found is not None:
            return found
    if direct and point.objective.n_features <= _DIRECT_SIZE:
        return _cholesky(explicit_curvature(point, weights, of_penalty + point.noise_curvature), is_exact=True)
    return None


def suits_gram(point: MomentPoint) -> bool:
    """Return whether the shape of the data suits a shared Gram matrix: if not, the diagonal will be needed."""
    objective = point.objective
    return (
        objective.n_features <= min(_GRAM_FEATURES, shape_of(objective.data).n_rows) and objective.penalty.has_curvature
    )


def suits_woodbury(point: MomentPoint, n_active: Array, direct: bool = False) -> bool:
    """Return whether few rows have curvature (those of a hinge far from its kink take no part), one number a column."""
    n_rows, objective = int(np.max(n_active)), point.objective
    most = min(objective.n_features - 1, _DIRECT_SIZE if direct else _FEW_ROWS)
    return n_rows <= most and objective.penalty.has_curvature


def gram_preconditioner(
    point: MomentPoint, n_active: Array, totals: Array, own: Array, is_coupled: bool
) -> Eigenvectors | Cholesky | None:
    """Return the inverse of the shared Gram matrix, scaled for each column by the sum of its weights.

    ``own`` is the diagonal of penalty and noise.
    ``None``, if fewer rows than features have curvature, or if the matrix cannot be inverted.
    """
    if np.max(n_active) < point.objective.n_features:
        return None
    many = shape_of(point.objective.data).n_columns >= _MANY_COLUMNS and not point.objective.penalty.l1
    shared = shared_eigenvectors(point, totals, is_coupled) if many else None
    return shared or _cholesky(shared_gram(point, totals, own), is_exact=False)


def _cholesky(matrices: Iterable[Array], is_exact: bool) -> Cholesky | None:
    factors = [factorise(matrix) for matrix in matrices]
    return None if any(factor is None for factor in factors) else Cholesky(factors, is_exact)


def shared_gram(point: MomentPoint, totals: Array, own: Array) -> Iterator[Array]:
    """Yield ``sum(h) X'SX`` plus the column's own diagonal, column by column; ``totals`` are the ``sum(h)``."""
    gram = _gram_of_rows(point)
    for k in range(point.coef.shape[1]):
        yield _with_diagonal(gram * totals[k], point.objective, own[:, k])


def shared_eigenvectors(point: MomentPoint, totals: Array, is_coupled: bool) -> Eigenvectors | None:
    """Return the inverse of ``l2 + sum(h) (X'SX + N)``, or ``None`` where the numbers are too far apart for that.

    ``N`` is the noise's diagonal as it is at first, on average over the columns: not quite each column's own, but one
    decomposition then does for all columns and all steps, and for every ``C``.
    """
    objective, kept = point.objective, point.objective.data.kept
    variance = objective.variance
    strength = float(np.mean(variance.slope)), float(np.mean(variance.floor))
    key = "eigenvectors", is_coupled, variance.entry, strength
    if key not in kept:
        gram = _gram_of_rows(point)
        feature_means = gram[-1, :-1] * objective.fit_intercept
        matrix = gram[:-1, :-1] - np.outer(feature_means, feature_means)
        index = np.arange(objective.n_features)
        matrix[index, index] += np.mean(point.noise_curvature / np.maximum(totals, np.finfo(float).tiny), axis=1)
        kept[key] = *eigh(matrix, driver="evd", check_finite=False, overwrite_a=True), feature_means
    values, vectors, feature_means = kept[key]
    values = objective.penalty.l2 + totals * np.maximum(values, 0.0)[:, None]
    if not (np.isfinite(values).all() and values.max() <= _EIGEN_RANGE * objective.penalty.l2):
        return None
    of_intercept = np.maximum(totals, _offset_floor(objective)) if objective.fit_intercept else np.ones_like(totals)
    return Eigenvectors(values, vectors, feature_means, of_intercept)


def _gram_of_rows(point: MomentPoint) -> Array:
    """Return the Gram matrix for weights that add up to 1, of a sample of the rows if there are many."""
    objective = point.objective
    kept = objective.data.kept
    if "gram" not in kept:
        n_rows = shape_of(objective.data).n_rows
        gram, total = objective.sweep_sum(_gram, max(1, n_rows // (_GRAM_ROWS * objective.n_features)))
        kept["gram"] = gram / total
    return kept["gram"]


def explicit_curvature(point: MomentPoint, weights: PerPartition, own: Array) -> Iterator[Array]:
    """Yield the curvature as a dense matrix, offset last, column by column."""
    objective = point.objective
    for k in range(point.coef.shape[1]):
        (matrix,) = objective.sweep_sum(_explicit, objective.variance, weights, point.coef, k)
        yield _with_diagonal(matrix, objective, own[:, k])


def _with_diagonal(matrix: Array, objective: MomentObjective, own: Array) -> Array:
    """Add the diagonal of penalty and noise to the data's part, in place; take the intercept out if there is none."""
    index = np.arange(objective.n_features)
    matrix[index, index] += own
    matrix[-1, -1] += _offset_floor(objective)
    if not objective.fit_intercept:
        matrix[-1, :] = matrix[:, -1] = 0.0
        matrix[-1, -1] = 1.0
    return matrix


def woodbury(point: MomentPoint, weights: PerPartition, own: Array) -> Woodbury | None:
    """Return the solvers of ``diag(own) + X'hX``, intercept last, one per column; ``None`` if rounding forbids it."""
    objective = point.objective
    is_constant = objective.variance.is_zero and not objective.penalty.l1
    products = _row_products(objective) if is_constant else None
    columns = []
    for k in range(point.coef.shape[1]):
        taken = objective.data.gather(objective.data.map(_active_rows, weights, k))
        block = stack_blocks([rows for rows, _, _ in taken])
        h = np.concatenate([h for _, h, _ in taken])
        if products is None:
            gram = block.outer_gram(1.0 / own[:, k])
        else:
            active = np.flatnonzero(np.concatenate([mask for _, _, mask in taken]))
            gram = products[np.ix_(active, active)] / objective.penalty.l2
        solve = _woodbury_column(block, own[:, k], h, gram, objective.fit_intercept, _offset_floor(objective))
        if solve is None:
            return None
        columns.append(solve)
    return Woodbury(columns)


def _row_products(objective: MomentObjective) -> Array | None:
    """Return ``X X'``, which serves every step as long as there is no noise; ``None`` if there are too many rows."""
    data, kept = objective.data, objective.data.kept
    if shape_of(data).n_rows > _KEPT_ROWS:
        return None
    if "row products" not in kept:
        kept["row products"] = stack_blocks(data.gather(data.map(_all_rows))).outer_gram(np.ones(objective.n_features))
    return kept["row products"]


def _woodbury_column(
    block: Block, diagonal: Array, h: Array, gram: Array, fit_intercept: bool, floor: float
) -> Callable[[Array], Array] | None:
    root = np.sqrt(h)
    inner = root[:, None] * gram * root
    inner[np.diag_indices_from(inner)] += 1.0
    factor = factorise(inner)
    if factor is None:
        return None

    def solve_weights(right: Array) -> Array:
        scaled = right / diagonal
        small = root * cho_solve(factor, root * block.times(scaled), check_finite=False)
        return scaled - block.transposed_times(small) / diagonal

    border = block.transposed_times(h)
    solved_border = solve_weights(border)
    corner = max(h.sum() - border @ solved_border, np.finfo(float).eps * h.sum(), floor)

    def solve(right: Array) -> Array:
        weights = solve_weights(right[:-1])
        if not fit_intercept:
            return np.append(weights, right[-1])
        offset = (right[-1] - border @ weights) / corner
        return np.append(weights - offset * solved_border, offset)

    return solve


def diagonal(point: MomentPoint, squares: Array, totals: Array, own: Array) -> Diagonal:
    """Return ``own + (X * X)'h`` and, for the intercept, the sum of ``h``: the diagonal without the mixed terms."""
    objective = point.objective
    out = np.empty_like(point.coef)
    out[:-1] = own + squares
    out[-1] = np.maximum(totals, _offset_floor(objective)) if objective.fit_intercept else 1.0
    # A column of zeros with an l1 penalty has no curvature at all; any positive number will do.
    out[out <= 0.0] = 1.0
    return Diagonal(out)


def factorise(matrix: Array) -> Any | None:
    """Return the Cholesky factor, or ``None`` if the matrix is not safely positive definite."""
    # Scaling to a unit diagonal first: columns of very different units cost no digits.
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            factor, lower = cho_factor(matrix * scale * scale[:, None], lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(factor).all():
        return None
    return np.tril(factor) / scale[:, None], lower


def _offset_floor(objective: MomentObjective) -> float:
    """Return a curvature of the offset that is next to nothing: hinges that are all far from their kinks have none."""
    return _OFFSET_FLOOR * shape_of(objective.data).weight


def _gram(part: Labelled, step: int) -> tuple[Array, Array]:
    """Return the Gram matrix of every so many rows, with a one appended, weighted, and the sum of all weights."""
    weights, block = part.weights[:, 0], part.block
    total = weights.sum()
    if step > 1:
        taken = np.arange(block.n_rows) % step == 0
        block, weights = block.take_rows(taken), weights[taken]
        weights = weights * (total / max(weights.sum(), np.finfo(float).tiny))
    size = block.n_features
    out = np.empty((size + 1, size + 1))
    out[:-1, :-1] = block.weighted_gram(weights)
    out[:-1, -1] = out[-1, :-1] = block.transposed_times(weights)
    out[-1, -1] = weights.sum()
    return out, total


def _count(part: Labelled, weights: CurvatureWeights) -> tuple[Array]:
    return (weights.n_active,)


def _all_rows(part: Labelled) -> Block:
    return part.block.take_rows(np.ones(len(part.labels), dtype=bool))  # a copy: rows may be gone at the next call


def _active_rows(part: Labelled, weights: CurvatureWeights, k: int) -> tuple[Block, Array, Array]:
    """Return the rows that have curvature, how much, and which they are."""
    h = np.maximum(weights.by_mean[:, k], 0.0)
    return part.block.take_rows(h > 0.0), h[h > 0.0], h > 0.0


def _explicit(part: Labelled, variance: Any, weights: CurvatureWeights, coef: Array, k: int) -> tuple[Array]:
    """Return the data's part of the curvature of column ``k``: ``X'hX``, and the noise's rank-one terms per row."""
    size = part.block.n_features + 1
    total = np.zeros((size, size))
    for where, dense in part.block.dense_chunks():
        rows = np.hstack([dense, np.ones((len(dense), 1))])
        total += (rows * weights.by_mean[where, k, None]).T @ rows
        if weights.is_coupled:
            spread = np.zeros_like(rows)  # V_i * w, the derivative of half the variance
            entries = variance.slope * variance.entry(dense) if variance.moves_entries else 0.0
            spread[:, :-1] = (entries + variance.floor) * coef[:-1, k]
            cross = (rows * weights.mixed[where, k, None]).T @ spread
            total += cross + cross.T + (spread * weights.by_variance[where, k, None]).T @ spread
    return (total,)
