r"""An interior point method for the hinge without noise and few features (Mehrotra 1992).

With ``Z`` the rows times their labels, a one appended for the intercept, and ``c`` their weights, the problem of each
output is::

    min  l2 |w|^2 / 2 + c'xi      subject to   xi >= 0,   t = xi - margin + Z (w, b) >= 0

The dual variables are ``a`` of ``t`` and ``c - a`` of ``xi``. A step of Newton's method towards ``a t = mu`` and
``(c - a) xi = mu`` is a system with one row per feature, ``l2 + Z' diag(1 / D) Z`` with ``D = xi / (c - a) + t / a``.
The predictor has ``mu = 0``; how far it comes says which ``mu`` the corrector, with the same matrix, aims at. The
duality gap is known. Newton's method on a smoothed hinge takes two to four times as many steps. From given coefficients
the variables are those with ``a t = (c - a) xi = mu``, for a ``mu`` in proportion to the objective: a large one, which
saves steps only for a large tolerance, or a small one where the coefficients are nearly the solution. Elsewhere, hardly
a step can be gone from there, and after some steps the method begins anew.
All outputs take their steps together: for small tables NumPy's calls take the time, not the arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dropmargin.data import LocalPartitions, as_dense
from dropmargin.objective import Objective, weighted_gram
from dropmargin.solvers.dual_coordinate import HingeRows, balanced, best_intercept
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

# The share of the way to the boundary that a step may go. With 0.99 some problems take twice as many.
_SHARE = 0.95
# More steps do not help: rounding errors limit the gap. With a large C and dependent features, 60 were too few.
_MOST_STEPS = 150
# The duality gap at given coefficients is so many times the objective, from this tolerance on and below it. After the
# first step it must be below this share of the one that there is without a start, or for a small tolerance of itself,
# and the solution must be found in so many steps. Finalists on digits take a quarter of the steps.
_WARM_TOL, _WARM_GAP, _CLOSE_GAP, _CLOSE_SHARE = 1e-3, 6.0, 0.03, 0.5
_WARM_STEPS, _CLOSE_STEPS = 30, 8


class _Variables(NamedTuple):
    """Coefficients, of shape (n_features + 1, n_outputs), and the others, of shape (n_rows, n_outputs)."""

    coef: Array
    a: Array
    t: Array
    xi: Array

    def take(self, outputs: Array) -> _Variables:
        """Return the variables of some outputs."""
        return _Variables(*(own[:, outputs] for own in self))


class _Problem(NamedTuple):
    """Rows of positive weight with a one appended, and their weights; labels and penalties have a column per output."""

    V: Array
    c: Array
    margin: float
    labels: Array
    penalty: Array

    @classmethod
    def of(cls, objective: Objective, X: Array, rows: list[HingeRows]) -> _Problem:
        used = rows[0].upper > 0.0
        V = np.column_stack([X[used], np.ones(np.count_nonzero(used))])
        labels = np.column_stack([own.labels[used] for own in rows])
        penalty = np.vstack([np.tile([own.l2 for own in rows], (X.shape[1], 1)), np.zeros(len(rows))])
        if not objective.fit_intercept:
            V[:, -1], penalty[-1] = 0.0, 1.0
        return cls(V, rows[0].upper[used][:, None], rows[0].margin, labels, penalty)

    def take(self, outputs: Array) -> _Problem:
        """Return the problem of some outputs."""
        return self._replace(labels=self.labels[:, outputs], penalty=self.penalty[:, outputs])

    def gaps(self, now: _Variables) -> Array:
        """Return the duality gap of each output, if primal and dual variables are feasible."""
        return (now.a * now.t + (self.c - now.a) * now.xi).sum(axis=0)

    def values(self, now: _Variables) -> Array:
        return 0.5 * (self.penalty * np.square(now.coef)).sum(axis=0) + (self.c * now.xi).sum(axis=0)


def interior_point(objective: Objective, options: Options, start: Array | None = None) -> list[Result | None]:
    """Minimise to a relative duality gap of ``tol``: a result for each output, in their order.

    ``start`` are coefficients near the solution.
    There is none for outputs that rounding errors keep from it, or if the rows are not in memory.
    """
    results: list[Result | None] = [None] * objective.n_columns
    if not isinstance(objective.data, LocalPartitions):
        return results
    X = np.vstack([as_dense(part.X) for part in objective.data.parts]).astype(np.float64, copy=False)
    rows = [HingeRows(objective.select(np.array([k])), X) for k in range(objective.n_columns)]
    problem = _Problem.of(objective, X, rows)
    ones = np.ones_like(problem.labels)
    cold = _Variables(
        np.zeros_like(problem.penalty), 0.5 * problem.c * ones, problem.margin * ones, 2.0 * problem.margin * ones
    )
    outputs = np.arange(len(rows))
    if start is not None:
        is_rough = options.tol >= _WARM_TOL
        near = _near(start, problem, _WARM_GAP if is_rough else _CLOSE_GAP)
        limit = _CLOSE_SHARE * problem.gaps(cold if is_rough else near)
        most_steps = _WARM_STEPS if is_rough else _CLOSE_STEPS
        results = _minimise(objective, options, rows, problem, near, most_steps, limit)
        outputs = np.array([k for k, result in enumerate(results) if result is None], dtype=int)
    missed = [rows[k] for k in outputs]
    left = _minimise(objective, options, missed, problem.take(outputs), cold.take(outputs), _MOST_STEPS)
    for k, result in zip(outputs, left, strict=True):
        results[k] = result
    return results


def _minimise(
    objective: Objective,
    options: Options,
    rows: list[HingeRows],
    problem: _Problem,
    now: _Variables,
    most_steps: int,
    limit: Array | None = None,
) -> list[Result | None]:
    """Return the results of at most so many steps; outputs whose gap exceeds ``limit`` after the first are left out."""
    results: list[Result | None] = [None] * len(rows)
    histories: list[list[Iteration]] = [[] for _ in rows]
    active = np.arange(len(rows))
    for iteration in range(1, min(options.max_iter, most_steps) + 1):
        if not len(active):
            break
        # 1. The step.
        try:
            with np.errstate(all="ignore"):
                now = _step(now, problem)
        except np.linalg.LinAlgError:
            break
        objective.count(float(len(active)))
        # 2. The duality gap of the dual variables, once it may be small.
        gaps, values = problem.gaps(now), problem.values(now)
        finished = ~np.isfinite(gaps)
        total = float(values.sum()), float(gaps.sum())
        options.monitor(Iteration(iteration, *total, objective.n_passes, len(active)))
        for k, output in enumerate(active):
            value, gap, coef = float(values[k]), float(gaps[k]), None
            if gap <= 2.0 * options.tol * value:
                coef, value, gap = _proof(rows[output], now.coef[:-1, k], now.a[:, k])
                finished[k] = gap <= options.tol * value
            histories[output].append(Iteration(iteration, value, gap, float(iteration), 1))
            if coef is not None and finished[k]:
                message = f"reached a relative duality gap of {gap / value if gap else 0.0:.1e}"
                results[output] = Result(coef, np.array([value]), iteration, True, message, histories[output])
        # 3. Outputs that have finished leave, and those whose start was not near the solution.
        if limit is not None and iteration == 1:
            finished |= gaps > limit
        left = np.flatnonzero(~finished)
        active, problem, now = active[left], problem.take(left), now.take(left)
    return results


def _near(coef: Array, problem: _Problem, gap: float) -> _Variables:
    """Return the variables for coefficients near the solution, with so many times the objective as duality gap."""
    z = problem.labels * (problem.V @ coef) - problem.margin
    value = problem.values(_Variables(coef, z, z, np.maximum(-z, 0.0)))
    mu = gap * value / (2.0 * len(z))
    with np.errstate(all="ignore"):
        ratio = problem.c * z / mu
        root = np.sqrt(np.square(ratio) + 4.0)
        odds = 0.5 * np.where(ratio > 0.0, root + ratio, 4.0 / (root + np.abs(ratio)))  # (c - a) / a
        a = problem.c / (1.0 + odds)
        return _Variables(coef.copy(), a, mu / a, mu / (problem.c - a))


def _step(now: _Variables, problem: _Problem) -> _Variables:
    """Return the variables after a predictor and a corrector."""
    V, c, margin, labels, penalty = problem
    coef, a, t, xi = now
    rest = c - a
    D = xi / rest + t / a
    matrices = weighted_gram(V, V, 1.0 / D)
    diagonal = np.arange(len(coef))
    matrices[:, diagonal, diagonal] += penalty.T
    # Scaling to a unit diagonal first: features of very different units cost no digits.
    scale = 1.0 / np.sqrt(matrices[:, diagonal, diagonal])
    inverse = np.linalg.inv(matrices * scale[:, :, None] * scale[:, None, :]) * scale[:, :, None] * scale[:, None, :]
    feasible = xi - margin + labels * (V @ coef) - t
    slope = V.T @ (labels * a) - penalty * coef

    def direction(of_t: Array, of_xi: Array) -> _Variables:
        """Return the changes for these changes of ``a t`` and ``(c - a) xi``."""
        right = of_t / a - of_xi / rest - feasible
        by_coef = np.einsum("kij,jk->ik", inverse, V.T @ (labels * right / D) + slope)
        by_a = (right - labels * (V @ by_coef)) / D
        return _Variables(by_coef, by_a, (of_t - t * by_a) / a, (of_xi + xi * by_a) / rest)

    mu = (a * t + rest * xi).mean(axis=0)
    by = direction(-a * t, -rest * xi)
    length = _length(now, by, rest)
    ahead = ((a + length * by.a) * (t + length * by.t) + (rest - length * by.a) * (xi + length * by.xi)).mean(axis=0)
    aim = mu * (ahead / mu) ** 3
    by = direction(aim - a * t - by.a * by.t, aim - rest * xi + by.a * by.xi)
    length = _SHARE * _length(now, by, rest)
    return _Variables(*(own + length * change for own, change in zip(now, by, strict=True)))


def _proof(rows: HingeRows, coef: Array, dual_values: Array) -> tuple[Array, float, float]:
    """Return the coefficients with the best intercept, their objective and their duality gap.

    Unlike those of coordinate descent, the coefficients are not those of the dual variables: a large ``C`` would
    multiply the rounding errors of these.
    """
    intercept, a = 0.0, np.zeros(len(rows.upper))
    a[rows.upper > 0.0] = dual_values
    scores = rows.labels * (rows.rows @ coef)
    if rows.objective.fit_intercept:
        intercept = best_intercept(rows.labels * (rows.margin - scores), rows.labels, rows.upper)
        a = balanced(a, rows.labels, rows.upper)
    losses = rows.upper * np.maximum(rows.margin - scores - rows.labels * intercept, 0.0)
    value = 0.5 * rows.l2 * float(coef @ coef) + float(losses.sum())
    of_dual = (rows.labels * a) @ rows.rows
    gap = max(0.0, value - rows.margin * float(a.sum()) + 0.5 * float(of_dual @ of_dual) / rows.l2)
    return np.append(coef, intercept)[:, None], value, gap


def _length(now: _Variables, by: _Variables, rest: Array) -> Array:
    """Return the longest steps, at most 1, that keep all variables positive."""
    pairs = (now.a, by.a), (rest, -by.a), (now.t, by.t), (now.xi, by.xi)
    shares = [np.max(-change / value, axis=0, initial=1.0) for value, change in pairs]
    return 1.0 / np.max(shares, axis=0)
