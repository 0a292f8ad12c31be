"""Steps of Newton's method on a block of rows, and the point at which the block is added to the summary.

The objective of a block is that of `fit`, with a `Summary` of the earlier rows as its penalty. A kink is smoothed by
noise on the scores (`SmoothedByNoise`), which moves the minimum less than the barrier of `MomentLoss.smoothed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dropmargin.data import (
    LocalPartitions,
    Output,
    Rows,
    is_dense_matrix,
    join_rows,
    output_targets,
    row_block,
    target_summary,
)
from dropmargin.losses import MomentLoss
from dropmargin.objective import Curvature, MomentObjective
from dropmargin.objective.moment import MomentPoint
from dropmargin.online.summary import Summary, diagonal_of
from dropmargin.solvers import Options, Problem, conjugate_gradient
from dropmargin.solvers.newton import newton
from dropmargin.typing import Array

# The most steps on a block, and the relative gap at which they stop. What they leave stays in the gradient of the
# summary, for the next block.
_STEPS, _TOL = 6, 0.005
# The same on a block and a sample of the earlier rows: the minimum may be far from the last one, and a gradient that is
# left would be that of a sample.
_SAMPLE_STEPS, _SAMPLE_TOL = 30, 0.0005
# A block is added to the summary at the start, before the only step, if the predicted decrease is at most this share of
# the objective. The step has the length of the last one if that share is at most so many times the last one.
_SMALL_DECREASE, _UNLIKE = 0.01, 2.0
# The standard deviation of the noise on the scores that smooths a kink, relative to the kink's scale.
_SMOOTHING = 0.05


class SmoothedByNoise(MomentLoss):
    """A loss whose kink is smoothed by noise on the scores of this standard deviation, see the module's docstring."""

    def __init__(self, loss: MomentLoss, deviation: float) -> None:
        self._loss, self._variance = loss, deviation**2
        self.kink, self.has_majoriser = loss.kink, loss.has_majoriser

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self._loss.value(y, m, v + self._variance)

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        return self._loss.gradient(y, m, v + self._variance)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return self._loss.curvature(y, m, v + self._variance)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._loss.majoriser(y, m, v + self._variance)

    def smoothed(self, width: float | Array) -> MomentLoss:
        return self._loss.smoothed(width)


class Step(NamedTuple):
    """New coefficients, and the point and the curvature with which the rows of a block are added to a summary.

    The curvature ``None`` is the Hessian. ``last_step`` is that of `Summary`. ``earlier_products`` are those with parts
    of the block, each times its number of rows.
    """

    summary: Summary
    point: MomentPoint
    curvature: Curvature | None
    coef: Array
    last_step: Array
    earlier_products: int = 0

    @property
    def n_products(self) -> int:
        """The number of products with the rows so far, each times its number of rows."""
        return self.earlier_products + _n_products(self.point)

    def summary_after(self) -> Summary:
        """Return the summary with the rows of the block."""
        curvature = self.point.hessian() if self.curvature is None else self.curvature
        return replace(self.summary.after(self.point, curvature), last_step=self.last_step)


def _n_products(point: MomentPoint) -> int:
    """Return the number of products with the rows so far, times the number of rows."""
    data = point.objective.data
    return data.n_products * target_summary(data).n_rows


def block_objective(batch: Rows, problem: Problem, outputs: Sequence[Output], summary: Summary) -> MomentObjective:
    """Return the objective of some rows, with a summary as its penalty."""
    loss = problem.loss
    assert isinstance(loss, MomentLoss)
    variance = problem.variance if is_dense_matrix(batch.X) else problem.variance.of_stored_entries()
    if variance.is_zero and not loss.kink:
        loss = loss.without_noise()
    if loss.kink:
        loss = SmoothedByNoise(loss, _SMOOTHING * loss.kink)
    taken = outputs[0].takes_part(batch.y)
    rows = batch if taken.all() else batch.take(taken)
    block = row_block(rows.X, variance.entry if variance.moves_entries else None)
    data = LocalPartitions([Rows(block, output_targets(outputs, rows.y), problem.C * rows.sample_weight)])
    common = summary, problem.fit_intercept, block.n_features, np.arange(len(outputs))
    groups = None if variance.groups is None or variance.is_zero else variance.feature_groups(block.n_features)
    return MomentObjective(data, loss, variance, *common, groups=groups)


