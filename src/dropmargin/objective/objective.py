r"""The objective ``J(W) = R(W) + C sum_i s_i loss(z_i(W))``: scores, a loss of them, a penalty, over partitions.

For every loss and noise, with ``u = C s loss'(z)``::

    gradient = R'(W) + vjp(W, u)          H p = R''(W) p + vjp(W, C s loss''(z) dz) + second(W, u, p),   dz = jvp(W, p)

Coefficients have the shape ``(n_features + 1, n_columns)``, the intercept in the last row. Columns are outputs (binary
problems) that share every product with the data and nothing else, or the classes of one softmax; `dot` adds up what
belongs together. Mapped functions are stateless; rows in memory keep the derivatives at the last point (`Block.memo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, LocalPartitions, Partitions, Variance
from dropmargin.objective.row_losses import MomentRows, Second, SoftmaxRows
from dropmargin.objective.scores import Moments, Parts, Scores
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

_TOKENS = count()


class Task(NamedTuple):
    """What a mapped function needs beside the rows and the coefficients.

    ``plain`` is the loss without smoothing. ``token`` is that of a point, and ``same`` that of another point with the
    same coefficients and its columns, whose scores are used where they are kept.
    """

    scores: Scores
    loss: Any
    C: float
    sharp_width: Array | None
    plain: Any
    token: int
    same: tuple[int, Any] | None


class Piece(NamedTuple):
    """Derivatives of the loss of some rows: see `Task`.

    ``own`` is ``sum_i u_i V_d(x_id)`` by feature for independent features, else ``None``.
    """

    number: int
    rows: Any
    z: Parts
    loss: Array
    first: Parts
    y: Array
    weights: Array
    own: Array | None


class Point:
    """The objective at some coefficients: value and gradient of the smooth part.

    Attributes
    ----------
    coef : ndarray of shape (n_features + 1, n_columns)
    value : ndarray of shape (n_outputs,)
    gradient : ndarray of the shape of ``coef``
        An l1 penalty counts within the orthant of ``coef``, with the derivative zero at zero.
    own : ndarray of shape (n_features, n_columns) or None
        ``sum_i u_i V_d(x_id)``, half the diagonal of the second-order term of the noise; ``None`` where it is not
        diagonal.
    sharp : ndarray of shape (n_columns,)
        The share of the weight in rows whose scores have a standard deviation below `Objective.sharp_width`.
    plain_value : ndarray of shape (n_outputs,)
        The value without smoothing.
    """

    def __init__(self, objective: Objective, coef: Array, same: Point | None = None) -> None:
        self.objective, self.coef = objective, coef
        self.task: Task = objective.task(None if same is None else (same.task.token, slice(None)))
        # Rows in memory keep their derivatives, and the gradient is computed when it is needed. Others are read once.
        is_local = isinstance(objective.data, LocalPartitions)
        objective.count((0.5 if is_local else 1.0) if same is None else 0.0)
        loss, sharp, plain, *slopes = objective.data.map_sum(_evaluate, self.task, coef, not is_local)
        self._slopes = slopes or None
        self.sharp = sharp / objective.weight
        of_penalty = objective.penalty.value(coef)
        self.value = objective.dot_values(of_penalty) + loss
        if objective.smooths_l1:
            of_penalty = replace(objective.penalty, width=0.0).value(coef)
        self.plain_value = objective.dot_values(of_penalty) + plain

    @property
    def own(self) -> Array | None:
        if self._slopes is None:
            self.objective.count(0.5)
            self._slopes = list(self.objective.data.map_sum(_slopes, self.task, self.coef))
        return self._slopes[1]

    @cached_property
    def gradient(self) -> Array:
        _ = self.own  # which is computed with it
        assert self._slopes is not None
        gradient = self._slopes[0] + self.objective.penalty.at(self.coef)[1]
        if not self.objective.fit_intercept:
            gradient[-1] = 0.0
        return gradient

    def product(self, direction: Array, is_majoriser: bool = False) -> Array:
        """Return the Hessian, or the majoriser, times a direction, without the penalty's part."""
        objective = self.objective
        # Rows elsewhere do not keep the scores of the point.
        objective.count(1.0 if isinstance(objective.data, LocalPartitions) else 1.5)
        (image,) = objective.data.map_sum(_product, self.task, self.coef, direction, is_majoriser)
        if self.own is not None:
            image[:-1] += 2.0 * self.own * direction[:-1]
        return image

    def select(self, columns: Array) -> Point:
        """Return the point of some of the columns."""
        other = copy(self)
        other.objective = self.objective.select(columns)
        other.task = other.objective.task((self.task.token, columns))
        other.coef = np.ascontiguousarray(self.coef[:, columns])
        if self._slopes is not None:
            other._slopes = [None if own is None else np.ascontiguousarray(own[:, columns]) for own in self._slopes]
        other.__dict__.pop("gradient", None)
        other.value, other.sharp = self.value[columns], self.sharp[columns]
        other.plain_value = self.plain_value[columns]
        return other

    def statistics(self, is_majoriser: bool = False) -> Statistics:
        """Return what preconditioners need of the rows."""
        self.objective.count(0.5)
        found = self.objective.data.map_sum(_statistics, self.task, self.coef, is_majoriser)
        return Statistics(*found)


