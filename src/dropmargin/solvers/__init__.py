"""Solvers: pure functions in a table, under one entry point, `minimise`.

A solver takes an objective and a start and returns a `Result`; it knows nothing of estimators. What it needs is
declared in the table, so that an impossible pair of loss and solver gets one sentence that names a possible one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.linalg import Partitions, PerPartition
from dropmargin.losses import Loss, MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective import MomentObjective, Objective, Penalty, Point
from dropmargin.solvers.closed_form import closed_form
from dropmargin.solvers.lbfgs import lbfgs
from dropmargin.solvers.linear_programme import solve_linear_programme
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.noise_free import carried, solve_noise_free
from dropmargin.solvers.orthant import orthant
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.solvers.smoothing import solve_smoothed


@dataclass(frozen=True)
class Solver:
    """An entry of the table: the function, what it can do, and what it needs of the loss."""

    run: Callable[..., Result]
    blockwise: bool = True  # takes all columns at once
    l1: bool = False  # minimises an l1 penalty (and then only that)
    needs: str | None = None  # an attribute of the loss that must be true
    likes_a_start: bool = False  # a rough fit to a sample of the rows is worth its price


SOLVERS: dict[str, Solver] = {
    "irls": Solver(irls, needs="has_majoriser"),
    "newton": Solver(newton, likes_a_start=True),
    "lbfgs": Solver(lbfgs, blockwise=False),
    "closed-form": Solver(closed_form, needs="is_quadratic"),
    "orthant": Solver(orthant, blockwise=False, l1=True),
}


def choose_solver(name: Any, loss: Loss, penalty: Penalty) -> Solver:
    """Return the solver of that name, or the best for ``"auto"``; a `ValueError` if it cannot do the job."""
    if not isinstance(name, str) or name not in ("auto", *SOLVERS):
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}, got {name!r}.")
    if name == "auto":
        return SOLVERS["orthant" if penalty.l1 else "newton"]
    solver = SOLVERS[name]
    if bool(penalty.l1) != solver.l1:
        needed = "an l1 or elastic-net" if penalty.l1 else "an l2"
        possible = [
            other
            for other, entry in SOLVERS.items()
            if entry.l1 == bool(penalty.l1) and (entry.needs is None or getattr(loss, entry.needs, False))
        ]
        raise ValueError(f"solver={name!r} cannot minimise {needed} penalty; use solver='auto' or one of {possible}.")
    if solver.needs is not None and not getattr(loss, solver.needs, False):
        reasons = {"has_majoriser": "a quadratic majoriser", "is_quadratic": "the quadratic loss"}
        raise ValueError(
            f"solver={name!r} needs {reasons[solver.needs]}, which {type(loss).__name__} is not or has not; "
            "use solver='auto', 'newton' or 'lbfgs'."
        )
    return solver


def minimise(
    solver: Solver,
    objective: Objective,
    start: Point,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor = lambda entry: None,
    warm: bool = False,
    dual: PerPartition | None = None,
) -> Result:
    """Minimise an objective from ``start``: all columns at once if the solver can, smoothed if the loss has a kink.

    ``dual`` is a start for the multipliers (`Result.dual`), which only the hinge without noise looks at.
    """
    options = {"tol": tol, "max_iter": max_iter, "monitor": monitor, "warm": warm}
    if not solver.blockwise and objective.n_columns > 1:
        assert isinstance(objective, MomentObjective)
        parts = [
            minimise(solver, objective.select([k]), start.select([k]), **options)  # type: ignore[arg-type]
            for k in range(objective.n_columns)
        ]
        return combine(parts)
    if isinstance(objective, MomentObjective) and objective.loss.kink:
        if _is_linear_programme(objective.loss, objective.variance, objective.penalty):
            check_rows_at_hand(objective.loss, objective.variance, objective.penalty, objective.data)
            return solve_linear_programme(objective, tol=tol, monitor=monitor)
        if objective.variance.is_zero and solver.run is newton:
            return solve_noise_free(objective, start, dual=dual, **options)  # type: ignore[arg-type]
        return solve_smoothed(solver.run, objective, start, **options)  # type: ignore[arg-type]
    return solver.run(objective, start, **options)


def check_rows_at_hand(loss: Loss, variance: Variance, penalty: Penalty, data: Partitions[Any]) -> None:
    """Refuse a problem whose only solver looks at all rows at once, if they are not in the memory of this process."""
    if not data.is_local and _is_linear_programme(loss, variance, penalty):
        raise ValueError(
            "The hinge loss without noise under penalty='l1' is a linear programme, which needs all rows in memory. "
            "Choose penalty='elasticnet', some noise, or a sample of the rows."
        )


def _is_linear_programme(loss: Loss, variance: Variance, penalty: Penalty) -> bool:
    """Return whether there is no curvature anywhere: a hinge without noise under a pure l1 penalty."""
    return isinstance(loss, MomentLoss) and bool(loss.kink) and variance.is_zero and penalty.l1 > penalty.l2 == 0.0


def combine(results: list[Result]) -> Result:
    """Return the results of several columns as one."""
    if len(results) == 1:
        return results[0]
    failed = [result for result in results if not result.converged]
    return Result(
        coef=np.hstack([result.coef for result in results]),
        objective=np.concatenate([result.objective for result in results]),
        n_iter=max(result.n_iter for result in results),
        converged=not failed,
        message=(failed or results)[0].message,
        history=[entry for result in results for entry in result.history],
    )


__all__ = [
    "SOLVERS",
    "Iteration",
    "Monitor",
    "Result",
    "Solver",
    "carried",
    "check_rows_at_hand",
    "choose_solver",
    "combine",
    "minimise",
]
