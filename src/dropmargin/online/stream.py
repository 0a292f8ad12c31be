"""A stream of labelled rows, each seen once: the coefficients after all of them.

Rows come in blocks. A few steps of Newton's method minimise the loss of a block plus the summary of all earlier rows
(`summary`), then the block joins the summary: the state does not grow with the stream. If a block is large next to what
came before, the steps begin with its first rows alone; if it is small next to that, it joins at once. Rows too few for
a block wait, and take part with their exact loss as long as they do; as long as these are all rows seen, their problem
is solved as by a batch fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import (
    LocalPartitions,
    Output,
    Rows,
    drop_empty_columns,
    is_dense_matrix,
    row_block,
    row_slice,
    stack_rows,
)
from dropmargin.data.training import BinaryArray
from dropmargin.losses import MomentLoss
from dropmargin.objective.curvature import MomentCurvature
from dropmargin.online.block import BlockObjective, BlockPoint, NoisyScore
from dropmargin.online.summary import Summary, with_rows
from dropmargin.solvers import Options, Problem, conjugate_gradient, solve_outputs
from dropmargin.solvers.newton import newton
from dropmargin.typing import Array

# A block has at least so many rows, the first one more, and at most so many: the vectors of a block's rows should stay
# in the processor's cache.
_LEAST_ROWS = 256
_FIRST_ROWS = 512
_MOST_ROWS = 16384
# The steps begin with some of a block's rows if there are more than so many times the rows before, or the first ones.
_GROWTH = 4.0
# A block of this many rows, with so many times as many before it, joins the summary at once, unless the share of a
# target in it is more than so many times that of before, or less by as much.
_MANY_ROWS, _MANY_BEFORE, _ANOTHER_MIXTURE = 2048, 4, 2.0
# The most steps of Newton's method: on the first rows of all, on the first rows of a block, and on a whole block, for a
# smooth loss and for one with a kink. With more steps of fewer inner iterations a hinge comes nearer to its optimum for
# the same number of products.
_FIRST_STEPS, _PART_STEPS, _STEPS, _KINK_STEPS = 10, 3, 1, 6
# The relative gap at which the steps stop. What they leave stays in the gradient of the summary, for the next block.
_FIRST_TOL, _TOL = 1e-3, 1e-2
# Features without entries in a block are left out if it has at most so many entries per feature, times the outputs.
_MOST_ENTRIES = 2
# The standard deviation of noise on the scores that smooths a kink, next to its size.
_SMOOTHING = 0.05


@dataclass(frozen=True)
class Batch:
    """Rows, the index of each row's class, and sample weights above zero."""

    X: Any
    codes: Array
    weights: Array

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, begin: int, end: int) -> Batch:
        """Return some of the rows; nothing is copied."""
        return Batch(row_slice(self.X, begin, end), self.codes[begin:end], self.weights[begin:end])

    def followed_by(self, batch: Batch) -> Batch:
        """Return these rows and others, copied."""
        codes, weights = np.concatenate([self.codes, batch.codes]), np.concatenate([self.weights, batch.weights])
        return Batch(stack_rows([self.X, batch.X]), codes, weights)

    def of_outputs(self, outputs: list[Output]) -> tuple[Any, Array, Array]:
        """Return the rows that take part in some outputs, their targets and their weights."""
        taken = outputs[0].takes_part(self.codes)
        own = self if taken.all() else Batch(self.X[taken], self.codes[taken], self.weights[taken])
        return own.X, np.stack([output.targets(own.codes) for output in outputs], axis=1), own.weights

    def target_weights(self, outputs: list[Output]) -> Array:
        """Return the weight of each output's rows with target -1, and of those with target +1."""
        weights = np.bincount(self.codes, self.weights)
        codes, out = np.arange(len(weights)), []
        for output in outputs:
            taken, positive = output.takes_part(codes), output.targets(codes) > 0.0
            out.append([weights[taken & ~positive].sum(), weights[taken & positive].sum()])
        return np.array(out)


