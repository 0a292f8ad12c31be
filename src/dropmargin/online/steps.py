"""Steps of Newton's method on a block of rows, and the point at which the block is added to the summary.

The objective of a block is that of `fit`, with a `Summary` of the earlier rows as its penalty. A kink is smoothed by
noise on the scores (`SmoothedByNoise`), which moves the minimum less than the barrier of `MomentLoss.smoothed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Columns, Output, Rows, TrainingData, join_rows, stack_rows, target_weights
from dropmargin.losses import MomentLoss, SumOfLosses
from dropmargin.objective import IterativeModel, Objective, Point
from dropmargin.online.summary import Summary
from dropmargin.solvers import Features, Options, Problem, make_objective
from dropmargin.solvers.newton import newton
from dropmargin.typing import Array

# The most steps on a block, and the relative gap at which they stop. What they leave stays in the gradient of the
# summary, for the next block.
_STEPS, _TOL = 6, 0.005
# The same on a block and a sample of the earlier rows: the minimum may be far from the last one, and a gradient that is
# left would be that of a sample.
_SAMPLE_STEPS, _SAMPLE_TOL = 30, 0.0005
# A block is added to the summary at the start, before the only step, if the predicted decrease is at most this share of
# the objective.
_SMALL_DECREASE = 0.01
# The standard deviation of the noise on the scores that smooths a kink, relative to the kink's scale.
_SMOOTHING = 0.05


class SmoothedByNoise(SumOfLosses):
    """A loss whose kink is smoothed by noise on the scores of this standard deviation, see the module's docstring."""

    def __init__(self, loss: MomentLoss, deviation: float) -> None:
        self._loss, self._variance = loss, deviation**2

    def terms(self, y: Array, m: Array, v: Array) -> Any:
        return ((1.0, self._loss, (y, m, v + self._variance)),)


class Step(NamedTuple):
    """New coefficients, and the point and the model with which the rows of a block are added to the summary.

    Without a model it is the Hessian.
    """

    coef: Array
    point: Point
    model: IterativeModel | None = None

    def summary(self) -> Summary:
        """Return the summary with the rows of the block."""
        return Summary.of(self.point, self.model or IterativeModel(self.point))


@dataclass(frozen=True)
class Steps:
    """The steps of some outputs.

    ``columns`` are the features in the order of summaries and coefficients; ``passes`` adds up the passes of all steps,
    each times its number of rows.
    """

    problem: Problem
    outputs: Sequence[Output]
    n_classes: int
    columns: Columns
    passes: list[float]

    def data(self, rows: Rows) -> TrainingData:
        """Return the rows that take part."""
        taken = self.outputs[0].takes_part(rows.y)
        rows = rows if taken.all() else rows.take(taken)
        return TrainingData.of_matrix(rows.X, rows.y, rows.sample_weight, self.n_classes)

    def objective(self, rows: Rows, summary: Summary) -> Objective:
        """Return the objective of some rows, with a summary as its penalty."""
        data, problem, loss = self.data(rows), self.problem, self.problem.loss
        assert isinstance(loss, MomentLoss)
        if loss.kink:
            problem = replace(problem, loss=SmoothedByNoise(loss, _SMOOTHING * loss.kink))
        objective = make_objective(problem, data, self.outputs, Features(self.columns, None, problem.variance))
        return replace(objective, penalty=summary, passes=self.passes, share=data.n_rows)

    def add_at_zero(self, rows: Rows, summary: Summary) -> Step:
        """Add rows of one target at the coefficients of the summary, zero, with the curvature of the majoriser.

        Steps would move the intercept to where the loss of these rows is flat, and a flat summary has no weight later.
        """
        point = self.objective(rows, summary).at(summary.coef)
        return Step(summary.coef.copy(), point, IterativeModel(point, is_majoriser=True))

    def minimise(self, rows: Rows, summary: Summary, coef: Array) -> Step:
        """Minimise the loss of a block plus the summary."""
        objective = self.objective(rows, summary)
        if coef.any():
            # 1. A small predicted decrease: one step, without a line search, after the rows are added.
            point = objective.at(coef)
            model, right = IterativeModel(point), -point.gradient
            decrease = model.decrease(right, np.ones(len(self.outputs)))
            if np.all(decrease <= _SMALL_DECREASE * point.value):
                return Step(coef + model.solve(right, 0.0, np.zeros_like(decrease), max_iter=1).x, point, model)
        # 2. Else steps of Newton's method, after which the rows are added.
        point = self._newton(objective, rows, coef, Options(_TOL, _STEPS, max_inner=1))
        return Step(point.coef, point)

    def minimise_with_sample(self, sample: Rows, rows: Rows, summary: Summary, coef: Array) -> Step:
        """Minimise the loss of a block plus that of a sample of the earlier rows, in place of their summary."""
        rest = Summary.start(summary.coef, self.problem.penalty.l2)
        if len(sample) < len(coef):
            rest = self._correction(sample, summary, rest)
        both = join_rows([sample, rows], stack_rows)
        start = coef if summary.coef.any() else summary.coef
        point = self._newton(self.objective(both, rest), both, start, Options(_SAMPLE_TOL, _SAMPLE_STEPS))
        return Step(point.coef, point)

    def _newton(self, objective: Objective, rows: Rows, coef: Array, options: Options) -> Point:
        """Return the point after some steps, the first of all from an intercept between the targets of the rows."""
        is_cold = not coef.any()
        if is_cold and self.problem.fit_intercept:
            positive, negative = target_weights(self.outputs, self.data(rows).class_weights)
            coef = coef.copy()
            coef[-1] = (positive - negative) / (positive + negative)
        result = newton(objective, coef, replace(options, warm=not is_cold))
        return objective.at(result.coef) if result.point is None else result.point

    def _correction(self, sample: Rows, summary: Summary, penalty: Summary) -> Summary:
        """Return a penalty plus what the loss of a sample lacks of the summary: part of gradient and diagonal.

        A sample has no rows of most rare features. The loss in the intercept stays that of the sample, which has a
        minimum, and so does the diagonal where it is larger than that of the summary: the sum is convex.
        """
        point = self.objective(sample, penalty).at(summary.coef)
        model = IterativeModel(point, is_majoriser=not summary.coef.any())  # as `add_at_zero`
        missing_slope = summary.slope - point.gradient
        missing_slope[-1] = 0.0
        diagonal = penalty.diagonal + np.maximum(summary.diagonal - model.diagonal[:-1], 0.0)
        return replace(penalty, slope=penalty.slope + missing_slope, diagonal=diagonal)
