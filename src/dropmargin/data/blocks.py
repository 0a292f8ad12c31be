"""Blocks of rows of the data matrix, dense or CSR, behind one interface.

A block knows its rows ``X`` and an element-wise function ``f`` with ``f(0) = 0`` (the noise's variance is
``slope_d * f(x_d) + floor_d``). It answers two kinds of questions:

- products with ``X`` and with ``f(X)``, both in one sweep over the rows: forth, back, or forth and back;
- entries: the stored values with their columns, for what is not a product (moment generating functions).

Factors of ``X`` and of ``f(X)`` come side by side in one array, and so do the results: the first ``n_x`` columns belong
to ``X``, the others to ``f(X)``. Results are in double precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dropmargin.typing import Array

EntryFunction = Callable[[Array], Array]


class Block(ABC):
    """Rows of the data matrix: what `DenseBlock` and `SparseBlock` have in common."""

    rows: Any
    entry: EntryFunction | None
    n_rows: int
    n_features: int

    @abstractmethod
    def forward(self, weights: Array, n_x: int) -> Array:
        """Return ``X @ weights[:, :n_x]`` and ``f(X) @ weights[:, n_x:]``, side by side."""

    @abstractmethod
    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X' @ left[:, :n_x]`` and ``f(X)' @ left[:, n_x:]``, side by side."""

    @abstractmethod
    def sandwich(self, weights: Array, shift: Array, curved: Array, n: int) -> tuple[Array, Array]:
        """Return the products with a curvature, forth and back in one sweep, for ``n`` columns.

        With ``(a, t) = (X p, f(X) u) + shift``, ``weights = (p, u)`` and ``curved = (A, B, D)``, one value per row and
        column: ``X'(A a + B t)`` and ``f(X)'(B a + D t)`` side by side, and the sums over the rows of what is in the
        brackets. If ``weights`` is ``p`` alone and ``curved`` is ``A`` alone: ``X'(A a)`` and its sum.
        """

    @abstractmethod
    def squares_transposed(self, left: Array) -> Array:
        """Return ``(X * X)' @ left``."""

    @abstractmethod
    def weighted_gram(self, weights: Array) -> Array:
        """Return ``X' diag(weights) X``, a dense matrix."""

    @abstractmethod
    def outer_gram(self, scale: Array) -> Array:
        """Return ``X diag(scale) X'``, a dense matrix."""

    @abstractmethod
    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows, and these rows as a dense array in double precision."""

    @abstractmethod
    def take_rows(self, mask: Array) -> Block:
        """Return the rows of a mask, copied."""

    @abstractmethod
    def entries(self) -> Array:
        """Return the stored values: a matrix if dense, one vector if sparse."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Return one value per feature in the shape of, or broadcastable to, `entries`."""

    @abstractmethod
    def spread_rows(self, values: Array) -> Array:
        """Return one value per row in the shape of, or broadcastable to, `entries`."""

    @abstractmethod
    def with_entries(self, entries: Array) -> Block:
        """Return a block with the same pattern and other stored values."""

    @abstractmethod
    def row_sums(self, entries: Array) -> Array:
        """Return the sum of ``entries`` in each row."""

    def backward_and_squares(self, left: Array, n_x: int, squared: Array) -> tuple[Array, Array]:
        """Return `backward` of ``left`` and ``(X * X)' squared``, in one sweep where ``f`` is the square."""
        if self.entry is not np.square:
            return self.backward(left, n_x), self.squares_transposed(squared)
        back = self.backward(np.hstack([left, squared]), n_x)
        return back[:, : left.shape[1]], back[:, left.shape[1] :]

    def times(self, vector: Array) -> Array:
        """Return ``X @ vector``."""
        return self.forward(vector[:, None], 1)[:, 0]

    def transposed_times(self, vector: Array) -> Array:
        """Return ``X' @ vector``."""
        return self.backward(vector[:, None], 1)[:, 0]


def curve(scores: Array, curved: Array, n: int) -> Array:
    """Return ``(A a + B t, B a + D t)`` of `Block.sandwich`, or ``A a`` if there is no ``t``."""
    if scores.shape[1] == n:
        return curved * scores
    a, t = scores[:, :n], scores[:, n:]
    by_mean, mixed, by_variance = curved[:, :n], curved[:, n : 2 * n], curved[:, 2 * n :]
    return np.hstack([by_mean * a + mixed * t, mixed * a + by_variance * t])


def chunks(n_rows: int, n_features: int, entries: int, least: int = 16) -> Iterator[slice]:
    """Yield slices of rows with about so many entries, and at least so many rows."""
    step = max(least, entries // max(1, n_features))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))
