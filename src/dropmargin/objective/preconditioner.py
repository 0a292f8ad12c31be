"""Approximate inverses of a curvature, chosen by the shape of the data.

- `Cholesky`: the curvature itself, factorised; for a few hundred features.
- `Woodbury`: the same for a few hundred rows.
- `shared_gram`: one Gram matrix ``X'SX`` for all outputs and all steps, scaled for each output by its mean weight and
  with the output's own diagonal; for up to a few thousand features.
- `Diagonal`: for more features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotrs

from dropmargin.data import products, stack_blocks, target_summary
from dropmargin.objective.explicit import explicit_curvature, intercept_floor, with_diagonal
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.data import Block, PerPartition, Rows
    from dropmargin.objective.curvature import CurvatureWeights
    from dropmargin.objective.moment import MomentObjective, MomentPoint
    from dropmargin.objective.multinomial import ClassColumns


#: Up to this many features, or rows if they are fewer, a request for a factorisation is met.
DIRECT_SIZE = 1500
#: Up to this many features a Cholesky factor is preferred: features of very different units cost it no digits.
FEW_FEATURES = 100
# Hessians are computed as matrices without a request if there are at most so many products of entries per output. The
# products of the entries of each row are computed once for all outputs, of which no more than the other number count.
_CHEAP_ENTRIES = 2**17
_MOST_COUNTED = 8
# Without noise, the products of up to so many rows with each other are cached.
_CACHED_ROWS = 2500
# Up to this many rows, there is a factorisation also without a request.
_FEW_ROWS = 200
# Up to this many features, one Gram matrix is shared by all outputs and all steps.
_GRAM_FEATURES = 2000
# It is computed from this many rows per feature.
_GRAM_ROWS = 8
# From this many outputs on its eigenvectors are computed, unless its eigenvalues exceed this ratio.
_MANY_OUTPUTS = 4
_EIGEN_RANGE = 1e10


class Preconditioner(ABC):
    """An approximate inverse of a curvature, one per output."""

    #: Whether it is the curvature's inverse but for rounding, or nearly so.
    is_exact = False

    @abstractmethod
    def solve(self, residual: Array) -> Array:
        """Return the approximate inverse times ``residual``."""

    @abstractmethod
    def select(self, outputs: Any) -> Preconditioner:
        """Return the preconditioner of these outputs alone."""


class Diagonal(Preconditioner):
    """The inverse of the diagonal."""

    def __init__(self, diagonal: Array) -> None:
        self.inverse = 1.0 / diagonal

    def solve(self, residual: Array) -> Array:
        return residual * self.inverse

    def select(self, outputs: Any) -> Diagonal:
        out = object.__new__(Diagonal)
        out.inverse = np.ascontiguousarray(self.inverse[:, outputs])
        return out


class Cholesky(Preconditioner):
    """The inverse of one matrix per output, by its Cholesky factor."""

    def __init__(self, factors: list[Any], is_exact: bool) -> None:
        self.factors = factors
        self.is_exact = is_exact

    def solve(self, residual: Array) -> Array:
        out = np.empty_like(residual)
        for k, factor in enumerate(self.factors):
            out[:, k] = solve_factorised(factor, residual[:, k])
        return out

    def select(self, outputs: Any) -> Cholesky:
        return Cholesky([self.factors[k] for k in np.arange(len(self.factors))[outputs]], self.is_exact)


class StackedCholesky(Preconditioner):
    """The inverse of small matrices, one per output, by the inverses of their Cholesky factors.

    ``roots`` has the shape ``(n_outputs, n_features + 1, n_features + 1)``; all outputs are solved by one call.
    """

    is_exact = True

    def __init__(self, roots: Array) -> None:
        self.roots = roots

    @classmethod
    def of(cls, matrices: Array) -> StackedCholesky | None:
        """Return the inverse of these matrices; ``None`` if one is not safely positive definite."""
        # Scaling to a unit diagonal first: features of very different units cost no digits.
        scale = 1.0 / np.sqrt(np.maximum(np.einsum("kii->ki", matrices), np.finfo(float).tiny))
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                factors = np.linalg.cholesky(matrices * scale[:, :, None] * scale[:, None, :])
                roots = np.linalg.inv(factors) * scale[:, None, :]
        except np.linalg.LinAlgError:
            return None
        return cls(roots) if np.isfinite(roots).all() else None

    def solve(self, residual: Array) -> Array:
        half = self.roots @ residual.T[:, :, None]
        return np.ascontiguousarray((self.roots.transpose(0, 2, 1) @ half)[:, :, 0].T)

    def select(self, outputs: Any) -> StackedCholesky:
        return StackedCholesky(self.roots[outputs])


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

    def select(self, outputs: Any) -> Eigenvectors:
        values = np.ascontiguousarray(self.values[:, outputs])
        return Eigenvectors(values, self.vectors, self.feature_means, self.of_intercept[outputs])


class Woodbury(Preconditioner):
    """The inverse of ``diag(a) + X' diag(h) X`` for few rows, by the matrix ``I + h^1/2 X diag(1/a) X' h^1/2``.

    The intercept, which has no entry in ``a``, is eliminated from the bordered system.
    """

    is_exact = True

    def __init__(self, solvers: list[Callable[[Array], Array]]) -> None:
        self.solvers = solvers

    def solve(self, residual: Array) -> Array:
        return np.stack([solve(residual[:, k]) for k, solve in enumerate(self.solvers)], axis=1)

    def select(self, outputs: Any) -> Woodbury:
        return Woodbury([self.solvers[k] for k in np.arange(len(self.solvers))[outputs]])


def may_be_exact(point: MomentPoint, direct: bool) -> bool:
    """Return whether there may be an `exact_preconditioner`."""
    return direct or target_summary(point.objective.data).n_rows <= _FEW_ROWS


def has_cheap_matrices(n_rows: int, n_features: int, n_outputs: int) -> bool:
    """Return whether the Hessians of all outputs as matrices cost less than the calls of conjugate gradients."""
    return n_features <= n_rows and n_rows * (n_features + 1) ** 2 <= _CHEAP_ENTRIES * min(n_outputs, _MOST_COUNTED)


def may_factorise(point: MomentPoint, direct: bool) -> bool:
    """Return whether the curvature is small enough to be factorised as a matrix."""
    return direct and point.objective.n_features <= DIRECT_SIZE


def exact_preconditioner(
    point: MomentPoint, weights: PerPartition, of_penalty: Array | float, direct: bool
) -> Preconditioner | None:
    """Return the curvature's inverse, if there are few rows with curvature, or few features; else ``None``."""
    if not direct or point.objective.n_features > FEW_FEATURES:
        (n_active,) = point.objective.data.map_sum(_count, weights)
        if suits_woodbury(point, n_active, direct):
            found = woodbury(point, weights, of_penalty + point.noise_curvature)
            if found is not None:
                return found
    if may_factorise(point, direct):
        return cholesky(explicit_curvature(point, weights, of_penalty), is_exact=True)
    return None


