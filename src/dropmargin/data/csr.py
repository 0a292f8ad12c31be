"""Rows of a CSR matrix: products by the compiled kernels if they were built, by SciPy otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data import kernels
from dropmargin.data.blocks import Block, EntryFunction, SquaredDeviation, apply_curvature, apply_entry, chunks
from dropmargin.data.groups import (
    FeatureGroups,
    GroupDirection,
    GroupOperand,
    GroupSums,
    SparseCells,
    outputs_of,
    row_weights,
)
from dropmargin.typing import Array

# Rows are converted to dense arrays in chunks of about this many entries.
_CHUNK_ENTRIES = 2**17
# Empty features are dropped if at most this share of the features has entries.
_MAX_USED_SHARE = 0.9


class SparseBlock(Block):
    """Rows of a CSR matrix in canonical form (no duplicate entries)."""

    def __init__(self, rows: sparse.csr_array, entry: EntryFunction | None = None) -> None:
        self.rows = rows
        self.entry = entry
        self.n_rows, self.n_features = rows.shape

    @cached_property
    def transformed(self) -> sparse.csr_array:
        """``f(X)``; the same object as ``X`` if the values agree, as for the square of zeros and ones."""
        data = self.rows.data
        if self.entry is not None:
            data = apply_entry(self.entry, data, self.rows.indices)
        return self.rows if np.array_equal(data, self.rows.data) else with_data(self.rows, data)

    @cached_property
    def _kernels(self) -> kernels.CSRKernels | None:
        if not kernels.available():
            return None
        is_deviation = isinstance(self.entry, SquaredDeviation) and self.entry.less_zero
        reference = 2.0 * self.entry.reference if is_deviation else None  # type: ignore[union-attr]
        are_ones = (self.entry in (None, np.square) or is_deviation) and _are_ones(self.rows.data)
        if are_ones:
            return kernels.CSRKernels(self.rows, kernels.MODE_PRESENCE, reference=reference)
        if is_deviation:  # f is computed on the fly and not stored
            return kernels.CSRKernels(self.rows, kernels.MODE_DEVIATION, reference=reference)
        if self.entry is np.square:
            return kernels.CSRKernels(self.rows, kernels.MODE_SQUARE)
        if self.transformed is self.rows:
            return kernels.CSRKernels(self.rows, kernels.MODE_IDENTITY)
        return kernels.CSRKernels(self.rows, kernels.MODE_ARRAY, self.transformed.data)

    def forward(self, right: Array, n_x: int) -> Array:
        if self._kernels is not None:
            return self._kernels.forward(right, n_x)
        out = np.empty((self.n_rows, right.shape[1]))
        out[:, :n_x] = self.rows @ _like(right[:, :n_x], self.rows)
        if right.shape[1] > n_x:
            out[:, n_x:] = self.transformed @ _like(right[:, n_x:], self.rows)
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        if self._kernels is not None:
            return self._kernels.backward(left, n_x)
        out = np.empty((self.n_features, left.shape[1]))
        out[:, :n_x] = self.rows.T @ _like(left[:, :n_x], self.rows)
        if left.shape[1] > n_x:
            out[:, n_x:] = self.transformed.T @ _like(left[:, n_x:], self.rows)
        return out

    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        if self._kernels is not None and right.shape[1] <= kernels.MAX_WIDTH:
            return self._kernels.sandwich(right, shift, curvature_weight, n)
        left = apply_curvature(self.forward(right, n) + shift, curvature_weight, n)
        return self.backward(left, n), left.sum(axis=0)

    def coupled_product(
        self, direction: Array, scale: Array, shift: Array, curvature_weight: Array
    ) -> tuple[Array, Array]:
        if self._kernels is None or len(shift) > 2:
            return super().coupled_product(direction, scale, shift, curvature_weight)
        return self._kernels.coupled(direction, scale, shift, curvature_weight)

    def images(self, left: Array, scale: Array | None, squared: Array | None) -> tuple[Array, Array | None]:
        if self._kernels is None or scale is None or squared is None or squared.shape[1] > 1:
            return super().images(left, scale, squared)
        found = self._kernels.images(np.hstack([left, squared]), scale)
        return found[:, :2], found[:, 2:]

    def group_moments(self, operand: GroupOperand) -> tuple[Array, Array]:
        groups, coef, along = operand.groups, operand.coef, operand.own_direction
        mean, variance = (np.empty((self.n_rows, coef.shape[1])) for _ in range(2))
        for k in range(coef.shape[1]):
            if self._kernels is not None:
                mean[:, k], variance[:, k] = self._kernels.group_forward(along, k).T
            else:
                mean[:, k] = self.rows @ coef[:, k]
                for where, scores in self._group_sums(coef[:, k], groups):
                    variance[where, k] = (scores * (scores - 2.0 * operand.at[:, k])) @ groups.slope
        variance += along.constant
        return mean, variance

    def cells(self, groups: FeatureGroups) -> SparseCells:
        return SparseCells(self.rows, groups)

    def group_products(
        self, weights: Array, coef: Array, direction: Array | None, shift: Array | None, groups: FeatureGroups
    ) -> tuple[Array, Array]:
        n = coef.shape[1]
        along = np.zeros_like(coef) if direction is None else direction
        shift = np.zeros(n) if shift is None else shift
        at, at_along = groups.at_reference(coef), groups.at_reference(along)
        out, sums = np.empty(coef.shape), np.empty(n)
        for k, own in enumerate(outputs_of(weights, n)):
            right = np.stack([coef[:, k], along[:, k]], axis=1)
            both = np.stack([at[:, k], at_along[:, k]], axis=1)
            found = self._group_products_by_scipy(right, both, shift[k], own, groups)
            out[:, k], sums[k] = _less_reference(*found, both, groups)
        return out, sums

    def group_curvature(self, along: GroupDirection, weights: Array, shift: Array) -> tuple[GroupSums, Array]:
        if self._kernels is None:
            return super().group_curvature(along, weights, shift)
        n, (out, sums) = len(shift), (np.empty((2, *along.direction.shape)), np.empty((2, len(shift))))
        constant = along.constant
        for k, own in enumerate(outputs_of(weights, n)):
            back, sums[:, k] = self._kernels.group_sandwich(along, k, np.array([shift[k], constant[k]]), own)
            self._store_group_columns(along.operand, k, back, out[:, :, k])
        return GroupSums(out[0], out[1], sums[1]), sums[0]

    def group_images(self, operand: GroupOperand, left: Array) -> tuple[GroupSums, Array]:
        if self._kernels is None:
            return super().group_images(operand, left)
        n, half = operand.coef.shape[1], left.shape[1] // 2
        n_images = half // n
        out, squares = np.empty((2, self.n_features, half)), np.empty((self.n_features, n))
        for k in range(n):
            back, second = self._kernels.group_backward(operand.own_direction, k, left[:, k::n])
            for j in range(n_images):
                self._store_group_columns(operand, k, back[:, j::n_images], out[:, :, k + j * n])
            if n_images == 2:
                out[0, :, k + n] += second
            squares[:, k] = back[:, 1 if self._kernels.are_ones else 4 * n_images - 2]
        return GroupSums(out[0], out[1], left[:, half:].sum(axis=0)), squares

    def _store_group_columns(self, operand: GroupOperand, k: int, back: Array, out: Array) -> None:
        """Store the product and ``X' beta`` of output ``k``, given ``X' alpha`` and ``X' beta``.

        Where entries differ, ``X' alpha`` has ``c_g w_d (X * X)' beta`` already, or that of the squares is given, too.
        """
        assert self._kernels is not None
        if back.shape[1] == 1:  # no beta
            out[0], out[1] = back[:, 0], 0.0
            return
        out[1] = back[:, 1]
        factor = operand.scaled_deviation if self._kernels.are_ones else -operand.scaled_at
        np.multiply(factor[:, k], out[1], out=out[0])
        out[0] += back[:, 0]
        if back.shape[1] > 2:
            out[0] += operand.scaled[:, k] * back[:, 2]

    def group_gradient(self, operand: GroupOperand, by_mean: Array, h: Array) -> tuple[GroupSums, Array, Array]:
        if self._kernels is None:
            return super().group_gradient(operand, by_mean, h)
        sums, squares = self.group_images(operand, np.hstack([by_mean, h]))
        by_entries = squares - 2.0 * operand.groups.reference[:, None] * sums.transposed
        return sums, by_entries, operand.groups.slope_by_feature * squares

    def _group_products_by_scipy(
        self, right: Array, at: Array, shift: float, weights: Array, groups: FeatureGroups
    ) -> tuple[Array, Array, Array]:
        by_feature, by_group, totals = np.zeros(self.n_features), np.zeros(groups.n_groups), np.zeros(3)
        pairs = zip(self._group_sums(right[:, 0], groups), self._group_sums(right[:, 1], groups), strict=True)
        for (where, scores), (_, along) in pairs:
            own = weights[where]
            alpha, beta, h = own[:, 0], own[:, 1], np.zeros(len(own))
            if own.shape[1] == 4:
                a = along.sum(axis=1) + shift
                t = ((scores - at[:, 0]) * (along - at[:, 1])) @ groups.slope
                alpha, beta, h = (part[:, 0] for part in row_weights(own, a[:, None], t[:, None], 1))
            whole = groups.slope * (beta[:, None] * scores + h[:, None] * along)
            by_group += whole.sum(axis=0)
            totals += alpha.sum(), beta.sum(), h.sum()
            whole -= groups.slope * (np.outer(beta, at[:, 0]) + np.outer(h, at[:, 1]))
            rows = row_view(self.rows, where.start, where.stop)
            row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            factor = alpha[row] + whole[row, groups.numbers[rows.indices]]
            by_feature += np.bincount(rows.indices, rows.data * factor, minlength=self.n_features)
        return by_feature, by_group, totals

    def _group_sums(self, coef: Array, groups: FeatureGroups) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows and the sums of ``w_d x_id`` over the features of each group, a dense array."""
        for where in chunks(self.n_rows, groups.n_groups, _CHUNK_ENTRIES):
            yield where, group_sums(row_view(self.rows, where.start, where.stop), coef, groups.numbers)

    @cached_property
    def _with_squares(self) -> SparseBlock:
        """The same rows with the square as ``f``."""
        return self if self.entry is np.square else SparseBlock(self.rows, np.square)

    def squares_transposed(self, left: Array) -> Array:
        return self._with_squares.backward(left, 0)

    def backward_and_squares(self, left: Array, n_x: int, squared: Array) -> tuple[Array, Array]:
        if left.shape[1] == n_x and self.entry is not np.square:
            return self._with_squares.backward_and_squares(left, n_x, squared)
        return super().backward_and_squares(left, n_x, squared)

    def weighted_gram(self, curvature_weight: Array) -> Array:
        scaled = with_data(self.rows, self.rows.data * self.spread_rows(curvature_weight))
        return np.asarray((self.rows.T @ scaled).toarray(), dtype=np.float64)

    def outer_gram(self, scale: Array) -> Array:
        scaled = with_data(self.rows, self.rows.data * scale[self.rows.indices])
        return np.asarray((scaled @ self.rows.T).toarray(), dtype=np.float64)

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        for where in chunks(self.n_rows, self.n_features, _CHUNK_ENTRIES, min_rows=256):
            yield where, row_view(self.rows, where.start, where.stop).toarray().astype(np.float64, copy=False)

    def take_rows(self, mask: Array) -> SparseBlock:
        return SparseBlock(self.rows[mask])

    def without_empty_features(self) -> tuple[SparseBlock, Array | None]:
        used = nonempty_features(np.bincount(self.rows.indices, minlength=self.n_features) > 0)
        if used is None:
            return self, None
        entry = self.entry
        if isinstance(entry, SquaredDeviation):
            entry = SquaredDeviation(entry.reference[used], entry.less_zero)
        return SparseBlock(keep_columns(self.rows, used), entry), used

    def entries(self) -> Array:
        return self.rows.data

    def spread(self, values: Array) -> Array:
        return values[self.rows.indices] if np.ndim(values) else values

    def spread_rows(self, values: Array) -> Array:
        return np.repeat(values, np.diff(self.rows.indptr))

    def with_entries(self, entries: Array) -> SparseBlock:
        return SparseBlock(with_data(self.rows, entries))

    def row_sums(self, entries: Array) -> Array:
        return with_data(self.rows, entries) @ np.ones(self.n_features)


