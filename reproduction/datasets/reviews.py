"""Parser of the official review files, with lines ``feature:count feature:count ... #label#:positive``."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dropmargin.io.data import DataFormatError
from dropmargin.io.data.errors import quoted
from dropmargin.typing import Array

_LABEL = b"#label#"
_LABELS = {b"positive": 1, b"negative": -1}
_LONGEST_COUNT = 9  # digits


class Reviews:
    """Reviews of several files with a common vocabulary."""

    def __init__(self) -> None:
        self._columns: dict[bytes, int] = {}
        self._indices: list[int] = []
        self._counts: list[int] = []
        self._row_ends: list[int] = [0]

    def add(self, data: bytes, where: str) -> tuple[Array, Array]:
        """Add the reviews of a file, one per line, and return the indices of their rows and their labels."""
        first = len(self._row_ends) - 1
        labels = [
            self._add_line(line, where, number) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()
        ]
        return np.arange(first, first + len(labels)), np.array(labels, dtype=np.int64)

    def _add_line(self, line: bytes, where: str, number: int) -> int:
        *tokens, last = line.split()
        name, _, label = last.rpartition(b":")
        if name != _LABEL or label not in _LABELS:
            what = f"the line should end in #label#:positive or #label#:negative, not in {quoted(last)}"
            raise DataFormatError(what, where, number)
        columns = self._columns
        for token in tokens:
            feature, _, count = token.rpartition(b":")  # a feature may contain colons
            if not feature or not count.isdigit() or len(count) > _LONGEST_COUNT:
                raise DataFormatError(f"{quoted(token)} is not feature:count", where, number)
            self._indices.append(columns.setdefault(feature, len(columns)))
            self._counts.append(int(count))
        self._row_ends.append(len(self._indices))
        return _LABELS[label]

    def matrix(self, n_features: int) -> tuple[sparse.csr_array, tuple[str, ...]]:
        """Return the matrix of all reviews with the most frequent features, and the names of the features."""
        X = sparse.csr_array(
            (np.array(self._counts, dtype=np.float64), self._indices, self._row_ends),
            shape=(len(self._row_ends) - 1, len(self._columns)),
        )
        X.sum_duplicates()
        X.eliminate_zeros()
        names = list(self._columns)
        ranks = np.empty(len(names), dtype=np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        chosen = select_features(X, ranks, n_features)
        # Bytes that are not UTF-8 are escaped, so that different features have different names.
        return X[:, chosen], tuple(names[column].decode("utf-8", "backslashreplace") for column in chosen)


def select_features(X: sparse.csr_array, ranks: Array, n_features: int) -> Array:
    """Return the columns with entries in the most rows, by decreasing frequency; ties are resolved by rank."""
    frequencies = np.bincount(X.indices, minlength=X.shape[1])
    return np.lexsort((ranks, -frequencies))[:n_features]
