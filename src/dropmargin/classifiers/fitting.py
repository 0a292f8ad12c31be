"""From checked data to coefficients: the objectives of a one-vs-rest or one-vs-one problem, and their minima."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from dropmargin.linalg import (
    Block,
    Partitions,
    PerPartition,
    drop_empty_columns,
    large_offset,
    row_blocks,
    shares_products,
)
from dropmargin.losses import Loss, MGFLoss, MomentLoss
from dropmargin.noise import Dropout, Noise, Variance
from dropmargin.objective import Labelled, MGFObjective, MomentObjective, Objective, Penalty
from dropmargin.solvers import Iteration, Monitor, Result, Solver, carried, combine, minimise
from dropmargin.typing import Array

T = TypeVar("T")

# A column whose mean is this many standard deviations from zero is centred: where the Gram matrix preconditions, it
# only costs digits, and where the diagonal does, it costs passes as well.
_OFFSET_MOMENT = 1e3
_OFFSET_MGF = 3.0
# With many rows for each feature, a first fit to one row in so many, and roughly, saves most of the early passes.
_SAMPLE_EVERY = 10
_SAMPLE_TOL = 1e-2
_LEAST_SAMPLE = 1000
_ROWS_PER_FEATURE = 1
_SAMPLE_ITERATIONS = 40
# A sample shows a label if it has so many rows of it, not counting those of next to no weight, and at least half of the
# weight that it ought to have.
_LEAST_OF_LABEL = 10
_LITTLE_WEIGHT = 0.01
_SHOWN = 0.5


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


class Multipliers(NamedTuple):
    """The multipliers of a hinge without noise (`Result.dual`), and the ``C`` that they belong to."""

    dual: PerPartition
    C: float


class TrainingData:
    """Rows, labels and weights, cut into blocks once, for one problem or for many with other noise, ``C`` or tolerance.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples, n_columns)
        -1 or +1, one column per binary problem; all of them are solved together.
    weights : ndarray of shape (n_samples,)
    n_threads : int
    features : tuple of ndarray and int, default=None
        Which features the columns of ``X`` are, and of how many: the coefficients of all others are zero.
    """

    def __init__(
        self, X: Any, labels: Array, weights: Array, n_threads: int, features: tuple[Array, int] | None = None
    ) -> None:
        self.X = X
        self.labels = labels
        self.weights = weights
        self.n_threads = n_threads
        self.features = features
        self._offsets: dict[float, Array | None] = {}
        self._blocks: dict[Any, list[Block]] = {}
        self._kept: dict[Any, dict[Any, Any]] = {}

    def minimise(
        self, problem: Problem, start: Array | None = None, known: Multipliers | None = None
    ) -> tuple[Result, float]:
        """Return the solution of a problem on these data, and the passes over them.

        ``start`` are coefficients near the solution, ``known`` the multipliers of a neighbour in ``C``, if it had any.
        """
        if self.features is None:
            return self._minimise(problem, start, known)
        used, n_features = self.features
        rows = np.append(used, n_features)
        noise = None if problem.noise is None else problem.noise.take(used)
        result, passes = self._minimise(replace(problem, noise=noise), None if start is None else start[rows], known)
        coef = np.zeros((n_features + 1, result.coef.shape[1]))
        coef[rows] = result.coef
        return replace(result, coef=coef), passes

    def _minimise(self, problem: Problem, start: Array | None, known: Multipliers | None) -> tuple[Result, float]:
        early_passes = 0.0
        if start is None and _can_sample(problem, self.X):
            start, early_passes = _start_from_sample(problem, self.X, self.labels, self.weights, self.n_threads)
        variance = Variance() if problem.noise is None else problem.noise.variance()
        offset = self._offset(problem, variance)
        n_features, n_columns = self.X.shape[1], self.labels.shape[1]
        coef = np.zeros((n_features + 1, n_columns)) if start is None else start.astype(np.float64)
        if offset is not None:
            coef[-1] += offset @ coef[:-1]
        kept = self._kept.setdefault(offset is not None, {})
        with Partitions(self._parts(problem, variance, offset), self.n_threads, kept) as data, one_blas_thread:
            objective = _objective(problem, data, variance, n_features, n_columns)
            result = minimise(
                problem.solver,
                objective,
                objective.at(coef),
                tol=problem.tol,
                max_iter=problem.max_iter,
                monitor=problem.monitor,
                warm=start is not None,
                dual=None if known is None else carried(known.dual, problem.C / known.C),
            )
            passes = data.n_sweeps / 2
        if offset is not None:
            result.coef[-1] -= offset @ result.coef[:-1]
        return result, passes + early_passes

    def _offset(self, problem: Problem, variance: Variance) -> Array | None:
        """Return what to subtract from the columns, if they are far from zero and the noise does not mind."""
        if not problem.fit_intercept or variance.moves_entries:
            return None
        ratio = _OFFSET_MGF if isinstance(problem.loss, MGFLoss) else _OFFSET_MOMENT
        if ratio not in self._offsets:
            self._offsets[ratio] = large_offset(self.X, self.weights, ratio)
        return self._offsets[ratio]

    def _parts(self, problem: Problem, variance: Variance, offset: Array | None) -> list[Labelled]:
        """Return the blocks with their labels and weights."""
        entry = variance.entry if variance.moves_entries and isinstance(problem.loss, MomentLoss) else None
        key = entry, offset is not None
        if key not in self._blocks:
            X = self.X if offset is None else self.X - offset.astype(self.X.dtype)
            self._blocks = {key: row_blocks(X, entry)}  # one kind at a time: blocks may hold copies
        blocks = self._blocks[key]
        edges = np.cumsum([0] + [block.n_rows for block in blocks])
        scaled = problem.C * self.weights[:, None]
        return [
            Labelled(block, self.labels[begin:end], scaled[begin:end])
            for block, begin, end in zip(blocks, edges[:-1], edges[1:], strict=True)
        ]


class Group(NamedTuple):
    """Binary problems that are solved together: their columns among all, and how to get their data."""

    columns: slice
    prepare: Callable[[int], TrainingData]


def group_columns(loss: Loss, X: Any, codes: Array, weights: Array, n_classes: int, multi_class: str) -> list[Group]:
    """Return the binary problems of a classification, in groups.

    One column per class against the rest (one in all for two classes), as one group if they share their work; or one
    per pair of classes, each on the rows of its pair.
    """
    if multi_class == "ovo" and n_classes > 2:

        def prepare_pair(first: int, second: int, n_threads: int) -> TrainingData:
            rows = np.flatnonzero((codes == first) | (codes == second))
            labels = np.where(codes[rows] == second, 1.0, -1.0)[:, None]
            return TrainingData(X[rows], labels, weights[rows], n_threads)

        return [
            Group(slice(k, k + 1), partial(prepare_pair, *pair))
            for k, pair in enumerate(combinations(range(n_classes), 2))
        ]
    positive = np.arange(n_classes) if n_classes > 2 else np.array([1])
    labels = np.where(codes[:, None] == positive, 1.0, -1.0)

    whole, used = drop_empty_columns(X)
    features = None if used is None else (used, X.shape[1])

    def prepare(columns: slice, n_threads: int) -> TrainingData:
        return TrainingData(whole, labels[:, columns], weights, n_threads, features)

    together = shares_products(X) and isinstance(loss, MomentLoss)
    width = len(positive) if together else 1
    return [
        Group(columns, partial(prepare, columns))
        for columns in (slice(k, k + width) for k in range(0, len(positive), width))
    ]


def fit_groups(problem: Problem, groups: list[Group], start: Array | None, n_threads: int) -> tuple[Result, float]:
    """Solve all binary problems, side by side if there are several groups; return the passes, too."""
    inner_threads = max(1, n_threads // len(groups))

    def fit(group: Group, own: Problem) -> tuple[Result, float]:
        return group.prepare(inner_threads).minimise(own, None if start is None else start[:, group.columns])

    if len(groups) == 1:
        return fit(groups[0], problem)
    return _side_by_side(problem, [partial(fit, group) for group in groups], n_threads)


def _side_by_side(
    problem: Problem, jobs: list[Callable[[Problem], tuple[Result, float]]], n_threads: int
) -> tuple[Result, float]:
    """Return the results of independent fits as one, and the sum of their passes."""
    stop = threading.Event()

    def monitor(entry: Iteration) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        problem.monitor(entry)

    own = replace(problem, monitor=monitor)
    results = in_threads([partial(job, own) for job in jobs], n_threads, stop)
    return combine([result for result, _ in results]), sum(passes for _, passes in results)


def in_threads(jobs: Sequence[Callable[[], T]], n_threads: int, stop: threading.Event) -> list[T]:
    """Return the results of independent jobs; if one fails, or at an interrupt, ``stop`` tells the others to end."""
    if n_threads == 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            return list(pool.map(_with_error_state, repeat(np.geterr()), jobs))
        except BaseException:  # jobs that wait are dropped, jobs at work look at ``stop`` at their next step
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _with_error_state(state: Any, job: Callable[[], T]) -> T:
    """Run a job under the NumPy error state of the caller, which is another thread."""
    with np.errstate(**state):
        return job()


def _can_sample(problem: Problem, X: Any) -> bool:
    """Whether a sample of the rows may be enough to learn most of what all of them tell.

    A hinge without noise takes more passes from there than from zero, and the other solvers are for comparison.
    """
    noisy = problem.noise is not None and not problem.noise.variance().is_zero
    smooth = isinstance(problem.loss, MomentLoss) and (noisy or not problem.loss.kink)
    enough = _SAMPLE_EVERY * max(_LEAST_SAMPLE, _ROWS_PER_FEATURE * X.shape[1])
    return problem.solver.likes_a_start and smooth and X.shape[0] >= enough and problem.tol < _SAMPLE_TOL


def _start_from_sample(
    problem: Problem, X: Any, labels: Array, weights: Array, n_threads: int
) -> tuple[Array | None, float]:
    """Return the roughly fitted coefficients of a sample of the rows, always the same one, and the passes over all.

    There are none if the sample does not show every label of every column, by weight and by number, or if the fit to it
    has not come to its end: what is learnt from one label alone leads nowhere.
    """
    n_rows = X.shape[0]
    # Drawn, not every tenth: rows may come in an order that has a period.
    rows = np.sort(np.random.default_rng(0).choice(n_rows, size=n_rows // _SAMPLE_EVERY, replace=False))
    own_labels, own_weights = labels[rows], weights[rows]
    counted = own_weights > _LITTLE_WEIGHT * weights.mean()
    for label in (1.0, -1.0):
        shown, there = own_weights @ (own_labels == label), weights @ (labels == label)
        number = np.count_nonzero((own_labels == label) & counted[:, None], axis=0)
        if np.any(_SAMPLE_EVERY * shown < _SHOWN * there) or np.any(number < _LEAST_OF_LABEL):
            return None, 0.0
    share = own_weights.sum() / weights.sum()
    rough = replace(problem, C=problem.C / share, tol=_SAMPLE_TOL, max_iter=_SAMPLE_ITERATIONS, monitor=say_nothing)
    result, passes = TrainingData(X[rows], own_labels, own_weights, n_threads).minimise(rough)
    return result.coef if result.converged else None, passes * len(rows) / n_rows


def say_nothing(entry: Iteration) -> None:
    """Monitor a fit in silence."""


def _objective(
    problem: Problem, data: Partitions[Labelled], variance: Variance, n_features: int, n_columns: int
) -> Objective:
    """Return the objective: a block of all columns for a moment loss, of the one column for a loss through the MGF."""
    if isinstance(problem.loss, MGFLoss):
        noise = Dropout(rate=0.0) if problem.noise is None else problem.noise
        return MGFObjective(data, problem.loss, noise, problem.penalty, problem.fit_intercept, n_features, 0)
    assert isinstance(problem.loss, MomentLoss)
    columns = np.arange(n_columns)
    return MomentObjective(data, problem.loss, variance, problem.penalty, problem.fit_intercept, n_features, columns)


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