def rows_for_descent(blocks: Sequence[Block]) -> list[SparseBlock] | None:
    """Return the rows for `kernels.DualDescent`, as CSR; ``None`` if it is not compiled or the types differ."""
    if not kernels.available():
        return None
    found = [block if isinstance(block, SparseBlock) else SparseBlock(sparse.csr_array(block.rows)) for block in blocks]
    return found if len({kernels.kind_of(block.rows) for block in found}) == 1 else None


def group_sums(X: Any, coef: Array, groups: Array) -> Array:
    """Return the sums of ``coef_d x_id`` over the features of each group, a dense array of shape (n_rows, n_groups)."""
    shape = X.shape[1], int(groups.max()) + 1
    sums = X @ sparse.csr_array((coef, (np.arange(X.shape[1]), groups)), shape=shape)
    return sums.toarray() if sparse.issparse(sums) else sums


def row_view(X: Any, begin: int, end: int) -> sparse.csr_array:
    """Return rows ``begin`` to ``end`` of a CSR matrix as a view of its arrays (SciPy's slicing copies them)."""
    first, last = X.indptr[begin], X.indptr[end]
    parts = (X.data[first:last], X.indices[first:last], X.indptr[begin : end + 1] - first)
    return csr_of(parts, (end - begin, X.shape[1]))


