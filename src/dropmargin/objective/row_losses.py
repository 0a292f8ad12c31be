r"""Losses of rows as functions of their scores ``z``, with the derivatives that Newton's method needs.

A row loss has a value and the first derivatives ``u = loss'(z)``, one array per part of ``z``, and second derivatives
as a function ``du = loss''(z) dz``. Three kinds::

    MomentRows      loss(y; m, v) of mean and variance                       one output per column
    MGFRows         loss(K),  K = log E exp(-y score)                        one column, rows of class y at -y w
    SoftmaxRows     log sum_k exp(z_k - z_y),  z = m + v / 2 or the log-MGF  a column per class, rows at W - w_y

The coefficients at which the rows of a class are scored are a linear map of ``W`` (`of_class`); `adjoint` takes a
gradient back. The softmax of mean plus half the variance is Jensen's bound of the expected loss for a normal score,
that of the log-MGF is Jensen's bound alone (MCF-logistic).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, Output, output_targets
from dropmargin.losses import MGFLoss, MomentLoss
from dropmargin.objective.scores import Parts
from dropmargin.typing import Array


class Second(NamedTuple):
    """Second derivatives of a loss by mean and variance, ``(A, B, D)``, times the weights of the rows."""

    by_mean: Array
    mixed: Array
    by_variance: Array

    def __call__(self, dz: Parts) -> Parts:
        mean, variance = dz
        return self.by_mean * mean + self.mixed * variance, self.mixed * mean + self.by_variance * variance


#: Rows of a block that are scored at the same coefficients: their class, indices and targets, and the rows.
Piece = tuple[int, Any, Array, Any]


@dataclass(frozen=True)
class MomentRows:
    """A loss of mean and variance; ``outputs`` say what the targets are."""

    loss: MomentLoss
    outputs: Sequence[Output]
    is_coupled = False

    def pieces(self, block: Block) -> Iterator[Piece]:
        for where, chunk in block.chunks():
            yield 0, where, output_targets(self.outputs, block.y[where]), chunk

    def of_class(self, coef: Array, own: int) -> Array:
        return coef

    def adjoint(self, gradient: Array, own: int) -> Array:
        return gradient

    def evaluate(self, z: Parts, y: Array) -> tuple[Array, Parts]:
        return self.loss.value_and_gradient(y, *z)

    def second(self, z: Parts, y: Array, weights: Array) -> Second:
        return Second(*(weights * own for own in self.loss.curvature(y, *z)))

    def majoriser(self, z: Parts, y: Array, weights: Array) -> Second:
        """Return the second derivatives of the majoriser."""
        gamma = weights * self.loss.majoriser(y, *z)
        return Second(gamma, np.zeros_like(gamma), np.zeros_like(gamma))


@dataclass(frozen=True)
class _ClassRows:
    """Rows that are scored class by class."""

    n_classes: int
    is_coupled = True

    def pieces(self, block: Block) -> Iterator[Piece]:
        for own, index, chunk in block.class_chunks(self.n_classes):
            yield own, index, block.y[index], chunk


@dataclass(frozen=True)
class MGFRows(_ClassRows):
    """A loss of ``K = log E exp(-y score)``, the class 1 being ``y = 1``."""

    loss: MGFLoss
    positive: int = 1

    def _sign(self, own: int) -> float:
        return -1.0 if own == self.positive else 1.0

    def of_class(self, coef: Array, own: int) -> Array:
        return self._sign(own) * coef

    def adjoint(self, gradient: Array, own: int) -> Array:
        return self._sign(own) * gradient

    def evaluate(self, z: Parts, y: Array) -> tuple[Array, Parts]:
        return self.loss.value(_sum(z)), _spread(self.loss.slope(_sum(z)), z)

    def second(self, z: Parts, y: Array, weights: Array) -> Callable[[Parts], Parts]:
        curvature = weights * self.loss.curvature(_sum(z))
        return lambda dz: _spread(curvature * _sum(dz), dz)


@dataclass(frozen=True)
class SoftmaxRows(_ClassRows):
    """The softmax of all classes, a column each."""

    def of_class(self, coef: Array, own: int) -> Array:
        return coef - coef[:, own : own + 1]

    def adjoint(self, gradient: Array, own: int) -> Array:
        out = gradient.copy()
        out[:, own] -= gradient.sum(axis=1)
        return out

    def evaluate(self, z: Parts, y: Array) -> tuple[Array, Parts]:
        scores = _sum(z)
        top = scores.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            value = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
        return value, _spread(self._shares(z), z)

    def second(self, z: Parts, y: Array, weights: Array) -> Callable[[Parts], Parts]:
        shares = self._shares(z)

        def product(dz: Parts) -> Parts:
            along = shares * _sum(dz)
            return _spread(weights * (along - shares * along.sum(axis=1, keepdims=True)), dz)

        return product

    def coupling(self, z: Parts, weights: Array) -> Array:
        """Return ``sum_i s_i (diag(p) - p p')`` of shape (n_classes, n_classes), for a preconditioner."""
        shares = self._shares(z)
        weighted = weights * shares
        return np.diag(weighted.sum(axis=0)) - weighted.T @ shares

    @staticmethod
    def _shares(z: Parts) -> Array:
        scores = _sum(z)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return shares


def _sum(z: Parts) -> Array:
    """Return mean plus half the variance, or the log-MGF."""
    return z[0] if len(z) == 1 else z[0] + 0.5 * z[1]


def _spread(u: Array, z: Parts) -> Parts:
    return (u,) if len(z) == 1 else (u, 0.5 * u)
