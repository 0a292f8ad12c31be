r"""A primal-dual interior-point method for the noise-free hinge loss of few rows and features, all outputs together.

With ``s_i`` the weight of row ``i``, ``z = y (w.x + b) - margin``, slacks ``xi >= 0`` and ``r = z + xi >= 0``, and dual
variables ``a`` of the latter, the optimum has::

    l2 w = sum_i a_i y_i x_i      sum_i a_i y_i = 0      a r = 0      (s - a) xi = 0      0 <= a <= s

Mehrotra's predictor and corrector follow the points where both products are ``mu`` to ``mu = 0``. A step solves::

    (l2 + sum_i d_i x_i x_i') dw = sum_i y_i x_i (a_i + d_i q_i) - l2 w      1 / d = r / a + xi / (s - a)
    da = d (q - dz)      dxi = p - xi + xi da / (s - a)      dr = dz + dxi      q = t - p - z

with the intercept as a feature of ones without penalty, ``t`` and ``p`` the targets of ``r`` and ``xi``. The dual
variables start balanced and stay so, so that the duality gap is proved at every point. There are 8 to 38
steps, more for a large ``C``. A warm start takes the central ``a``, ``r`` and ``xi`` for its coefficients: from the
next ``C`` to a rough solution most outputs of the digits take 4 steps, instead of 13 to 24.

References
----------
Mehrotra, S. (1992). On the implementation of a primal-dual interior point method. SIAM J. Opt. 2.
Ferris, M. C. and Munson, T. S. (2002). Interior-point methods for massive support vector machines. SIAM J. Opt. 13.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import MomentObjective
from dropmargin.objective.explicit import (
    dense_rows,
    suits_tables,
    sums_of_products,
    tables_of,
    with_diagonal,
    with_ones,
)
from dropmargin.objective.preconditioner import Preconditioner, cholesky
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_MAX_ITER = 60
# The relative gap that a warm start is taken for, and the least tolerance for which it saves steps.
_WARM_GAP, _WARM_TOL = 6.0, 1e-3
# A smaller relative gap is rounding.
_ROUNDING = 1e-12
# The share of the step to the boundary that is taken.
_BOUNDARY_SHARE = 0.995
# The matrices come from a table of products if there are so many outputs per feature; else one after the other.
_TABLE_SHARE = 3
# Products with the rows per step: scores, gradient, matrix, and the right side and the scores of two directions.
_PRODUCTS = 7


def suits_interior_point(objective: Any) -> bool:
    """Return whether it is the hinge without noise, and the rows are in memory, of positive weight, and few enough."""
    parts = objective.data.rows_in_memory()
    return (
        objective.is_noise_free_hinge
        and parts is not None
        and suits_tables(objective)
        and objective.penalty.is_positive_diagonal
        and all(np.all(part.sample_weight > 0.0) for part in parts)
    )


def interior_point(objective: MomentObjective, options: Options, start: Array | None = None) -> Result:
    """Minimise the hinge objective without noise, for all outputs, to a relative duality gap of ``tol``.

    ``start`` are coefficients near the solution, which are used for a large tolerance only.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a step that is not finite ends the iteration
        return _iterate(objective, options, start)


def _iterate(objective: MomentObjective, options: Options, start: Array | None) -> Result:
    state = _State(objective)
    if start is not None and options.tol >= _WARM_TOL:
        state.move_to(start)
    n_outputs = objective.n_outputs
    coef, values, gaps = np.zeros((objective.n_features + 1, n_outputs)), np.empty(n_outputs), np.empty(n_outputs)
    outputs, history = np.arange(n_outputs), []
    for iteration in range(1, min(_MAX_ITER, options.max_iter) + 1):
        # 1. The duality gap; converged outputs leave the loop.
        value, gap = state.evaluate()
        coef[:, outputs], values[outputs], gaps[outputs] = state.coef, value, gap
        objective.data.n_products += _PRODUCTS
        entry = Iteration(iteration, float(values.sum()), float(gaps.sum()), objective.n_passes, len(outputs))
        history.append(entry)
        options.monitor(entry)
        kept = ~(gap <= max(options.tol, _ROUNDING) * np.abs(value))
        if not kept.any():
            message = f"reached a relative duality gap of {float(np.max(gaps / np.abs(values))):.1e}"
            return Result(coef, values, iteration, True, message, history)
        if not kept.all():
            state, outputs = state.select(kept), outputs[kept]
        # 2. A step of all others.
        if not state.step():
            break
    worst = float(np.max(gaps / np.abs(values)))
    message = f"stopped after {len(history)} iterations at a relative duality gap of {worst:.1e} (tol={options.tol:g})"
    return Result(coef, values, len(history), False, message, history)