def suits_gram(point: MomentPoint | ClassColumns) -> bool:
    """Return whether the shape of the data suits a shared Gram matrix: if not, the diagonal will be needed."""
    objective = point.objective
    return (
        objective.n_features <= min(_GRAM_FEATURES, target_summary(objective.data).n_rows)
        and objective.penalty.is_positive_diagonal
    )


def suits_woodbury(point: MomentPoint, n_active: Array, direct: bool = False) -> bool:
    """Return whether few rows have curvature, beside a diagonal; those of a hinge far from its kink have none."""
    n_rows, objective = int(np.max(n_active)), point.objective
    most = min(objective.n_features - 1, DIRECT_SIZE if direct else _FEW_ROWS)
    return n_rows <= most and objective.penalty.is_positive_diagonal and point.moments.is_diagonal


def gram_preconditioner(
    point: MomentPoint | ClassColumns, n_active: Array, totals: Array, own: Array, is_coupled: bool
) -> Preconditioner | None:
    """Return the inverse of the shared Gram matrix, scaled for each output by the sum of its curvature weights.

    ``own`` is the diagonal of penalty and noise.
    ``None``, if fewer rows than features have curvature, or if the matrix cannot be inverted.
    """
    if np.max(n_active) < point.objective.n_features:
        return None
    many = target_summary(point.objective.data).n_outputs >= _MANY_OUTPUTS and not point.objective.penalty.l1
    shared = shared_eigenvectors(point, totals, is_coupled) if many else None
    return shared or cholesky(shared_gram(point, totals, own), is_exact=False)


