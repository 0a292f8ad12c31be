"""Blocks of rows of the data matrix, dense or CSR, behind one interface.

A block holds its rows ``X`` and an element-wise function ``f`` with ``f(0) = 0``; the variance of the noise is
``slope_d * f(x_d) + floor_d``. It offers two kinds of operations:

- products with ``X`` and ``f(X)``, with their transposes, or with both, in one pass over the rows;
- access to the stored values and their features, for computations that are not products (moment generating functions).

The operands for ``X`` and ``f(X)`` are side by side in one array, and so are the results: the first ``n_x`` columns
belong to ``X``, the others to ``f(X)``. Results are in double precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dropmargin.typing import Array

EntryFunction = Callable[[Array], Array]


class Block(ABC):
    """Rows of the data matrix: the interface of `DenseBlock` and `SparseBlock`."""

    rows: Any
    entry: EntryFunction | None
    n_rows: int
    n_features: int

    @abstractmethod
    def forward(self, right: Array, n_x: int) -> Array:
        """Return ``X @ right[:, :n_x]`` and ``f(X) @ right[:, n_x:]``, side by side."""

    @abstractmethod
    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X' @ left[:, :n_x]`` and ``f(X)' @ left[:, n_x:]``, side by side."""

    @abstractmethod
    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        """Return the Hessian products of ``n`` outputs, in one pass over the rows.

        With ``right = (p, u)``, ``(a, t) = (X p, f(X) u) + shift`` and ``curvature_weight = (A, B, D)``, one value per
        row and output: ``X'(A a + B t)`` and ``f(X)'(B a + D t)`` side by side, and the sums over the rows of
        ``A a + B t`` and ``B a + D t``. If ``right`` is ``p`` alone and ``curvature_weight`` is ``A`` alone:
        ``X'(A a)`` and the sum of ``A a``.
        """

    @abstractmethod
    def squares_transposed(self, left: Array) -> Array:
        """Return ``(X * X)' @ left``."""

    @abstractmethod
    def weighted_gram(self, curvature_weight: Array) -> Array:
        """Return ``X' diag(curvature_weight) X``, a dense matrix."""

    @abstractmethod
    def outer_gram(self, scale: Array) -> Array:
        """Return ``X diag(scale) X'``, a dense matrix."""

    @abstractmethod
    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows and the rows themselves as dense arrays in double precision."""

    @abstractmethod
    def take_rows(self, mask: Array) -> Block:
        """Return a copy of the rows where ``mask`` is true."""

    @abstractmethod
    def entries(self) -> Array:
        """Return the stored values: a matrix if the block is dense, a vector if it is sparse."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Return one value per feature, repeated to a shape that broadcasts with `entries`."""

    @abstractmethod
    def spread_rows(self, values: Array) -> Array:
        """Return one value per row, repeated to a shape that broadcasts with `entries`."""

    @abstractmethod
    def with_entries(self, entries: Array) -> Block:
        """Return a block with the same sparsity pattern and other stored values."""

    @abstractmethod
    def row_sums(self, entries: Array) -> Array:
        """Return the sum of ``entries`` in each row."""

    def backward_and_squares(self, left: Array, n_x: int, squared: Array) -> tuple[Array, Array]:
        """Return `backward` of ``left`` and ``(X * X)' squared``, in one pass over the rows if ``f`` is the square."""
        if self.entry is not np.square:
            return self.backward(left, n_x), self.squares_transposed(squared)
        product = self.backward(np.hstack([left, squared]), n_x)
        return product[:, : left.shape[1]], product[:, left.shape[1] :]

    def times(self, vector: Array) -> Array:
        """Return ``X @ vector``."""
        return self.forward(vector[:, None], 1)[:, 0]

    def transposed_times(self, vector: Array) -> Array:
        """Return ``X' @ vector``."""
        return self.backward(vector[:, None], 1)[:, 0]


def apply_curvature(scores: Array, curvature_weight: Array, n: int) -> Array:
    """Return ``(A a + B t, B a + D t)`` of `Block.sandwich`, or ``A a`` if there is no ``t``."""
    if scores.shape[1] == n:
        return curvature_weight * scores
    a, t = scores[:, :n], scores[:, n:]
    by_mean, mixed, by_variance = (curvature_weight[:, k * n : (k + 1) * n] for k in range(3))
    return np.hstack([by_mean * a + mixed * t, mixed * a + by_variance * t])


def chunks(n_rows: int, n_features: int, n_entries: int, min_rows: int = 16) -> Iterator[slice]:
    """Yield slices of about ``n_entries`` entries and at least ``min_rows`` rows."""
    step = max(min_rows, n_entries // max(1, n_features))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))