class _State:
    """The point of the outputs that have not converged; see the module's docstring for the names."""

    def __init__(self, objective: MomentObjective) -> None:
        parts = objective.data.rows_in_memory()
        assert parts is not None
        self.objective = objective
        self.rows = np.concatenate([with_ones(dense_rows(part)) for part in parts])
        self.table = None
        if objective.n_outputs * _TABLE_SHARE >= self.rows.shape[1]:
            self.table = np.concatenate([own.rows for own in tables_of(objective, is_coupled=False)])
        self.y = np.concatenate([part.y[:, objective.outputs] for part in parts], dtype=np.float64)
        self.s = np.concatenate([part.sample_weight for part in parts], dtype=np.float64)[:, None]
        self.coef = np.zeros((objective.n_features + 1, objective.n_outputs))
        of_targets = np.where(self.y > 0.0, *(self.s.T @ (self.y == sign) for sign in (1.0, -1.0)))
        share = np.minimum(of_targets, self.s.sum() - of_targets) / of_targets if objective.fit_intercept else 1.0
        self.a = 0.5 * share * self.s
        margin = objective.loss.kink
        self.r, self.xi = np.full_like(self.y, margin), np.full_like(self.y, 2.0 * margin)

    def move_to(self, coef: Array) -> None:
        """Start from these coefficients, with ``a r = (s - a) xi = mu`` for a ``mu`` in proportion to the objective."""
        z = self.y * self._forward(coef) - self.objective.loss.kink
        value = self.objective.penalty.value(coef) + np.sum(self.s * np.maximum(-z, 0.0), axis=0)
        mu = _WARM_GAP * value / (2.0 * len(z))
        ratio = self.s * z / mu
        root = np.sqrt(np.square(ratio) + 4.0)
        odds = 0.5 * np.where(ratio > 0.0, root + ratio, 4.0 / (root - ratio))  # (s - a) / a
        self.a = self.s / (1.0 + odds)
        self.r, self.xi = mu / self.a, mu / (self.s - self.a)
        self.coef = coef.copy()
        if self.objective.fit_intercept:  # balanced
            positive, negative = (np.sum(np.where(self.y == sign, self.a, 0.0), axis=0) for sign in (1.0, -1.0))
            least = np.minimum(positive, negative)
            self.a *= np.where(self.y > 0.0, least / positive, least / negative)

    def select(self, outputs: Any) -> _State:
        """Return the point of these outputs alone."""
        out = object.__new__(_State)
        out.objective, out.rows, out.table, out.s = self.objective.select(outputs), self.rows, self.table, self.s
        for name in ("coef", "y", "a", "r", "xi", "z", "back"):
            setattr(out, name, np.ascontiguousarray(getattr(self, name)[:, outputs]))
        return out

    def evaluate(self) -> tuple[Array, Array]:
        """Return objective and duality gap, and keep what the step needs of them."""
        objective, l2 = self.objective, self.objective.penalty.l2
        margin = objective.loss.kink
        self.z = self.y * self._forward(self.coef) - margin
        self.back = self._backward(self.y * self.a)
        value = objective.penalty.value(self.coef) + np.sum(self.s * np.maximum(-self.z, 0.0), axis=0)
        dual = margin * self.a.sum(axis=0) - 0.5 * column_dots(self.back[:-1], self.back[:-1]) / l2
        return value, value - dual

    def step(self) -> bool:
        """Take a step; return whether there was one."""
        a, r, xi = self.a, self.r, self.xi
        rest = self.s - a
        with np.errstate(all="ignore"):
            d = 1.0 / (r / a + xi / rest)
            inverse = cholesky(self._matrices(d), is_exact=True)
            if inverse is None:
                return False
            # 1. Predictor: towards mu = 0.
            mu = 0.5 * np.mean(a * r + rest * xi, axis=0)
            _, da, dr, dxi = self._direction(inverse, d, 0.0, 0.0)
            length = self._length(da, dr, dxi, 1.0)
            ahead = 0.5 * np.mean(
                (a + length * da) * (r + length * dr) + (rest - length * da) * (xi + length * dxi), axis=0
            )
            # 2. Corrector: towards the mu that the predictor suggests, with its second-order terms.
            target = mu * np.clip(ahead / mu, 0.0, 1.0) ** 3
            step, da, dr, dxi = self._direction(inverse, d, (target - da * dr) / a, (target + da * dxi) / rest)
            length = self._length(da, dr, dxi, _BOUNDARY_SHARE)
        if not (np.isfinite(step).all() and np.isfinite(length).all()):
            return False
        self.coef += length * step
        self.a, self.r, self.xi = a + length * da, r + length * dr, xi + length * dxi
        return True

    def _matrices(self, d: Array) -> Iterable[Array]:
        """Return ``l2 + sum_i d_i x_i x_i'`` of each output: all at once if they are many small ones."""
        own = np.broadcast_to(self.objective.penalty.l2, d.shape[1])[:, None]
        if self.table is not None:
            return with_diagonal(sums_of_products(d, self.table, len(self.coef)), self.objective, own)
        roots, buffer = np.sqrt(d), np.empty_like(self.rows)
        scaled = (np.multiply(self.rows, roots[:, k, None], out=buffer) for k in range(d.shape[1]))
        return (with_diagonal(rows.T @ rows, self.objective, own[k]) for k, rows in enumerate(scaled))

    def _direction(self, inverse: Preconditioner, d: Array, t: Any, p: Any) -> tuple[Array, Array, Array, Array]:
        """Return the changes of the coefficients, of ``a``, of ``r`` and of ``xi``."""
        q = t - p - self.z
        right = self.back + self._backward(self.y * d * q)
        right[:-1] -= self.objective.penalty.gradient(self.coef)
        step = inverse.solve(right)
        dz = self.y * self._forward(step)
        da = d * (q - dz)
        dxi = p - self.xi + self.xi / (self.s - self.a) * da
        return step, da, dz + dxi, dxi

    def _length(self, da: Array, dr: Array, dxi: Array, share: float) -> Array:
        """Return how far the outputs can go, at most 1 and at most this share of the way to the boundary."""
        steepest = np.maximum(-da / self.a, da / (self.s - self.a))
        steepest = np.maximum(steepest, np.maximum(-dr / self.r, -dxi / self.xi)).max(axis=0)
        return np.minimum(1.0, share / np.maximum(steepest, np.finfo(float).tiny))

    def _forward(self, coef: Array) -> Array:
        return self.rows @ coef

    def _backward(self, left: Array) -> Array:
        out = np.ascontiguousarray((left.T @ self.rows).T)
        if not self.objective.fit_intercept:
            out[-1] = 0.0
        return out