@dataclass(frozen=True)
class Stream:
    """The state of a stream; `after` returns the next one and leaves this one as it is.

    Parameters
    ----------
    summaries : tuple of Summary
        What is kept of the rows that are gone, output by output.
    target_weights : ndarray of shape (n_outputs, 2)
        The weight of the rows that are gone with target -1, and with target +1.
    n_rows : int
        How many rows are gone.
    waiting : Batch or None
        Rows that are too few for a block.
    coef : ndarray of shape (n_outputs, n_features + 1)
        The coefficients after all rows, those that wait as well; the last entry is the intercept.
    objective : ndarray of shape (n_outputs,)
        An estimate of the objective of all rows at these coefficients.
    """

    summaries: tuple[Summary, ...]
    target_weights: Array
    n_rows: int
    waiting: Batch | None
    coef: Array
    objective: Array

    @classmethod
    def start(cls, n_features: int, n_outputs: int, l2: float) -> Stream:
        """Return a stream that has seen nothing."""
        summaries = tuple(Summary.start(n_features, l2) for _ in range(n_outputs))
        coef = np.zeros((n_outputs, n_features + 1))
        return cls(summaries, np.zeros((n_outputs, 2)), 0, None, coef, np.zeros(n_outputs))

    def after(self, batch: Batch, problem: Problem, outputs: list[Output]) -> Stream:
        """Return the stream after some more rows; the same one after none."""
        if not len(batch):
            return self
        if self.waiting is not None:
            batch = self.waiting.followed_by(batch)
        state, begin = replace(self, waiting=None), 0
        while len(batch) - begin >= (_LEAST_ROWS if state.n_rows else _FIRST_ROWS):
            end = min(len(batch), begin + _MOST_ROWS)
            state = state._with_rows(batch.rows(begin, end), problem, outputs, joins=True)
            begin = end
        if begin == len(batch):
            return state
        waiting = batch.rows(begin, len(batch))
        waiting = replace(waiting, X=stack_rows([waiting.X]))  # not a view of the caller's
        return state._with_rows(waiting, problem, outputs, joins=False)

    def _with_rows(self, batch: Batch, problem: Problem, outputs: list[Output], joins: bool) -> Stream:
        """Return the stream after a block, which joins the summaries, or after rows that wait."""
        own_weights = batch.target_weights(outputs)
        target_weights = self.target_weights + own_weights
        has_both = np.all(target_weights > 0.0, axis=1)
        is_minor = joins and self.n_rows >= _MANY_BEFORE * len(batch) and len(batch) >= _MANY_ROWS
        summaries, coef, objective = list(self.summaries), self.coef.copy(), self.objective.copy()
        sizes = _sizes(self.n_rows, len(batch)) if joins else [len(batch)]
        parts = [_Part.of(batch.rows(0, size), problem, len(outputs)) for size in sizes]
        for group in _groups(batch, outputs, has_both):
            own, before = [outputs[k] for k in group], [self.summaries[k] for k in group]
            summary = before[0] if len(group) == 1 else Summary.join(before)
            start = np.ascontiguousarray(self.coef[group].T)
            if not has_both[group[0]]:
                step = _join_at_zero(parts[-1], own, summary)
                if problem.fit_intercept:  # what has not come yet is not expected
                    step.coef[-1] = (target_weights[group] > 0.0) @ [-1.0, 1.0]
            elif not (joins or self.n_rows):
                data = BinaryArray(*batch.of_outputs(own), n_threads=1)
                result = solve_outputs(problem, data, start if start.any() else None)
                coef[group], objective[group] = result.coef.T, result.objective
                continue
            elif is_minor and _are_alike(own_weights[group], self.target_weights[group]):
                step = _join_at_once(parts[-1], own, summary.moved(start))
            else:
                step = _minimise(parts, own, summary.moved(start), is_first=not self.n_rows)
            coef[group], objective[group] = step.coef.T, step.point.value
            after = step.joined() if joins else summary
            for i, k in enumerate(group):
                summaries[k] = after if len(group) == 1 else after.select([i])
        if joins:
            return Stream(tuple(summaries), target_weights, self.n_rows + len(batch), None, coef, objective)
        return replace(self, waiting=batch, coef=coef, objective=objective)


def _sizes(n_seen: int, n_rows: int) -> list[int]:
    """Return how many of the rows of a block take part in the steps, one time after the other."""
    sizes = [n_rows]
    while sizes[0] > _GROWTH * max(n_seen, _FIRST_ROWS):
        sizes.insert(0, int(sizes[0] / _GROWTH))
    return sizes


