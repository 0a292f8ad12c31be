"""Rows of a dense matrix. Products run in the precision of ``X``, in chunks of rows that fit into the CPU cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dropmargin.data.blocks import Block, EntryFunction, SquaredDeviation, apply_curvature, chunks
from dropmargin.data.groups import DenseCells, FeatureGroups, GroupOperand, row_weights
from dropmargin.typing import Array

# Rows are processed in chunks of about this many entries, so that a chunk and f of it fit into the CPU cache.
_CHUNK_ENTRIES = 2**19
# Up to this many entries f of the rows is stored.
_STORED_ENTRIES = 2**17


class DenseBlock(Block):
    """Rows of a dense matrix, in any memory order. ``f(X)`` is stored for few entries only."""

    def __init__(self, rows: Array, entry: EntryFunction | None = None) -> None:
        self.rows = rows
        self.entry = entry
        self.n_rows, self.n_features = rows.shape
        self._transformed: Array | None = None

    def _chunks(self, transformed: bool, min_rows: int = 16) -> Iterator[tuple[slice, Array, Array]]:
        """Yield slices of rows, the rows and, if ``transformed``, ``f`` of the rows (valid until the next chunk)."""
        buffer = None
        if transformed and self.rows.size <= _STORED_ENTRIES and self.entry is not None:
            if self._transformed is None:
                self._transformed = self.entry(self.rows)
            yield slice(0, self.n_rows), self.rows, self._transformed
            return
        for where in chunks(self.n_rows, self.n_features, _CHUNK_ENTRIES, min_rows):
            rows = self.rows[where]
            if not transformed or self.entry is None:
                yield where, rows, rows
            elif isinstance(self.entry, (np.ufunc, SquaredDeviation)):
                # One buffer serves all chunks: allocating memory for each costs more than computing the squares.
                buffer = np.empty_like(rows) if buffer is None else buffer
                yield where, rows, self.entry(rows, out=buffer[: len(rows)])
            else:
                yield where, rows, self.entry(rows)

    def forward(self, right: Array, n_x: int) -> Array:
        first, second = self._split(right, n_x)
        out = np.empty((self.n_rows, right.shape[1]))
        if right.shape[1] == n_x:
            out[:] = self.rows @ first
            return out
        for where, rows, transformed in self._chunks(True):
            out[where, :n_x] = rows @ first
            out[where, n_x:] = transformed @ second
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        first, second = self._split(left, n_x)
        out = np.zeros((self.n_features, left.shape[1]))
        for where, rows, transformed in self._chunks(left.shape[1] > n_x):
            out[:, :n_x] += (first[where].T @ rows).T
            if left.shape[1] > n_x:
                out[:, n_x:] += (second[where].T @ transformed).T
        return out

    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        first, second = self._split(right, n)
        width = right.shape[1]
        out, sums = np.zeros((self.n_features, width)), np.zeros(width)
        for where, rows, transformed in self._chunks(width > n):
            scores = rows @ first if width == n else np.hstack([rows @ first, transformed @ second])
            left = apply_curvature(scores + shift, curvature_weight[where], n)
            sums += left.sum(axis=0)
            left = left.astype(self.rows.dtype, copy=False)
            out[:, :n] += (left[:, :n].T @ rows).T
            if width > n:
                out[:, n:] += (left[:, n:].T @ transformed).T
        return out, sums

    def group_moments(self, operand: GroupOperand) -> tuple[Array, Array]:
        groups, coef = operand.groups, operand.coef
        mean, variance = (np.empty((self.n_rows, coef.shape[1])) for _ in range(2))
        for where, rows, deviations in self._deviations(groups):
            mean[where] = rows @ coef.astype(rows.dtype)
            scores = _group_scores(deviations, coef, groups)
            variance[where] = np.einsum("g,gik->ik", groups.slope, np.square(scores))
        return mean, variance

    def cells(self, groups: FeatureGroups) -> DenseCells:
        return DenseCells(self.rows, groups)

    def group_products(
        self, weights: Array, coef: Array, direction: Array | None, shift: Array | None, groups: FeatureGroups
    ) -> tuple[Array, Array]:
        out, sums, n = np.zeros(coef.shape), np.zeros(coef.shape[1]), coef.shape[1]
        for where, rows, deviations in self._deviations(groups):
            scores = _group_scores(deviations, coef, groups)
            if direction is None:
                alpha, beta = weights[where, :n], weights[where, n:]
                by_group = beta * scores
            else:
                along = _group_scores(deviations, direction, groups)
                a = rows @ direction.astype(rows.dtype) + shift
                t = np.einsum("g,gik,gik->ik", groups.slope, scores, along)
                alpha, beta, h = row_weights(weights[where], a, t, n)
                by_group = beta * scores + h * along
            by_group *= groups.slope[:, None, None]
            sums += alpha.sum(axis=0)
            out += (alpha.T.astype(rows.dtype) @ rows).T
            for members, own in zip(groups.members, by_group.astype(rows.dtype, copy=False), strict=True):
                out[members] += (own.T @ deviations[:, members]).T
        return out, sums

    def _deviations(self, groups: FeatureGroups) -> Iterator[tuple[slice, Array, Array]]:
        """Yield slices of rows, the rows, and the rows less the reference values (valid until the next chunk)."""
        reference, buffer = groups.reference.astype(self.rows.dtype), None
        for where, rows, _ in self._chunks(False):
            buffer = np.empty_like(rows) if buffer is None else buffer
            yield where, rows, np.subtract(rows, reference, out=buffer[: len(rows)])

    def _split(self, operand: Array, n_x: int) -> tuple[Array, Array]:
        """Return the operands of ``X`` and of ``f(X)`` in the precision of ``X``."""
        return (
            np.ascontiguousarray(operand[:, :n_x], dtype=self.rows.dtype),
            np.ascontiguousarray(operand[:, n_x:], dtype=self.rows.dtype),
        )

    def squares_transposed(self, left: Array) -> Array:
        return DenseBlock(self.rows, np.square).backward(left, 0)

    def weighted_gram(self, curvature_weight: Array) -> Array:
        total = np.zeros((self.n_features, self.n_features))
        roots = np.sqrt(curvature_weight[:, None]).astype(self.rows.dtype)
        for where, rows, _ in self._chunks(False, min_rows=1024):
            scaled = rows * roots[where]
            total += scaled.T @ scaled  # BLAS computes one triangle of a product with the own transpose
        return total

    def outer_gram(self, scale: Array) -> Array:
        rows = np.asarray(self.rows, dtype=np.float64)
        return (rows * scale) @ rows.T

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        for where, rows, _ in self._chunks(False, min_rows=256):
            yield where, np.asarray(rows, dtype=np.float64)

    def take_rows(self, mask: Array) -> DenseBlock:
        return DenseBlock(self.rows[mask])

    def entries(self) -> Array:
        return self.rows

    def spread(self, values: Array) -> Array:
        return values

    def spread_rows(self, values: Array) -> Array:
        return values[:, None]

    def with_entries(self, entries: Array) -> DenseBlock:
        return DenseBlock(entries)

    def row_sums(self, entries: Array) -> Array:
        return entries.sum(axis=1, dtype=np.float64)


def _group_scores(deviations: Array, coef: Array, groups: FeatureGroups) -> Array:
    """Return ``s_ig`` of `data.groups`, of shape (n_groups, n_rows, n_outputs)."""
    coef = coef.astype(deviations.dtype)
    out = np.empty((groups.n_groups, len(deviations), coef.shape[1]))
    for own, members in zip(out, groups.members, strict=True):
        own[:] = deviations[:, members] @ coef[members]
    return out
