"""Solutions along a path over the grid: each point is warm-started by an extrapolation from its neighbours.

With ``w(n, c)`` the solution for noise ``n`` and ``C = c``, the start is the fourth corner of a parallelogram::

    w(n, c)  from  w(stronger, c) + w(n, lower) - w(stronger, lower)

On review text, a start from the nearest neighbour alone takes 1.15 to 1.3 times the passes. At the border of the grid,
the start is the nearest neighbour; the first point has a cold start. An approximate path solves some of the noises and
interpolates the others by cubic polynomials in the logarithm of the strength of the noise: on review text, four knots
for nine dropout rates from 0.1 to 0.9 give the same scores as solving all.

An approximate path over a dense ``X`` may solve every fourth ``C`` at first. Between two of them it interpolates the
noises whose scores at both are too low to be the best, linearly in ``1 / C``. (On review text, where a start from the
next ``C`` takes one step, that brought more finalists than it saved steps.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dropmargin.data import TrainingData
from dropmargin.estimators.rows import TrainingRows
from dropmargin.losses import MomentLoss
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.solvers import SOLVERS, Problem, solve, solve_outputs, with_means
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

# An interpolated point is solved if its score is below or above those of both its knots by more than half their
# difference and by more than this share of the score.
_OUTSIDE = 0.01
# All values of C are solved together up to this many scores of rows.
_FEW_SCORES = 2**16
# That costs at most so many products of entries for each of at most eight outputs.
_FEW_PRODUCTS = 2**17


class Solution(NamedTuple):
    """Coefficients and intercept of one grid point, of shape ``(n_features + 1, n_outputs)``, and solver results.

    ``objective`` has one number per output; an interpolation has none, and no iterations.
    """

    coef: Array
    objective: Array = np.empty(0)
    n_iter: int = 0
    converged: bool = True
    score: float = np.nan


#: The solutions for one ``C``, by noise.
Column = dict[int, Solution]
#: Called with each point and its solution; returns the score.
ScorePoint = Callable[[Point, Solution], float]


class PathSolver:
    """Solves the points of a grid on one set of rows.

    Parameters
    ----------
    grid : Grid
    problem : Problem
        The problem; its noise, ``C`` and tolerance are replaced.
    rows : TrainingRows
    encoded : TrainingData
        The same rows, with the index of their class.
    n_threads : int
    """

    def __init__(self, grid: Grid, problem: Problem, rows: TrainingRows, encoded: TrainingData, n_threads: int) -> None:
        self.grid = grid
        self.problem = problem
        self.rows = rows
        self.encoded = encoded
        self.n_threads = n_threads

    def solve_all(
        self, tol: float, score_point: ScorePoint, approximate: bool = False, skips_low: bool = False
    ) -> None:
        """Solve all points to ``tol`` and score each.

        If ``approximate``, some noises are interpolated; if ``skips_low``, also points that cannot be the best.
        """
        self._best = -np.inf
        with one_blas_thread():
            for chain in self.grid.chains:
                self._solve_chain(chain, tol, score_point, approximate, skips_low)

    def _solve_chain(
        self, chain: list[int], tol: float, score_point: ScorePoint, approximate: bool, skips_low: bool
    ) -> None:
        knots = self.grid.knots(chain) if approximate else chain
        together = self._solve_together(knots, tol) if self._is_small() else {}
        columns: dict[int, Column] = {}
        skips = skips_low and not together and (self.encoded.is_dense or not self.encoded.is_matrix)
        for c in self.grid.walk(skips):
            below, above = [end for end in columns if end < c], [end for end in columns if end > c]
            near = sorted(below)[-1:] + sorted(above)[:1]
            current = {noise: together[noise][c] for noise in together} or self._solve_column(
                knots, c, {end: columns[end] for end in near}, tol
            )
            if not skips:
                columns = {}  # the others are not needed again
            columns[c] = {
                noise: solution._replace(score=score_point((noise, c), solution)) for noise, solution in current.items()
            }
            self._best = max(self._best, *(solution.score for solution in columns[c].values()))
            self._interpolate(chain, knots, c, tol, columns[c], score_point)

    def _solve_column(self, noises: list[int], c: int, known: dict[int, Column], tol: float) -> Column:
        """Return the solutions of a chain for one ``C``, from those for one other, or for those below and above."""
        predicted, current = next(iter(known.values()), {}), {}
        interpolated: set[int] = set()
        Cs = self.grid.Cs
        if len(known) == 2:
            below, above = known.values()
            ends = [Cs[end] for end in known]
            predicted = {noise: _between(below[noise], above[noise], ends, Cs[c]) for noise in noises}
            interpolated = {noise for noise in noises if self._cannot_win(below[noise], above[noise])}
        for before, noise in zip([None, *noises], noises, strict=False):
            if noise in interpolated:
                current[noise] = predicted[noise]
            else:
                current[noise] = self.solve((noise, c), tol, _extrapolate(noise, before, predicted, current))
        return current

    def _cannot_win(self, below: Solution, above: Solution) -> bool:
        """Return whether the scores for two values of ``C`` are so low that no score in between can be the best."""
        low, high = sorted([below.score, above.score])
        return high + 0.5 * (high - low) + _OUTSIDE * abs(self._best) < self._best

    def _interpolate(
        self, chain: list[int], knots: list[int], c: int, tol: float, current: Column, score_point: ScorePoint
    ) -> None:
        """Interpolate the noises of a chain that were not solved, and solve those with a score far from both knots.

        The path may have a corner between a noise for which all coefficients, or those of a class, are zero and one for
        which they are not. Scores of the interpolation may be far too low or too high there; too high a score matters
        if it is the best.
        """
        for noise in chain:
            if noise in knots:
                weaker = knots.index(noise) + 1
                continue
            score = score_point((noise, c), _combination(current, self.grid.interpolation(noise, knots)))
            low, high = sorted(current[knots[index]].score for index in (weaker - 1, weaker))
            slack = max(0.5 * (high - low), _OUTSIDE * abs(low))
            if not low - slack <= score <= max(high + slack, self._best):
                score_point((noise, c), self.solve((noise, c), tol, current[knots[weaker]].coef))

    def refine(
        self, points: Iterable[Point], tol: float, starts: Callable[[Point], Array | None], score_point: ScorePoint
    ) -> None:
        """Solve some points to ``tol``, each from ``starts(point)`` or from the point before, and score them."""
        with one_blas_thread():
            if not self._is_small():
                before: Array | None = None
                for point in points:
                    start = starts(point)
                    solution = self.solve(point, tol, before if start is None else start)
                    before = solution.coef
                    score_point(point, solution)
                return
            by_noise: dict[int, list[int]] = {}
            for noise, c in points:
                by_noise.setdefault(noise, []).append(c)
            for noise, columns in by_noise.items():
                own = [start for c in columns if (start := starts((noise, c))) is not None]
                found = self._solve_block(noise, columns, tol, own if len(own) == len(columns) else None)
                for c, solution in zip(columns, found, strict=True):
                    score_point((noise, c), solution)

    def _is_small(self) -> bool:
        """Return whether the values of ``C`` are solved together: for a dense ``X`` of few entries, without l1 penalty.

        One call for all of them costs little more than one for each: NumPy's calls, not the arithmetic, take the time.
        """
        problem, encoded = self.problem, self.encoded
        if not (encoded.is_matrix and encoded.is_dense and isinstance(problem.loss, MomentLoss)):
            return False
        if problem.penalty.l1 or problem.solver is not SOLVERS["newton"]:
            return False
        if any(noise is not None and noise.variance().groups is not None for noise in self.grid.noises):
            return False
        n_outputs = encoded.n_classes if encoded.n_classes > 2 else 1
        n_all = n_outputs * len(self.grid.Cs)
        n_products = encoded.n_rows * (encoded.n_features + 1) ** 2
        is_few = encoded.n_rows * n_all <= _FEW_SCORES and n_products <= _FEW_PRODUCTS * min(n_all, 8)
        return is_few and (problem.multi_class == "ovr" or n_outputs == 1)

    def _solve_together(self, chain: list[int], tol: float) -> dict[int, list[Solution]]:
        """Return the solutions for all values of ``C``, by noise; a noise starts from the next stronger one."""
        found: dict[int, list[Solution]] = {}
        starts: list[Array] | None = None
        for noise in chain:
            found[noise] = self._solve_block(noise, range(len(self.grid.Cs)), tol, starts)
            starts = [solution.coef for solution in found[noise]]
        return found

    def _solve_block(
        self, noise: int, columns: Sequence[int], tol: float, starts: list[Array] | None
    ) -> list[Solution]:
        """Return the solutions of one noise for some values of ``C``, all as outputs of one problem.

        With ``C = 1`` and the penalty ``R(w) / C``, the objective is that of ``C``, divided by it.
        """
        Cs = self.grid.Cs[list(columns)]
        problem, encoded = with_means(self._problem(noise, 1.0, tol), self.encoded)
        outputs = encoded.outputs(problem.multi_class)
        l2 = problem.penalty.l2 / np.repeat(Cs, len(outputs))
        problem = replace(problem, penalty=replace(problem.penalty, l2=l2))
        result = solve_outputs(problem, encoded, outputs * len(Cs), None if starts is None else np.hstack(starts))
        if not (result.converged and np.isfinite(result.coef).all()):
            return [self.solve((noise, c), tol) for c in columns]
        coefs, values = np.split(result.coef, len(Cs), axis=1), np.split(result.objective, len(Cs))
        return [Solution(coef, C * value, result.n_iter) for coef, C, value in zip(coefs, Cs, values, strict=True)]

    def solve(self, point: Point, tol: float, start: Array | None = None) -> Solution:
        """Return the solution of one point."""
        noise, c = point
        result = solve(self._problem(noise, float(self.grid.Cs[c]), tol), self.encoded, start, self.n_threads)
        converged = result.converged and bool(np.isfinite(result.coef).all())
        return Solution(result.coef, result.objective, result.n_iter, converged)

    def _problem(self, noise: int, C: float, tol: float) -> Problem:
        """Return the problem of a noise and a ``C``."""
        return self.rows.problem(replace(self.problem, noise=self.grid.noises[noise], C=C, tol=tol))


def _combination(solved: Column, factors: dict[int, float]) -> Solution:
    """Return a linear combination of solutions."""
    coef = sum(factor * solved[noise].coef for noise, factor in factors.items())
    return Solution(np.asarray(coef))


def _between(below: Solution, above: Solution, ends: list[float], C: float) -> Solution:
    """Return an interpolation between the solutions for two values of ``C``, linear in ``1 / C``."""
    share = (1.0 / C - 1.0 / ends[1]) / (1.0 / ends[0] - 1.0 / ends[1])
    return Solution(share * below.coef + (1.0 - share) * above.coef)


def _extrapolate(noise: int, before: int | None, predicted: Column, current: Column) -> Array | None:
    """Return the start of a point.

    ``predicted`` are the solutions as those for other values of ``C`` predict them, ``before`` is the noise that was
    solved before this one.
    """
    if before is None:
        return predicted[noise].coef if noise in predicted else None
    if noise not in predicted:
        return current[before].coef
    return current[before].coef + predicted[noise].coef - predicted[before].coef
