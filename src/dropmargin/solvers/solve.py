"""``solve(problem, data, start) -> Result``: from training data to coefficients.

The one entry point below the estimators, for rows in memory, in files and on a cluster. It makes the binary problems of
a classification (a regression is one problem), centres features, starts from a subsample where that saves passes, and
calls the solver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, Columns, FeatureGroups, Output, TrainingData, Variance, target_weights
from dropmargin.data.training import SUBSAMPLE_EVERY
from dropmargin.losses import Hinge, Loss, MGFLoss, MomentLoss
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.objective import GroupScores, LogMGF, MGFRows, MomentRows, Moments, Objective, Scores, SoftmaxRows
from dropmargin.penalties import Penalty
from dropmargin.solvers.dual_coordinate import descend_dual
from dropmargin.solvers.interior_point import interior_point
from dropmargin.solvers.lbfgs import lbfgs
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.result import Iteration, Monitor, Options, Result, combine, no_monitor
from dropmargin.solvers.working_sets import working_sets
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array

# Features are centred if the mean of one is this many times its standard deviation: farther away they cost digits, and
# where the diagonal preconditions, or under an l1 penalty, passes as well.
_FAR, _FAR_FOR_DIAGONAL = 100.0, 3.0
# With many rows for each feature, a first fit to a subsample of the rows, and to a low tolerance, saves passes.
_SUBSAMPLE_TOL, _LEAST_SUBSAMPLE, _SUBSAMPLE_ITERATIONS = 3e-2, 1000, 40
# With this many rows for each feature, Hessians are estimated from the subsample as well.
_ROWS_FOR_SAMPLED_HESSIAN = 50
# The hinge without noise of so many features and products of entries or less is minimised by factorisations alone; up
# to so many features and entries, of which dense copies are made, where coordinate descent would take too long.
_FEW_FEATURES, _FEW_PRODUCTS, _INTERIOR_FEATURES, _INTERIOR_ENTRIES = 100, 2**25, 1500, 2**25
# The interior point method is for tolerances that are not lower: its matrices are less and less well conditioned.
_INTERIOR_TOL = 1e-6
# Objectives with a smaller relative difference are equal up to rounding.
_ROUNDING = 1e-9
# Without an intercept, rounding errors may be this share of the curvature.
_LOST_CURVATURE = 0.01
_BEYOND_PRECISION = (
    "the features are so far from zero that without an intercept rounding errors exceed what distinguishes the rows; "
    "centre X, or set fit_intercept=True"
)


@dataclass(frozen=True)
class Solver:
    """A method by name, and what it needs.

    Parameters
    ----------
    run : callable
        Objective, coefficients to start from and `Options` to `Result`.
    is_joint : bool, default=True
        Whether it minimises all outputs together.
    takes_l1 : bool, default=False
    needs_majoriser : bool, default=False
    """

    run: Callable[..., Result]
    is_joint: bool = True
    takes_l1: bool = False
    needs_majoriser: bool = False


SOLVERS: dict[str, Solver] = {
    "irls": Solver(irls, needs_majoriser=True),
    "newton": Solver(newton, takes_l1=True),
    "lbfgs": Solver(lbfgs, is_joint=False),
}


def choose_solver(name: Any, loss: Loss, penalty: Penalty) -> Solver:
    """Return the solver of that name, or the best for ``"auto"``; a `ValueError` if it does not suit the problem."""
    if not isinstance(name, str) or name not in ("auto", *SOLVERS):
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}, got {name!r}.")
    solver = SOLVERS["newton" if name == "auto" else name]
    if penalty.l1 and not solver.takes_l1:
        raise ValueError(
            f"solver={name!r} cannot minimise an l1 or elastic-net penalty; use solver='auto' or 'newton'."
        )
    if solver.needs_majoriser and not getattr(loss, "has_majoriser", False):
        raise ValueError(
            f"solver={name!r} needs a quadratic majoriser, which {type(loss).__name__} does not have; "
            "use solver='auto', 'newton' or 'lbfgs'."
        )
    return solver


@dataclass(frozen=True)
class Problem:
    """Everything about a fit but the data.

    Parameters
    ----------
    loss : Loss
    noise : Noise or None
    penalty : Penalty
    C : float
    fit_intercept : bool
    multi_class : {"ovr", "ovo", "multinomial"}
    solver : Solver
    tol : float
    max_iter : int
    monitor : callable
    is_single : bool, default=False
        Whether products with the rows are in single precision.
    """

    loss: Loss
    noise: Noise | None
    penalty: Penalty
    C: float
    fit_intercept: bool
    multi_class: str
    solver: Solver
    tol: float
    max_iter: int
    monitor: Monitor = no_monitor
    is_single: bool = False

    @property
    def variance(self) -> Variance:
        return Variance() if self.noise is None else self.noise.variance()


def solve(problem: Problem, data: TrainingData, start: Array | None = None, n_threads: int = 1) -> Result:
    """Return the solution of a classification or regression problem.

    Parameters
    ----------
    problem : Problem
    data : TrainingData
    start : ndarray of shape (n_features + 1, n_outputs), default=None
        Coefficients near the solution, intercept last.
    n_threads : int, default=1
        Threads that share the rows, or the outputs; they do not change the result.
    """
    problem, data = with_means(problem, data)
    outputs = data.outputs(problem.multi_class)
    with one_blas_thread():
        if is_joint(problem, data, outputs):
            return solve_outputs(problem, data, outputs, start, n_threads)
        stop = threading.Event()

        def monitor(entry: Iteration) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            problem.monitor(entry)

        own = replace(problem, monitor=monitor)
        # What all outputs share is computed before the threads start.
        for rows in {id(rows): rows for rows in (_rows_of(data, output) for output in outputs)}.values():
            columns, means, variance = prepare(own, rows)
            blocks = rows.blocks(variance.take(columns.features), columns, means)
            if rows.is_matrix:
                blocks.map(_compile)

        def job(k: int) -> Result:
            own_start = None if start is None else start[:, k : k + 1]
            return solve_outputs(own, _rows_of(data, outputs[k]), [outputs[k]], own_start)

        return combine(in_threads([partial(job, k) for k in range(len(outputs))], n_threads, stop))


def _compile(block: Block) -> None:
    _ = block.compiled


def is_joint(problem: Problem, data: TrainingData, outputs: Sequence[Output]) -> bool:
    """Return whether all outputs are solved together.

    Products with dense rows are faster for several outputs at once, and rows elsewhere are read or sent once. Sparse
    rows in memory are solved one output at a time, in threads: each stored entry would need a whole row of the
    coefficients.
    """
    if len(outputs) == 1 or problem.multi_class == "multinomial":
        return True
    is_simple = isinstance(problem.loss, MomentLoss) and not problem.penalty.l1 and problem.solver.is_joint
    return is_simple and (data.is_dense or not data.is_matrix) and outputs[0].negative is None


def _rows_of(data: TrainingData, output: Output) -> TrainingData:
    return data if output.negative is None else data.of_pair(output)


def with_means(problem: Problem, data: TrainingData) -> tuple[Problem, TrainingData]:
    """Return the problem with a noise for the feature means of the rows, if it needs them.

    Missing entries take the reference value of their feature, where the noise has no variance.
    """
    if problem.noise is None:
        return problem, data
    noise = problem.noise.with_means(data.feature_means) if problem.noise.needs_means else problem.noise
    if data.has_missing and noise.missing_values is not None:
        data = data.filled(noise.missing_values)
    return replace(problem, noise=noise), data


def solve_outputs(
    problem: Problem, data: TrainingData, outputs: Sequence[Output], start: Array | None = None, n_threads: int = 1
) -> Result:
    """Return the solution for outputs that share their rows; ``start`` is of shape ``(n_features + 1, n_outputs)``."""
    features = prepare(problem, data)
    columns, means, variance = features
    # 1. The start: given, or a rough fit to a subsample where that saves passes, or zero with a good intercept.
    sample, first_passes, near = None, 0.0, None
    has_kink = isinstance(problem.loss, MomentLoss) and problem.loss.kink > 0.0
    if has_kink and start is not None and ((variance.is_zero and not problem.penalty.l1) or not start[:-1].any()):
        near, start = start, None  # far from the minima of the first smoothed problems
    if start is None and _suits_subsample(problem, data):
        sample = data.subsample(outputs)
        if sample is not None:
            start, first_passes = _start_from_subsample(problem, sample, data, outputs)
    is_warm = start is not None
    first, near = (None if one is None else columns.select(one.astype(np.float64)) for one in (start, near))
    coef = _first_coef(problem, data, outputs, columns) if first is None else first
    if means is not None:
        for given in (coef,) if near is None else (coef, near):
            given[-1] += means[columns.features] @ given[:-1]
    # 2. The objective, with Hessians from the subsample where there are many rows for each feature.
    objective = make_objective(problem, data, outputs, features, n_threads)
    if sample is not None and is_warm and data.n_rows >= _ROWS_FOR_SAMPLED_HESSIAN * data.n_features:
        share = sample.weight / data.weight
        own = make_objective(replace(problem, C=problem.C / share), sample, outputs, features, n_threads)
        own.passes, own.share, own.cache = objective.passes, sample.n_rows / data.n_rows, objective.cache
        objective = replace(objective, sample=own)
    if objective.is_centred:
        coef = coef - coef.mean(axis=1, keepdims=True)
    # 3. The solver.
    is_warm |= isinstance(problem.loss, MomentLoss) and problem.loss.is_quadratic
    options = Options(problem.tol, problem.max_iter, problem.monitor, is_warm, problem.is_single, near=near)
    result = _run(problem, objective, coef, options)
    # 4. Coefficients of all features.
    if objective.has_kink and not problem.loss.suits_regression:
        result = _constant_if_better(problem, data, outputs, result)
    coef = result.coef
    if means is not None:
        coef[-1] -= means[columns.features] @ coef[:-1]
    if objective.is_coupled and objective.n_columns > 1:  # a constant added to all intercepts changes nothing
        coef[-1] -= coef[-1].mean()
    if not problem.fit_intercept and _exceeds_precision(problem, data, variance):
        result = replace(result, converged=False, message=_BEYOND_PRECISION)
    # The point would keep the rows of the objective.
    n_passes = objective.n_passes + first_passes
    return replace(result, coef=columns.restore(coef), n_passes=n_passes, point=None)


class Features(NamedTuple):
    """The features of the blocks, what is subtracted from all features, and the variance of all less that."""

    columns: Columns
    means: Array | None
    variance: Variance


def prepare(problem: Problem, data: TrainingData) -> Features:
    """Return the features that are not empty, centred where that is exact and of use."""
    variance = problem.variance
    means = _means_to_subtract(problem, data, variance)
    return Features(data.columns(variance), means, variance if means is None else variance.shifted(means))


def _means_to_subtract(problem: Problem, data: TrainingData, variance: Variance) -> Array | None:
    """Return what to subtract from the features: exact with an intercept, and the best for precision.

    Dense rows are centred at the reference of dropout, where the variance is a square, or at the means if the noise
    does not depend on the entries. Other noises, and sparse rows, are centred if a feature is far from zero.
    """
    if not problem.fit_intercept or variance.entry is not None:
        return None
    through_mgf = isinstance(problem.loss, MGFLoss)
    shifts = problem.noise is None or problem.noise.shifted(np.zeros(data.n_features)) is not None
    if through_mgf and not shifts:
        return None
    if data.is_dense and not through_mgf:
        if np.any(variance.linear) and np.all(np.asarray(variance.quadratic) > 0.0):
            return variance.reference
        if not variance.depends_on_x:
            return data.feature_means
    if not data.is_dense and not shifts:
        return None
    return data.means_far_from_zero(_FAR_FOR_DIAGONAL if through_mgf or problem.penalty.l1 else _FAR)


def make_objective(
    problem: Problem, data: TrainingData, outputs: Sequence[Output], features: Features, n_threads: int = 1
) -> Objective:
    """Return the objective of some outputs."""
    columns, means, variance = features
    variance = variance.take(columns.features)
    blocks = data.blocks(variance, columns, means, n_threads).transformed(Block.without_memo)
    is_softmax = problem.multi_class == "multinomial" and data.n_classes > 2
    loss: Any = problem.loss
    if is_softmax:
        row_loss: Any = SoftmaxRows(data.n_classes)
    elif isinstance(loss, MGFLoss):
        blocks = blocks.transformed(_with_targets, outputs[0])
        row_loss = MGFRows(2, loss)
    else:
        row_loss = MomentRows(loss.without_noise() if variance.is_zero else loss, outputs)
    return Objective(
        blocks,
        _scores(problem, variance, columns, means),
        row_loss,
        problem.penalty,
        problem.C,
        problem.fit_intercept,
        data.n_rows,
        len(columns.features),
        len(outputs),
        variance,
        max(problem.C * data.weight, np.finfo(float).tiny),
        data.is_dense,
        cache=data.cache.setdefault(
            ("shared", columns.features.tobytes(), None if means is None else means.tobytes()), {}
        ),
    )


def _scores(problem: Problem, variance: Variance, columns: Columns, means: Array | None) -> Scores:
    noise = problem.noise
    through_mgf = isinstance(problem.loss, MGFLoss) and not variance.is_zero
    if through_mgf:
        assert noise is not None
        noise = noise if means is None else noise.shifted(means)
        noise = noise.take(columns.features)  # type: ignore[union-attr]
    if variance.groups is not None and not variance.is_zero:
        groups = FeatureGroups.of(variance, len(columns.features))
        return GroupScores(groups, noise if through_mgf and isinstance(noise, DropoutNoise) else None)
    return LogMGF(noise) if through_mgf and noise is not None else Moments(variance)


def _with_targets(block: Any, output: Output) -> Any:
    """Return a block whose rows have the class 1 if they belong to the output's class, else 0."""
    block.y = (block.y == output.positive).astype(int)
    return block


