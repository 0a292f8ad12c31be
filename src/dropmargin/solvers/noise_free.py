"""The hinge loss without noise, the ordinary SVM: coordinate descent in the dual, or else the central path."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import Partitions, PerPartition
from dropmargin.objective import Labelled, MomentObjective
from dropmargin.objective.moment import MomentPoint
from dropmargin.solvers.central_path import follow_central_path
from dropmargin.solvers.dual_coordinate import descend_dual
from dropmargin.solvers.newton import newton
from dropmargin.solvers.result import Monitor, Result
from dropmargin.typing import Array


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
    """Minimise the noise-free hinge objective to a relative gap of ``tol``.

    Parameters
    ----------
    dual : PerPartition of ndarray of shape (n_rows, n_columns), or None
        Multipliers to start from, as shares of the rows' weights: those of a problem nearby (`Result.dual`).
    """
    first = None
    if not objective.penalty.l1:
        if dual is not None:
            dual = objective.data.map(_clipped, dual)
        first = descend_dual(objective, dual, tol=tol, max_iter=max_iter, monitor=monitor)
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "monitor": monitor}
    if first is None:
        return follow_central_path(newton, objective, start, warm=warm, **options)
    if first.converged or first.n_iter >= max_iter:
        return first
    return follow_central_path(newton, objective, start, warm=False, **options)


def carried(data: Partitions[Labelled], dual: PerPartition, ratio: float) -> PerPartition:
    """Return shares to start from in the same problem with ``ratio`` times the ``C``.

    Rows at their upper bound stay there; the others keep what they had, which is a smaller share if ``C`` grows.
    """
    return data.map(_carried, dual, ratio)


def _clipped(part: Labelled, dual: Array) -> Array:
    return np.clip(dual, 0.0, 1.0)


def _carried(part: Labelled, dual: Array, ratio: float) -> Array:
    return np.where(dual >= 1.0, 1.0, np.minimum(dual / ratio, 1.0))
