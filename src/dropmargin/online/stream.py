"""The state of a stream of labelled rows, each read once: coefficients, and a summary of all earlier rows.

The rows of a call are cut into blocks. Newton's method minimises the loss of a block plus the summary of the earlier
rows (`summary`), then the block is added to the summary. Rows too few for a block are buffered, and their loss is exact
as long as they are. If all rows so far are in the buffer, the problem is solved as by `fit`. Where the mix of the
classes changes, as in a stream sorted by class, a sample of the earlier rows replaces their summary (`sample`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dropmargin.data import Columns, Output, Rows, is_dense_matrix, join_rows, slice_rows, stack_rows, target_weights
from dropmargin.online.sample import Sample
from dropmargin.online.steps import Steps
from dropmargin.online.summary import Summary
from dropmargin.solvers import Problem, solve_outputs
from dropmargin.typing import Array

# A block has at least this many rows, the first block more, and at most this many: arrays with an entry per row should
# stay in the processor's cache.
_LEAST_ROWS, _FIRST_ROWS, _MOST_ROWS = 256, 512, 16384
# A block has at most this many times the rows before it: the first steps are made with few rows.
_GROWTH = 8


@dataclass(frozen=True)
class Stream:
    """The state of a stream; `after` returns the next state and does not change this one."""

    # Of the rows of all blocks
    summaries: tuple[Summary, ...]  # one per output
    sample: Sample
    feature_sums: Array  # weighted
    # Of all rows, those of the buffer included
    coef: Array  # (n_features + 1, n_outputs), intercept last
    objective: Array  # (n_outputs,), an estimate
    feature_means: Array
    buffer: Rows | None = None  # rows that are too few for a block
    n_passes: float = 0.0  # over the rows of the last call
    has_small_sample: bool = False  # a sample replaced the summary and was smaller than the number of features

    @classmethod
    def start(cls, n_features: int, n_outputs: int, n_classes: int, l2: float) -> Stream:
        """Return the state before the first row."""
        coef, zeros = np.zeros((n_features + 1, n_outputs)), np.zeros(n_features)
        summaries = (Summary.start(coef[:, :1], l2),) * n_outputs
        return cls(summaries, Sample.start(n_classes), zeros, coef, np.zeros(n_outputs), zeros)

    def after(self, batch: Rows, problem: Problem, outputs: list[Output]) -> Stream:
        """Return the state after the rows of a batch."""
        state, begin, n_new = replace(self, n_passes=0.0), 0, len(batch)
        if not n_new:
            return state
        if self.buffer is not None:
            batch = join_rows([self.buffer, batch], stack_rows)
        while len(batch) - begin >= (_LEAST_ROWS if state.sample.n_rows else _FIRST_ROWS):
            most = min(_MOST_ROWS, _GROWTH * max(_FIRST_ROWS // 2, state.sample.n_rows))
            end = min(len(batch), begin + most)
            state = state._after_rows(slice_rows(batch, begin, end), problem, outputs, is_block=True)
            begin = end
        if begin < len(batch):
            rest = join_rows([slice_rows(batch, begin, len(batch))], stack_rows)  # not a view of the caller's array
            state = state._after_rows(rest, problem, outputs, is_block=False)
        return replace(state, n_passes=state.n_passes / n_new)

    def _after_rows(self, batch: Rows, problem: Problem, outputs: list[Output], is_block: bool) -> Stream:
        """Return the state after a block, or with other rows in the buffer; passes are multiplied by the rows."""
        # 1. What is known of all rows.
        counted, is_first = self.sample.count(batch), not self.sample.n_rows
        feature_sums = self.feature_sums + batch.X.T @ batch.sample_weight
        means = feature_sums / counted.weights.sum()
        if problem.noise is not None:
            problem = replace(problem, noise=problem.noise.with_means(means))
        weights = target_weights(outputs, counted.weights)
        had_both = np.all(target_weights(outputs, self.sample.weights) > 0.0, axis=0)
        has_both = np.all(weights > 0.0, axis=0)
        sample = self.sample.rows() if not is_first and self.sample.has_other_classes(batch.y) else None
        # 2. Steps of the outputs that are minimised together, with the features sorted by the groups of the noise.
        groups = problem.variance.groups
        order = np.arange(len(means)) if groups is None else np.argsort(groups, kind="stable")
        there, passes = np.append(order, len(order)), [self.n_passes]
        back = np.argsort(there)
        summaries, coef, objective = list(self.summaries), self.coef.copy(), self.objective.copy()
        for own in _together(batch, outputs, had_both, has_both):
            columns = Columns(order, len(order))
            steps = Steps(problem, [outputs[k] for k in own], len(counted.counts), columns, passes)
            start = self.coef[:, own]
            if has_both[own[0]] and is_first and not is_block:
                result = solve_outputs(problem, steps.data(batch), steps.outputs, start if start.any() else None)
                coef[:, own], objective[own] = result.coef, result.objective
                passes[0] += result.n_passes * len(batch)
                continue
            summary = Summary.join([self.summaries[k] for k in own])
            if groups is not None:
                summary, start = summary.reordered(there), start[there]
            if not has_both[own[0]]:
                step = steps.add_at_zero(batch, summary)
                if problem.fit_intercept:  # the only target so far is predicted
                    step.coef[-1] = np.array([1.0, -1.0]) @ (weights[:, own] > 0.0)
            elif sample is not None:
                step = steps.minimise_with_sample(sample, batch, summary, start)
            else:
                step = steps.minimise(batch, summary, np.zeros_like(start) if is_first else start)
            coef[:, own], objective[own] = step.coef[back], step.point.value
            if is_block:
                added = step.summary() if groups is None else step.summary().reordered(back)
                for i, k in enumerate(own):
                    summaries[k] = added.select([i])
        # 3. The new state: rows of a block are added to the summary, others to the buffer.
        is_small = sample is not None and len(sample) < min(self.sample.n_rows, len(means))
        state = replace(self, coef=coef, objective=objective, feature_means=means, buffer=batch, n_passes=passes[0])
        state = replace(state, has_small_sample=self.has_small_sample or is_small)
        if not is_block:
            return state
        of_blocks = {"summaries": tuple(summaries), "sample": self.sample.after(batch), "feature_sums": feature_sums}
        return replace(state, buffer=None, **of_blocks)


def _together(batch: Rows, outputs: list[Output], had_both: Array, has_both: Array) -> list[list[int]]:
    """Return the outputs that are minimised together.

    Those are, on dense rows, the outputs that have all rows and both targets, before these rows or since.
    """
    if not is_dense_matrix(batch.X) or outputs[0].negative is not None:
        return [[k] for k in range(len(outputs))]
    together = [np.flatnonzero(own).tolist() for own in (had_both, has_both & ~had_both)]
    return [[k] for k in np.flatnonzero(~has_both).tolist()] + [group for group in together if group]