def _run(problem: Problem, objective: Objective, coef: Array, options: Options) -> Result:
    """Return the result of the solver that suits the objective."""
    solver = problem.solver
    if solver.run is newton:
        if problem.penalty.l1:
            return working_sets(objective, coef, options)
        if objective.is_noise_free and isinstance(objective.loss, MomentRows) and type(objective.loss.loss) is Hinge:
            return _run_hinge(objective, coef, options)
    if solver.is_joint or objective.is_coupled or objective.n_columns == 1:
        return solver.run(objective, coef, options)
    columns = range(objective.n_columns)
    return combine([solver.run(objective.select(np.array([k])), coef[:, k : k + 1], options) for k in columns])


def _run_hinge(objective: Objective, coef: Array, options: Options) -> Result:
    """Return the result of the hinge without noise, whose kink needs methods of its own."""
    n, p = objective.n_rows, objective.n_features
    single = [objective.select(np.array([k])) for k in range(objective.n_columns)]
    found: list[Result | None] = [None] * len(single)
    if not (p <= _FEW_FEATURES and n * p * p <= _FEW_PRODUCTS) and np.ndim(objective.penalty.l2) == 0:
        found = [descend_dual(own, options) for own in single]
    left = [k for k, result in enumerate(found) if result is None]
    is_moderate = p <= _INTERIOR_FEATURES and n * p <= _INTERIOR_ENTRIES
    if left and is_moderate and options.tol >= _INTERIOR_TOL:
        near = None if options.near is None else options.near[:, left]
        for k, result in zip(left, interior_point(objective.select(np.array(left)), options, near), strict=True):
            found[k] = result
    columns = zip(found, single, coef.T[:, :, None], strict=True)
    return combine([newton(own, first, options) if result is None else result for result, own, first in columns])


