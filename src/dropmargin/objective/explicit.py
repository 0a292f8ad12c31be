r"""The curvature of a moment objective as dense matrices, one per output.

The matrix is linear in the curvature weights of the rows. With ``V_i`` the variances of row ``i`` and ``u = V_i * w``,
half the derivative of the score's variance by ``w``::

    sum_i A_i x_i x_i' + B_i (x_i u_i' + u_i x_i') + D_i u_i u_i'       (A, B, D) = (s phi_mm, 2 s phi_mv, 4 s phi_vv)

For few rows and features, the products ``x x'``, ``x V'`` and ``V V'`` of the entries of each row are tables, and the
matrices of all outputs are the products of the tables with the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dropmargin.data import products, target_summary
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.data import PerPartition, Rows
    from dropmargin.objective.curvature import CurvatureWeights
    from dropmargin.objective.moment import MomentObjective, MomentPoint
    from dropmargin.objective.multinomial import MultinomialObjective
    from dropmargin.objective.score_moments import ScoreMoments

# Up to this many features and products of entries the matrices of all outputs are computed at once.
_TABLE_FEATURES = 100
_TABLE_ENTRIES = 2**23
# The least curvature of the intercept, as a share of the total weight.
_INTERCEPT_FLOOR = 1e-14


def suits_tables(objective: MomentObjective) -> bool:
    """Return whether the features and the products of entries are so few that all outputs are computed at once."""
    n_rows, n_features = target_summary(objective.data).n_rows, objective.n_features
    return n_features <= _TABLE_FEATURES and n_rows * (n_features + 1) ** 2 <= _TABLE_ENTRIES


def explicit_curvature(point: MomentPoint, weights: PerPartition, of_penalty: Array | float) -> Iterable[Array]:
    """Return the curvature as dense matrices, intercept last: an array for few entries, else output by output."""
    objective = point.objective
    is_coupled = not objective.variance.is_zero
    # With noise the tables are several times as large, and each noise has its own.
    has_tables = objective.has_cheap_hessian and objective.groups is None if is_coupled else suits_tables(objective)
    if not has_tables:
        return _one_by_one(point, weights, point.curvature_diagonal(of_penalty))
    with np.errstate(over="ignore", invalid="ignore"):  # a matrix that is not finite is not factorised
        tables = tables_of(objective, is_coupled) if objective.data.keeps_large_values else None
        args = objective.variance, weights, point.coef, tables
        (matrices,) = point.sums_with_gradient(_all_outputs, *args)
        return with_diagonal(matrices, objective, (of_penalty + point.noise_curvature).T)


def tables_of(objective: MomentObjective, is_coupled: bool) -> PerPartition:
    """Return the tables of products, computed once for a noise; those without noise serve every ``C``."""
    data = objective.data
    cache = data.cache if is_coupled else data.shared_cache
    if "tables" not in cache:
        cache["tables"] = data.map(_outer_products, objective.variance, is_coupled)
    return cache["tables"]


def _one_by_one(point: MomentPoint, weights: PerPartition, own: Array) -> Iterator[Array]:
    objective = point.objective
    for k in range(point.coef.shape[1]):
        (matrix,) = objective.data.map_sum(_one_output, point.moments, weights, k)
        yield with_diagonal(matrix, objective, own[:, k])


def with_diagonal(matrix: Array, objective: MomentObjective | MultinomialObjective, own: Array) -> Array:
    """Add the diagonal of penalty and noise to the data's part, in place; take the intercept out if there is none.

    ``matrix`` may be a stack of matrices and ``own`` of their diagonals.
    """
    index = np.arange(objective.n_features)
    matrix[..., index, index] += own
    matrix[..., -1, -1] += intercept_floor(objective)
    if not objective.fit_intercept:
        matrix[..., -1, :] = matrix[..., :, -1] = 0.0
        matrix[..., -1, -1] = 1.0
    return matrix


def intercept_floor(objective: MomentObjective | MultinomialObjective) -> float:
    """Return a tiny curvature of the intercept, for hinges that are all far from their kinks."""
    return _INTERCEPT_FLOOR * target_summary(objective.data).weight


# Functions of one partition ---------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """Products of the entries of each row, one row each: ``x x'`` and ``V V'`` above the diagonal, ``x V'`` in full."""

    rows: Array
    mixed: Array | None
    spread: Array | None