def add_at_zero(batch: Rows, problem: Problem, outputs: Sequence[Output], summary: Summary) -> Step:
    """Add rows of one target at the coefficients of the summary, zero, with the curvature of the majoriser.

    Steps would move the intercept to where the loss of these rows is flat, and a flat summary has no weight later.
    """
    point = block_objective(batch, problem, outputs, summary).at(summary.coef)
    return Step(summary, point, point.majoriser(), summary.coef.copy(), summary.last_step)


def minimise(parts: Sequence[Rows], problem: Problem, outputs: Sequence[Output], summary: Summary) -> Step:
    """Minimise the loss of a block plus the summary, by steps on larger and larger parts of the block."""
    n_products = 0
    for part in parts:
        # 1. The start: the coefficients of the summary, or the best intercept for the first rows of all.
        objective, is_cold = block_objective(part, problem, outputs, summary), not summary.coef.any()
        point = objective.at(objective.starting_coef() if is_cold else summary.coef)
        if part is parts[-1] and not is_cold:
            # 2. A small predicted decrease: one step, without a line search, after the rows are added. Its length is
            # that of the last such step, unless the rows are unlike those before.
            curvature, right = point.hessian(), -point.gradient
            decrease = conjugate_gradient.decrease_bound(curvature, right, np.ones(len(outputs))) / point.value
            if np.all(decrease <= _SMALL_DECREASE):
                length, last_decrease = summary.last_step.T
                if np.any(decrease > _UNLIKE * last_decrease):
                    length = 1.0 / conjugate_gradient.solve(curvature, right, rtol=0.0, max_iter=1).lowest
                coef = point.coef + conjugate_gradient.first_step(curvature, right, length)
                return Step(summary, point, curvature, coef, np.stack([length, decrease], axis=1), n_products)
        # 3. Else steps of Newton's method, after which the rows are added.
        result = newton(objective, point, Options(_TOL, _STEPS, warm=not is_cold, max_inner=1))
        point = result.point if isinstance(result.point, MomentPoint) else objective.at(result.coef)
        if part is not parts[-1]:
            summary, n_products = summary.moved(point.coef), n_products + _n_products(point)
    return Step(summary, point, None, point.coef, np.zeros_like(summary.last_step), n_products)


def minimise_with_sample(
    sample: Rows, batch: Rows, problem: Problem, outputs: Sequence[Output], summary: Summary, start: Array
) -> Step:
    """Minimise the loss of a block plus that of a sample of the earlier rows, whose expansion is the next summary."""
    rest = Summary.join([Summary.start(len(start) - 1, problem.penalty.l2) for _ in outputs]).moved(summary.coef)
    if len(sample) < len(start):
        rest = _correction(sample, problem, outputs, summary, rest)
    objective, is_cold = block_objective(join_rows([sample, batch]), problem, outputs, rest), not summary.coef.any()
    point = objective.at(objective.starting_coef() if is_cold else start)
    result = newton(objective, point, Options(_SAMPLE_TOL, _SAMPLE_STEPS, warm=not is_cold))
    point = result.point if isinstance(result.point, MomentPoint) else objective.at(result.coef)
    return Step(rest, point, None, point.coef, np.zeros_like(summary.last_step))


def _correction(
    sample: Rows, problem: Problem, outputs: Sequence[Output], summary: Summary, penalty: Summary
) -> Summary:
    """Return a penalty plus what the loss of a sample lacks of the summary: part of the gradient and of the diagonal.

    A sample has no rows of most rare features. The loss in the intercept stays that of the sample, which has a minimum,
    and so does the diagonal where it is larger than that of the summary: the sum is convex.
    """
    point = block_objective(sample, problem, outputs, penalty).at(summary.coef)
    curvature = point.hessian() if summary.coef.any() else point.majoriser()  # as `add_at_zero`
    missing_slope = summary.slope - point.gradient
    missing_slope[-1] = 0.0
    missing_diagonal = np.maximum(summary.diagonal - diagonal_of(curvature), 0.0)
    diagonal = penalty.diagonal + missing_diagonal
    return replace(penalty, slope=penalty.slope + missing_slope, diagonal=diagonal)
