"""Rows as rectangular arrays of their non-zero entries, for what must be selected or sorted within each row.

Rows with similar numbers of non-zero entries are put side by side and padded with zeros, so that NumPy works on whole
arrays. Sparse and dense data take the same way: a dense row with many zeros is as cheap as a sparse one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.typing import Array

# A group has about this many entries, so that the temporary arrays of a pass over it stay in cache.
_GROUP_ENTRIES = 2**17
# Rows are grouped within slabs of about this many entries, so that building the groups needs little extra memory.
_SLAB_ENTRIES = 2**23
# The longest row of a group has at most this many times the entries of the shortest: the padding stays below an eighth.
_WIDEST = 1.125


@dataclass(frozen=True)
class RowGroup:
    """Some rows of the data, each as ``width`` pairs of column and value; pairs that a row does not need are zero.

    Parameters
    ----------
    index : ndarray of shape (n_rows,)
        Where these rows are in the data.
    values : ndarray of shape (n_rows, width)
    columns : ndarray of shape (n_rows, width) or None
        The values' columns; ``None`` if each row has a value for every column, in order.
    n_features : int
    """

    index: Array
    values: Array
    columns: Array | None
    n_features: int

    def take(self, mask: Array) -> RowGroup:
        """Return the rows of a mask, copied."""
        columns = None if self.columns is None else self.columns[mask]
        return RowGroup(self.index[mask], self.values[mask], columns, self.n_features)

    def contributions(self, weights: Array, labels: Array) -> Array:
        """Return ``y_i w_d x_id``, one value per entry, in the precision of the data."""
        weights = weights.astype(self.values.dtype, copy=False)
        if self.columns is None:
            out = self.values * weights
        else:
            out = weights.take(self.columns)
            out *= self.values
        out *= labels[self.index, None].astype(self.values.dtype)
        return out

    def column_sums(self, entries: Array, factors: Array) -> Array:
        """Return ``sum_i factors_i entries_id`` for every column ``d``, summed in double precision."""
        if self.columns is None:
            return np.asarray(factors @ entries, dtype=np.float64)
        weighted = entries * factors[:, None]
        return np.bincount(self.columns.ravel(), weights=weighted.ravel(), minlength=self.n_features)


def group_rows(X: Any) -> list[RowGroup]:
    """Return all rows of ``X``, dense or CSR, in groups of similar length; the groups depend on the data alone."""
    n_rows = X.shape[0]
    stored = X.size  # of a sparse matrix: its stored entries
    step = max(1, _SLAB_ENTRIES * n_rows // max(1, stored))
    return [
        group
        for begin in range(0, n_rows, step)
        for group in _groups_of_slab(sparse.csr_array(X[begin : begin + step]), begin)
    ]


def _groups_of_slab(rows: sparse.csr_array, begin: int) -> Iterator[RowGroup]:
    n_features = rows.shape[1]
    lengths = np.diff(rows.indptr)
    order = np.argsort(lengths, kind="stable")
    lengths = lengths[order]
    first = 0
    while first < len(order):
        shortest = max(1, int(lengths[first]))
        is_full = _WIDEST * shortest >= n_features
        last = int(np.searchsorted(lengths, int(_WIDEST * shortest), side="right"))
        width = n_features if is_full else max(1, int(lengths[last - 1]))
        last = min(last, first + max(1, _GROUP_ENTRIES // width))
        chosen = order[first:last]
        part = rows[chosen]
        if is_full:
            values, columns = part.toarray(), None
        else:
            width = max(1, int(lengths[last - 1]))
            used = np.arange(width) < lengths[first:last, None]
            values = np.zeros(used.shape, dtype=rows.dtype)
            columns = np.zeros(used.shape, dtype=np.intp)
            values[used], columns[used] = part.data, part.indices
        yield RowGroup(begin + chosen, values, columns, n_features)
        first = last
