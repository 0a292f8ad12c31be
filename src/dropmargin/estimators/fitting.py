"""From checked data to coefficients: the objectives of a one-vs-rest or one-vs-one problem, and their minima."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import (
    Block,
    EntryFunction,
    LocalPartitions,
    Partitions,
    PerPartition,
    drop_empty_columns,
    is_dense_matrix,
    large_offset,
    row_blocks,
    subtract,
)
from dropmargin.losses import Loss, MGFLoss, MomentLoss
from dropmargin.noise import DropoutNoise, Noise, Variance
from dropmargin.objective import Labelled, MGFObjective, MomentObjective, Objective
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Monitor, Result, Solver, carried, combine, minimise
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array

# A column whose mean is this many standard deviations from zero is centred: where the Gram matrix preconditions, it
# only costs digits, and where the diagonal does, it costs passes as well.
_OFFSET_MOMENT = 100.0
_OFFSET_MGF = 3.0
# With many rows for each feature, a first fit to one row in so many, and roughly, saves most of the early passes.
SAMPLE_EVERY = 10
_SAMPLE_TOL = 1e-2
_LEAST_SAMPLE = 1000
_ROWS_PER_FEATURE = 1
_SAMPLE_ITERATIONS = 40
# A sample shows a label if it has so many rows of it, not counting those of next to no weight, and at least half of the
# weight that it ought to have.
_LEAST_OF_LABEL = 10
LITTLE_WEIGHT = 0.01
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


class Sample(NamedTuple):
    """Some of the rows, and their share of the weight of all."""

    data: TrainingData
    weight_share: float


class TrainingData(ABC):
    """Rows, labels and weights, for one problem or for many with other noise, ``C`` or tolerance.

    Parameters
    ----------
    shape : tuple of int
        Rows, features, and columns of labels, which are -1 or +1; the columns are solved together.
    features : tuple of ndarray and int, default=None
        Which features the columns of ``X`` are, and of how many: the coefficients of all others are zero.
    """

    def __init__(self, shape: tuple[int, int, int], features: tuple[Array, int] | None = None) -> None:
        self.n_rows, self.n_features, self.n_columns = shape
        self.features = features
        self._offsets: dict[float, Array | None] = {}
        self._kept: dict[Any, dict[Any, Any]] = {}

    @abstractmethod
    def sample(self) -> Sample | None:
        """Return a sample, always the same one; ``None`` if it does not show every label of every column."""

    @abstractmethod
    def find_offset(self, ratio: float) -> Array | None:
        """Return the means of the columns if one is ``ratio`` times its column's spread, else ``None``."""

    @abstractmethod
    def partitions(
        self, C: float, entry: EntryFunction | None, offset: Array | None, kept: dict[Any, Any]
    ) -> Partitions[Labelled]:
        """Return the rows less ``offset``, with labels and ``C`` times the weights."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Give back what these data alone have needed."""

    def __enter__(self) -> TrainingData:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        if start is None and _can_sample(problem, self.n_rows, self.n_features):
            start, early_passes = _start_from_sample(problem, self)
        variance = Variance() if problem.noise is None else problem.noise.variance()
        offset = self._offset(problem, variance)
        coef = np.zeros((self.n_features + 1, self.n_columns)) if start is None else start.astype(np.float64)
        if offset is not None:
            coef[-1] += offset @ coef[:-1]
        kept = self._kept.setdefault(offset is not None, {})
        entry = variance.entry if variance.moves_entries and isinstance(problem.loss, MomentLoss) else None
        with self.partitions(problem.C, entry, offset, kept) as data, one_blas_thread():
            objective = _objective(problem, data, variance, self.n_features, self.n_columns)
            result = minimise(
                problem.solver,
                objective,
                objective.at(coef),
                tol=problem.tol,
                max_iter=problem.max_iter,
                monitor=problem.monitor,
                warm=start is not None,
                dual=None if known is None else carried(data, known.dual, problem.C / known.C),
            )
            passes = data.n_sweeps / 2
        if offset is not None:
            result.coef[-1] -= offset @ result.coef[:-1]
        return result, passes + early_passes

    def _offset(self, problem: Problem, variance: Variance) -> Array | None:
        """Return what to subtract from the columns, if they are far from zero and the noise does not mind."""
        if not problem.fit_intercept or variance.moves_entries:
            return None
        ratio = _OFFSET_MGF if isinstance(problem.loss, MGFLoss) or problem.penalty.l1 else _OFFSET_MOMENT
        if ratio not in self._offsets:
            self._offsets[ratio] = self.find_offset(ratio)
        return self._offsets[ratio]


