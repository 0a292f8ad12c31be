r"""The hinge loss without noise, the ordinary SVM: an augmented Lagrangian around Newton's method.

On sparse rows that are at hand, coordinate descent (`dual_coordinate`) goes first, and usually all the way. The rest is
done here.

Smoothing alone would need a width near zero, and a system as badly conditioned as that. Multipliers do better: with
``a_i`` in [0, 1] the dual variable of row ``i`` (a share of its ``C``), the function to minimise is the hinge loss,
rounded off over a moderate width ``e``, of shifted scores::

    HuberHinge_e(z_i + e a_i),  z_i = margin - y_i m_i;      then  a_i <- clip((z_i + e a_i) / e, 0, 1)

A shifted score is ``m_i - y_i e a_i``. The dual objective gives a true gap,
``sum_i c_i (max(0, z_i) - a_i z_i) + |gradient|^2 / 2``: the first part falls with the multipliers, the second with the
precision of the inner minimum. Only rows with ``0 < z_i + e a_i < e`` have curvature, so a step is cheap to do exactly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from dropmargin.linalg import Partitions, PerPartition, column_dots
from dropmargin.losses import HuberHinge
from dropmargin.objective import Labelled, MomentObjective
from dropmargin.objective.moment import MomentPoint
from dropmargin.objective.rows import Scores
from dropmargin.solvers.dual_coordinate import descend_dual
from dropmargin.solvers.newton import newton
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.solvers.smoothing import is_lopsided
from dropmargin.typing import Array

_WIDTH = 0.3
# From multipliers that are known to be good, the first width.
_WIDTH_KNOWN = 1.0
_NARROWER = 0.3
_LEAST_WIDTH = 1e-6
# An outer step should cut the gap by this factor, or the width is reduced.
_ENOUGH = 0.3
_LEAST_TOL = 1e-28
_PRECISION_GAP = 1e-12


def solve_noise_free(
    objective: MomentObjective,
    start: MomentPoint,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    warm: bool,
    dual: PerPartition | None = None,
) -> Result:
    """Minimise the noise-free hinge objective to a relative duality gap of ``tol``.

    Parameters
    ----------
    dual : PerPartition of ndarray of shape (n_rows, n_columns), or None
        Multipliers to start from, as shares of the rows' weights: those of a problem nearby (`Result.dual`).
    """
    if dual is not None:
        dual = objective.data.map(_clipped, dual)
    first = descend_dual(objective, dual, tol=tol, max_iter=max_iter, monitor=monitor)
    if first is None:
        coef = start.coef if warm else None
        return augment(objective, coef, dual, tol=tol, max_iter=max_iter, monitor=monitor)
    if first.converged or first.n_iter >= max_iter:
        return first
    go_on = partial(augment, objective, tol=tol, max_iter=max_iter, monitor=monitor)
    second = go_on(first.coef, first.dual, history=first.history)
    if second.converged or second.n_iter >= max_iter:
        return second
    # Data of absurd scale: multipliers that are far from the optimum may be worse than none.
    return go_on(None, None, history=second.history)


def carried(data: Partitions[Labelled], dual: PerPartition, ratio: float) -> PerPartition:
    """Return shares to start from in the same problem with ``ratio`` times the ``C``.

    Rows at their upper bound stay there; the others keep what they had, which is a smaller share if ``C`` grows.
    """
    return data.map(_carried, dual, ratio)


def augment(
    objective: MomentObjective,
    coef: Array | None,
    dual: PerPartition | None,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    history: list[Iteration] | None = None,
) -> Result:
    """Minimise by the augmented Lagrangian, from coefficients and multipliers if there are any.

    ``history`` is that of the iterations before; they count.
    """
    history = list(history or [])
    width = (_WIDTH if dual is None else _WIDTH_KNOWN) * objective.loss.kink
    least = _LEAST_WIDTH * objective.loss.kink
    columns = objective.columns
    lopsided = is_lopsided(objective)
    warm = coef is not None
    if coef is None:
        coef = replace(objective, loss=HuberHinge(objective.loss.kink, width)).starting_coef()
    dual = objective.data.map(_first_dual, columns) if dual is None else dual
    inner_tol, previous = 1e-2, np.inf
    while True:
        # 1. Minimise with the multipliers as they are.
        loss = HuberHinge(objective.loss.kink, width)
        shift = objective.data.map(_shift, columns, dual, width)
        shifted = replace(objective, loss=loss, base=_added(objective, shift), is_stiff=True)
        left = max(1, max_iter - len(history))
        begin = shifted.at(coef)
        begin = begin.at_best_offset() if lopsided else begin
        found = newton(shifted, begin, tol=inner_tol, max_iter=left, monitor=ignore, warm=warm)
        coef, warm = found.coef, True
        # 2. The multipliers that follow, and the duality gap that they prove.
        point = found.point if isinstance(found.point, MomentPoint) else shifted.at(coef)
        renewed = objective.data.settle(
            objective.data.map(_new_dual, columns, objective.loss.kink, width, point.scores)
        )
        value, of_scores, of_gradient = _duality_gap(objective, point, shift, renewed)
        gap = float(np.max((of_scores + of_gradient) / np.abs(value)))
        for entry in found.history:
            # inside a step the objective is another one: report the true one, as last known
            total = float(np.sum(of_scores + of_gradient))
            history.append(entry._replace(iteration=len(history) + 1, objective=float(value.sum()), gap=total))
            monitor(history[-1])
        # 3. Stop, or go on: with a tighter solve, or else with the new multipliers and perhaps a narrower width.
        if gap <= tol:
            message = f"reached a relative duality gap of {gap:.1e}"
            return Result(coef, value, len(history), True, message, history, dual=renewed)
        if len(history) >= max_iter or width <= least or inner_tol <= _LEAST_TOL:
            break
        if np.any(of_gradient > np.maximum(0.5 * of_scores, 0.3 * tol * np.abs(value))):
            inner_tol *= 1e-2
            continue
        dual = renewed
        outer = float(np.max(of_scores / np.abs(value)))
        if outer > _ENOUGH * previous:
            width *= _NARROWER
        previous = outer
    converged = gap <= max(tol, _PRECISION_GAP)
    message = f"stopped after {len(history)} iterations at a relative duality gap of {gap:.1e} (tol={tol:g})"
    return Result(coef, value, len(history), converged, message, history, dual=renewed)


def ignore(entry: Iteration) -> None:
    """A monitor that shows nothing."""


def _added(objective: MomentObjective, shift: PerPartition) -> PerPartition:
    return shift if objective.base is None else objective.data.map(_sum, objective.base, shift)


def _duality_gap(
    objective: MomentObjective, point: MomentPoint, shift: PerPartition, dual: PerPartition
) -> tuple[Array, Array, Array]:
    """Return the primal value, and the two parts of its gap to the dual: by the scores and by the gradient."""
    coef, gradient = point.coef, point.gradient
    risk, of_scores = objective.data.map_sum(
        _complementarity, objective.columns, objective.loss.kink, shift, point.scores, dual
    )
    # The dual's sum_i c_i a_i y_i, which should be zero, is minus the gradient by the offset.
    squared = column_dots(gradient[:-1], gradient[:-1])
    of_gradient = 0.5 / objective.penalty.l2 * squared + np.abs(gradient[-1] * coef[-1])
    return objective.penalty.value(coef) + risk, of_scores, of_gradient


def _first_dual(part: Labelled, columns: Array) -> Array:
    return np.zeros((len(part.labels), len(columns)))


def _clipped(part: Labelled, dual: Array) -> Array:
    return np.clip(dual, 0.0, 1.0)


def _carried(part: Labelled, dual: Array, ratio: float) -> Array:
    return np.where(dual >= 1.0, 1.0, np.minimum(dual / ratio, 1.0))


def _sum(part: Labelled, base: Array, shift: Array) -> Array:
    return base + shift


def _shift(part: Labelled, columns: Array, dual: Array, width: float) -> Array:
    return -width * part.labels[:, columns] * dual


def _new_dual(part: Labelled, columns: Array, margin: float, width: float, scores: Scores) -> Array:
    """Return the slope of the rounded hinge at the shifted scores."""
    return np.clip((margin - part.labels[:, columns] * scores.mean) / width, 0.0, 1.0)


def _complementarity(
    part: Labelled, columns: Array, margin: float, shift: Array, scores: Scores, dual: Array
) -> tuple[Array, Array]:
    """Return ``sum c max(0, z)`` and ``sum c (max(0, z) - a z)``."""
    weights = part.weights[:, 0]
    slack = margin - part.labels[:, columns] * (scores.mean - shift)
    loss = np.maximum(slack, 0.0)
    return np.einsum("i,ik->k", weights, loss), np.einsum("i,ik->k", weights, loss - dual * slack)