def _suits_subsample(problem: Problem, data: TrainingData) -> bool:
    """Return whether a first fit to a subsample saves passes: for a smooth loss, and many rows for each feature."""
    loss = problem.loss
    is_smooth = isinstance(loss, MomentLoss) and not (loss.kink and problem.variance.is_zero) and not loss.is_quadratic
    is_newton = problem.solver.run is newton and not problem.penalty.l1 and problem.multi_class != "multinomial"
    least = SUBSAMPLE_EVERY * max(_LEAST_SUBSAMPLE, data.n_features)
    return is_smooth and is_newton and data.n_rows >= least and problem.tol < _SUBSAMPLE_TOL


def _start_from_subsample(
    problem: Problem, sample: TrainingData, data: TrainingData, outputs: Sequence[Output]
) -> tuple[Array | None, float]:
    """Return coefficients of a rough fit to a subsample, if it converges, and its passes as a share of all rows."""
    C = problem.C * data.weight / sample.weight
    rough = replace(problem, C=C, tol=_SUBSAMPLE_TOL, max_iter=_SUBSAMPLE_ITERATIONS, monitor=no_monitor)
    result = solve_outputs(rough, sample, outputs)
    return result.coef if result.converged else None, result.n_passes * sample.n_rows / data.n_rows


def _first_coef(problem: Problem, data: TrainingData, outputs: Sequence[Output], columns: Columns) -> Array:
    """Return zero coefficients, and an intercept between the targets: far from its kinks a hinge is flat."""
    coef = np.zeros((len(columns.features) + 1, len(outputs)))
    is_softmax = problem.multi_class == "multinomial" and data.n_classes > 2
    if not problem.fit_intercept or isinstance(problem.loss, MGFLoss) or is_softmax:
        return coef
    if outputs[0].positive is None:
        coef[-1] = data.first_intercept
    else:
        weights = target_weights(outputs, data.class_weights)
        coef[-1] = (weights[0] - weights[1]) / np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
    return coef


