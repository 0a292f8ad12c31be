"""What a solver is told, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dropmargin.objective import Point
from dropmargin.typing import Array


class Iteration(NamedTuple):
    """One outer iteration: objective and estimated gap summed over the outputs, and the outputs not yet converged."""

    iteration: int
    objective: float
    gap: float
    passes: float
    n_active: int


#: Called after every iteration, to show progress.
Monitor = Callable[[Iteration], None]


def no_monitor(entry: Iteration) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Options:
    """When to stop, and how to start.

    Parameters
    ----------
    tol : float
        The relative gap to stop at.
    max_iter : int
        The most iterations, including those of a method before this one.
    monitor : callable
    n_before : int, default=0
        The iterations of a method before this one.
    warm : bool, default=False
        Whether the start is near the solution.
    is_rough : bool, default=False
        Whether an estimate of the gap suffices, without a certificate, because the result is only a start.
    is_single : bool, default=False
        Whether products with the rows are in single precision.
    scale : ndarray of shape (n_outputs,), default=None
        What ``tol`` is relative to; by default the objective itself. It is given for the stages of a central path.
    max_inner : int, default=250
        The most iterations of conjugate gradients in a step.
    """

    tol: float
    max_iter: int
    monitor: Monitor = no_monitor
    n_before: int = 0
    warm: bool = False
    is_rough: bool = False
    is_single: bool = False
    scale: Array | None = None
    max_inner: int = 250


@dataclass(frozen=True)
class Result:
    """The outcome of a solver.

    Parameters
    ----------
    coef : ndarray of shape (n_features + 1, n_outputs)
    objective : ndarray of shape (n_outputs,)
    n_iter : int
    converged : bool
    message : str
        Why it stopped, as a sentence.
    history : list of Iteration
    point : Point or None
        The objective at ``coef``, if the solver has it for all outputs together.
    n_passes : float, default=0.0
        Passes over the data.
    """

    coef: Array
    objective: Array
    n_iter: int
    converged: bool
    message: str
    history: list[Iteration] = field(default_factory=list)
    point: Point | None = None
    n_passes: float = 0.0


def combine(results: list[Result]) -> Result:
    """Return the results of several outputs as one."""
    if len(results) == 1:
        return results[0]
    failed = [result for result in results if not result.converged]
    return Result(
        coef=np.hstack([result.coef for result in results]),
        objective=np.concatenate([result.objective for result in results]),
        n_iter=max(result.n_iter for result in results),
        converged=not failed,
        message=(failed or results)[0].message,
        history=_joint_history(results),
        n_passes=sum(result.n_passes for result in results),
    )


def _joint_history(results: list[Result]) -> list[Iteration]:
    """Return the iterations of outputs as if they had been taken together; an output that has finished stays there."""
    joint = []
    for k in range(max(len(result.history) for result in results)):
        objective = gap = passes = 0.0
        n_active = 0
        for result in results:
            if not result.history:  # the start was the solution
                objective += float(result.objective.sum())
                continue
            entry = result.history[min(k, len(result.history) - 1)]
            objective, gap, passes = objective + entry.objective, gap + entry.gap, passes + entry.passes
            n_active += entry.n_active if k < len(result.history) else 0
        gap = np.nan if np.isnan(gap) else gap  # the one object that compares as equal in lists
        joint.append(Iteration(k + 1, objective, gap, passes, n_active))
    return joint
