r"""Coordinate descent in the dual of the noise-free hinge loss (Hsieh et al. 2008), on sparse rows by compiled code.

With ``c_i`` the weight of row ``i`` and ``a_i`` in [0, c_i] its dual variable, the coefficients are
``w = sum_i a_i y_i x_i / l2``, and an epoch moves every ``a_i`` in turn to its best value. The intercept is not
penalised, so ``sum_i a_i y_i = 0`` must hold. It is approached by proximal steps: the intercept is bound to its value
of the last epoch by ``(b - b')^2 / (2 s)``.

Between rounds of epochs the dual variables are balanced, so that the equation holds, and the best intercept for their
coefficients is found by sorting; then the best multiple ``t`` of both. (Where the rows are separable and ``C`` is
large, slightly larger coefficients save much loss.) With ``z_i = margin - t y_i (w.x_i + b)``, the
duality gap is then::

    sum_i (c_i max(0, z_i) - a_i z_i) + l2 (t - 1)^2 |w|^2 / 2

The first digits come faster than by any other method on text; the last ones, or a large ``C``, may take thousands of
epochs. If a forecast says so, there is no result, and Newton's method takes over.

The dual variables of an output stay in the cache of its rows: a search solves the same rows for one ``C`` after the
other. Those at their upper bound stay there, and the others keep their values.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import CompiledRows, DualDescent, LocalPartitions, as_sparse, kernels, output_targets, stack_rows
from dropmargin.objective import Objective
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_FIRST_EPOCHS = 4
# Every round has so many times the epochs of the one before.
_GROWTH = 1.25
# A call of compiled code cannot be interrupted: it reads at most about so many entries, a fraction of a second.
_ENTRIES_PER_CALL = 5e7
# The intercept's curvature is about the number of free dual variables over the mean square of a row: s is this times
# its inverse, within limits (as shares of the mean square). On review text 5, 10, 20 and 40 differed by less than
# one random order of the rows from another.
_INTERCEPT_STEP = 10.0
_LEAST_INTERCEPT_STEP, _MOST_INTERCEPT_STEP = 0.003, 10.0
# Rows that were left out come back if they make up this share of the gap.
_WRONGLY_LEFT_OUT = 0.3
# More epochs than this are not worth waiting for; a forecast is not made before so many.
_PATIENCE = 10_000
_FORECAST_AFTER = 200
# Products with dense rows of which at most this share are not zero are computed with their CSR form.
_SPARSE_SHARE = 0.4
# Sums this close differ by rounding alone.
_SAME_SUM = 1e-14


def descend_dual(objective: Objective, options: Options) -> Result | None:
    """Minimise to a relative duality gap of ``tol``, or as far as epochs are worth their time.

    An iteration of the result is a round of epochs, and an epoch counts as one pass over the data. If the problem is
    not for this method (rows elsewhere, no compiled code), there is no result. There is one output.
    """
    cache, tol = objective.cache, options.tol
    if not (isinstance(objective.data, LocalPartitions) and kernels.available()):
        return None
    if "rows for descent" not in cache:  # shared by the outputs and by all values of C
        cache["rows for descent"] = _Matrix.of(objective.data)
    rows = _AllRows(objective, cache["rows for descent"])
    known = cache.setdefault("dual variables", {})  # by the positive rows of the output
    output = np.packbits(rows.labels > 0.0).tobytes()
    is_warm = output in known
    proof = _Proof(rows, known[output].for_bounds(rows.upper) if is_warm else np.zeros_like(rows.upper))
    dual_values, weights, intercept = (
        proof.dual_values.copy(),
        proof.combined[:-1, 0].copy(),
        proof.combined[-1].repeat(2),
    )
    history: list[Iteration] = []
    gaps, n_epochs, size = [(0, proof.gap)], 0, float(_FIRST_EPOCHS)

    def record() -> None:
        number = len(history) + 1
        history.append(Iteration(number, proof.value, proof.gap, objective.n_passes, 1))
        options.monitor(history[-1])

    if is_warm:  # it may be good enough as it is
        record()
    while not history or proof.gap > tol * abs(proof.value):
        if len(history) >= options.max_iter or _hopeless(gaps, tol * abs(proof.value)):
            break
        # 1. A round of epochs, and of proximal steps of the intercept.
        rows.run(int(size), rows.intercept_step(dual_values), dual_values, weights, intercept)
        n_epochs += int(size)
        size *= _GROWTH
        # 2. What they prove.
        proof = _Proof(rows, dual_values)
        gaps.append((n_epochs, proof.gap))
        record()
        # 3. Rows at their bounds were left out of the last epochs. If they should not have been, they come back.
        if proof.terms[rows.kernel.left_out()].sum() > _WRONGLY_LEFT_OUT * proof.gap:
            rows.kernel.restart()
    converged = proof.gap <= tol * abs(proof.value)
    if not converged and len(history) < options.max_iter:
        return None
    if converged:
        known[output] = DualVariables(proof.dual_values, rows.upper)
    relative = proof.gap / abs(proof.value) if proof.gap else 0.0
    reason = "reached" if converged else f"stopped after {len(history)} rounds of coordinate descent at"
    message = f"{reason} a relative duality gap of {relative:.1e}" + ("" if converged else f" (tol={tol:g})")
    return Result(proof.coef, np.array([proof.value]), len(history), converged, message, history)


class DualVariables(NamedTuple):
    """Dual variables and their upper bounds, of shape ``(n_rows,)``."""

    values: Array
    upper: Array

    def for_bounds(self, upper: Array) -> Array:
        """Return dual variables for other upper bounds: what is at its bound stays there, the others keep their value.

        (As a share of its bound, a value between falls if ``C`` grows.)
        """
        return np.where(self.values >= self.upper, upper, np.minimum(self.values, upper))


def _hopeless(gaps: list[tuple[int, float]], aim: float) -> bool:
    """Return whether the least gap so far, at the rate of the second half of the epochs, would not reach the aim."""
    n_epochs, _ = gaps[-1]
    if n_epochs < _FORECAST_AFTER:
        return False
    earlier = [entry for entry in gaps if entry[0] <= n_epochs // 2]
    before, now = (min(gap for _, gap in entries) for entries in (earlier, gaps))
    if not (now < before and aim > 0.0):
        return True
    rate = math.log(before / now) / (n_epochs - earlier[-1][0])
    return n_epochs + math.log(now / aim) / rate > _PATIENCE


class _Matrix(NamedTuple):
    """All rows: as compiled CSR rows, as the matrix that products are computed with, and their squared norms.

    Dense rows are the slower ones for products if many of their entries are zeros.
    """

    compiled: CompiledRows
    rows: Any
    squares: Array
    n_entries: int

    @classmethod
    def of(cls, data: LocalPartitions) -> _Matrix:
        X = data.parts[0].X if len(data.parts) == 1 else stack_rows([part.X for part in data.parts])
        sparse = as_sparse(X)
        rows = sparse if sparse.nnz <= _SPARSE_SHARE * X.shape[0] * X.shape[1] else X
        squares = sparse.power(2).astype(np.float64) @ np.ones(X.shape[1])
        return cls(CompiledRows(sparse), rows, squares, max(1, sparse.nnz))


class HingeRows:
    """All rows of one output, with their labels and the upper bounds of their dual variables."""

    def __init__(self, objective: Objective, rows: Any) -> None:
        self.objective, self.rows = objective, rows
        parts = objective.data.parts  # type: ignore[attr-defined]
        self.labels = np.concatenate([output_targets(objective.loss.outputs, part.y)[:, 0] for part in parts])
        self.upper = objective.C * np.concatenate([part.sample_weight for part in parts]).astype(np.float64)
        self.margin, self.l2 = objective.loss.loss.kink, float(np.ravel(objective.penalty.l2)[0])


class _AllRows(HingeRows):
    """What coordinate descent knows of the rows."""

    def __init__(self, objective: Objective, matrix: _Matrix) -> None:
        super().__init__(objective, matrix.rows)
        self.n_entries = matrix.n_entries
        scale = 1.0 / self.l2
        self.kernel = DualDescent(matrix.compiled, self.labels, self.upper, matrix.squares, self.margin, scale)
        self.mean_square = scale * float(matrix.squares.mean()) or 1.0

    def run(self, n_epochs: int, intercept_step: float, dual_values: Array, weights: Array, intercept: Array) -> None:
        """Go over the rows so many times, in calls that let an interrupt through."""
        most = max(1, int(_ENTRIES_PER_CALL / self.n_entries))
        intercept[1] = self.labels @ dual_values
        for done in range(0, n_epochs, most):
            self.kernel.run(min(most, n_epochs - done), intercept_step, dual_values, weights, intercept)
        self.objective.count(n_epochs)

    def intercept_step(self, dual_values: Array) -> float:
        """Return ``s``: how loosely the intercept is bound to where it was."""
        if not self.objective.fit_intercept:
            return 0.0
        n_free = int(np.count_nonzero((dual_values > 0.0) & (dual_values < self.upper)))
        step = min(max(_INTERCEPT_STEP / max(1, n_free), _LEAST_INTERCEPT_STEP), _MOST_INTERCEPT_STEP)
        # at the least, all rows together can move the intercept by the margin: the scale of the rows may be tiny
        return max(step * self.mean_square, self.margin / float(self.upper.sum()))


class _Proof:
    """Balanced dual variables, the coefficients that follow from them, and the duality gap of both.

    Attributes
    ----------
    dual_values : ndarray of shape (n_rows,)
    combined : ndarray of shape (n_features + 1, 1)
        The coefficients that follow from the dual variables, and the best intercept for them.
    coef : ndarray of shape (n_features + 1, 1)
        The best multiple of that.
    terms : ndarray of shape (n_rows,)
        What each row contributes to the gap.
    value, gap : float
    """

    def __init__(self, rows: HingeRows, dual_values: Array) -> None:
        objective = rows.objective
        feasible = balanced(dual_values, rows.labels, rows.upper) if objective.fit_intercept else dual_values
        margin, labels, upper = rows.margin, rows.labels, rows.upper
        coef, pulls = np.zeros((objective.n_features + 1, 1)), np.zeros(len(labels))
        if feasible.any():
            objective.count(1.0)
            coef[:-1, 0] = (labels * feasible) @ rows.rows / rows.l2
            pulls = labels * (rows.rows @ coef[:-1, 0])
        if objective.fit_intercept:
            coef[-1] = best_intercept(labels * (margin - pulls), labels, upper)
            pulls += labels * coef[-1]
        square = 2.0 * float(objective.penalty.value(coef)[0])
        factor = best_factor(margin, pulls, upper, square)
        slack = margin - factor * pulls
        losses = upper * np.maximum(slack, 0.0)
        self.dual_values = feasible
        self.combined, self.coef = coef, factor * coef
        self.terms = losses - feasible * slack
        self.value = 0.5 * factor**2 * square + float(losses.sum())
        self.gap = float(self.terms.sum()) + 0.5 * (factor - 1.0) ** 2 * square


def best_factor(margin: float, pulls: Array, weights: Array, square: float) -> float:
    """Return the ``t >= 0`` that minimises ``t^2 square / 2 + sum_i weights_i max(0, margin - t pulls_i)``.

    Rows on the right side leave the sum one after the other as ``t`` grows, at ``margin / pull``: the slope is known
    between any two of them.
    """
    right = np.flatnonzero((pulls > 0.0) & (weights > 0.0))
    if not (len(right) and square > 0.0):
        return 1.0
    ends = margin / pulls[right]
    order = np.argsort(ends)
    ends, forces = ends[order], (weights * pulls)[right][order]
    wrong = np.minimum(weights * pulls, 0.0).sum()
    # the force of the rows that are left before each end, and after it
    before = wrong + np.cumsum(forces[::-1])[::-1]
    first = int(np.argmax(square * ends >= np.append(before[1:], wrong)))
    return max(0.0, min(float(before[first]) / square, float(ends[first])))


def best_intercept(kinks: Array, labels: Array, weights: Array) -> float:
    """Return the best intercept of a hinge loss, or the middle one of several.

    Parameters
    ----------
    kinks : ndarray of shape (n_rows,)
        The intercepts at which the rows' losses have their kinks. At each the slope of the total rises by the row's
        weight, from minus the weight of the positive rows at the far left: a weighted quantile.
    """
    order = np.argsort(kinks)
    rise = np.cumsum(weights[order])
    total = weights[labels > 0.0].sum()
    ends = np.searchsorted(rise, [total - _SAME_SUM * rise[-1], total + _SAME_SUM * rise[-1]])
    low, high = kinks[order[np.minimum(ends, len(order) - 1)]]
    return float(0.5 * (low + high))


def balanced(dual_values: Array, labels: Array, upper: Array) -> Array:
    """Return dual variables nearby with ``sum_i a_i y_i = 0``.

    Free ones move first, within their bounds: at the optimum that costs nothing to first order. If they are not enough,
    all those of one label shrink.
    """
    excess = labels @ dual_values
    side = np.sign(excess) * labels
    is_free = (dual_values > 0.0) & (dual_values < upper)
    room = np.where(is_free, np.where(side > 0.0, dual_values, upper - dual_values), 0.0)
    share = min(1.0, abs(excess) / max(room.sum(), abs(excess), np.finfo(float).tiny))
    out = np.clip(dual_values - share * side * room, 0.0, upper)
    positive = labels > 0.0
    sums = np.array([out[~positive].sum(), out[positive].sum()])
    if sums.max() - sums.min() <= _SAME_SUM * sums.max():
        return out
    return np.where(positive == (sums[1] > sums[0]), out * (sums.min() / sums.max()), out)