def _outer_products(part: Rows, variance: Any, is_coupled: bool) -> Tables:
    """Return the products of the entries of each row; with noise, also with their variances."""
    dense = dense_rows(part)
    rows = with_ones(dense)
    first, second = np.triu_indices(rows.shape[1])
    squares = rows[:, first] * rows[:, second]
    if not is_coupled:
        return Tables(squares, None, None)
    spread = variances(dense, variance)
    mixed = (rows[:, :, None] * spread[:, None, :]).reshape(len(rows), rows.shape[1] * spread.shape[1])
    first, second = np.triu_indices(spread.shape[1])
    return Tables(squares, mixed, spread[:, first] * spread[:, second])


@products(1)
def _all_outputs(
    part: Rows, variance: Any, weights: CurvatureWeights, coef: Array, tables: Tables | None
) -> tuple[Array]:
    """Return the data's part of the curvature, of shape ``(n_outputs, n_features + 1, n_features + 1)``."""
    if tables is None:
        tables = _outer_products(part, variance, weights.is_coupled)
    w, size = coef[:-1].T, len(coef)
    total = sums_of_products(weights.by_mean, tables.rows, size)
    if weights.is_coupled:
        assert tables.mixed is not None
        assert tables.spread is not None
        cross = (weights.mixed.T @ tables.mixed).reshape(-1, size, size - 1) * w[:, None, :]
        total[:, :, :-1] += cross
        total[:, :-1, :] += cross.transpose(0, 2, 1)
        total[:, :-1, :-1] += sums_of_products(weights.by_variance, tables.spread, size - 1) * (
            w[:, :, None] * w[:, None, :]
        )
    return (total,)


def sums_of_products(weights: Array, table: Array, size: int) -> Array:
    """Return the weighted sums of the products above the diagonal as matrices, one per column of the weights."""
    first, second = np.triu_indices(size)
    sums = weights.T @ table
    out = np.empty((len(sums), size, size))
    out[:, first, second] = out[:, second, first] = sums
    return out


def dense_rows(part: Rows) -> Array:
    """Return all rows of a partition, which may be empty, as a dense array in double precision."""
    return np.concatenate([np.empty((0, part.X.n_features)), *(rows for _, rows in part.X.dense_chunks())])


def with_ones(rows: Array) -> Array:
    """Return the rows with a feature of ones for the intercept."""
    return np.hstack([rows, np.ones((len(rows), 1))])


def variances(rows: Array, variance: Any) -> Array:
    """Return the variance of each entry of dense rows."""
    entries = variance.slope * variance.entry(rows) if variance.moves_entries else np.zeros_like(rows)
    return entries + variance.floor


@products(1)
def _one_output(part: Rows, moments: ScoreMoments, weights: CurvatureWeights, k: int) -> tuple[Array]:
    """Return the data's part of the curvature of output ``k``."""
    size = part.X.n_features + 1
    total = np.zeros((size, size))
    for where, dense in part.X.dense_chunks():
        rows = with_ones(dense)
        scaled = rows * np.sqrt(np.maximum(weights.by_mean[where, k, None], 0.0))
        total += scaled.T @ scaled  # BLAS computes one triangle of a product with the own transpose
        if weights.is_coupled:
            spread = np.zeros_like(rows)
            spread[:, :-1] = moments.half_slope(dense, k)
            cross = (rows * weights.mixed[where, k, None]).T @ spread
            total += cross + cross.T + (spread * weights.by_variance[where, k, None]).T @ spread
        if not moments.is_diagonal:
            total[:-1, :-1] += moments.noise_matrix(dense, weights.values[where, 3 * weights.n + k])
    return (total,)
