"""An encoded table: a matrix, and the column that each of its features belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from dropmargin.noise import DropoutNoise
from dropmargin.tables.cells import missing
from dropmargin.tables.encoder import Column, column_names, read_table, warn_columns
from dropmargin.typing import Array

#: Different patterns of deleted cells of a copy of the training rows, and the highest rate of deletion.
N_PATTERNS, MAX_RATE = 128, 0.9


@dataclass(frozen=True)
class GroupedMatrix:
    """A matrix with the group of each feature, and whether a feature is a word or enters a kernel."""

    X: Any
    groups: Array
    is_word: Array
    in_kernel: Array

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def is_sparse(self) -> bool:
        return bool(self.is_word.any())

    @cached_property
    def numbers(self) -> Array:
        """The number of each feature's group."""
        return np.unique(self.groups.astype(str), return_inverse=True)[1]

    def rank(self, largest: int) -> int | None:
        """Return the number of factors of a Gaussian distribution of the rows; ``None`` for one that is chosen."""
        return None if self.n_features <= largest else min(largest, self.X.shape[0] - 1)

    def take(self, rows: Array) -> GroupedMatrix:
        """Return some of the rows."""
        return replace(self, X=self.X[rows])

    def in_basis(self, basis: str) -> Array:
        """Return whether each feature of a Fourier basis is one of a linear or a spline basis."""
        has_spline = np.isin(self.numbers, self.numbers[~self.in_kernel])
        return self.in_kernel if basis == "linear" else ~(self.in_kernel & has_spline)

    def deleted(self, rate: float | None, rng: np.random.Generator) -> Array:
        """Return a dense matrix whose groups are NaN at random, at a rate or, if it is None, at rates up to .9.

        Rows share `N_PATTERNS` patterns, each with a rate of its own, because a pattern is what takes time.
        """
        rates = rng.uniform(0.0, MAX_RATE, (N_PATTERNS, 1)) if rate is None else rate
        patterns = rng.random((N_PATTERNS, self.numbers.max() + 1)) < rates
        return np.where(patterns[rng.integers(N_PATTERNS, size=self.X.shape[0])][:, self.numbers], np.nan, self.X)

    def lost(self, rate: float, rng: np.random.Generator) -> Any:
        """Return the matrix without some of its groups: NaN in a table, 0 for words."""
        drawn = rng.random((self.X.shape[0], self.numbers.max() + 1)) < rate
        if not self.is_sparse:
            return np.where(drawn[:, self.numbers], np.nan, self.X)
        made = self.X.tocoo()
        is_lost = drawn[made.row, self.numbers[made.col]]
        made.data = np.where(is_lost, np.where(self.is_word[made.col], 0.0, np.nan), made.data)
        return made.tocsr()

    def rates(self, rate: Any) -> Array | None:
        """Return the dropout rate of each feature, for a rate or a dict of groups to rates."""
        if rate is None:
            return None
        of = rate if isinstance(rate, Mapping) else dict.fromkeys(self.groups.tolist(), rate)
        return np.array([float(of.get(group, 0.0)) for group in self.groups])

    def noise(self, rate: Any) -> DropoutNoise | None:
        """Return dropout of whole groups: towards the mean, and of words towards zero."""
        if rate is None:
            return None
        reference: Any = "mean"
        if self.is_sparse:
            table, reference = self.X[:, np.flatnonzero(~self.is_word)].toarray(), np.zeros(self.n_features)
            n_seen = np.maximum((~np.isnan(table)).sum(axis=0), 1)
            reference[~self.is_word] = np.nansum(table, axis=0) / n_seen
        return DropoutNoise(rate, reference=reference, groups=self.groups.astype(str))


def grouped(encoder: Any, X: Any) -> GroupedMatrix:
    """Return the rows of an encoder with its groups."""
    return GroupedMatrix(X, encoder.feature_groups_, encoder.is_word_, encoder.in_kernel_)


class EncoderAdapter:
    """A transformer of another package, with the attributes of `TableEncoder`.

    A missing cell is NaN in all features of its column, whatever the transformer makes of it.
    """

    def __init__(self, encoder: Any, groups: Callable[[str], Any] | None = None) -> None:
        self.encoder = encoder
        self.groups = groups

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EncoderAdapter:
        """Fit the transformer, and find the column of each feature."""
        names, self.encoder = column_names(X), clone(self.encoder)
        self.encoder.fit(X)
        features = [str(name) for name in self.encoder.get_feature_names_out()]
        self.n_features_in_ = len(names) if names is not None else np.shape(X)[1]
        self.names_ = names or [f"x{j}" for j in range(self.n_features_in_)]
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
            self.types_ = dict(zip(names, getattr(X, "dtypes", []), strict=False))
        self.feature_columns_ = self.feature_groups_ = column_of_features(features, self.names_, self.groups)
        self.is_word_, self.in_kernel_ = np.zeros(len(features), dtype=bool), np.ones(len(features), dtype=bool)
        counts = {name: int((self.feature_columns_ == name).sum()) for name in dict.fromkeys(self.feature_columns_)}
        unused = [Column(name, "", 0, "not used by the encoder") for name in self.names_ if name not in counts]
        self.columns_ = [*(Column(name, "encoded", n) for name, n in counts.items()), *unused]
        self.column_kinds_ = dict.fromkeys(counts, "encoded")
        return self

    def with_basis(self, basis: str, scaling: str = "standard") -> EncoderAdapter:
        """Return the adapter: the basis is that of the transformer."""
        return self

    def transform(self, X: Any) -> Array:
        """Return the features of rows, NaN where the cell is missing."""
        present, absent = column_names(X), []
        if present is not None:
            absent = [name for name in self.names_ if name not in present]
            warn_columns(absent, [name for name in present if name not in self.names_])
            if hasattr(X, "reindex"):  # pandas; integers cannot be missing
                types = {name: self.types_[name] for name in absent if self.types_[name].kind not in "iub"}
                X = X.reindex(columns=list(self.feature_names_in_)).astype(types)
            elif hasattr(X, "with_columns"):  # polars
                X = (
                    X.with_columns(**dict.fromkeys(absent))
                    .select(self.names_)
                    .cast({name: self.types_[name] for name in absent})
                )
        made = self.encoder.transform(X)
        made = np.array(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)
        for name, cells in zip(self.names_, read_table(X).values(), strict=True):
            made[np.ix_(missing(cells), self.feature_columns_ == name)] = np.nan
        return made

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features."""
        return np.asarray(self.encoder.get_feature_names_out(), dtype=object)


def column_of_features(
    feature_names: Sequence[str], columns: Sequence[str], function: Callable[[str], Any] | None = None
) -> Array:
    """Return the column of each feature: that of the function, else the longest column name that its name starts with.

    A prefix such as ``onehot__`` of `sklearn.compose.ColumnTransformer` is skipped. A feature without such a column is
    a group of its own.
    """
    if function is not None:
        return np.array([str(function(name)) for name in feature_names], dtype=object)
    longest_first = sorted(columns, key=len, reverse=True)
    found = []
    for name in feature_names:
        short = name.rpartition("__")[2]
        starts = [c for c in longest_first for own in (name, short) if own == c or _continues(own, c)]
        found.append(starts[0] if starts else name)
    return np.array(found, dtype=object)


def _continues(name: str, column: str) -> bool:
    """Return whether a feature's name is that of a column with something behind it, not with more letters."""
    return name.startswith(column) and not (name[len(column)].isalnum() and column[-1:].isalnum())
