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
        The most iterations.
    monitor : callable
    warm : bool, default=False
        Whether the start is near the solution.
    is_single : bool, default=False
        Whether products with the rows are in single precision.
    max_inner : int, default=250
        The most iterations of conjugate gradients in a step.
    near : ndarray of shape (n_features + 1, n_columns), default=None
        Coefficients near the solution, for methods that do not start from it.
    """

    tol: float
    max_iter: int
    monitor: Monitor = no_monitor
    warm: bool = False
    is_single: bool = False
    max_inner: int = 250
    near: Array | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of a solver.

    Parameters
    ----------
    coef : ndarray of shape (n_features + 1, n_columns)
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
    failed = next((result for result in results if not result.converged), results[0])
    return Result(
        np.hstack([result.coef for result in results]),
        np.concatenate([result.objective for result in results]),
        max(result.n_iter for result in results),
        all(result.converged for result in results),
        failed.message,
        _joint_history(results),
        n_passes=sum(result.n_passes for result in results),
    )


def _joint_history(results: list[Result]) -> list[Iteration]:
    """Return one history: iteration ``k`` adds up that of each output, or the last one of those that have finished."""
    joint = []
    for k in range(max(len(result.history) for result in results)):
        entries = [own.history[min(k, len(own.history) - 1)] for own in results if own.history]
        # An output whose start was the solution has no history.
        rest = sum(float(own.objective.sum()) for own in results if not own.history)
        gap = sum(entry.gap for entry in entries)
        n_active = sum(own.history[k].n_active for own in results if k < len(own.history))
        objective, passes = rest + sum(e.objective for e in entries), sum(e.passes for e in entries)
        joint.append(Iteration(k + 1, objective, np.nan if np.isnan(gap) else gap, passes, n_active))
    return joint
