"""Steps of Newton's method on a block of rows, and the point at which the block is added to the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dropmargin.data import (
    LocalPartitions,
    Output,
    Rows,
    drop_empty_columns,
    is_dense_matrix,
    row_block,
    target_summary,
)
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective.curvature import MomentCurvature
from dropmargin.online.block import BlockObjective, BlockPoint, NoisyScore
from dropmargin.online.summary import Summary, with_rows
from dropmargin.solvers import Options, Problem, conjugate_gradient
from dropmargin.solvers.newton import newton
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.online.stream import Batch

# The most steps on a block, and the relative gap at which they stop. What they leave stays in the gradient of the
# summary, for the next block.
_STEPS, _TOL = 6, 0.005
# A block is added to the summary at the start, before the only step, if the predicted decrease is at most this share of
# the objective.
_SMALL_DECREASE = 0.01
# The length of the last step is used again if the predicted decrease is at most this many times that of the last step.
_UNLIKE = 2.0
# Features without entries in a block are left out if it has at most this many entries per feature and output.
_MOST_ENTRIES = 2
# The standard deviation of the noise on the scores that smooths a kink, relative to the kink's scale.
_SMOOTHING = 0.05


@dataclass(frozen=True)
class Part:
    """The first rows of a block, or all of them, and the problem restricted to the features that they have.

    ``variance`` is that of the noise for these rows. ``index`` has the coefficients of these features and of the
    intercept; ``None`` are all coefficients.
    """

    batch: Batch
    problem: Problem
    variance: Variance
    index: Array | None

    @classmethod
    def of(cls, batch: Batch, problem: Problem, n_outputs: int) -> Part:
        """Return the part of these rows."""
        X, variance = batch.X, problem.variance
        if is_dense_matrix(X):
            return cls(batch, problem, variance, None)
        variance, used = variance.of_stored_entries(), None
        if not variance.has_floor:  # noise with a floor corrupts features without entries
            X, used = drop_empty_columns(X, _MOST_ENTRIES * n_outputs)
        if used is None:
            return cls(batch, problem, variance, None)
        variance = Variance() if problem.noise is None else problem.noise.take(used).variance()
        return cls(replace(batch, X=X), problem, variance, np.append(used, batch.X.shape[1]))

    def point(self, outputs: Sequence[Output], summary: Summary) -> BlockPoint:
        """Return the objective of the rows, with a summary as its penalty, at the coefficients of the summary."""
        variance, loss = self.variance, self.problem.loss
        assert isinstance(loss, MomentLoss)
        if loss.kink:
            loss = NoisyScore(loss, _SMOOTHING * loss.kink)
        elif variance.is_zero:
            loss = loss.without_noise()
        X, targets, weights = self.batch.of_outputs(outputs)
        block = row_block(X, variance.entry if variance.moves_entries else None)
        data = LocalPartitions([Rows(block, targets, self.problem.C * weights)])
        penalty, columns = summary.restricted(self.index), np.arange(len(outputs))
        args = data, loss, variance, penalty, self.problem.fit_intercept, block.n_features, columns
        return BlockObjective(*args).at(penalty.coef)

    def all_coef(self, summary: Summary, coef: Array) -> Array:
        """Return all coefficients, given those of the part's features."""
        return coef if self.index is None else with_rows(summary.coef, self.index, coef)


class Step(NamedTuple):
    """New coefficients, and the point and the curvature with which the rows of a part are added to a summary.

    The curvature ``None`` is the Hessian. ``last_step`` is that of `Summary`, ``earlier_products`` are those with
    smaller parts of the block.
    """

    part: Part
    summary: Summary
    point: BlockPoint
    curvature: MomentCurvature | None
    coef: Array
    last_step: Array
    earlier_products: int = 0

    @property
    def n_products(self) -> int:
        """The number of products with the rows so far, each times its number of rows."""
        return self.earlier_products + _n_products(self.point)

    def summary_after(self) -> Summary:
        """Return the summary with the rows of the part."""
        curvature = self.point.hessian() if self.curvature is None else self.curvature
        after = self.summary.after(self.point, curvature, self.part.index)
        return replace(after, last_step=self.last_step)


def add_at_zero(part: Part, outputs: Sequence[Output], summary: Summary) -> Step:
    """Add rows of one target at the coefficients of the summary, zero, with the curvature of the majoriser.

    Steps would move the intercept to where the loss of these rows is flat, and a flat summary has no weight later.
    """
    point = part.point(outputs, summary)
    return Step(part, summary, point, point.majoriser(), summary.coef.copy(), summary.last_step)


def minimise(parts: Sequence[Part], outputs: Sequence[Output], summary: Summary) -> Step:
    """Minimise the loss of a block plus the summary, by steps on larger and larger parts of the block."""
    n_products = 0
    for part in parts:
        # 1. The start: the coefficients of the summary, or the best intercept for the first rows of all.
        point, is_cold = part.point(outputs, summary), not summary.coef.any()
        objective = point.objective
        if is_cold:
            point = objective.at(objective.starting_coef())
        elif part is parts[-1]:
            # 2. A small predicted decrease: one step, without a line search, after the rows are added. Its length is
            # that of the last such step, unless the rows are unlike those before.
            curvature = point.hessian()
            first = conjugate_gradient.first_direction(curvature, point.gradient)
            decrease = first.decrease / point.value
            if np.all(decrease <= _SMALL_DECREASE):
                length, last_decrease = summary.last_step.T
                if np.any(decrease > _UNLIKE * last_decrease):
                    length = 1.0 / conjugate_gradient.solve_in_plane(curvature, point)[0].lowest
                coef = part.all_coef(summary, point.coef + (first.solution + length * first.direction))
                last_step = np.stack([length, decrease], axis=1)
                return Step(part, summary, point, curvature, coef, last_step, n_products)
        # 3. Else steps of Newton's method, after which the rows are added.
        result = newton(objective, point, Options(_TOL, _STEPS, warm=not is_cold, in_plane=True))
        point = result.point if isinstance(result.point, BlockPoint) else objective.at(result.coef)
        coef = part.all_coef(summary, point.coef)
        if part is not parts[-1]:
            summary = summary.moved(coef)
            n_products += _n_products(point)
    return Step(part, summary, point, None, coef, np.zeros_like(summary.last_step), n_products)


def _n_products(point: BlockPoint) -> int:
    """Return the number of products with the rows of a point so far, times the number of rows."""
    data = point.objective.data
    return data.n_products * target_summary(data).n_rows
