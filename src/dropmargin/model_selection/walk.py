"""The solutions of a grid on one set of rows: each point starts from an extrapolation of its neighbours.

With ``w(n, c)`` the solution for noise ``n`` and ``C = c``, the start is the fourth corner of a parallelogram::

    w(n, c)  from  w(stronger, c) + w(n, lower) - w(stronger, lower)

On review text that halves the passes of a start from the nearest neighbour alone. Where a corner is missing, the
nearest neighbour has to do; the first point starts cold. A rough walk solves some of the noises only, at every ``C``,
and interpolates the others by cubic polynomials in the logarithm of the noise's strength: with four knots for nine
dropout rates from 0.1 to 0.9 that is as good, on review text, as to solve them. (In ``C`` it is not.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dropmargin.data import ClassRows
from dropmargin.estimators.base import CheckedRows
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.solvers import Dual, Problem, Result, combine, open_outputs, solve_outputs
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

# An interpolated point whose score is below those of both its knots, by half their difference and by this share of the
# score, is not believed.
_BELOW = 0.01


class Solution(NamedTuple):
    """The coefficients of one grid point, of shape ``(n_features + 1, n_outputs)``, and the facts of their solution."""

    coef: Array
    duals: list[Dual | None]
    objective: float
    n_iter: int
    converged: bool


#: Takes the solution of a point and returns its score.
Visit = Callable[[Point, Solution], float]


class Walker:
    """Solves the points of a grid on one set of rows.

    Parameters
    ----------
    grid : Grid
    problem : Problem
        All but noise and ``C``.
    rows : CheckedRows
    encoded : ClassRows
        The same rows, with the index of their class.
    n_threads : int
    """

    def __init__(self, grid: Grid, problem: Problem, rows: CheckedRows, encoded: ClassRows, n_threads: int) -> None:
        self.grid = grid
        self.problem = problem
        self.rows = rows
        groups = open_outputs(problem.loss, encoded, problem.multi_class)
        self.outputs = [(group.columns, group.open(n_threads)) for group in groups]

    def walk(self, tol: float, visit: Visit, rough: bool = False) -> None:
        """Solve all points (in a rough walk: those of some noises), each to ``tol``, and hand each to ``visit``."""
        grid = self.grid
        solved = [grid.knots(chain) if rough else chain for chain in grid.chains]
        lower: dict[int, Solution] = {}
        with one_blas_thread():
            for column in range(len(grid.Cs)):
                here: dict[int, Solution] = {}
                scores: dict[int, float] = {}
                for chain in solved:
                    for stronger, row in zip([None, *chain], chain, strict=False):
                        start, duals = _predict(row, stronger, lower, here)
                        here[row] = self.solve((row, column), tol, start, duals)
                        scores[row] = visit((row, column), here[row])
                for chain, knots in zip(grid.chains, solved, strict=True):
                    self._fill(chain, knots, column, tol, here, scores, visit)
                lower = here

    def _fill(
        self,
        chain: list[int],
        knots: list[int],
        column: int,
        tol: float,
        here: dict[int, Solution],
        scores: dict[int, float],
        visit: Visit,
    ) -> None:
        """Interpolate the noises of a chain that were not solved, and solve those that come out badly.

        Between a noise that leaves no weights and one that does, a path may have a corner.
        """
        for row in chain:
            if row in knots:
                weaker = knots.index(row) + 1
                continue
            score = visit((row, column), _between(here, self.grid.interpolation(row, knots)))
            low, high = sorted(scores[knots[index]] for index in (weaker - 1, weaker))
            if not score >= low - max(0.5 * (high - low), _BELOW * abs(low)):
                visit((row, column), self.solve((row, column), tol, here[knots[weaker]].coef, None))

    def refine(
        self,
        points: Iterable[Point],
        tol: float,
        starts: Callable[[Point], Array | None],
        visit: Visit,
    ) -> None:
        """Solve some points to ``tol``, each from a start of its own."""
        with one_blas_thread():
            for point in points:
                visit(point, self.solve(point, tol, starts(point), None))

    def solve(self, point: Point, tol: float, start: Array | None, duals: list[Dual | None] | None) -> Solution:
        """Solve one point."""
        row, column = point
        C = float(self.grid.Cs[column])
        problem = self.rows.problem(replace(self.problem, noise=self.grid.noises[row], C=C, tol=tol))
        results: list[Result] = []
        for index, (columns, rows) in enumerate(self.outputs):
            own_start = None if start is None else start[:, columns]
            results.append(solve_outputs(problem, rows, own_start, None if duals is None else duals[index]))
        whole = combine(results)
        return Solution(
            whole.coef,
            [None if result.dual is None else Dual(result.dual, C) for result in results],
            float(whole.objective.sum()),
            whole.n_iter,
            whole.converged and bool(np.isfinite(whole.coef).all()),
        )


def _between(solved: dict[int, Solution], weights: dict[int, float]) -> Solution:
    """Return an interpolated solution; it took no iterations, and its objective is unknown."""
    coef = sum(weight * solved[row].coef for row, weight in weights.items())
    return Solution(np.asarray(coef), [], np.nan, 0, True)


def _predict(
    row: int, stronger: int | None, lower: dict[int, Solution], here: dict[int, Solution]
) -> tuple[Array | None, list[Dual | None] | None]:
    """Return a start for a point, and the dual variables of the neighbour that it is from."""
    if stronger is None:
        known = lower.get(row)
        return (None, None) if known is None else (known.coef, known.duals)
    near = here[stronger]
    if row not in lower:
        return near.coef, near.duals
    return near.coef + lower[row].coef - lower[stronger].coef, near.duals
