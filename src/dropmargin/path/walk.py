"""One walk over the grid on one set of rows: each point starts where its neighbours point.

With ``w(n, c)`` the solution for noise ``n`` and ``C = c``, the start is the fourth corner of a parallelogram::

    w(n, c)  from  w(stronger, c) + w(n, lower) - w(stronger, lower)

On review text that halves the passes of a start from the nearest neighbour alone. Where a corner is missing, the
nearest neighbour has to do; the first point starts cold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dropmargin.classifiers.base import TrainingRows
from dropmargin.classifiers.fitting import Group, Problem, TrainingData, one_blas_thread
from dropmargin.path.grid import Grid, Point
from dropmargin.solvers import Metric, Result, combine
from dropmargin.typing import Array


class Solution(NamedTuple):
    """The coefficients of one grid point, ``(n_features + 1, n_columns)``, and how they were found."""

    coef: Array
    metrics: list[Metric | None]
    objective: float
    n_iter: int
    converged: bool


class Walker:
    """Solves the points of a grid on one set of rows.

    Parameters
    ----------
    grid : Grid
    problem : Problem
        All but noise and ``C``.
    rows : TrainingRows
    groups : list of Group
        The binary problems.
    n_threads : int
    """

    def __init__(self, grid: Grid, problem: Problem, rows: TrainingRows, groups: list[Group], n_threads: int) -> None:
        self.grid = grid
        self.problem = problem
        self.rows = rows
        self.columns = [group.columns for group in groups]
        self.data: list[TrainingData] = [group.prepare(n_threads) for group in groups]

    def walk(self, tol: float, visit: Callable[[Point, Solution], None]) -> None:
        """Solve all points, each to ``tol``, and hand each to ``visit``."""
        lower: dict[int, Solution] = {}
        here: dict[int, Solution] = {}
        with one_blas_thread:
            column = 0
            for row, column_now in self.grid.walk():
                if column_now != column:
                    lower, here, column = here, {}, column_now
                start, metrics = _predict(row, self.grid.stronger[row], lower, here)
                here[row] = self.solve((row, column), tol, start, metrics)
                visit((row, column), here[row])

    def refine(
        self,
        points: Iterable[Point],
        tol: float,
        starts: Callable[[Point], Array | None],
        visit: Callable[[Point, Solution], None],
    ) -> None:
        """Solve some points to ``tol``, each from a start of its own."""
        with one_blas_thread:
            for point in points:
                visit(point, self.solve(point, tol, starts(point), None))

    def solve(self, point: Point, tol: float, start: Array | None, metrics: list[Metric | None] | None) -> Solution:
        """Solve one point."""
        row, column = point
        C = float(self.grid.Cs[column])
        problem = self.rows.problem(replace(self.problem, noise=self.grid.noises[row], C=C, tol=tol))
        results: list[Result] = []
        for index, (columns, data) in enumerate(zip(self.columns, self.data, strict=True)):
            own_start = None if start is None else start[:, columns]
            result, _ = data.minimise(problem, own_start, None if metrics is None else metrics[index])
            results.append(result)
        whole = combine(results)
        return Solution(
            whole.coef,
            [result.metric for result in results],
            float(whole.objective.sum()),
            whole.n_iter,
            whole.converged and bool(np.isfinite(whole.coef).all()),
        )


def _predict(
    row: int, stronger: int | None, lower: dict[int, Solution], here: dict[int, Solution]
) -> tuple[Array | None, list[Metric | None] | None]:
    """Return a start for a point, and the metrics of its nearest neighbour."""
    if stronger is None:
        known = lower.get(row)
        return (None, None) if known is None else (known.coef, known.metrics)
    near = here[stronger]
    if row not in lower:
        return near.coef, near.metrics
    return near.coef + lower[row].coef - lower[stronger].coef, near.metrics
