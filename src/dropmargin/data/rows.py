"""Rows with their targets and weights: the one type of a partition of training data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data.blocks import EntryFunction
from dropmargin.data.matrix import row_block, row_slice, stack_rows
from dropmargin.data.partitions import LocalPartitions, Partitions
from dropmargin.typing import Array


class Rows:
    """A partition of rows.

    Parameters
    ----------
    X : ndarray, csr_array, Block or the like of shape (n_rows, n_features), or callable
        The rows, or a function that fetches them, which is called at every use: rows that do not fit into memory are
        read for products with them and for nothing else. Fetched rows are valid until the mapped function returns, and
        nothing that it returns may share memory with them.
    y : array-like of shape (n_rows,) or (n_rows, n_outputs)
        As a user gives them, labels; after encoding, the index of each row's class (-1: none); in an objective, targets
        of -1 or +1, one column per output.
    sample_weight : array-like of shape (n_rows,), default=None
        ``None``: all ones. In an objective they include ``C``.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        self._X = X
        self.y = y
        self.sample_weight = sample_weight

    @property
    def is_fetched(self) -> bool:
        """Whether the rows are fetched at every use."""
        return callable(self._X)

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows."""
        return self._X() if callable(self._X) else self._X

    def with_targets(self, y: Array, sample_weight: Array | None) -> Rows:
        """Return the same rows with other targets and weights."""
        return Rows(self._X, y, sample_weight)

    def transformed(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(X, *args)``, or a function that fetches it if the rows are fetched."""
        return partial(_fetch, self._X, function, args) if callable(self._X) else function(self._X, *args)

    def take(self, index: Array) -> Rows:
        """Return some of the rows, copied."""
        return Rows(self.X[index], self.y[index], self.sample_weight[index])

    def between(self, begin: int, end: int) -> Rows:
        """Return rows ``begin`` to ``end``, as views."""
        return Rows(row_slice(self.X, begin, end), self.y[begin:end], self.sample_weight[begin:end])

    def __len__(self) -> int:
        return len(self.y)


def _fetch(fetch: Callable[[], Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(fetch(), *args)


def one_partition(X: Any, sample_weight: Array | None = None, y: Any = None) -> LocalPartitions[Rows]:
    """Return rows in memory as one partition, the whole matrix; ``None`` as weights means ones."""
    return LocalPartitions([Rows(X, y, np.ones(X.shape[0]) if sample_weight is None else sample_weight)])


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return a copy of the rows of several parts as one."""
    weights = [np.ones(len(part)) if part.sample_weight is None else part.sample_weight for part in parts]
    y = np.concatenate([part.y for part in parts])
    return Rows(stack_rows([part.X for part in parts]), y, np.concatenate(weights))


class TargetSummary(NamedTuple):
    """Number of rows in all partitions, and the weight of the targets +1 and -1, a row each, one column per output."""

    n_rows: int
    target_weights: Array

    @property
    def n_outputs(self) -> int:
        return self.target_weights.shape[1]

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.target_weights[:, 0].sum())


def target_summary(data: Partitions[Rows]) -> TargetSummary:
    """Return the summary of the targets of an objective, computed once."""
    if "targets" not in data.cache:
        data.cache["targets"] = TargetSummary(*data.map_sum(_summarize_targets))
    return data.cache["targets"]


def set_target_summary(data: Partitions[Rows], summary: TargetSummary) -> None:
    """Store the summary, if it is known without a look at the rows."""
    data.cache["targets"] = summary


def _summarize_targets(part: Rows) -> TargetSummary:
    positive, weights = part.y > 0.0, part.sample_weight
    return TargetSummary(len(weights), np.stack([np.einsum("i,ik->k", weights, own) for own in (positive, ~positive)]))


def restrict_features(data: Partitions[Rows], features: Array, entry: EntryFunction | None) -> Partitions[Rows]:
    """Return the rows of an objective with some features alone, and with another function of their entries.

    A product with them counts as a share of one with all features, by the number of stored entries, and taking them
    from all rows as a product with these.
    """
    rows = data.map_partitions(_take_features, features, stored=True)
    part = rows.map_partitions(_as_block, entry)
    data.n_products += 1
    part.pass_share = data.pass_share * stored_entries(part) / max(1, stored_entries(data))
    set_target_summary(part, target_summary(data))
    return part


def stored_entries(data: Partitions[Rows]) -> int:
    """Return the number of stored entries of the rows of an objective, computed once."""
    if "stored entries" not in data.cache:
        (data.cache["stored entries"],) = data.map_sum(_count_entries)
    return data.cache["stored entries"]


def _take_features(part: Rows, features: Array) -> Rows:
    return Rows(part.X.rows[:, features], part.y, part.sample_weight)


def _as_block(part: Rows, entry: EntryFunction | None) -> Rows:
    return Rows(part.transformed(row_block, entry), part.y, part.sample_weight)


def _count_entries(part: Rows) -> tuple[int]:
    return (int(part.X.entries().size),)