class Statistics(NamedTuple):
    """Sums over the rows of a point.

    Attributes
    ----------
    totals : ndarray of shape (n_columns,)
        The sum of the curvature weights, the second derivatives by the mean.
    by_variance : ndarray of shape (n_columns,)
        The sum of the first derivatives by the variance.
    coupling : ndarray of shape (n_columns, n_columns) or None
        That of the classes of a softmax.
    """

    totals: Array
    by_variance: Array
    coupling: Array | None


@dataclass
class Objective:
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Block
    scores : Scores
    loss : MomentRows, MGFRows or SoftmaxRows
    penalty : Penalty
    C : float
    fit_intercept : bool
    n_rows, n_features, n_columns : int
    variance : Variance
        Of the features of the rows.
    weight : float
        The weight of all rows, times ``C``.
    is_dense : bool
    width : ndarray of shape (n_columns,) or None
        The width over which a kink of the loss is smoothed.
    sharp_width : ndarray of shape (n_columns,) or None
        The kink is sharp for rows whose scores have a lower standard deviation.
    smooths_l1 : bool
        Whether the kink of an l1 penalty is smoothed as well, by a width with the same error.
    sample : Objective or None
        That of a subsample of the rows, to estimate Hessians.
    cache : dict
        What problems with the same rows and relative weights share, for example other values of ``C``.
    """

    data: Partitions
    scores: Scores
    loss: Any
    penalty: Penalty
    C: float
    fit_intercept: bool
    n_rows: int
    n_features: int
    n_columns: int
    variance: Variance
    weight: float
    is_dense: bool
    width: Array | None = None
    sharp_width: Array | None = None
    smooths_l1: bool = False
    sample: Objective | None = None
    cache: dict[Any, Any] = field(default_factory=dict)
    passes: list[float] = field(default_factory=lambda: [0.0])
    share: float = 1.0

    @property
    def is_coupled(self) -> bool:
        """Whether the columns are the classes of one softmax, one output."""
        return self.loss.is_coupled

    @property
    def is_centred(self) -> bool:
        """Whether the columns have the mean zero at the minimum, for every feature: those of a softmax with a ridge."""
        return self.is_coupled and self.n_columns > 1 and self.penalty.is_ridge

    @property
    def n_outputs(self) -> int:
        return 1 if self.is_coupled else self.n_columns

    @property
    def n_passes(self) -> float:
        """Passes over the data so far: a product with ``X`` and one with its transpose are one pass."""
        return self.passes[0]

    def count(self, n_passes: float) -> None:
        """Count passes over these rows."""
        self.passes[0] += self.share * n_passes

    @cached_property
    def has_kink(self) -> bool:
        """Whether the loss has a kink where a score has no variance."""
        return isinstance(self.loss, MomentRows) and self.loss.loss.kink > 0.0

    @property
    def is_noise_free(self) -> bool:
        return self.variance.is_zero

    def task(self, same: tuple[int, Any] | None = None) -> Task:
        """Return the task of a new point."""
        loss = self.loss
        width = self.width if self.has_kink else None
        if width is not None:
            loss = replace(loss, loss=loss.loss.smoothed(width))
        plain = None if width is None else self.loss.loss
        return Task(self.scores, loss, self.C, self.sharp_width if plain else None, plain, next(_TOKENS), same)

    def at(self, coef: Array, same: Point | None = None) -> Point:
        """Return the point at ``coef``; ``same`` is that of the same loss with another smoothing."""
        return Point(self, coef, same)

    def value(self, coef: Array) -> Array:
        """Return the value without smoothing."""
        return replace(self, width=None).at(coef).value if self.width is not None else self.at(coef).value

    def dot(self, first: Array, second: Array) -> Array:
        """Return the scalar products of two arrays of coefficients, one per output."""
        return self.dot_values(np.einsum("ij,ij->j", first, second))

    def dot_values(self, values: Array) -> Array:
        return values.sum(keepdims=True) if self.is_coupled else values

    def select(self, outputs: Array) -> Objective:
        """Return the objective of some of the outputs."""
        if self.is_coupled or (len(outputs) == self.n_columns and (np.diff(outputs) == 1).all()):
            return self
        loss = replace(self.loss, outputs=[self.loss.outputs[k] for k in outputs])
        widths = [None if own is None else own[outputs] for own in (self.width, self.sharp_width)]
        sample = None if self.sample is None else self.sample.select(outputs)
        own = {"loss": loss, "penalty": self.penalty.select(outputs), "n_columns": len(outputs)}
        return replace(self, width=widths[0], sharp_width=widths[1], sample=sample, **own)

    def smoothed(self, width: Array, sharp_width: Array | None = None) -> Objective:
        """Return the objective with its kink smoothed over this width, one number per output."""
        sharp_width = width if sharp_width is None else sharp_width
        sample = None if self.sample is None else self.sample.smoothed(width, sharp_width)
        penalty = self.penalty
        if self.smooths_l1:
            of_penalty = float(width[0]) * self.weight / (penalty.l1 * self.n_features * self.n_columns)
            penalty = replace(penalty, width=of_penalty)
        return replace(self, width=width, sharp_width=sharp_width, sample=sample, penalty=penalty)

    @property
    def is_smoothed(self) -> bool:
        """Whether there are kinks that solvers smooth."""
        return self.has_kink or self.smooths_l1


# Functions of one partition ---------------------------------------------------------------------------------------


def _pieces(block: Block, task: Task, coef: Array) -> Iterator[Piece]:
    """Yield the derivatives of the loss of the rows, which are kept with a block until the next point."""
    known = block.memo.get("point")
    if known is not None and known[0] == task.token:
        yield from known[1]
        return
    scores = None
    if known is not None and task.same is not None and known[0] == task.same[0]:
        scores = [tuple(part[:, task.same[1]] for part in piece.z) for piece in known[1]]
    for number, (own, where, y, rows) in enumerate(task.loss.pieces(block)):
        z = task.scores.value(rows, task.loss.of_class(coef, own)) if scores is None else scores[number]
        weights = task.C * block.sample_weight[where][:, None]
        value, first = task.loss.evaluate(z, y)
        total = (weights * value).sum(axis=0)
        yield Piece(own, rows, z, total, tuple(weights * part for part in first), y, weights, None)


def _evaluate(block: Block, task: Task, coef: Array, with_slopes: bool) -> tuple[Any, ...]:
    """Return loss, `Point.sharp` and the loss without smoothing, and what `_slopes` returns; keep the derivatives."""
    loss, sharp = np.zeros(1 if task.loss.is_coupled else coef.shape[1]), np.zeros(coef.shape[1])
    plain, kept = np.zeros_like(sharp), []
    for piece in _pieces(block, task, coef):
        loss = loss + piece.loss
        if task.sharp_width is not None:
            sharp += (piece.weights * (piece.z[1] < np.square(task.sharp_width))).sum(axis=0)
            plain = plain + (piece.weights * task.plain.value(piece.y, *piece.z)).sum(axis=0)
        kept.append(piece)
    block.memo["point"] = task.token, kept
    block.memo.pop("second", None)
    return loss, sharp, loss if task.plain is None else plain, *(_slopes(block, task, coef) if with_slopes else ())


def _slopes(block: Block, task: Task, coef: Array) -> tuple[Array, Array | None]:
    """Return the gradient and `Point.own`; pieces of coupled classes keep their own."""
    gradient, own_sums, kept = np.zeros_like(coef), None, []
    for piece in _pieces(block, task, coef):
        part, own = task.scores.gradient(piece.rows, task.loss.of_class(coef, piece.number), piece.first)
        gradient += task.loss.adjoint(part, piece.number)
        if task.loss.is_coupled:
            kept.append(piece._replace(own=own))
        elif own is not None:
            own_sums = own if own_sums is None else own_sums + own
    if kept:
        block.memo["point"] = task.token, kept
    return gradient, own_sums


def second_derivatives(block: Block, task: Task, coef: Array, is_majoriser: bool) -> Iterator[tuple[Piece, Any]]:
    """Yield pieces and their second derivatives, which are kept as well."""
    key, known = (task.token, is_majoriser), block.memo.get("second")
    if known is not None and known[0] == key:
        yield from known[1]
        return
    found = []
    for piece in _pieces(block, task, coef):
        y, weights = piece.y, piece.weights
        of = task.loss.majoriser if is_majoriser else task.loss.second
        found.append((piece, of(piece.z, y, weights)))
    block.memo["second"] = key, found
    yield from found


def _product(block: Block, task: Task, coef: Array, direction: Array, is_majoriser: bool) -> tuple[Array]:
    """Return the rows' part of the Hessian times a direction, without what `Point.own` contributes."""
    out = np.zeros_like(coef)
    for piece, second in second_derivatives(block, task, coef, is_majoriser):
        local, along = task.loss.of_class(coef, piece.number), task.loss.of_class(direction, piece.number)
        change = second(task.scores.jvp(piece.rows, local, along))
        needs_second = not isinstance(task.scores, Moments) or (task.loss.is_coupled and piece.own is None)
        image = task.scores.vjp(piece.rows, local, change, (piece.first, along) if needs_second else None)
        if piece.own is not None:
            image[:-1] += 2.0 * piece.own * along[:-1]
        out += task.loss.adjoint(image, piece.number)
    return (out,)


def _statistics(block: Block, task: Task, coef: Array, is_majoriser: bool) -> tuple[Array, Array, Array | None]:
    totals, by_variance, coupling = np.zeros(coef.shape[1]), np.zeros(coef.shape[1]), None
    for piece, second in second_derivatives(block, task, coef, is_majoriser):
        if isinstance(second, Second):
            totals += second.by_mean.sum(axis=0)
            by_variance += piece.first[1].sum(axis=0)
        elif isinstance(task.loss, SoftmaxRows):
            coupling = task.loss.coupling(piece.z, piece.weights) + (0.0 if coupling is None else coupling)
        else:
            totals += (piece.weights * task.loss.loss.curvature(piece.z[0])).sum(axis=0)
            by_variance += 0.5 * piece.first[0].sum(axis=0)  # the second derivative of a log-MGF is the variance
    if coupling is None and isinstance(task.loss, SoftmaxRows):
        coupling = np.zeros((coef.shape[1], coef.shape[1]))
    return totals, by_variance, coupling
