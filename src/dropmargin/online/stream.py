"""A stream of labelled rows, each seen once: the coefficients after all of them.

Rows come in blocks. A few steps of Newton's method minimise the loss of a block plus the summary of all earlier rows
(`summary`), then the block joins the summary: the state does not grow with the stream. If a block is large next to what
came before, the steps begin with its first rows alone. Rows too few for a block wait, and take part with their exact
loss as long as they do; as long as these are all rows seen, their problem is solved as by a batch fit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import LocalPartitions, Output, Rows, drop_empty_columns, is_dense_matrix, row_block, row_slice, stack_rows
from dropmargin.data.training import BinaryArray
from dropmargin.losses import MomentLoss
from dropmargin.objective import MomentObjective
from dropmargin.objective.moment import MomentPoint
from dropmargin.online.summary import Summary
from dropmargin.solvers import Options, Problem, solve_outputs
from dropmargin.solvers.newton import newton
from dropmargin.typing import Array

# A block has at least so many rows, the first one more, and at most so many: the vectors of a block's rows should stay
# in the processor's cache.
_LEAST_ROWS = 256
_FIRST_ROWS = 512
_MOST_ROWS = 16384
# The steps begin with some of a block's rows if there are more than so many times the rows before, or the first ones.
_GROWTH = float(os.environ.get("GROWTH", 2.5))
_FIRST_STEPS = int(os.environ.get('FIRST', 10))
_PART_STEPS = int(os.environ.get("PART", 2))
_STEPS = int(os.environ.get("STEPS", 4))
_INNER = int(os.environ.get("INNER", 5))
_TOL = float(os.environ.get("TOL", 1e-3))
# The width over which a kink is smoothed, next to its size.
_SMOOTHING = float(os.environ.get("WIDTH", 0.05))


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

    def taking_part(self, output: Output) -> Batch:
        """Return the rows that take part in an output."""
        taken = output.takes_part(self.codes)
        return self if taken.all() else Batch(self.X[taken], self.codes[taken], self.weights[taken])

    def target_weights(self, output: Output) -> Array:
        """Return the weight of an output's rows with target -1, and of those with target +1."""
        taken, positive = output.takes_part(self.codes), output.targets(self.codes) > 0.0
        return np.array([self.weights[taken & ~positive].sum(), self.weights[taken & positive].sum()])


