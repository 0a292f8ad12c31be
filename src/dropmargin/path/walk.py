"""One walk over the grid on one set of rows: each point starts where its neighbours point.

With ``w(n, c)`` the solution for noise ``n`` and ``C = c``, the start is the fourth corner of a parallelogram::

    w(n, c)  from  w(stronger, c) + w(n, lower) - w(stronger, lower)

On review text that halves the passes of a start from the nearest neighbour alone. Where a corner is missing, the
nearest neighbour has to do; the first point starts cold. A rough walk solves every second noise and every second ``C``
only, and interpolates the others, in the logarithms of both: on review text they are then 0.003 above their minimum on
average, and 0.03 at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dropmargin.classifiers.base import TrainingRows
from dropmargin.classifiers.fitting import Group, Hint, Problem, TrainingData, one_blas_thread
from dropmargin.path.grid import Grid, Point
from dropmargin.solvers import Result, combine
from dropmargin.typing import Array


class Solution(NamedTuple):
    """The coefficients of one grid point, ``(n_features + 1, n_columns)``, and how they were found."""

    coef: Array
    hints: list[Hint]
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

    def walk(self, tol: float, visit: Callable[[Point, Solution], None], rough: bool = False) -> None:
        """Solve all points (or, in a rough walk, one in four of them), each to ``tol``; hand each to ``visit``."""
        grid = self.grid
        columns = list(range(len(grid.Cs)))
        chains = grid.chains
        if rough:
            columns, chains = grid.knots(columns), [grid.knots(chain) for chain in chains]
        lower: dict[int, Solution] = {}
        with one_blas_thread:
            for index, column in enumerate(columns):
                here: dict[int, Solution] = {}
                for chain in chains:
                    for stronger, row in zip([None, *chain], chain, strict=False):
                        start, hints = _predict(row, stronger, lower, here)
                        here[row] = self.solve((row, column), tol, start, hints)
                        visit((row, column), here[row])
                self._fill_rows(here, chains, column, visit)
                if index:
                    self._fill_columns(lower, here, columns[index - 1], column, visit)
                lower = here

    def _fill_rows(
        self, here: dict[int, Solution], chains: list[list[int]], column: int, visit: Callable[[Point, Solution], None]
    ) -> None:
        """Interpolate between the noises that were solved."""
        for solved, chain in zip(chains, self.grid.chains, strict=True):
            for strong, weak in pairwise(solved):
                for row in chain[chain.index(strong) + 1 : chain.index(weak)]:
                    here[row] = _between(here[strong], here[weak], self.grid.share(row, strong, weak))
                    visit((row, column), here[row])

    def _fill_columns(
        self,
        lower: dict[int, Solution],
        here: dict[int, Solution],
        first: int,
        last: int,
        visit: Callable[[Point, Solution], None],
    ) -> None:
        """Interpolate between the values of ``C`` that were solved."""
        logs = np.log(self.grid.Cs)
        for column in range(first + 1, last):
            share = float((logs[column] - logs[first]) / (logs[last] - logs[first]))
            for row in here:
                visit((row, column), _between(lower[row], here[row], share))

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

    def solve(self, point: Point, tol: float, start: Array | None, hints: list[Hint] | None) -> Solution:
        """Solve one point."""
        row, column = point
        C = float(self.grid.Cs[column])
        problem = self.rows.problem(replace(self.problem, noise=self.grid.noises[row], C=C, tol=tol))
        results: list[Result] = []
        for index, (columns, data) in enumerate(zip(self.columns, self.data, strict=True)):
            own_start = None if start is None else start[:, columns]
            result, _ = data.minimise(problem, own_start, None if hints is None else hints[index])
            results.append(result)
        whole = combine(results)
        return Solution(
            whole.coef,
            [Hint(result.metric, result.dual, C) for result in results],
            float(whole.objective.sum()),
            whole.n_iter,
            whole.converged and bool(np.isfinite(whole.coef).all()),
        )


def _between(one: Solution, other: Solution, share: float) -> Solution:
    """Return the solution that lies by this share on the way from one to the other, which nobody has looked for."""
    return Solution((1.0 - share) * one.coef + share * other.coef, [], np.nan, 0, True)


def _predict(
    row: int, stronger: int | None, lower: dict[int, Solution], here: dict[int, Solution]
) -> tuple[Array | None, list[Hint] | None]:
    """Return a start for a point, and what its nearest neighbour has to tell."""
    if stronger is None:
        known = lower.get(row)
        return (None, None) if known is None else (known.coef, known.hints)
    near = here[stronger]
    if row not in lower:
        return near.coef, near.hints
    return near.coef + lower[row].coef - lower[stronger].coef, near.hints
