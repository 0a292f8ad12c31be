"""From checked data to coefficients: the objectives of a one-vs-rest or one-vs-one problem, and their minima."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController

from dropmargin.linalg import Partitions, canonical, large_offset, row_blocks
from dropmargin.losses import Loss, MGFLoss, MomentLoss
from dropmargin.noise import Dropout, Noise, Variance
from dropmargin.objective import Labelled, MGFObjective, MomentObjective, Objective, Penalty
from dropmargin.solvers import Monitor, Result, Solver, combine, minimise
from dropmargin.typing import Array


@dataclass(frozen=True)
class Problem:
    """Everything about a fit but the data."""

    loss: Loss
    noise: Noise | None
    penalty: Penalty
    C: float
    fit_intercept: bool
    solver: Solver
    tol: float
    max_iter: int
    monitor: Monitor


def fit_one_vs_rest(
    problem: Problem, X: Any, codes: Array, weights: Array, n_classes: int, start: Array | None, n_threads: int
) -> tuple[Result, float]:
    """Fit one column per class (one column in all for two classes), as one block; return the passes, too."""
    positive = np.arange(n_classes) if n_classes > 2 else np.array([1])
    labels = np.where(codes[:, None] == positive, 1.0, -1.0)
    return fit_columns(problem, X, labels, weights, start, n_threads)


def fit_one_vs_one(
    problem: Problem, X: Any, codes: Array, weights: Array, n_classes: int, start: Array | None, n_threads: int
) -> tuple[Result, float]:
    """Fit one column per pair of classes, each on the rows of its pair."""

    def fit_pair(index: int, first: int, second: int) -> tuple[Result, float]:
        rows = np.flatnonzero((codes == first) | (codes == second))
        labels = np.where(codes[rows] == second, 1.0, -1.0)[:, None]
        own = None if start is None else start[:, [index]]
        return fit_columns(problem, X[rows], labels, weights[rows], own, 1)

    pairs = combinations(range(n_classes), 2)
    jobs = (delayed(fit_pair)(index, *pair) for index, pair in enumerate(pairs))
    results = Parallel(n_jobs=n_threads, prefer="threads")(jobs)
    return combine([result for result, _ in results]), sum(passes for _, passes in results)


def fit_columns(
    problem: Problem, X: Any, labels: Array, weights: Array, start: Array | None, n_threads: int
) -> tuple[Result, float]:
    """Minimise the objective of every column of ``labels``."""
    variance = Variance() if problem.noise is None else problem.noise.variance()
    X = canonical(X)
    offset = None
    if problem.fit_intercept and not variance.moves_entries and not isinstance(problem.loss, MGFLoss):
        offset = large_offset(X, weights)
        X = X if offset is None else X - offset.astype(X.dtype)
    coef = np.zeros((X.shape[1] + 1, labels.shape[1])) if start is None else start.astype(np.float64)
    if offset is not None:
        coef[-1] += offset @ coef[:-1]
    entry = variance.entry if variance.moves_entries and isinstance(problem.loss, MomentLoss) else None
    blocks = row_blocks(X, entry)
    edges = np.cumsum([0] + [block.n_rows for block in blocks])
    scaled = problem.C * weights[:, None]
    parts = [
        Labelled(block, labels[begin:end], scaled[begin:end])
        for block, begin, end in zip(blocks, edges[:-1], edges[1:], strict=True)
    ]
    # The library's own threads work on partitions; BLAS threads under them would only fight.
    with Partitions(parts, n_threads) as data, _blas().limit(limits=1, user_api="blas"):
        objectives = _objectives(problem, data, variance, X.shape[1], labels.shape[1])
        results = []
        for objective, columns in objectives:
            results.append(
                minimise(
                    problem.solver,
                    objective,
                    objective.at(coef[:, columns]),
                    tol=problem.tol,
                    max_iter=problem.max_iter,
                    monitor=problem.monitor,
                    warm=start is not None,
                )
            )
        passes = data.n_sweeps / 2
    result = combine(results)
    if offset is not None:
        result.coef[-1] -= offset @ result.coef[:-1]
    return result, passes


def _objectives(
    problem: Problem, data: Partitions[Labelled], variance: Variance, n_features: int, n_columns: int
) -> list[tuple[Objective, list[int]]]:
    """Return the objectives with their columns: one block for a moment loss, one each for a loss through the MGF."""
    if isinstance(problem.loss, MGFLoss):
        noise = Dropout(rate=0.0) if problem.noise is None else problem.noise
        return [
            (MGFObjective(data, problem.loss, noise, problem.penalty, problem.fit_intercept, n_features, k), [k])
            for k in range(n_columns)
        ]
    assert isinstance(problem.loss, MomentLoss)
    columns = np.arange(n_columns)
    block = MomentObjective(data, problem.loss, variance, problem.penalty, problem.fit_intercept, n_features, columns)
    return [(block, list(range(n_columns)))]


_controller: list[ThreadpoolController] = []


def _blas() -> ThreadpoolController:
    """Return the controller of the BLAS libraries; finding them takes milliseconds, so it is done once."""
    if not _controller:
        _controller.append(ThreadpoolController())
    return _controller[0]
