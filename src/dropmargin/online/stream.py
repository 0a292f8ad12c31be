"""A stream of labelled rows: the columns' coefficients after all of them, each row seen once.

Rows come in blocks. A block takes part exactly, beside the parabola of all earlier rows (`past`), in a few steps
(`descent`), and then joins the parabola: the state does not grow with the stream. If a block is large next to what came
before, the steps begin with its first rows alone, and then take more and more of it; if it is small, it joins the
parabola at once. Rows too few for a block wait, and take part exactly as long as they do; as long as nothing but these
has been seen, their problem is solved to the end by the solvers of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import Block, Output, drop_empty_columns, row_block, row_slice, stack_rows
from dropmargin.data.training import BinaryArray
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.online.descent import descend, follow, take_in
from dropmargin.online.past import Column
from dropmargin.online.rows import Setting, StreamRows
from dropmargin.solvers import Problem, solve_outputs
from dropmargin.typing import Array

# A block has at least so many rows, the first one more, and at most so many: the vectors of a block's rows should stay
# in the processor's cache.
_LEAST_ROWS = 256
_FIRST_ROWS = 512
_MOST_ROWS = 16384
# The steps begin with some of a block's rows if there are more than so many times the rows before, or the first ones.
_GROWTH = 2.5
# A block with so many times as many rows before it is small.
_MANY_BEFORE = 4
# The most rounds on few rows, or if their labels are mixed otherwise than before; on more rows, for a smooth loss; for
# one with a kink, on a part of a block and on all of it.
_FEW_ROWS = 2048
_FEW_ROUNDS, _ROUNDS = 4, 1
_KINK_PART_ROUNDS, _KINK_ROUNDS = 2, 6
# A share of a label that is so many times that of before, or less by as much, is another mixture.
_ANOTHER_MIXTURE = 2.0
# The standard deviation of noise on the scores that rounds off a kink, next to its size.
_SMOOTHING = 0.05
# With so many columns to serve, a block without its empty features is worth a copy.
_COLUMNS_WORTH_COPY = 4


def _setting(problem: Problem, features: Array | None) -> Setting:
    """Return the setting of a descent on some of the features, or on all."""
    noise = problem.noise if features is None or problem.noise is None else problem.noise.take(features)
    variance = Variance() if noise is None else noise.variance()
    assert isinstance(problem.loss, MomentLoss)
    smoothing = _SMOOTHING * problem.loss.kink
    return Setting(problem.loss, variance, problem.penalty.l2, problem.fit_intercept, smoothing)


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


@dataclass(frozen=True)
class Stream:
    """The state of a stream; `after` returns the next one and leaves this one as it is.

    Parameters
    ----------
    columns : tuple of Column
        Coefficients, and what is kept of the rows that are gone.
    waiting : Batch or None
        Rows that are too few for a block.
    n_rows : int
        How many rows have gone into the columns.
    coef : ndarray of shape (n_columns, n_features + 1)
        The coefficients after all rows, those that wait as well; the last entry is the intercept.
    objective : ndarray of shape (n_columns,)
        An estimate of the objective of all rows at these coefficients.
    """

    columns: tuple[Column, ...]
    waiting: Batch | None
    n_rows: int
    coef: Array
    objective: Array

    @classmethod
    def start(cls, n_features: int, n_columns: int) -> Stream:
        """Return a stream that has seen nothing."""
        columns = tuple(Column.start(n_features) for _ in range(n_columns))
        return cls(columns, None, 0, np.zeros((n_columns, n_features + 1)), np.zeros(n_columns))

    def after(self, batch: Batch, model: Problem, problems: list[Output]) -> Stream:
        """Return the stream after some more rows; the same one after none."""
        if not len(batch):
            return self
        if self.waiting is not None:
            X = stack_rows([self.waiting.X, batch.X])
            codes, weights = (
                np.concatenate([getattr(self.waiting, name), getattr(batch, name)]) for name in ("codes", "weights")
            )
            batch = Batch(X, codes, weights)
        n_seen, end, blocks = self.n_rows, 0, []
        while len(batch) - end >= (_LEAST_ROWS if n_seen + end else _FIRST_ROWS):
            own = batch.rows(end, min(len(batch), end + _MOST_ROWS))
            sizes = _sizes(n_seen + end, len(own))
            blocks.append([_Piece.of(own.rows(0, size), model, len(problems)) for size in sizes])
            end += len(own)
        waiting = batch.rows(end, len(batch)) if end < len(batch) else None
        last = None if waiting is None else _Piece.of(waiting, model, len(problems))
        results = [
            _advance(column.copy(), n_seen, problem, blocks, last, model, self.coef[k])
            for k, (column, problem) in enumerate(zip(self.columns, problems, strict=True))
        ]
        columns, coefs, values = zip(*results, strict=True)
        kept = None if waiting is None else replace(waiting, X=stack_rows([waiting.X]))  # not a view of the caller's
        return Stream(columns, kept, n_seen + end, np.stack(coefs), np.array(values))


def _sizes(n_seen: int, n_rows: int) -> list[int]:
    """Return how many of the rows of a block take part in the steps, one time after the other."""
    sizes = [n_rows]
    while sizes[0] > _GROWTH * max(n_seen, _FIRST_ROWS):
        sizes.insert(0, int(sizes[0] / _GROWTH))
    return sizes


@dataclass(frozen=True)
class _Piece:
    """A block of rows, or the first ones of it, ready for the descent of any column."""

    batch: Batch
    block: Block
    setting: Setting
    where: Any

    @classmethod
    def of(cls, batch: Batch, model: Problem, n_columns: int) -> _Piece:
        X, used = batch.X, None
        if n_columns >= _COLUMNS_WORTH_COPY and not _setting(model, None).variance.has_floor:
            X, used = drop_empty_columns(X)  # noise with a floor strikes features that no row of the block has
        setting = _setting(model, used)
        entry = setting.variance.entry if setting.variance.moves_entries else None
        where = slice(None) if used is None else np.append(used, batch.X.shape[1])
        return cls(batch, row_block(X, entry), setting, where)

    def rows(self, problem: Output, C: float) -> StreamRows:
        return StreamRows(
            self.block,
            problem.targets(self.batch.codes),
            C * self.batch.weights * problem.takes_part(self.batch.codes),
            self.where,
        )


def _advance(
    column: Column,
    n_seen: int,
    problem: Output,
    blocks: list[list[_Piece]],
    last: _Piece | None,
    model: Problem,
    coef: Array,
) -> tuple[Column, Array, float]:
    """Return a column after whole blocks, its coefficients after the rows that wait, and the objective there.

    Each of the ``blocks`` is a list of its first rows, more of them, and at last all.
    """
    value = column.value + 0.5 * model.penalty.l2 * float(column.coef[:-1] @ column.coef[:-1])
    for pieces in blocks:
        before = column.labels
        for piece in pieces:
            rows, is_whole = piece.rows(problem, model.C), piece is pieces[-1]
            own = rows.target_weights()
            is_usual = len(piece.batch) > _FEW_ROWS and _are_alike(own, before)
            if not np.all(column.labels + own > 0.0):
                value = take_in(column, rows, piece.setting) if is_whole else value
            elif is_usual and n_seen >= _MANY_BEFORE * len(piece.batch):
                value = follow(column, rows, piece.setting)
            else:
                most_rounds = _most_rounds(model.loss, is_usual, is_whole)
                value = descend(column, rows, piece.setting, most_rounds, keep=not is_whole)
                before = own
        column.labels = column.labels + own
        n_seen += len(pieces[-1].batch)
    labels = column.labels
    if last is not None:
        rows = last.rows(problem, model.C)
        labels = labels + rows.target_weights()
        if np.all(labels > 0.0) and not n_seen:
            return column, *_solve(last.batch, rows, model, coef)
        if np.all(labels > 0.0):
            value = descend(column, rows, last.setting, _FEW_ROUNDS, keep=True)
    out = column.coef.copy()
    if not np.all(labels > 0.0) and model.fit_intercept:  # what has not come yet is not expected
        out[-1] = float(labels[1] > 0.0) - float(labels[0] > 0.0)
    return column, out, value


def _are_alike(labels: Array, before: Array) -> bool:
    """Return whether rows have their two labels in about the shares of those before; the weights of each are given."""
    if not (labels.all() and before.all()):
        return False
    ratio = (labels / labels.sum()) / (before / before.sum())
    return bool(np.all((ratio <= _ANOTHER_MIXTURE) & (ratio >= 1.0 / _ANOTHER_MIXTURE)))


def _most_rounds(loss: Any, is_usual: bool, is_whole: bool) -> int:
    if loss.kink:
        return _KINK_ROUNDS if is_whole else _KINK_PART_ROUNDS
    return _ROUNDS if is_usual else _FEW_ROUNDS


def _solve(batch: Batch, rows: StreamRows, model: Problem, coef: Array) -> tuple[Array, float]:
    """Return the optimum of few rows, as a batch fit finds it, and the objective there."""
    counted = rows.weights > 0.0
    X = batch.X if counted.all() else batch.X[counted]
    data = BinaryArray(X, rows.labels[counted, None], rows.weights[counted] / model.C, 1)
    result = solve_outputs(model, data, coef[:, None] if coef.any() else None)
    return np.ascontiguousarray(result.coef[:, 0]), float(result.objective[0])