class WholeData(TrainingData):
    """Data in memory as one matrix, cut into blocks once.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples, n_columns)
        -1 or +1, one column per binary problem.
    weights : ndarray of shape (n_samples,)
    n_threads : int
    """

    def __init__(
        self, X: Any, labels: Array, weights: Array, n_threads: int, features: tuple[Array, int] | None = None
    ) -> None:
        super().__init__((*X.shape, labels.shape[1]), features)
        self.X = X
        self.labels = labels
        self.weights = weights
        self.n_threads = n_threads
        self._blocks: dict[Any, list[Block]] = {}

    def sample(self) -> Sample | None:
        # Drawn, not every tenth: rows may come in an order that has a period.
        rng = np.random.default_rng(0)
        rows = np.sort(rng.choice(self.n_rows, size=self.n_rows // SAMPLE_EVERY, replace=False))
        labels, weights = self.labels[rows], self.weights[rows]
        counted = weights > LITTLE_WEIGHT * self.weights.mean()
        for label in (1.0, -1.0):
            shown, there = weights @ (labels == label), self.weights @ (self.labels == label)
            number = np.count_nonzero((labels == label) & counted[:, None], axis=0)
            if not shows_label(shown, there, number):
                return None
        data = WholeData(self.X[rows], labels, weights, self.n_threads)
        return Sample(data, weights.sum() / self.weights.sum())

    def find_offset(self, ratio: float) -> Array | None:
        return large_offset(self.X, self.weights, ratio)

    def partitions(
        self, C: float, entry: EntryFunction | None, offset: Array | None, kept: dict[Any, Any]
    ) -> Partitions[Labelled]:
        key = entry, offset is not None
        if key not in self._blocks:
            self._blocks = {
                key: row_blocks(subtract(self.X, offset), entry)
            }  # one kind at a time: blocks may hold copies
        blocks = self._blocks[key]
        edges = np.cumsum([0] + [block.n_rows for block in blocks])
        scaled = C * self.weights[:, None]
        parts = (
            Labelled(block, self.labels[begin:end], scaled[begin:end])
            for block, begin, end in zip(blocks, edges[:-1], edges[1:], strict=True)
        )
        return LocalPartitions(parts, self.n_threads, kept)


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
            return WholeData(X[rows], labels, weights[rows], n_threads)

        return [
            Group(slice(k, k + 1), partial(prepare_pair, *pair))
            for k, pair in enumerate(combinations(range(n_classes), 2))
        ]
    positive = np.arange(n_classes) if n_classes > 2 else np.array([1])
    labels = np.where(codes[:, None] == positive, 1.0, -1.0)

    whole, used = drop_empty_columns(X)
    features = None if used is None else (used, X.shape[1])

    def prepare(columns: slice, n_threads: int) -> TrainingData:
        return WholeData(whole, labels[:, columns], weights, n_threads, features)

    together = is_dense_matrix(X) and isinstance(loss, MomentLoss)
    width = len(positive) if together else 1
    return [
        Group(columns, partial(prepare, columns))
        for columns in (slice(k, k + width) for k in range(0, len(positive), width))
    ]


def fit_groups(problem: Problem, groups: list[Group], start: Array | None, n_threads: int) -> tuple[Result, float]:
    """Solve all binary problems, side by side if there are several groups; return the passes, too."""
    inner_threads = max(1, n_threads // len(groups))

    def fit(group: Group, own: Problem) -> tuple[Result, float]:
        with group.prepare(inner_threads) as data:
            return data.minimise(own, None if start is None else start[:, group.columns])

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


def _can_sample(problem: Problem, n_rows: int, n_features: int) -> bool:
    """Whether a sample of the rows may be enough to learn most of what all of them tell.

    A hinge without noise takes more passes from there than from zero, and the other solvers are for comparison.
    """
    noisy = problem.noise is not None and not problem.noise.variance().is_zero
    smooth = isinstance(problem.loss, MomentLoss) and (noisy or not problem.loss.kink)
    enough = SAMPLE_EVERY * max(_LEAST_SAMPLE, _ROWS_PER_FEATURE * n_features)
    benefits = problem.solver.benefits_from_subsample and smooth and not problem.penalty.l1
    return benefits and n_rows >= enough and problem.tol < _SAMPLE_TOL


def _start_from_sample(problem: Problem, data: TrainingData) -> tuple[Array | None, float]:
    """Return the roughly fitted coefficients of a sample of the rows, and the passes, as a share of those over all.

    There are none if the sample does not show every label of every column, or if the fit to it has not come to its end:
    what is learnt from one label alone leads nowhere.
    """
    sample = data.sample()
    if sample is None:
        return None, 0.0
    C = problem.C / sample.weight_share
    rough = replace(problem, C=C, tol=_SAMPLE_TOL, max_iter=_SAMPLE_ITERATIONS, monitor=no_monitor)
    with sample.data as rows:
        result, passes = rows.minimise(rough)
    return result.coef if result.converged else None, passes * sample.data.n_rows / data.n_rows


def shows_label(shown: Array, there: Array, number: Array) -> bool:
    """Return whether a sample shows a label, by weight and by number of rows, in every column.

    ``shown`` and ``there`` are its weights in the sample and in all rows; ``number`` counts the rows of the sample that
    have more than `LITTLE_WEIGHT` times the mean weight.
    """
    return not (np.any(SAMPLE_EVERY * shown < _SHOWN * there) or np.any(number < _LEAST_OF_LABEL))


def no_monitor(entry: Iteration) -> None:
    """Monitor a fit in silence."""


def _objective(
    problem: Problem, data: Partitions[Labelled], variance: Variance, n_features: int, n_columns: int
) -> Objective:
    """Return the objective: a block of all columns for a moment loss, of the one column for a loss through the MGF."""
    if isinstance(problem.loss, MGFLoss):
        noise = DropoutNoise(rate=0.0) if problem.noise is None else problem.noise
        return MGFObjective(data, problem.loss, noise, problem.penalty, problem.fit_intercept, n_features, 0)
    assert isinstance(problem.loss, MomentLoss)
    columns, loss = np.arange(n_columns), problem.loss
    loss = loss.without_noise() if variance.is_zero else loss
    return MomentObjective(data, loss, variance, problem.penalty, problem.fit_intercept, n_features, columns)
