"""The state of a stream of labelled rows, each read once: coefficients, and a summary of all earlier rows.

The rows of a call are cut into blocks. Newton's method minimises the loss of a block plus the summary of the earlier
rows (`summary`), then the block is added to the summary. Rows too few for a block are buffered, and their loss is exact
as long as they are. If all rows so far are in the buffer, the problem is solved as by `fit`. Where the mix of the
classes changes, as in a stream sorted by class, a sample of the earlier rows replaces their summary (`sample`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dropmargin.data import EncodedRows, Output, Rows, is_dense_matrix, join_rows, row_block, target_weights
from dropmargin.online.sample import Sample
from dropmargin.online.steps import add_at_zero, minimise, minimise_with_sample
from dropmargin.online.summary import Summary
from dropmargin.solvers import Problem, solve_outputs
from dropmargin.typing import Array

# A block has at least this many rows, the first block more, and at most this many: arrays with an entry per row should
# stay in the processor's cache.
_LEAST_ROWS, _FIRST_ROWS, _MOST_ROWS = 256, 512, 16384
# The steps begin with a fraction of a block's rows if it has more than this many times the rows before it.
_GROWTH = 8


@dataclass(frozen=True)
class FeatureMeans:
    """Weighted means of the features, and the sum of the weights."""

    means: Array
    weight: float

    def after(self, batch: Rows) -> FeatureMeans:
        own = batch.sample_weight.sum()
        share = batch.sample_weight / (self.weight + own)
        means = self.means * (self.weight / (self.weight + own))
        return FeatureMeans(means + row_block(batch.X).transposed_times(share), self.weight + own)


@dataclass(frozen=True)
class Stream:
    """The state of a stream; `after` returns the next state and does not change this one."""

    # Of the rows of all blocks
    summaries: tuple[Summary, ...]  # one per output
    target_weights: Array  # (2, n_outputs), of targets +1 and -1
    n_rows: int
    means: FeatureMeans
    sample: Sample
    # Of all rows, those of the buffer included
    buffer: Rows | None  # rows that are too few for a block
    coef: Array  # (n_outputs, n_features + 1), intercept last
    objective: Array  # (n_outputs,), an estimate
    feature_means: Array
    n_passes: float = 0.0  # over the rows of the last call
    has_small_sample: bool = False  # a sample replaced the summary and was smaller than the number of features

    @classmethod
    def start(cls, n_features: int, n_outputs: int, n_classes: int, l2: float) -> Stream:
        """Return the state before the first row."""
        summaries = tuple(Summary.start(n_features, l2) for _ in range(n_outputs))
        coef, means = np.zeros((n_outputs, n_features + 1)), np.zeros(n_features)
        target_weights, objective = np.zeros((2, n_outputs)), np.zeros(n_outputs)
        of_blocks = summaries, target_weights, 0, FeatureMeans(means, 0.0), Sample.start(n_classes)
        return cls(*of_blocks, None, coef, objective, means)

    def after(self, batch: Rows, problem: Problem, outputs: list[Output]) -> Stream:
        """Return the state after the rows of a batch."""
        state, begin, n_new = replace(self, n_passes=0.0), 0, len(batch)
        if not n_new:
            return state
        if self.buffer is not None:
            batch = join_rows([self.buffer, batch])
        while len(batch) - begin >= (_LEAST_ROWS if state.n_rows else _FIRST_ROWS):
            end = min(len(batch), begin + _MOST_ROWS)
            state = state._after_rows(batch.between(begin, end), problem, outputs, is_block=True)
            begin = end
        if begin < len(batch):
            rest = join_rows([batch.between(begin, len(batch))])  # not a view of the caller's array
            state = state._after_rows(rest, problem, outputs, is_block=False)
        return replace(state, n_passes=state.n_passes / n_new)

    def _after_rows(self, batch: Rows, problem: Problem, outputs: list[Output], is_block: bool) -> Stream:
        """Return the state after a block, or with other rows in the buffer; passes are multiplied by the rows."""
        means = self.means.after(batch)
        if problem.noise is not None:
            problem = replace(problem, noise=problem.noise.with_means(means.means))
        class_weights = np.bincount(batch.y, batch.sample_weight)
        weights = self.target_weights + target_weights(outputs, class_weights)
        had_both, has_both = (np.all(own > 0.0, axis=0) for own in (self.target_weights, weights))
        sample = self.sample.rows() if self.n_rows and self.sample.has_other_classes(batch.y) else None
        sizes = _sizes(self.n_rows, len(batch)) if is_block else [len(batch)]
        parts = [batch.between(0, size) for size in sizes]
        summaries, coef, objective = list(self.summaries), self.coef.copy(), self.objective.copy()
        n_passes = self.n_passes
        for group in _groups(batch, outputs, had_both, has_both):
            own, earlier = [outputs[k] for k in group], [self.summaries[k] for k in group]
            summary = earlier[0] if len(group) == 1 else Summary.join(earlier)
            start = np.ascontiguousarray(self.coef[group].T)
            if has_both[group[0]] and not (is_block or self.n_rows):
                data = EncodedRows.of_matrix(batch.X, batch.y, batch.sample_weight, len(class_weights))
                result = solve_outputs(problem, data.open(own), start if start.any() else None)
                coef[group], objective[group] = result.coef.T, result.objective
                n_passes += result.n_passes * len(batch)
                continue
            if has_both[group[0]] and sample is not None:
                step = minimise_with_sample(sample, batch, problem, own, summary, start)
            elif has_both[group[0]]:
                step = minimise(parts, problem, own, summary.moved(start) if self.n_rows else summary)
            else:
                step = add_at_zero(batch, problem, own, summary)
                if problem.fit_intercept:  # the only target so far is predicted
                    step.coef[-1] = np.array([1.0, -1.0]) @ (weights[:, group] > 0.0)
            coef[group], objective[group] = step.coef.T, step.point.value
            if is_block:
                added = step.summary_after()
                for i, k in enumerate(group):
                    summaries[k] = added if len(group) == 1 else added.select([i])
            n_passes += step.n_products / 2
        is_small = sample is not None and len(sample) < min(self.n_rows, batch.X.shape[1])
        state = replace(self, coef=coef, objective=objective, feature_means=means.means, n_passes=n_passes)
        state = replace(state, has_small_sample=self.has_small_sample or is_small)
        if not is_block:
            return replace(state, buffer=batch)
        state = replace(state, summaries=tuple(summaries), target_weights=weights, means=means)
        return replace(state, sample=self.sample.after(batch), n_rows=self.n_rows + len(batch), buffer=None)


def _sizes(n_before: int, n_rows: int) -> list[int]:
    """Return with how many rows of a block the steps are made, in turn: fractions of the block, then all of it."""
    sizes = [n_rows]
    while sizes[0] > _GROWTH * max(n_before, _FIRST_ROWS):
        sizes.insert(0, sizes[0] // _GROWTH)
    return sizes


def _groups(batch: Rows, outputs: list[Output], had_both: Array, has_both: Array) -> list[list[int]]:
    """Return the outputs that are minimised together.

    Those are, on dense rows, the outputs that have all rows and both targets, before these rows or since.
    """
    if not is_dense_matrix(batch.X) or outputs[0].negative is not None:
        return [[k] for k in range(len(outputs))]
    together = [np.flatnonzero(own).tolist() for own in (had_both, has_both & ~had_both)]
    return [[k] for k in np.flatnonzero(~has_both).tolist()] + [group for group in together if group]