def cholesky(matrices: Iterable[Array], is_exact: bool) -> Cholesky | StackedCholesky | None:
    """Return the inverse of one matrix per output; ``None`` if one is not safely positive definite."""
    if isinstance(matrices, np.ndarray):
        return StackedCholesky.of(matrices)
    factors = [factorise(matrix) for matrix in matrices]
    return None if any(factor is None for factor in factors) else Cholesky(factors, is_exact)


def shared_gram(point: MomentPoint | ClassColumns, totals: Array, own: Array) -> Iterator[Array]:
    """Yield ``sum(h) X'SX`` plus the output's own diagonal, output by output; ``totals`` are the ``sum(h)``."""
    gram = _gram_of_rows(point)
    for k in range(point.coef.shape[1]):
        yield with_diagonal(gram * totals[k], point.objective, own[:, k])


def shared_eigenvectors(point: MomentPoint | ClassColumns, totals: Array, is_coupled: bool) -> Eigenvectors | None:
    """Return the inverse of ``l2 + sum(h) (X'SX + N)``, or ``None`` where the numbers are too far apart for that.

    ``N`` is the noise's diagonal at the first step, on average over the outputs: an approximation, so that one
    decomposition serves all outputs, all steps and every ``C``.
    """
    objective, cache = point.objective, point.objective.data.shared_cache
    variance = objective.variance
    strength = float(np.mean(variance.slope)), float(np.mean(variance.floor))
    key = "eigenvectors", is_coupled, variance.entry, strength
    if key not in cache:
        gram = _gram_of_rows(point)
        feature_means = gram[-1, :-1] * objective.fit_intercept
        matrix = gram[:-1, :-1] - np.outer(feature_means, feature_means)
        index = np.arange(objective.n_features)
        matrix[index, index] += np.mean(point.noise_curvature / np.maximum(totals, np.finfo(float).tiny), axis=1)
        cache[key] = *eigh(matrix, driver="evd", check_finite=False, overwrite_a=True), feature_means
    values, vectors, feature_means = cache[key]
    l2 = objective.penalty.l2
    values = l2 + totals * np.maximum(values, 0.0)[:, None]
    if not (np.isfinite(values).all() and np.all(values <= _EIGEN_RANGE * l2)):
        return None
    of_intercept = np.maximum(totals, intercept_floor(objective)) if objective.fit_intercept else np.ones_like(totals)
    return Eigenvectors(values, vectors, feature_means, of_intercept)


