"""``solve(problem, rows, start) -> Result``: from training data to coefficients.

The one entry point below the estimators, for rows in memory, in files and on a cluster. It makes the binary problems of
a classification (a regression is one problem), centres features that are far from zero, starts from a subsample where
that saves passes, and calls the method that suits the problem:

- for a quadratic loss on a few features, one Newton step by a factorisation;
- Newton's method for smooth objectives; "irls" and "lbfgs" are there for comparison;
- for the hinge loss, its central path (`central_path`), and without noise coordinate descent in the dual first;
- for an l1 penalty, steps within an orthant (`orthant`), and the central path where they do not suffice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import EncodedRows, Output, OutputRows, Partitions, Rows, SquaredDeviation
from dropmargin.data.training import SUBSAMPLE_EVERY, Subsample
from dropmargin.losses import Loss, MGFLoss, MomentLoss
from dropmargin.noise import DropoutNoise, Noise, Variance
from dropmargin.objective import (
    MGFObjective,
    MomentObjective,
    MultinomialObjective,
    Objective,
)
from dropmargin.objective.moment import MomentPoint
from dropmargin.objective.multinomial_rows import FeatureVariance, GroupVariance, LogMGF, ScoreVariance
from dropmargin.objective.preconditioner import DIRECT_SIZE
from dropmargin.penalties import Penalty
from dropmargin.solvers.central_path import follow_central_path
from dropmargin.solvers.dual_coordinate import descend_dual
from dropmargin.solvers.interior_point import interior_point, suits_interior_point
from dropmargin.solvers.lbfgs import lbfgs
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.orthant import orthant
from dropmargin.solvers.result import Iteration, Monitor, Options, Result, combine, no_monitor
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array

# Features are centred if the mean of one is this many times its standard deviation: farther away they cost digits, and
# where the diagonal preconditions, or under an l1 penalty, passes as well.
_FAR = 100.0
_FAR_FOR_DIAGONAL = 3.0
# With many rows for each feature, a first fit to a subsample of the rows, and to a low tolerance, saves passes.
_SUBSAMPLE_TOL = 1e-2
_LEAST_SUBSAMPLE = 1000
_SUBSAMPLE_ITERATIONS = 40
# With this many rows for each feature, Hessians are estimated from the subsample as well.
_ROWS_FOR_SAMPLED_HESSIAN = 50

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
        Objective, start and `Options` to `Result`, for a smooth objective.
    is_joint : bool, default=True
        Whether it minimises all outputs together.
    takes_l1 : bool, default=False
    needs_majoriser : bool, default=False
    benefits_from_subsample : bool, default=False
        Whether a first fit to a subsample saves passes.
    """

    run: Callable[..., Result]
    is_joint: bool = True
    takes_l1: bool = False
    needs_majoriser: bool = False
    benefits_from_subsample: bool = False


SOLVERS: dict[str, Solver] = {
    "irls": Solver(irls, needs_majoriser=True),
    "newton": Solver(newton, takes_l1=True, benefits_from_subsample=True),
    "lbfgs": Solver(lbfgs, is_joint=False),
}


def choose_solver(name: Any, loss: Loss, penalty: Penalty) -> Solver:
    """Return the solver of that name, or the best for ``"auto"``; a `ValueError` if it does not suit the problem."""
    if not isinstance(name, str) or name not in ("auto", *SOLVERS):
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}, got {name!r}.")
    if name == "auto":
        return SOLVERS["newton"]
    solver = SOLVERS[name]
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
    is_rough : bool, default=False
        Whether the solution is only a start for another problem: an estimated gap suffices.
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
    is_rough: bool = False

    @property
    def variance(self) -> Variance:
        return Variance() if self.noise is None else self.noise.variance()


class OutputGroup(NamedTuple):
    """Outputs that are solved together: their columns among all, and how to open their rows on so many threads."""

    columns: slice
    open: Callable[[int], OutputRows]


def open_outputs(loss: Loss, rows: EncodedRows, multi_class: str) -> list[OutputGroup]:
    """Return the outputs of a classification, or the one of a regression, in groups.

    All one-vs-rest outputs are one group if they share products; each pair of classes is a group of its own.
    """
    outputs = rows.outputs(multi_class)
    if multi_class == "multinomial" and len(outputs) > 1:
        return [OutputGroup(slice(0, len(outputs)), partial(rows.by_class.open, outputs))]
    is_joint = rows.shares_products and isinstance(loss, MomentLoss) and outputs[0].negative is None
    size = len(outputs) if is_joint else 1
    groups: list[list[Output]] = [outputs[k : k + size] for k in range(0, len(outputs), size)]
    return [OutputGroup(slice(k * size, k * size + size), partial(rows.open, own)) for k, own in enumerate(groups)]