def _groups(batch: Batch, outputs: list[Output], has_both: Array) -> list[list[int]]:
    """Return the outputs that are minimised together: those that share products and rows, and have both targets."""
    if not is_dense_matrix(batch.X) or outputs[0].negative is not None:
        return [[k] for k in range(len(outputs))]
    together = np.flatnonzero(has_both).tolist()
    return [[k] for k in np.flatnonzero(~has_both).tolist()] + ([together] if together else [])


@dataclass(frozen=True)
class _Part:
    """The first rows of a block, or all, as the data of an objective.

    ``index`` are the coefficients of the features that the rows have, and of the intercept; ``None`` are all.
    """

    batch: Batch
    problem: Problem
    index: Array | None

    @classmethod
    def of(cls, batch: Batch, problem: Problem, n_outputs: int) -> _Part:
        X, used = batch.X, None
        if not problem.variance.has_floor:  # noise with a floor corrupts features that no row of the block has
            X, used = drop_empty_columns(X, _MOST_ENTRIES * n_outputs)
        if used is None:
            return cls(batch, problem, None)
        noise = None if problem.noise is None else problem.noise.take(used)
        return cls(replace(batch, X=X), replace(problem, noise=noise), np.append(used, batch.X.shape[1]))

    def start(self, outputs: list[Output], summary: Summary) -> BlockPoint:
        """Return the objective of the rows, with the summary of earlier ones as its penalty, where that was made."""
        variance, loss = self.problem.variance, self.problem.loss
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

    def whole(self, summary: Summary, coef: Array) -> Array:
        """Return all coefficients, given those of these rows."""
        return coef if self.index is None else with_rows(summary.coef, self.index, coef)


class _Step(NamedTuple):
    """New coefficients, and where and with which curvature the rows of a part join the summary."""

    part: _Part
    summary: Summary
    point: BlockPoint
    curvature: MomentCurvature | None
    coef: Array

    def joined(self) -> Summary:
        """Return the summary after the rows."""
        curvature = self.point.hessian() if self.curvature is None else self.curvature
        return self.summary.after(self.point, curvature, self.part.index)


def _join_at_zero(part: _Part, outputs: list[Output], summary: Summary) -> _Step:
    """Let rows of one target join at zero coefficients, with the curvature of the majoriser.

    They would drive the intercept to where their loss is flat, and a flat summary does not hold against later rows.
    """
    point = part.start(outputs, summary)
    return _Step(part, summary, point, point.majoriser(), summary.coef.copy())


def _join_at_once(part: _Part, outputs: list[Output], summary: Summary) -> _Step:
    """Let rows that are few next to those before join where the coefficients are; then make one step."""
    point = part.start(outputs, summary)
    curvature = point.hessian()
    step, _ = conjugate_gradient.solve_in_plane(curvature, point)
    return _Step(part, summary, point, curvature, part.whole(summary, point.coef + step.x))


def _minimise(parts: list[_Part], outputs: list[Output], summary: Summary, is_first: bool) -> _Step:
    """Make some steps of Newton's method, from where the summary was made, on more and more of the rows."""
    for part in parts:
        start, is_cold = part.start(outputs, summary), is_first and part is parts[0]
        max_iter = _FIRST_STEPS if is_cold else _PART_STEPS
        if part is parts[-1] and not is_cold:
            max_iter = _KINK_STEPS if isinstance(start.objective.loss, NoisyScore) else _STEPS
        if is_cold and not start.coef.any():
            start = start.objective.at(start.objective.starting_coef())
        tol = _FIRST_TOL if is_cold else _TOL
        options = Options(tol, max_iter, warm=not is_cold, in_plane=True)
        result = newton(start.objective, start, options)
        point = result.point if isinstance(result.point, BlockPoint) else start.objective.at(result.coef)
        coef = part.whole(summary, point.coef)
        if part is not parts[-1]:
            summary = summary.moved(coef)
    return _Step(part, summary, point, None, coef)


def _are_alike(target_weights: Array, before: Array) -> bool:
    """Return whether rows have their targets in about the shares of those before, in every output."""
    if not (target_weights.all() and before.all()):
        return False
    own, other = (weights / weights.sum(axis=1, keepdims=True) for weights in (target_weights, before))
    return bool(np.all(np.maximum(own / other, other / own) <= _ANOTHER_MIXTURE))
