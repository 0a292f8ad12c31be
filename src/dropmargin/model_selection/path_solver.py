"""Solutions along a path over the grid: each point is warm-started by an extrapolation from its neighbours.

With ``w(n, c)`` the solution for noise ``n`` and ``C = c``, the start is the fourth corner of a parallelogram::

    w(n, c)  from  w(stronger, c) + w(n, lower) - w(stronger, lower)

On review text this takes half the passes of a start from the nearest neighbour alone. At the border of the grid, the
start is the nearest neighbour; the first point has a cold start. An approximate path solves some of the noises, at
every ``C``, and interpolates the others by cubic polynomials in the logarithm of the strength of the noise: on review
text, four knots for nine dropout rates from 0.1 to 0.9 give the same scores as solving all. (Interpolation in ``C`` is
less accurate.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dropmargin.data import BinaryArray, BinaryRows, ClassArray, ClassRows
from dropmargin.estimators.base import CheckedRows
from dropmargin.estimators.partition_fit import PartitionRows
from dropmargin.losses import MomentLoss
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.objective.preconditioner import has_cheap_matrices
from dropmargin.solvers import SOLVERS, Dual, Problem, Result, combine, open_outputs, solve_outputs, with_means
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

# An interpolated point is solved if its score is below those of both its knots by more than half their difference and
# by more than this share of the score.
_BELOW = 0.01
# All values of C are solved together up to this many scores of rows.
_FEW_SCORES = 2**16


class Solution(NamedTuple):
    """Coefficients and intercept of one grid point, of shape ``(n_features + 1, n_outputs)``, and solver results."""

    coef: Array
    duals: list[Dual | None]
    objective: float
    n_iter: int
    converged: bool


#: Called with each point and its solution; returns the score.
ScorePoint = Callable[[Point, Solution], float]


class PathSolver:
    """Solves the points of a grid on one set of rows.

    Parameters
    ----------
    grid : Grid
    problem : Problem
        The problem; its noise, ``C`` and tolerance are replaced.
    rows : CheckedRows or PartitionRows
    encoded : ClassRows
        The same rows, with the index of their class.
    n_threads : int
    """

    def __init__(
        self,
        grid: Grid,
        problem: Problem,
        rows: CheckedRows | PartitionRows,
        encoded: ClassRows,
        n_threads: int,
    ) -> None:
        self.grid = grid
        self.problem = problem
        self.rows = rows
        self.encoded = encoded
        self.n_threads = n_threads
        self._opened: dict[bool, list[tuple[slice, BinaryRows]]] = {}

    def solve_all(self, tol: float, score_point: ScorePoint, approximate: bool = False) -> None:
        """Solve all points to ``tol`` and score each; if ``approximate``, interpolate some noises."""
        grid = self.grid
        solved = [grid.knots(chain) if approximate else chain for chain in grid.chains]
        lower: dict[int, Solution] = {}  # the solutions at the next lower C, by noise
        with one_blas_thread():
            together = self._solve_together(solved, tol) if self._is_small() else {}
            for c in range(len(grid.Cs)):
                current: dict[int, Solution] = {}
                scores: dict[int, float] = {}
                for chain in solved:
                    for stronger, noise in zip([None, *chain], chain, strict=False):
                        if noise in together:
                            current[noise] = together[noise][c]
                        else:
                            start, duals = _extrapolate(noise, stronger, lower, current)
                            current[noise] = self.solve((noise, c), tol, start, duals)
                        scores[noise] = score_point((noise, c), current[noise])
                for chain, knots in zip(grid.chains, solved, strict=True):
                    self._interpolate(chain, knots, c, tol, current, scores, score_point)
                lower = current

    def _interpolate(
        self,
        chain: list[int],
        knots: list[int],
        c: int,
        tol: float,
        current: dict[int, Solution],
        scores: dict[int, float],
        score_point: ScorePoint,
    ) -> None:
        """Interpolate the noises of a chain that were not solved, and solve those with a low score.

        The path may have a corner between a noise for which all coefficients are zero and one for which they are not.
        """
        for noise in chain:
            if noise in knots:
                weaker = knots.index(noise) + 1
                continue
            score = score_point((noise, c), _combination(current, self.grid.interpolation(noise, knots)))
            low, high = sorted(scores[knots[index]] for index in (weaker - 1, weaker))
            if not score >= low - max(0.5 * (high - low), _BELOW * abs(low)):
                score_point((noise, c), self.solve((noise, c), tol, current[knots[weaker]].coef, None))

    def refine(
        self,
        points: Iterable[Point],
        tol: float,
        starts: Callable[[Point], Array | None],
        score_point: ScorePoint,
    ) -> None:
        """Solve some points to ``tol``, each from ``starts(point)``, and score them."""
        with one_blas_thread():
            if not self._is_small():
                for point in points:
                    score_point(point, self.solve(point, tol, starts(point), None))
                return
            by_noise: dict[int, list[int]] = {}
            for noise, c in points:
                by_noise.setdefault(noise, []).append(c)
            for noise, columns in by_noise.items():
                own = [start for c in columns if (start := starts((noise, c))) is not None]
                found = self.solve_block(noise, columns, tol, own if len(own) == len(columns) else None)
                for c, solution in zip(columns, found, strict=True):
                    score_point((noise, c), solution)

    def _is_small(self) -> bool:
        """Return whether the values of ``C`` are solved together: for a dense ``X`` of few entries, without l1 penalty.

        One call for all of them costs little more than one for each: NumPy's calls, not the arithmetic, take the time.
        """
        problem, encoded = self.problem, self.encoded
        if not (isinstance(encoded, ClassArray) and encoded.shares_products and isinstance(problem.loss, MomentLoss)):
            return False
        if problem.penalty.l1 or problem.solver is not SOLVERS["newton"]:
            return False
        if any(noise is not None and noise.variance().groups is not None for noise in self.grid.noises):
            return False
        n_rows, n_outputs = len(encoded.classes), encoded.n_classes if encoded.n_classes > 2 else 1
        n_all = n_outputs * len(self.grid.Cs)
        is_few = n_rows * n_all <= _FEW_SCORES and has_cheap_matrices(n_rows, encoded.n_features, n_all)
        return is_few and (problem.multi_class == "ovr" or n_outputs == 1)

    def _solve_together(self, chains: list[list[int]], tol: float) -> dict[int, list[Solution]]:
        """Return the solutions for all values of ``C``, by noise; a noise starts from the next stronger one."""
        found: dict[int, list[Solution]] = {}
        for chain in chains:
            for stronger, noise in zip([None, *chain], chain, strict=False):
                start = None if stronger is None else [solution.coef for solution in found[stronger]]
                found[noise] = self.solve_block(noise, range(len(self.grid.Cs)), tol, start)
        return found

    def solve_block(self, noise: int, columns: Sequence[int], tol: float, starts: list[Array] | None) -> list[Solution]:
        """Return the solutions of one noise for some values of ``C``, all as outputs of one problem.

        With ``C = 1`` and the penalty ``R(w) / C``, the objective is that of ``C``, divided by it.
        """
        Cs = self.grid.Cs[list(columns)]
        groups = open_outputs(self.problem.loss, self.encoded, self.problem.multi_class)
        n_outputs = groups[-1].columns.stop
        penalty = replace(self.problem.penalty, l2=self.problem.penalty.l2 / np.repeat(Cs, n_outputs))
        problem = replace(self.problem, noise=self.grid.noises[noise], C=1.0, tol=tol, penalty=penalty)
        problem, encoded = with_means(self.rows.problem(problem), self.encoded)
        ((_, rows),) = self._open(encoded)
        assert isinstance(rows, BinaryArray)
        result = solve_outputs(problem, rows.repeated(len(Cs)), None if starts is None else np.hstack(starts))
        coefs = np.split(result.coef, len(Cs), axis=1)
        if not (result.converged and np.isfinite(result.coef).all()):
            return [self.solve((noise, c), tol, None, None) for c in columns]
        values = Cs * result.objective.reshape(len(Cs), -1).sum(axis=1)
        return [
            Solution(coef, [], float(value), result.n_iter, True) for coef, value in zip(coefs, values, strict=True)
        ]

    def solve(self, point: Point, tol: float, start: Array | None, duals: list[Dual | None] | None) -> Solution:
        """Return the solution of one point."""
        noise, c = point
        C = float(self.grid.Cs[c])
        problem = self.rows.problem(replace(self.problem, noise=self.grid.noises[noise], C=C, tol=tol))
        problem, encoded = with_means(problem, self.encoded)
        results: list[Result] = []
        for index, (columns, rows) in enumerate(self._open(encoded)):
            own_start = None if start is None else start[:, columns]
            results.append(solve_outputs(problem, rows, own_start, None if duals is None else duals[index]))
        result = combine(results)
        return Solution(
            result.coef,
            [None if own.dual is None else Dual(own.dual, C) for own in results],
            float(result.objective.sum()),
            result.n_iter,
            result.converged and bool(np.isfinite(result.coef).all()),
        )

    def close(self) -> None:
        """Close the rows of the outputs."""
        for outputs in self._opened.values():
            for _, rows in outputs:
                rows.close()

    def _open(self, encoded: ClassRows) -> list[tuple[slice, BinaryRows]]:
        """Return the outputs and their rows, opened once with missing entries and once with their means instead."""
        if encoded.has_missing not in self._opened:
            groups = open_outputs(self.problem.loss, encoded, self.problem.multi_class)
            self._opened[encoded.has_missing] = [(group.columns, group.open(self.n_threads)) for group in groups]
        return self._opened[encoded.has_missing]


def _combination(solved: dict[int, Solution], factors: dict[int, float]) -> Solution:
    """Return a linear combination of solutions; it has no iterations, and its objective is NaN."""
    coef = sum(factor * solved[noise].coef for noise, factor in factors.items())
    return Solution(np.asarray(coef), [], np.nan, 0, True)


def _extrapolate(
    noise: int, stronger: int | None, lower: dict[int, Solution], current: dict[int, Solution]
) -> tuple[Array | None, list[Dual | None] | None]:
    """Return the start of a point, and the dual variables of its nearest neighbour."""
    if stronger is None:
        neighbour = lower.get(noise)
        return (None, None) if neighbour is None else (neighbour.coef, neighbour.duals)
    neighbour = current[stronger]
    if noise not in lower:
        return neighbour.coef, neighbour.duals
    return neighbour.coef + lower[noise].coef - lower[stronger].coef, neighbour.duals
