"""svmlight (LIBSVM, LIBLINEAR) files; `svmlight_lines` defines the format."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.sources import Source, line_blocks
from dropmargin.io.data.svmlight_blocks import BlockParser
from dropmargin.io.data.svmlight_lines import IndexRange
from dropmargin.typing import Array

_BLOCK_BYTES = 2**22
_INT32_MAX = 2**31 - 1


def read(source: Source, options: ReadOptions) -> Dataset:
    """Return all rows; indices start at 0 if ``zero_based`` is not given and index 0 occurs."""
    parser = BlockParser(source.name, IndexRange.from_options(options))
    pieces: list[list[Array]] = [[], [], [], []]
    n_entries = 0
    with source.open() as stream:
        for buffer, length in line_blocks(stream, source.name, _BLOCK_BYTES):
            rows = parser.parse(buffer, length)  # in buffers that are reused
            is_small = rows.indices.max(initial=0) <= _INT32_MAX
            indices = rows.indices.astype(np.int32 if is_small else np.int64)
            arrays = (rows.labels.copy(), indices, rows.values.copy(), rows.row_ends + n_entries)
            for piece, array in zip(pieces, arrays, strict=True):
                piece.append(array)
            n_entries += len(indices)
    zero_based = parser.smallest == 0 if options.zero_based is None else options.zero_based
    first = 0 if zero_based else 1
    n_seen = 0 if parser.largest is None else parser.largest + 1 - first
    n_features = options.n_features
    if n_features is None:
        n_features = n_seen
    elif n_seen > n_features and not options.ignore_extra:  # known only after index 0 has occurred
        what = f"feature index {parser.largest}, but there are {n_features} features, counted from 0"
        raise DataFormatError(what, source.name)
    if n_features > options.max_features:
        what = f"{n_features} features, but at most {options.max_features} are allowed"
        raise DataFormatError(f"{what} (raise --max-features if that is intended)", source.name)
    if not sum(map(len, pieces[0])):
        raise DataFormatError("there are no rows", source.name)
    labels, indices, values, row_ends = (np.concatenate(pieces.pop(0)) for _ in range(4))  # each frees its blocks
    X = _as_csr(indices, values, row_ends, first, n_features)
    return Dataset(X, integers_if_possible(labels), zero_based=zero_based)


def chunks(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of about ``chunk_bytes`` bytes at a time; ``zero_based`` and ``n_features`` must be given."""
    if options.zero_based is None or options.n_features is None:
        missing = "zero_based" if options.zero_based is None else "n_features"
        raise ValueError(
            f"{missing} must be given for reading svmlight files in chunks: a chunk does not determine it."
        )
    parser = BlockParser(source.name, IndexRange.from_options(options))
    first = 0 if options.zero_based else 1
    with source.open() as stream:
        for buffer, length in line_blocks(stream, source.name, chunk_bytes):
            rows = parser.parse(buffer, length)
            if len(rows.labels):
                X = _as_csr(rows.indices, rows.values.copy(), rows.row_ends, first, options.n_features)
                yield Dataset(X, integers_if_possible(rows.labels.copy()), zero_based=options.zero_based)


def _as_csr(indices: Array, values: Array, row_ends: Array, first: int, n_features: int) -> sparse.csr_array:
    """Return a matrix from indices that start at ``first``; those beyond ``n_features`` are left out."""
    if len(indices) and int(indices.max()) - first >= n_features:
        inside = indices < n_features + first
        row_ends = np.concatenate(([0], np.cumsum(inside)))[row_ends]
        indices, values = indices[inside], values[inside]
    small = n_features <= _INT32_MAX and len(values) <= _INT32_MAX
    dtype = np.int32 if small else np.int64
    columns = np.subtract(indices, first, dtype=dtype, casting="unsafe")
    row_pointers = np.zeros(len(row_ends) + 1, dtype=dtype)
    row_pointers[1:] = row_ends
    return sparse.csr_array((values, columns, row_pointers), shape=(len(row_ends), n_features))


def integers_if_possible(labels: Array) -> Array:
    """Return labels as int64 if all of them are integers; all are at most 2^53."""
    integers = labels.astype(np.int64)
    return integers if np.array_equal(integers, labels) else labels
