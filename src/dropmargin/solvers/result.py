"""What a solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from dropmargin.data import PerPartition
from dropmargin.objective import Point
from dropmargin.typing import Array


class Iteration(NamedTuple):
    """One outer iteration: totals over the columns, and how many columns were still at work."""

    iteration: int
    objective: float
    gap: float
    passes: float
    n_active: int


#: Called after every iteration, to show progress.
Monitor = Callable[[Iteration], None]


@dataclass(frozen=True)
class Result:
    """The outcome of a solver.

    Parameters
    ----------
    coef : ndarray of shape (n_features + 1, n_columns)
    objective : ndarray of shape (n_columns,)
    n_iter : int
    converged : bool
    message : str
        Why it stopped, as a sentence.
    history : list of Iteration
    point : Point or None
        The objective at ``coef``, if the solver has it whole.
    dual : PerPartition of ndarray of shape (n_rows, n_columns), or None
        The multipliers of a noise-free hinge, as shares of the rows' weights: a start for a problem nearby.
    """

    coef: Array
    objective: Array
    n_iter: int
    converged: bool
    message: str
    history: list[Iteration] = field(default_factory=list)
    point: Point | None = None
    dual: PerPartition | None = None