def _gram_of_rows(point: MomentPoint | ClassColumns) -> Array:
    """Return the Gram matrix for weights that add up to 1, of a sample of the rows if there are many."""
    objective = point.objective
    cache = objective.data.shared_cache
    if "gram" not in cache:
        n_rows = target_summary(objective.data).n_rows
        gram, total = objective.data.map_sum(_gram, max(1, n_rows // (_GRAM_ROWS * objective.n_features)))
        cache["gram"] = gram / total
    return cache["gram"]


def woodbury(point: MomentPoint, weights: PerPartition, own: Array) -> Woodbury | None:
    """Return the solvers of ``diag(own) + X'hX``, intercept last, one per output; ``None`` if a matrix is singular."""
    objective = point.objective
    is_constant = objective.variance.is_zero and not objective.penalty.l1
    products, l2 = _row_products(objective) if is_constant else None, objective.penalty.l2
    solvers = []
    for k in range(point.coef.shape[1]):
        taken = objective.data.gather(objective.data.map(_active_rows, weights, k))
        block = stack_blocks([rows for rows, _, _ in taken])
        h = np.concatenate([h for _, h, _ in taken])
        if products is None:
            gram = block.outer_gram(1.0 / own[:, k])
        else:
            active = np.flatnonzero(np.concatenate([mask for _, _, mask in taken]))
            gram = products[np.ix_(active, active)] / (l2 if np.ndim(l2) == 0 else l2[k])
        solve = _woodbury_output(block, own[:, k], h, gram, objective.fit_intercept, intercept_floor(objective))
        if solve is None:
            return None
        solvers.append(solve)
    return Woodbury(solvers)


def _row_products(objective: MomentObjective) -> Array | None:
    """Return ``X X'``, which serves every step as long as there is no noise; ``None`` if there are too many rows."""
    data, cache = objective.data, objective.data.shared_cache
    if target_summary(data).n_rows > _CACHED_ROWS:
        return None
    if "row products" not in cache:
        cache["row products"] = stack_blocks(data.gather(data.map(_all_rows))).outer_gram(np.ones(objective.n_features))
    return cache["row products"]


def _woodbury_output(
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
        if not len(root):  # no row has a curvature; SciPy before 1.14 refuses empty systems
            return scaled
        small = root * solve_factorised(factor, root * block.times(scaled))
        return scaled - block.transposed_times(small) / diagonal

    border = block.transposed_times(h)
    solved_border = solve_weights(border)
    corner = max(h.sum() - border @ solved_border, np.finfo(float).eps * h.sum(), floor)

    def solve(right: Array) -> Array:
        weights = solve_weights(right[:-1])
        if not fit_intercept:
            return np.append(weights, right[-1])
        intercept = (right[-1] - border @ weights) / corner
        return np.append(weights - intercept * solved_border, intercept)

    return solve


def diagonal(point: MomentPoint | ClassColumns, squares: Array, totals: Array, own: Array) -> Diagonal:
    """Return ``own + (X * X)'h`` and, for the intercept, the sum of ``h``: the diagonal without the mixed terms."""
    objective = point.objective
    out = np.empty_like(point.coef)
    out[:-1] = own + squares
    out[-1] = np.maximum(totals, intercept_floor(objective)) if objective.fit_intercept else 1.0
    # A feature of zeros with an l1 penalty has no curvature; any positive number will do.
    out[out <= 0.0] = 1.0
    return Diagonal(out)


def factorise(matrix: Array) -> Array | None:
    """Return the lower Cholesky factor, or ``None`` if the matrix is not safely positive definite."""
    # Scaling to a unit diagonal first: features of very different units cost no digits.
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    with np.errstate(over="ignore", invalid="ignore"):
        # LAPACK itself: SciPy's functions around it take longer than a small matrix.
        factor, info = dpotrf(matrix * scale * scale[:, None], lower=1)
    return factor / scale[:, None] if info == 0 and np.isfinite(factor).all() else None


def solve_factorised(factor: Array, right: Array) -> Array:
    """Return the solution for a matrix by its lower Cholesky factor."""
    return dpotrs(factor, right, lower=1)[0]


@products(1)
def _gram(part: Rows, step: int) -> tuple[Array, Array]:
    """Return the Gram matrix of one in so many rows, with a one appended, weighted, and the sum of all weights.

    Rows are drawn, always the same ones: they may come in an order that has a period.
    """
    weights, block = part.sample_weight, part.X
    total = weights.sum()
    if step > 1:
        taken = np.random.default_rng(0).permutation(block.n_rows) % step == 0
        block, weights = block.take_rows(taken), weights[taken]
        weights = weights * (total / max(weights.sum(), np.finfo(float).tiny))
    size = block.n_features
    out = np.empty((size + 1, size + 1))
    out[:-1, :-1] = block.weighted_gram(weights)
    out[:-1, -1] = out[-1, :-1] = block.transposed_times(weights)
    out[-1, -1] = weights.sum()
    return out, total


def _count(part: Rows, weights: CurvatureWeights) -> tuple[Array]:
    return (weights.n_active,)


def _all_rows(part: Rows) -> Block:
    return part.X.take_rows(np.ones(len(part.y), dtype=bool))  # a copy: fetched rows are valid in this call only


def _active_rows(part: Rows, weights: CurvatureWeights, k: int) -> tuple[Block, Array, Array]:
    """Return the rows that have curvature, how much, and which they are."""
    h = np.maximum(weights.by_mean[:, k], 0.0)
    return part.X.take_rows(h > 0.0), h[h > 0.0], h > 0.0
