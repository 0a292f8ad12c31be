"""A stream of labelled rows: the columns' coefficients after all of them, each row seen once.

Rows come in blocks. A block takes part exactly, beside the parabola of all earlier rows (`past`), in a few steps
(`descent`), and then joins the parabola: the state does not grow with the stream. The blocks double in size, up to a
limit, as the coefficients settle. Rows too few for a block wait, and take part exactly as long as they do; as long as
nothing but these has been seen, their problem is solved to the end by the solvers of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dropmargin.linalg import LocalPartitions, drop_empty_columns, row_block, row_blocks, row_slice, stack_rows
from dropmargin.losses import MomentLoss
from dropmargin.noise import Noise, Variance
from dropmargin.objective import Labelled, MomentObjective, Penalty
from dropmargin.online.descent import descend, take_in
from dropmargin.online.past import Column
from dropmargin.online.rows import Rows, Setting
from dropmargin.solvers import SOLVERS, minimise
from dropmargin.typing import Array

# A block has at least so many rows, the first one more; larger ones are as large as all before them, up to a limit: the
# vectors of a block's rows should stay in the processor's cache.
_LEAST_ROWS = 256
_FIRST_ROWS = 512
_MOST_ROWS = 16384
# The most steps on the first block, and on all others.
_FIRST_ROUNDS = 6
_ROUNDS = 4
# The standard deviation of noise on the scores that rounds off a kink, next to its size.
_SMOOTHING = 0.05
# With so many columns to serve, a block without its empty features is worth a copy.
_COLUMNS_WORTH_COPY = 4


@dataclass(frozen=True)
class Model:
    """Everything about the objective but the data; `tol` and `max_iter` are for few rows, solved to the end."""

    loss: MomentLoss
    noise: Noise | None
    l2: float
    C: float
    fit_intercept: bool
    tol: float
    max_iter: int

    def setting(self, features: Array | None) -> Setting:
        """Return the setting of a descent on some of the features, or on all."""
        noise = self.noise if features is None or self.noise is None else self.noise.take(features)
        variance = Variance() if noise is None else noise.variance()
        return Setting(self.loss, variance, self.l2, self.fit_intercept, _SMOOTHING * self.loss.kink)


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
class Target:
    """A binary problem: a class against all others, or against one of them, whose rows alone count then."""

    positive: int
    negative: int | None = None

    def labels(self, codes: Array) -> Array:
        """Return -1 or +1 for each row."""
        return np.where(codes == self.positive, 1.0, -1.0)

    def weights(self, batch: Batch) -> Array:
        """Return the weights of the rows."""
        if self.negative is None:
            return batch.weights
        return np.where((batch.codes == self.positive) | (batch.codes == self.negative), batch.weights, 0.0)


def targets(n_classes: int, multi_class: str) -> list[Target]:
    """Return the binary problems, one per column, in the order of a batch fit."""
    if multi_class == "ovo" and n_classes > 2:
        return [Target(second, first) for first, second in combinations(range(n_classes), 2)]
    return [Target(k) for k in (range(n_classes) if n_classes > 2 else (1,))]


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
    coef : ndarray of shape (n_features + 1, n_columns)
        The coefficients after all rows, those that wait as well; the last row is the offset.
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
        return cls(columns, None, 0, np.zeros((n_features + 1, n_columns)), np.zeros(n_columns))

    def after(self, batch: Batch, model: Model, problems: list[Target]) -> Stream:
        """Return the stream after some more rows."""
        if self.waiting is not None:
            X = stack_rows([self.waiting.X, batch.X])
            codes, weights = (
                np.concatenate([getattr(self.waiting, name), getattr(batch, name)]) for name in ("codes", "weights")
            )
            batch = Batch(X, codes, weights)
        blocks = list(_cut(self.n_rows, len(batch)))
        end = blocks[-1][1] if blocks else 0
        waiting = batch.rows(end, len(batch)) if end < len(batch) else None
        pieces = [_Piece.of(batch.rows(*block), model, len(problems)) for block in blocks]
        last = None if waiting is None else _Piece.of(waiting, model, len(problems))
        results = [
            _advance(column.copy(), problem, pieces, last, model, np.ascontiguousarray(self.coef[:, k]))
            for k, (column, problem) in enumerate(zip(self.columns, problems, strict=True))
        ]
        columns, coefs, values = zip(*results, strict=True)
        kept = None if waiting is None else replace(waiting, X=stack_rows([waiting.X]))  # not a view of the caller's
        return Stream(columns, kept, self.n_rows + end, np.stack(coefs, axis=1), np.array(values))


def _cut(n_seen: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the blocks of new rows; the rows after the last one have to wait."""
    begin = 0
    while n_rows - begin >= (_LEAST_ROWS if n_seen + begin else _FIRST_ROWS):
        end = min(n_rows, begin + min(_MOST_ROWS, max(_FIRST_ROWS, n_seen + begin)))
        yield begin, end
        begin = end