def with_data(X: Any, data: Array) -> sparse.csr_array:
    """Return a CSR array with other values that shares the index arrays of ``X``."""
    return csr_of((data, X.indices, X.indptr), X.shape)


def csr_of(parts: tuple[Array, Array, Array], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR array that shares ``parts``: values, indices and row pointers.

    The constructor of SciPy may copy the indices to change their type.
    """
    out = sparse.csr_array(shape, dtype=parts[0].dtype)
    out.data, out.indices, out.indptr = parts
    return out


def _less_reference(
    by_feature: Array, by_group: Array, totals: Array, at: Array, groups: FeatureGroups
) -> tuple[Array, Array]:
    """Return the products by feature of deviations from the references, from those of entries, and the total."""
    by_group = by_group - groups.slope * (at @ totals[1:])
    return by_feature - groups.reference * by_group[groups.numbers], totals[0]


def _are_ones(values: Array) -> bool:
    """Return whether all values are 1; most data need one look."""
    return all(np.all(values[begin : begin + _CHUNK_ENTRIES] == 1) for begin in range(0, len(values), _CHUNK_ENTRIES))


def _like(values: Array, rows: Any) -> Array:
    return np.ascontiguousarray(values, dtype=rows.dtype)


def nonempty_features(is_used: Array) -> Array | None:
    """Return the indices of the features that have entries; ``None`` if few features are empty."""
    used = np.flatnonzero(is_used)
    return None if len(used) == 0 or len(used) > _MAX_USED_SHARE * len(is_used) else used


def keep_columns(X: Any, used: Array) -> Any:
    """Return the features ``used`` of a sparse ``X``, whose other features must be empty."""
    position = np.zeros(X.shape[1], dtype=X.indices.dtype)
    position[used] = np.arange(len(used), dtype=X.indices.dtype)
    return sparse.csr_array((X.data, position[X.indices], X.indptr), shape=(X.shape[0], len(used)), copy=False)
