"""From checked data to coefficients: the objectives of a one-vs-rest or one-vs-one problem, and their minima."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from dropmargin.linalg import Partitions, large_offset, row_blocks
from dropmargin.losses import Loss, MGFLoss, MomentLoss
from dropmargin.noise import Dropout, Noise, Variance
from dropmargin.objective import Labelled, MGFObjective, MomentObjective, Objective, Penalty
from dropmargin.solvers import Iteration, Monitor, Result, Solver, combine, minimise
from dropmargin.typing import Array

# A column whose mean is this many standard deviations from zero is centred: where the Gram matrix preconditions, it
# only costs digits, and where the diagonal does, it costs passes as well.
_OFFSET_MOMENT = 1e3
_OFFSET_MGF = 3.0


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

    stop = threading.Event()

    def monitor(entry: Iteration) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        problem.monitor(entry)

    own_problem = replace(problem, monitor=monitor)

    def fit_pair(index: int, pair: tuple[int, int]) -> tuple[Result, float]:
        first, second = pair
        rows = np.flatnonzero((codes == first) | (codes == second))
        labels = np.where(codes[rows] == second, 1.0, -1.0)[:, None]
        own = None if start is None else start[:, [index]]
        return fit_columns(own_problem, X[rows], labels, weights[rows], own, 1)

    pairs = list(combinations(range(n_classes), 2))
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            results = list(pool.map(fit_pair, range(len(pairs)), pairs))
        except BaseException:  # an interrupt, too: pairs that wait are dropped, pairs at work stop at their next step
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return combine([result for result, _ in results]), sum(passes for _, passes in results)


def fit_columns(
    problem: Problem, X: Any, labels: Array, weights: Array, start: Array | None, n_threads: int
) -> tuple[Result, float]:
    """Minimise the objective of every column of ``labels``."""
    variance = Variance() if problem.noise is None else problem.noise.variance()
    offset = None
    if problem.fit_intercept and not variance.moves_entries:
        offset = large_offset(X, weights, _OFFSET_MGF if isinstance(problem.loss, MGFLoss) else _OFFSET_MOMENT)
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
    with Partitions(parts, n_threads) as data, one_blas_thread:
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


class _OneBlasThread:
    """Limits BLAS to one thread while any fit is under way: partitions have threads of their own, and both would fight.

    The limit belongs to the process, so that fits that overlap share it: the first sets it, the last takes it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                _in_passing(self._set)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _in_passing(self._limit.restore_original_limits)

    def _set(self) -> None:
        # Finding the libraries takes milliseconds, so it is done once.
        self._controller = self._controller or ThreadpoolController()
        self._limit = self._controller.limit(limits=1, user_api="blas")


def _in_passing(function: Callable[[], None]) -> None:
    """Call a function in a thread of its own: a limit may be taken back by others only once its thread has ended."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


#: Shared by all fits of the process: ``with one_blas_thread: ...``
one_blas_thread = _OneBlasThread()
