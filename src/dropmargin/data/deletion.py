"""Deletion of entries and of features of a dense or CSR matrix, a data frame or documents, which are not changed.

A deleted entry becomes ``fill``: a number, one number per feature, or NaN. An observed entry becomes
``fill + (x - fill) * factor``. A CSR matrix stays sparse with a fill of 0, and with NaN: each deleted zero becomes a
stored NaN. Other fills raise an error. A deleted cell of a data frame is a missing value, whatever its type, and a
deleted entry of a document is a word that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.matrix import canonical, entry_rows, map_entries, nonzero_entries
from dropmargin.data.missing_values import chunks, has_missing
from dropmargin.typing import Array

# Random numbers are drawn for this many entries at a time: a mask takes little memory compared with the data.
_MASK_ENTRIES = 2**20
# `DeletedCopies` are at least this many rows. Their patterns have at most so many entries, but there are some anyway.
_MIN_COPIES = 2**13
_PATTERN_ENTRIES, _MIN_PATTERNS = 2**22, 64


def delete_entries(
    X: Any,
    level: float,
    fill: Any,
    factor: float,
    rng: np.random.Generator,
    groups: Array | None = None,
    is_exact: bool = False,
) -> Any:
    """Return ``X`` with each entry deleted with probability ``level``, independently, or each group of a row.

    An entry is deleted if a uniform random number is below ``level``: with the same generator, entries deleted at one
    level are deleted at every higher level. The random numbers of a dense and of a CSR ``X`` differ, unless there are
    groups. ``groups`` is the number of each feature's group. If ``is_exact``, the share of the groups that a row loses
    is ``level`` itself.
    """
    if is_documents(X):
        return [_delete_words(text, level, rng) for text in X]
    if is_frame(X):
        return _delete_cells(X, _draw_groups(len(X), level, rng, X.shape[1], groups, is_exact))
    if not sparse.issparse(X):
        result = np.empty(X.shape, dtype=X.dtype)
        for where in chunks(X.shape[0], X.shape[1], _MASK_ENTRIES):
            deleted = _draw_groups(where.stop - where.start, level, rng, X.shape[1], groups, is_exact)
            result[where] = np.where(deleted, fill, _rescaled(X[where], fill, factor))
        return result
    fill = _sparse_fill(fill)
    rows = canonical(X)
    if groups is None:  # stored entries first: they are the same for either fill
        stored = rng.random(rows.nnz) < level
        if not np.isnan(fill):
            return _as_given(X, _delete_in_csr(rows, stored, fill, factor, tuple))
    parts = []
    for where in chunks(rows.shape[0], rows.shape[1], _MASK_ENTRIES):
        part = rows[where]
        deleted = _draw_groups(part.shape[0], level, rng, rows.shape[1], groups, is_exact)
        if groups is None:
            deleted[entry_rows(part), part.indices] = stored[rows.indptr[where.start] : rows.indptr[where.stop]]
        own, places = deleted[entry_rows(part), part.indices], partial(np.nonzero, deleted)
        parts.append(_delete_in_csr(part, own, fill, factor, places))
    return _as_given(X, sparse.vstack(parts, format="csr"))


def _draw_groups(
    n_rows: int, level: float, rng: np.random.Generator, n_features: int, groups: Array | None, is_exact: bool
) -> Array:
    """Return which entries are deleted, a matrix with all features."""
    if groups is None:
        return rng.random((n_rows, n_features)) < level
    draws = rng.random((n_rows, int(groups.max()) + 1))
    if is_exact:
        draws = (draws.argsort(axis=1).argsort(axis=1) + 0.5) / draws.shape[1]
    return (draws < level)[:, groups]


def _delete_in_csr(rows: Any, stored: Array, fill: float, factor: float, places: Callable[[], Any]) -> Any:
    """Return a CSR matrix without the marked stored entries, or, if the fill is NaN, with NaN at all ``places()``."""
    observed = map_entries(
        rows, lambda values, _: np.where(stored, 0.0, values * factor).astype(rows.dtype), zeros_stay=True, what="X"
    )
    if not np.isnan(fill):
        return observed
    where = places()
    missing = np.full(len(where[0]), np.nan, dtype=rows.dtype)
    return observed + sparse.csr_array((missing, where), shape=rows.shape)


def delete_columns(X: Any, features: Array, fill: Any, factor: float) -> Any:
    """Return ``X`` with all entries of these features deleted."""
    deleted = np.zeros(X.shape[1], dtype=bool)
    deleted[features] = True
    if is_frame(X):
        return _delete_cells(X, np.broadcast_to(deleted, X.shape))
    if not sparse.issparse(X):
        return np.where(deleted, fill, _rescaled(X, fill, factor)).astype(X.dtype)
    fill = _sparse_fill(fill)
    rows = canonical(X)

    def places() -> tuple[Array, Array]:
        features = np.flatnonzero(deleted)
        return np.repeat(np.arange(rows.shape[0]), len(features)), np.tile(features, rows.shape[0])

    return _as_given(X, _delete_in_csr(rows, deleted[rows.indices], fill, factor, places))


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a data frame of pandas or polars."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "schema")) and not hasattr(X, "column_names")


def is_documents(X: Any) -> bool:
    """Return whether ``X`` is a sequence of texts."""
    if is_frame(X) or getattr(X, "ndim", 1) != 1 or isinstance(X, str) or not hasattr(X, "__len__"):
        return False
    return len(X) > 0 and all(isinstance(text, str) for text in X)


def has_other_than_numbers(frame: Any) -> bool:
    """Return whether a data frame has a column of texts, categories or dates."""
    dtypes = frame.dtypes
    if hasattr(frame, "iloc"):
        return not all(getattr(dtype, "kind", "O") in "fiub" for dtype in dtypes)
    return not all(dtype.is_numeric() or str(dtype) == "Boolean" for dtype in dtypes)


def _delete_cells(frame: Any, deleted: Array) -> Any:
    if hasattr(frame, "iloc"):
        return frame.mask(deleted)
    kept = zip(frame.get_columns(), ~deleted.T, strict=True)
    return type(frame)([own.zip_with(type(own)(is_kept), own.clear(len(own))) for own, is_kept in kept])


def _delete_words(text: str, level: float, rng: np.random.Generator) -> str:
    words = text.split()
    return " ".join(word for word, draw in zip(words, rng.random(len(words)), strict=True) if draw >= level)


def presence(X: Any, groups: Array | None = None) -> Array:
    """Return, per feature, the share of rows whose entry is neither zero nor NaN.

    With ``groups``, it is the share of rows with such an entry in the group of the feature.
    """
    rows, features, values = nonzero_entries(canonical(X))
    rows, features = rows[~np.isnan(values)], features[~np.isnan(values)]
    if groups is None:
        return np.bincount(features, minlength=X.shape[1]) / X.shape[0]
    n_groups = int(groups.max()) + 1
    pairs = np.unique(rows.astype(np.int64) * n_groups + groups[features])
    return (np.bincount(pairs % n_groups, minlength=n_groups) / X.shape[0])[groups]


def _rescaled(X: Array, fill: Any, factor: float) -> Array:
    return X if factor == 1.0 else fill + (X - fill) * factor


def _sparse_fill(fill: Any) -> float:
    """Return the fill of a sparse matrix, 0 or NaN, or raise a `ValueError`."""
    if not np.any(fill):
        return 0.0
    if np.ndim(fill) == 0 and np.isnan(fill):
        return float("nan")
    raise ValueError(
        f"The fill of a sparse X must be 0 or NaN, got {fill!r}: any other would make X dense. "
        "Pass X.toarray() if that fits into memory."
    )


def _as_given(X: Any, rows: Any) -> Any:
    return rows if isinstance(X, sparse.sparray) else sparse.csr_matrix(rows)


# Copies of rows, to score models on ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DeletedCopies:
    """Copies of the rows of a table with deleted features, which are the same whenever they are made.

    Copy ``c`` of row ``i`` lacks the features of the pattern ``(c * n_rows + i) % n_patterns``.

    Parameters
    ----------
    rate : float or ndarray of shape (n_features,)
        The probability that a feature is deleted.
    groups : ndarray of shape (n_features,) or None
        The number of each feature's group; the features of a group are deleted together.
    n_rows, n_features : int
        The shape of the whole table.
    """

    rate: Any
    groups: Array | None
    n_rows: int
    n_features: int

    @property
    def n_copies(self) -> int:
        """The number of copies of each row: one of a large table."""
        return -(-_MIN_COPIES // self.n_rows)

    @cached_property
    def patterns(self) -> Array:
        """Which features a pattern lacks, of shape (n_patterns, n_features): one per copy, unless they are too large.

        (The zeros of a sparse table can be missing, too, so the patterns are dense even if the rows are sparse.)
        """
        most = max(_MIN_PATTERNS, _PATTERN_ENTRIES // self.n_features)
        rng, n_patterns = np.random.default_rng(0), min(self.n_copies * self.n_rows, most)
        if self.groups is None:
            return rng.random((n_patterns, self.n_features)) < self.rate
        return rng.random((n_patterns, int(self.groups.max()) + 1))[:, self.groups] < self.rate

    def of_rows(self, X: Any, index: Array) -> DeletedRows:
        """Return the copies of some rows, all first copies first; ``index`` is the place of each row in the table.

        NaN in ``X`` is a missing entry, in all copies of the row.
        """
        numbers = np.arange(self.n_copies)[:, None] * self.n_rows + index
        used, pattern = np.unique(numbers.ravel() % len(self.patterns), return_inverse=True)
        return DeletedRows(X[np.tile(np.arange(X.shape[0]), self.n_copies)], self.patterns[used], pattern)

    def __getstate__(self) -> dict[str, Any]:
        # The patterns are drawn where they are used: they take more time to send.
        return {name: value for name, value in self.__dict__.items() if name != "patterns"}


class DeletedRows:
    """Rows with 0 in place of missing entries (``filled``), and which these are.

    The missing features of row ``i`` are those of ``patterns[pattern[i]]``, and those of row ``i`` of ``others``, if
    that is not ``None``; both have 1 for a missing feature, else 0.
    """

    def __init__(self, rows: Any, patterns: Array, pattern: Array) -> None:
        self.patterns, self.pattern = patterns.astype(np.float64), pattern
        self.is_dense, self.shape, index = not sparse.issparse(rows), rows.shape, entry_rows(rows)

        def is_deleted(features: Any) -> Array:
            return patterns[pattern] if index is None else patterns[pattern[index], features]

        def map_rows(function: Callable[[Array, Any], Array]) -> Any:
            mapped = map_entries(rows, function, zeros_stay=True, what="X")
            if not self.is_dense:
                mapped = mapped.copy()  # it shares the indices of the rows
                mapped.eliminate_zeros()
            return mapped

        self.filled = map_rows(lambda x, d: np.where(is_deleted(d) | np.isnan(x), x.dtype.type(0.0), x))
        self.others = None
        if has_missing(rows):
            others = map_rows(lambda x, d: (np.isnan(x) & ~is_deleted(d)).astype(np.float64))
            self.others = sparse.csr_array(others)

    def missing(self, where: slice) -> Array:
        """Return 1 for missing features and 0 for others of some rows, dense."""
        own = self.patterns[self.pattern[where]]
        return own if self.others is None else own + self.others[where].toarray()

    def missing_sums(self, values: Array) -> Array:
        """Return the sums over the missing features of each row of several vectors, the rows of ``values``."""
        sums = (self.patterns @ values.T)[self.pattern]
        return sums if self.others is None else sums + self.others @ values.T