@dataclass(frozen=True)
class _Piece:
    """A block of rows, ready for the descent of any column."""

    batch: Batch
    blocks: list[Any]
    setting: Setting
    where: Any

    @classmethod
    def of(cls, batch: Batch, model: Model, n_columns: int) -> _Piece:
        X, used = batch.X, None
        if n_columns >= _COLUMNS_WORTH_COPY and not model.setting(None).variance.has_floor:
            X, used = drop_empty_columns(X)  # noise with a floor strikes features that no row of the block has
        setting = model.setting(used)
        entry = setting.variance.entry if setting.variance.moves_entries else None
        where = slice(None) if used is None else np.append(used, batch.X.shape[1])
        return cls(batch, row_blocks(X, entry), setting, where)

    def rows(self, problem: Target, C: float) -> Rows:
        return Rows(self.blocks, problem.labels(self.batch.codes), C * problem.weights(self.batch), self.where)


def _advance(
    column: Column, problem: Target, pieces: list[_Piece], last: _Piece | None, model: Model, coef: Array
) -> tuple[Column, Array, float]:
    """Return a column after whole blocks, its coefficients after the rows that wait, and the objective there."""
    value = column.value + 0.5 * model.l2 * float(column.coef[:-1] @ column.coef[:-1])
    for piece in pieces:
        rows = piece.rows(problem, model.C)
        column.meet(rows.labels[rows.weights > 0.0])
        if column.has_both_labels:
            value = descend(column, rows, piece.setting, _FIRST_ROUNDS if column.is_empty else _ROUNDS, keep=False)
        else:
            value = take_in(column, rows, piece.setting)
    met = replace(column)  # with the rows that wait
    if last is not None:
        rows = last.rows(problem, model.C)
        met.meet(rows.labels[rows.weights > 0.0])
        if met.has_both_labels and column.is_empty:
            return column, *_solve(last.batch, rows, model, coef)
        if met.has_both_labels:
            value = descend(column, rows, last.setting, _ROUNDS, keep=True)
    out = column.coef.copy()
    if not met.has_both_labels and model.fit_intercept:  # what has not come yet is not expected
        out[-1] = float(met.has_positive) - float(met.has_negative)
    return column, out, value


def _solve(batch: Batch, rows: Rows, model: Model, coef: Array) -> tuple[Array, float]:
    """Return the optimum of few rows, as a batch fit does it, and the objective there."""
    variance = model.setting(None).variance
    counted = rows.weights > 0.0
    X = batch.X if counted.all() else batch.X[counted]
    block = row_block(X, variance.entry if variance.moves_entries else None)
    part = Labelled(block, rows.labels[counted, None], rows.weights[counted, None])
    penalty, one = Penalty(l2=model.l2), np.arange(1)
    with LocalPartitions([part]) as data:
        objective = MomentObjective(data, model.loss, variance, penalty, model.fit_intercept, X.shape[1], one)
        start, warm = objective.at(coef[:, None]), bool(coef.any())
        result = minimise(SOLVERS["newton"], objective, start, tol=model.tol, max_iter=model.max_iter, warm=warm)
    return np.ascontiguousarray(result.coef[:, 0]), float(result.objective[0])
