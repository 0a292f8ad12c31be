"""Solvers: pure functions in a table, under one entry point, `minimise`.

A solver takes an objective and a start and returns a `Result`; it knows nothing of estimators. What it needs is
declared in the table, so that an impossible pair of loss and solver gets one sentence that names a possible one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import PerPartition
from dropmargin.losses import Loss
from dropmargin.objective import MomentObjective, Objective, Point
from dropmargin.objective.rows import take_columns
from dropmargin.penalties import Penalty
from dropmargin.solvers.central_path import follow_central_path
from dropmargin.solvers.closed_form import closed_form
from dropmargin.solvers.lbfgs import lbfgs
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.noise_free import carried, solve_noise_free
from dropmargin.solvers.orthant import orthant
from dropmargin.solvers.result import Iteration, Monitor, Result


@dataclass(frozen=True)
class Solver:
    """An entry of the table: the function, what it can do, and what it needs of the loss."""

    run: Callable[..., Result]
    blockwise: bool = True  # takes all columns at once
    l1: bool = False  # minimises an l1 penalty, too
    needs: str | None = None  # an attribute of the loss that must be true
    benefits_from_subsample: bool = False  # a rough fit to a sample of the rows is worth its price


SOLVERS: dict[str, Solver] = {
    "irls": Solver(irls, needs="has_majoriser"),
    "newton": Solver(newton, l1=True, benefits_from_subsample=True),
    "lbfgs": Solver(lbfgs, blockwise=False),
    "closed-form": Solver(closed_form, needs="is_quadratic"),
}


def choose_solver(name: Any, loss: Loss, penalty: Penalty) -> Solver:
    """Return the solver of that name, or the best for ``"auto"``; a `ValueError` if it cannot do the job."""
    if not isinstance(name, str) or name not in ("auto", *SOLVERS):
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}, got {name!r}.")
    if name == "auto":
        return SOLVERS["newton"]
    solver = SOLVERS[name]
    if penalty.l1 and not solver.l1:
        raise ValueError(
            f"solver={name!r} cannot minimise an l1 or elastic-net penalty; use solver='auto' or 'newton'."
        )
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
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "monitor": monitor, "warm": warm}
    has_kink, is_noise_free = False, False
    if isinstance(objective, MomentObjective):
        has_kink, is_noise_free = objective.loss.kink > 0.0, objective.variance.is_zero
    is_plain_svm = has_kink and is_noise_free and solver.run is newton and not objective.penalty.l1
    if objective.n_columns > 1 and (objective.penalty.l1 or not solver.blockwise or is_plain_svm):
        assert isinstance(objective, MomentObjective)
        parts = []
        for k in range(objective.n_columns):
            own = None if dual is None else objective.data.map(take_columns, dual, [k])
            parts.append(minimise(solver, objective.select([k]), start.select([k]), dual=own, **options))
        duals = [part.dual for part in parts if part.dual is not None]
        joined = PerPartition(map(np.hstack, zip(*duals, strict=True))) if len(duals) == len(parts) else None
        return replace(combine(parts), dual=joined)
    if objective.penalty.l1:
        return _minimise_l1(objective, start, has_kink, is_noise_free, options)
    if is_plain_svm:
        return solve_noise_free(objective, start, dual=dual, **options)  # type: ignore[arg-type]
    if has_kink:
        return follow_central_path(solver.run, objective, start, **options)
    return solver.run(objective, start, **options)


def _minimise_l1(
    objective: Objective, start: Point, has_kink: bool, is_noise_free: bool, options: dict[str, Any]
) -> Result:
    """Minimise under an l1 penalty: by steps within an orthant, or else along the central path."""
    if not has_kink:
        found = orthant(objective, start, **options)
    elif is_noise_free:
        return follow_central_path(newton, objective, start, **options)
    else:
        found = follow_central_path(orthant, objective, start, **options)
    left = options["max_iter"] - found.n_iter
    if found.converged or left <= 0:
        return found
    whole = follow_central_path(newton, objective, start, **options | {"max_iter": left})
    history = found.history + [entry._replace(iteration=entry.iteration + found.n_iter) for entry in whole.history]
    return replace(whole, n_iter=len(history), history=history)


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
    "choose_solver",
    "combine",
    "minimise",
]