def _constant_if_better(problem: Problem, data: TrainingData, outputs: Sequence[Output], result: Result) -> Result:
    """Return the result, or only an intercept for outputs where that is no worse.

    Under strong noise, or for a rare class, all coefficients zero and an intercept at the kink may be the optimum, that
    the smoothed problems approach without reaching it.
    """
    loss: Any = problem.loss
    weights = problem.C * target_weights(outputs, data.class_weights)
    intercept = np.where(weights[0] > weights[1], loss.kink, -loss.kink) * problem.fit_intercept
    ones, none = np.ones_like(intercept), np.zeros_like(intercept)
    losses = np.stack([loss.value(ones, intercept, none), loss.value(-ones, intercept, none)])
    constant = (weights * losses).sum(axis=0)
    better = constant <= result.objective * (1.0 + _ROUNDING)
    coef = np.where(better, 0.0, result.coef)
    coef[-1] = np.where(better, intercept, result.coef[-1])
    return replace(result, coef=coef, objective=np.where(better, constant, result.objective))


def _exceeds_precision(problem: Problem, data: TrainingData, variance: Variance) -> bool:
    """Return whether rounding errors of the curvature along the feature means exceed the curvature of a feature.

    That is so if features are very far from zero, and there is no intercept that would allow to centre them.
    """
    if data.means_far_from_zero(_FAR) is None:
        return False
    mean, deviation = data.feature_means, data.feature_deviations
    weight = problem.C * data.weight
    own = np.min(problem.penalty.l2) + weight * (np.square(deviation) + variance.of(mean))
    rounding = np.finfo(float).eps * weight * float(mean @ mean)
    return bool(np.any((rounding > _LOST_CURVATURE * own) & (deviation > 0.0)))