def solve(problem: Problem, rows: EncodedRows, start: Array | None = None, n_threads: int = 1) -> Result:
    """Return the solution of a classification or regression problem.

    Parameters
    ----------
    problem : Problem
    rows : EncodedRows
    start : ndarray of shape (n_features + 1, n_outputs), default=None
        Coefficients near the solution, intercept last.
    n_threads : int, default=1
        Threads that share the rows, or the groups of outputs; they do not change the result.
    """
    problem, rows = with_means(problem, rows)
    groups = open_outputs(problem.loss, rows, problem.multi_class)
    if len(groups) == 1:
        with groups[0].open(n_threads) as own:
            return solve_outputs(problem, own, start)
    stop = threading.Event()

    def monitor(entry: Iteration) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        problem.monitor(entry)

    def job(group: OutputGroup) -> Result:
        with group.open(max(1, n_threads // len(groups))) as own:
            own_start = None if start is None else start[:, group.columns]
            return solve_outputs(replace(problem, monitor=monitor), own, own_start)

    return combine(in_threads([partial(job, group) for group in groups], n_threads, stop))


def with_means(problem: Problem, rows: EncodedRows) -> tuple[Problem, EncodedRows]:
    """Return the problem with a noise for the feature means of the rows, if it needs them.

    Missing entries take the reference value of their feature, where the noise has no variance.
    """
    if problem.noise is None:
        return problem, rows
    noise = problem.noise.with_means(rows.feature_means) if problem.noise.needs_means else problem.noise
    if rows.has_missing and noise.missing_values is not None:
        rows = rows.filled(noise.missing_values)
    return replace(problem, noise=noise), rows


def solve_outputs(problem: Problem, rows: OutputRows, start: Array | None = None) -> Result:
    """Return the solution for outputs that share their rows; ``start`` is of shape ``(n_features + 1, n_outputs)``."""
    if rows.source.used_features is not None:
        used, n_features = rows.source.used_features
        problem = replace(problem, noise=None if problem.noise is None else problem.noise.take(used))
        start = None if start is None else start[np.append(used, n_features)]
    with ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        # 1. The start: given, or a rough fit to a subsample where that saves passes, or zero.
        subsample = rows.subsample() if start is None and _suits_subsample(problem, rows) else None
        first_passes = 0.0
        if subsample is not None:
            while_used = stack.enter_context(ExitStack())
            while_used.enter_context(subsample.rows)
            start, first_passes = _start_from_subsample(problem, subsample, rows.n_rows)
            if rows.n_rows < _ROWS_FOR_SAMPLED_HESSIAN * rows.n_features:
                while_used.close()
                subsample = None
        coef = np.zeros((rows.n_features + 1, rows.n_outputs)) if start is None else start.astype(np.float64)
        if start is None and problem.fit_intercept:
            coef[-1] = rows.source.first_intercept
        # 2. Features far from zero are centred.
        means = _feature_means(problem, rows)
        if means is not None:
            coef[-1] += means @ coef[:-1]
            problem = replace(problem, noise=None if problem.noise is None else problem.noise.shifted(means))
        # 3. The objective, with Hessians from the subsample where there are many rows for each feature.
        is_direct = _suits_direct(problem, rows)
        variance = problem.variance if rows.is_dense else problem.variance.of_stored_entries()
        entry = variance.entry if variance.moves_entries and isinstance(problem.loss, MomentLoss) else None
        data = stack.enter_context(rows.partitions(problem.C, entry, means))
        objective = _objective(problem, data, variance, rows, is_direct)
        if subsample is not None and isinstance(objective, MomentObjective):
            own = subsample.rows.partitions(problem.C / subsample.weight_share, entry, means)
            objective = replace(objective, subsample=stack.enter_context(own))
        # 4. The method that suits the objective.
        is_warm = start is not None or is_direct
        options = Options(problem.tol, problem.max_iter, problem.monitor, warm=is_warm, is_rough=problem.is_rough)
        method = choose_method(problem.solver, objective)
        result = method(objective, objective.at(objective.to_solver(coef)), options)
        result = replace(result, coef=objective.from_solver(result.coef))
        n_passes = objective.n_passes + first_passes
    coef = result.coef
    if means is not None:
        coef[-1] -= means @ coef[:-1]
    if not problem.fit_intercept and _exceeds_precision(problem, rows):
        result = replace(result, converged=False, message=_BEYOND_PRECISION)
    if rows.source.used_features is not None:
        coef = np.zeros((n_features + 1, rows.n_outputs))
        coef[np.append(used, n_features)] = result.coef
    return replace(result, coef=coef, n_passes=n_passes)


def choose_method(solver: Solver, objective: Any) -> Callable[..., Result]:
    """Return the method for an objective: a function of objective, start and options."""
    has_kink = isinstance(objective, MomentObjective) and objective.loss.kink > 0.0
    method: Callable[..., Result] = solver.run
    is_joint = solver.is_joint
    if objective.penalty.l1:
        method, is_joint = _solve_l1, False
    elif solver.run is newton and suits_interior_point(objective):
        return _solve_few_rows
    elif solver.run is newton and objective.is_noise_free_hinge:
        method, is_joint = _solve_noise_free, False
    elif has_kink:
        method = partial(follow_central_path, solver.run)
    return method if is_joint or objective.n_outputs == 1 else partial(_one_by_one, method)


def _one_by_one(
    method: Callable[..., Result], objective: MomentObjective, start: MomentPoint, options: Options
) -> Result:
    """Solve the outputs one after the other."""
    results: list[Result] = []
    for k in range(objective.n_outputs):
        before = objective.n_passes if results else 0.0  # those of the outputs before, which share the count
        found = method(objective.select([k]), start.select([k]), options)
        history = [entry._replace(passes=entry.passes - before) for entry in found.history]
        results.append(replace(found, history=history))
    return combine(results)


def _solve_few_rows(objective: MomentObjective, start: MomentPoint, options: Options) -> Result:
    """Minimise the hinge objective without noise for few rows: by an interior-point method, or else as for many."""
    found = interior_point(objective, options, start.coef if options.warm else None)
    if found.converged or found.n_iter >= options.max_iter or np.ndim(objective.penalty.l2) > 0:
        return found
    return _then(found, partial(_one_by_one, _solve_noise_free), objective, start, options)


def _solve_noise_free(objective: MomentObjective, start: MomentPoint, options: Options) -> Result:
    """Minimise the hinge objective without noise: by coordinate descent in the dual, or else along the central path."""
    found = descend_dual(objective, options)
    if found is None:
        return follow_central_path(newton, objective, start, options)
    if found.converged or options.n_before + found.n_iter >= options.max_iter:
        return found
    return _then(found, partial(follow_central_path, newton), objective, start, replace(options, warm=False))


def _solve_l1(objective: Any, start: Any, options: Options) -> Result:
    """Minimise under an l1 penalty: by steps within an orthant, or else along the central path."""
    if not (isinstance(objective, MomentObjective) and objective.loss.kink > 0.0):
        found = orthant(objective, start, options)
    elif objective.variance.is_zero:
        return follow_central_path(newton, objective, start, options)
    else:
        found = follow_central_path(orthant, objective, start, options)
    if found.converged or found.n_iter >= options.max_iter:
        return found
    return _then(found, partial(follow_central_path, newton), objective, start, options)


def _then(found: Result, method: Callable[..., Result], objective: Any, start: Any, options: Options) -> Result:
    """Return the result of a method for the iterations that another one has left."""
    rest = method(objective, start, replace(options, n_before=options.n_before + found.n_iter))
    return replace(rest, n_iter=found.n_iter + rest.n_iter, history=found.history + rest.history)


def _suits_direct(problem: Problem, rows: OutputRows) -> bool:
    """Return whether one Newton step by a factorisation, which is exact, is the fastest way to the minimum."""
    is_quadratic = isinstance(problem.loss, MomentLoss) and problem.loss.is_quadratic and not problem.penalty.l1
    is_small = min(rows.n_features, rows.n_rows) <= DIRECT_SIZE
    return is_quadratic and problem.solver.run is newton and rows.is_dense and rows.n_outputs == 1 and is_small


def _suits_subsample(problem: Problem, rows: OutputRows) -> bool:
    """Return whether a first fit to a subsample saves passes: for a smooth loss, and many rows for each feature."""
    is_smooth = isinstance(problem.loss, MomentLoss) and not (problem.loss.kink and problem.variance.is_zero)
    benefits = problem.solver.benefits_from_subsample and is_smooth and not problem.penalty.l1
    least = SUBSAMPLE_EVERY * max(_LEAST_SUBSAMPLE, rows.n_features)
    is_large = rows.n_rows >= least and problem.tol < _SUBSAMPLE_TOL
    return benefits and is_large and not _suits_direct(problem, rows)


def _start_from_subsample(problem: Problem, subsample: Subsample, n_rows: int) -> tuple[Array | None, float]:
    """Return coefficients of a rough fit to a subsample, if it converges, and its passes as a share of ``n_rows``."""
    C = problem.C / subsample.weight_share
    rough = replace(problem, C=C, tol=_SUBSAMPLE_TOL, max_iter=_SUBSAMPLE_ITERATIONS, monitor=no_monitor, is_rough=True)
    result = solve_outputs(rough, subsample.rows)
    return result.coef if result.converged else None, result.n_passes * subsample.rows.n_rows / n_rows


def _feature_means(problem: Problem, rows: OutputRows) -> Array | None:
    """Return what to subtract from the features, if one is far from zero and the noise allows it."""
    noise = problem.noise
    if not problem.fit_intercept or (noise is not None and noise.shifted(np.zeros(rows.n_features)) is None):
        return None
    is_slow = isinstance(problem.loss, MGFLoss) or problem.penalty.l1 > 0.0
    return rows.source.means_far_from_zero(_FAR_FOR_DIAGONAL if is_slow else _FAR)


def _exceeds_precision(problem: Problem, rows: OutputRows) -> bool:
    """Return whether rounding errors of the curvature along the feature means exceed the curvature of a feature.

    That is so if features are very far from zero, and there is no intercept that would allow to centre them.
    """
    statistics = rows.source.own_statistics()
    if statistics is None:
        return False
    mean, deviation = statistics
    weight = problem.C * float(rows.target_weights[:, 0].sum())
    noise = problem.variance
    reference = noise.entry.reference if isinstance(noise.entry, SquaredDeviation) else np.zeros_like(mean)
    of_noise = noise.floor + np.multiply(noise.slope, np.square(mean - reference) + np.square(deviation))
    own = np.min(problem.penalty.l2) + weight * (np.square(deviation) + of_noise)
    rounding = np.finfo(float).eps * weight * float(mean @ mean)
    return bool(np.any((rounding > _LOST_CURVATURE * own) & (deviation > 0.0)))


def _objective(
    problem: Problem, data: Partitions[Rows], variance: Variance, rows: OutputRows, is_direct: bool
) -> Objective:
    """Return the objective: of all outputs for a moment loss, of the one output for a loss through the MGF."""
    if problem.multi_class == "multinomial" and rows.source.n_classes > 2:
        penalty = replace(problem.penalty, n_intercepts=rows.n_outputs)
        noise_of_scores = _noise_of_scores(problem, variance, rows.n_features)
        return MultinomialObjective(data, noise_of_scores, penalty, problem.fit_intercept, rows.n_features)
    common = problem.penalty, problem.fit_intercept, rows.n_features
    groups = None if variance.groups is None else variance.feature_groups(rows.n_features)
    if isinstance(problem.loss, MGFLoss):
        noise = DropoutNoise(rate=0.0, reference="zero") if problem.noise is None else problem.noise
        return MGFObjective(data, problem.loss, noise, *common, groups)
    assert isinstance(problem.loss, MomentLoss)
    loss = problem.loss.without_noise() if variance.is_zero else problem.loss
    groups = None if variance.is_zero else groups
    outputs = np.arange(rows.n_outputs)
    return MomentObjective(data, loss, variance, *common, outputs, is_stiff=is_direct, groups=groups)


def _noise_of_scores(problem: Problem, variance: Variance, n_features: int) -> ScoreVariance:
    """Return the noise of a multinomial objective: its variance, or its log-MGF for a loss through the MGF."""
    if variance.is_zero:
        return FeatureVariance(variance)
    groups = None if variance.groups is None else variance.feature_groups(n_features)
    if isinstance(problem.loss, MGFLoss):
        assert problem.noise is not None
        return LogMGF(problem.noise, groups)
    return FeatureVariance(variance) if groups is None else GroupVariance(variance, groups)
