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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

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


@dataclass(eq=False)
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
    score : callable
        Called with each point and its solution; returns the score.
    best : float
        The highest score so far.
    """

    grid: Grid
    problem: Problem
    rows: TrainingRows
    encoded: TrainingData
    n_threads: int
    score: Callable[[Point, Solution], float]
    best: float = -np.inf

    def solve_all(self, tol: float, is_rough: bool, skips_low: bool) -> None:
        """Solve all points to ``tol`` and score each.

        If ``is_rough``, some noises are interpolated; if ``skips_low``, also points that cannot be the best.
        """
        skips_low &= not self.is_small and (self.encoded.is_dense or not self.encoded.is_matrix)
        with one_blas_thread():
            for chain in self.grid.chains:
                knots = self.grid.knots(chain) if is_rough else chain
                together = self._solve_together(knots, tol) if self.is_small else {}
                known: dict[int, Column] = {}
                for c in self.grid.walk(skips_low):
                    column = {noise: own[c] for noise, own in together.items()} or self._column(knots, c, known, tol)
                    column = {noise: own._replace(score=self.score((noise, c), own)) for noise, own in column.items()}
                    self.best = max(self.best, *(own.score for own in column.values()))
                    self._interpolate(chain, knots, c, tol, column)
                    known = known | {c: column} if skips_low else {c: column}  # the others are not needed again

    def refine(self, points: Sequence[Point], tol: float, start: Callable[[Point], Array | None]) -> None:
        """Solve some points to ``tol``, each from ``start(point)`` or from the point before, and score them."""
        blocks: dict[Any, list[Point]] = {}
        for point in points:
            blocks.setdefault(point[0] if self.is_small else point, []).append(point)
        before: Array | None = None
        with one_blas_thread():
            for block in blocks.values():
                starts = [before if (own := start(point)) is None else own for point in block]
                found = self.solve(block[0][0], [c for _, c in block], tol, starts)
                for point, solution in zip(block, found, strict=True):
                    before = solution.coef
                    self.score(point, solution)

    def _column(self, noises: list[int], c: int, known: dict[int, Column], tol: float) -> Column:
        """Return the solutions of a chain for one ``C``, from those for the next values below and above."""
        near = [*sorted(end for end in known if end < c)[-1:], *sorted(end for end in known if end > c)[:1]]
        predicted, low = known[near[0]] if near else {}, set[int]()
        if len(near) == 2:
            below, above = (known[end] for end in near)
            first, last, here = 1.0 / self.grid.Cs[[*near, c]]
            share = (here - last) / (first - last)
            predicted = {
                noise: Solution(share * below[noise].coef + (1.0 - share) * above[noise].coef) for noise in noises
            }
            low = {noise for noise in noises if self._cannot_win(below[noise].score, above[noise].score)}
        column: Column = {}
        for before, noise in zip([None, *noises], noises, strict=False):
            if noise in low:
                column[noise] = predicted[noise]
                continue
            start = predicted[noise].coef if predicted else None
            if before is not None:
                start = column[before].coef if start is None else column[before].coef + start - predicted[before].coef
            (column[noise],) = self.solve(noise, [c], tol, [start])
        return column

    def _cannot_win(self, below: float, above: float) -> bool:
        """Return whether the scores for two values of ``C`` are so low that no score in between can be the best."""
        low, high = sorted([below, above])
        return high + 0.5 * (high - low) + _OUTSIDE * abs(self.best) < self.best

    def _interpolate(self, chain: list[int], knots: list[int], c: int, tol: float, column: Column) -> None:
        """Interpolate the noises of a chain that were not solved, and solve those with a score far from both knots.

        The path may have a corner between a noise for which all coefficients, or those of a class, are zero and one for
        which they are not. Scores of the interpolation may be far too low or too high there; too high a score matters
        if it is the best.
        """
        for noise in chain:
            if noise in knots:
                stronger, weaker = column[noise], column[knots[min(knots.index(noise) + 1, len(knots) - 1)]]
                continue
            coef: Any = sum(share * column[k].coef for k, share in self.grid.interpolation(noise, knots).items())
            score = self.score((noise, c), Solution(coef))
            low, high = sorted([stronger.score, weaker.score])
            slack = max(0.5 * (high - low), _OUTSIDE * abs(low))
            if not low - slack <= score <= max(high + slack, self.best):
                self.score((noise, c), self.solve(noise, [c], tol, [weaker.coef])[0])

    @cached_property
    def is_small(self) -> bool:
        """Whether the values of ``C`` are solved together: for a dense ``X`` of few entries, without l1 penalty.

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

    def _solve_together(self, noises: list[int], tol: float) -> dict[int, list[Solution]]:
        """Return the solutions for all values of ``C``, by noise; a noise starts from the next stronger one."""
        found: dict[int, list[Solution]] = {}
        starts: list[Array | None] = [None] * len(self.grid.Cs)
        for noise in noises:
            found[noise] = self.solve(noise, range(len(starts)), tol, starts)
            starts = [solution.coef for solution in found[noise]]
        return found

    def solve(self, noise: int, columns: Sequence[int], tol: float, starts: Sequence[Array | None]) -> list[Solution]:
        """Return the solutions of one noise for some values of ``C``, all as outputs of one problem if these are many.

        With ``C = 1`` and the penalty ``R(w) / C``, the objective is that of ``C``, divided by it.
        """
        Cs = self.grid.Cs[list(columns)]
        if len(Cs) > 1:
            problem, encoded = with_means(self._problem(noise, 1.0, tol), self.encoded)
            outputs = encoded.outputs(problem.multi_class)
            l2 = problem.penalty.l2 / np.repeat(Cs, len(outputs))
            problem = replace(problem, penalty=replace(problem.penalty, l2=l2))
            given = [start for start in starts if start is not None]
            start = np.hstack(given) if len(given) == len(Cs) else None
            result = solve_outputs(problem, encoded, outputs * len(Cs), start)
            if result.converged and np.isfinite(result.coef).all():
                parts = zip(
                    Cs, np.split(result.coef, len(Cs), axis=1), np.split(result.objective, len(Cs)), strict=True
                )
                return [Solution(coef, C * value, result.n_iter) for C, coef, value in parts]
            starts = [None] * len(Cs)
        found = []
        for C, start in zip(Cs, starts, strict=True):
            result = solve(self._problem(noise, float(C), tol), self.encoded, start, self.n_threads)
            converged = result.converged and bool(np.isfinite(result.coef).all())
            found.append(Solution(result.coef, result.objective, result.n_iter, converged))
        return found

    def _problem(self, noise: int, C: float, tol: float) -> Problem:
        """Return the problem of a noise and a ``C``."""
        return self.rows.problem(replace(self.problem, noise=self.grid.noises[noise], C=C, tol=tol))