@dataclass(frozen=True)
class Stream:
    """The state of a stream; `after` returns the next one and leaves this one as it is.

    Parameters
    ----------
    summaries : tuple of Summary
        What is kept of the rows that are gone, output by output.
    target_weights : ndarray of shape (n_outputs, 2)
        The weight of the rows that are gone, of those with target -1 and with target +1.
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
            state = state._with_block(batch.rows(begin, end), problem, outputs)
            begin = end
        if begin == len(batch):
            return state
        return state._with_waiting(batch.rows(begin, len(batch)), problem, outputs)

    def _with_block(self, batch: Batch, problem: Problem, outputs: list[Output]) -> Stream:
        target_weights = self.target_weights + [batch.target_weights(output) for output in outputs]
        known = np.all(target_weights > 0.0, axis=1)
        summaries, coef, objective = list(self.summaries), self.coef.copy(), self.objective.copy()
        blocks = [_Block.of(batch.rows(0, size), problem) for size in _sizes(self.n_rows, len(batch))]
        for group in _groups(batch, outputs, known):
            own, before = [outputs[k] for k in group], Summary.join([self.summaries[k] for k in group])
            is_known = bool(known[group[0]])
            if is_known:
                before = before.moved(np.ascontiguousarray(self.coef[group].T))
                for block in blocks:
                    steps = _STEPS if block is blocks[-1] else _PART_STEPS
                    is_first = not self.n_rows and block is blocks[0]
                    point = _minimise(block.objective(own, before), steps, is_first)
                    if block is not blocks[-1]:
                        before = before.moved(block.whole(before.coef, point.coef))
            else:
                # Rows of one target alone would drive the intercept to where their loss is flat, and a flat summary
                # does not hold against what comes later: they join at zero, with the curvature of the majoriser.
                own_objective = blocks[-1].objective(own, before)
                point = own_objective.at(own_objective.penalty.coef)
            after = before.after(point, blocks[-1].index, is_majoriser=not is_known)
            for i, k in enumerate(group):
                summaries[k] = after if len(group) == 1 else after.select([i])
                coef[k] = after.coef[:, i] if is_known else _one_target(after.coef[:, i], target_weights[k], problem)
            objective[group] = point.value
        return Stream(tuple(summaries), target_weights, self.n_rows + len(batch), None, coef, objective)

    def _with_waiting(self, batch: Batch, problem: Problem, outputs: list[Output]) -> Stream:
        batch = replace(batch, X=stack_rows([batch.X]))  # not a view of the caller's
        target_weights = self.target_weights + [batch.target_weights(output) for output in outputs]
        known = np.all(target_weights > 0.0, axis=1)
        coef, objective = self.coef.copy(), self.objective.copy()
        for group in _groups(batch, outputs, known):
            own, start = [outputs[k] for k in group], np.ascontiguousarray(self.coef[group].T)
            if not known[group[0]]:
                (k,) = group
                coef[k] = _one_target(coef[k], target_weights[k], problem)
            elif not self.n_rows:
                coef[group], objective[group] = _solve(batch, own, problem, start)
            else:
                before = Summary.join([self.summaries[k] for k in group]).moved(start)
                block = _Block.of(batch, problem)
                point = _minimise(block.objective(own, before), _STEPS, False)
                coef[group], objective[group] = block.whole(start, point.coef).T, point.value
        return replace(self, waiting=batch, coef=coef, objective=objective)


class _NoisyScore(MomentLoss):
    """A loss of scores with additional noise, which smooths its kink.

    A barrier (`MomentLoss.smoothed`) has more curvature far from the kink, and moves the minimum more.
    """

    has_majoriser = True

    def __init__(self, loss: MomentLoss, deviation: float) -> None:
        self.loss, self.variance = loss, deviation**2

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self.loss.value(y, m, v + self.variance)

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        return self.loss.gradient(y, m, v + self.variance)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return self.loss.curvature(y, m, v + self.variance)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self.loss.majoriser(y, m, v + self.variance)


def _sizes(n_seen: int, n_rows: int) -> list[int]:
    """Return how many of the rows of a block take part in the steps, one time after the other."""
    sizes = [n_rows]
    while sizes[0] > _GROWTH * max(n_seen, _FIRST_ROWS):
        sizes.insert(0, int(sizes[0] / _GROWTH))
    return sizes


def _groups(batch: Batch, outputs: list[Output], known: Array) -> list[list[int]]:
    """Return the outputs that are minimised together: those that share rows and products and have met both targets."""
    if not is_dense_matrix(batch.X) or outputs[0].negative is not None:
        return [[k] for k in range(len(outputs))]
    together = np.flatnonzero(known).tolist()
    return [[k] for k in np.flatnonzero(~known)] + ([together] if together else [])


@dataclass(frozen=True)
class _Block:
    """A block of rows, or the first ones of it, as the data of an objective.

    ``index`` are the coefficients of the features that the rows have, and the intercept; ``None`` are all.
    """

    batch: Batch
    problem: Problem
    index: Array | None

    @classmethod
    def of(cls, batch: Batch, problem: Problem) -> _Block:
        if problem.variance.has_floor:  # such noise corrupts features that no row of the block has
            return cls(batch, problem, None)
        X, used = drop_empty_columns(batch.X)
        if used is None:
            return cls(batch, problem, None)
        noise = None if problem.noise is None else problem.noise.take(used)
        return cls(replace(batch, X=X), replace(problem, noise=noise), np.append(used, batch.X.shape[1]))

    def objective(self, outputs: list[Output], summary: Summary) -> MomentObjective:
        """Return the objective of outputs that share these rows, with the summary of earlier rows as its penalty."""
        batch, problem = self.batch.taking_part(outputs[0]), self.problem
        variance, loss = problem.variance, problem.loss
        assert isinstance(loss, MomentLoss)
        if loss.kink:
            loss = _NoisyScore(loss, _SMOOTHING * loss.kink)
        elif variance.is_zero:
            loss = loss.without_noise()
        block = row_block(batch.X, variance.entry if variance.moves_entries else None)
        targets = np.stack([output.targets(batch.codes) for output in outputs], axis=1)
        data = LocalPartitions([Rows(block, targets, problem.C * batch.weights)])
        penalty, columns = summary.restricted(self.index), np.arange(len(outputs))
        return MomentObjective(data, loss, variance, penalty, problem.fit_intercept, block.n_features, columns)

    def whole(self, coef: Array, part: Array) -> Array:
        """Return all coefficients, given those of the features that the rows have."""
        if self.index is None:
            return part
        out = coef.copy()
        out[self.index] = part
        return out


def _minimise(objective: MomentObjective, max_iter: int, is_first: bool) -> MomentPoint:
    """Return the point after some steps of Newton's method, from where the summary was made."""
    assert isinstance(objective.penalty, Summary)
    start = objective.penalty.coef
    if is_first and not start.any():
        start = objective.starting_coef()
    max_iter = _FIRST_STEPS if is_first else max_iter
    result = newton(objective, objective.at(start), Options(_TOL, max_iter, warm=not is_first, inner_iter=_INNER))
    return result.point or objective.at(result.coef)  # type: ignore[return-value]


def _solve(batch: Batch, outputs: list[Output], problem: Problem, start: Array) -> tuple[Array, Array]:
    """Return the optimum of few rows, as a batch fit finds it, and the objective there."""
    batch = batch.taking_part(outputs[0])
    targets = np.stack([output.targets(batch.codes) for output in outputs], axis=1)
    data = BinaryArray(batch.X, targets, batch.weights, 1)
    result = solve_outputs(problem, data, start if start[:-1].any() else None)
    return result.coef.T, result.objective


def _one_target(coef: Array, target_weights: Array, problem: Problem) -> Array:
    """Return coefficients that expect no target that has not been met."""
    out = coef.copy()
    if problem.fit_intercept:
        out[-1] = float(target_weights[1] > 0.0) - float(target_weights[0] > 0.0)
    return out
