"""Rows outside of memory as partitions: matrices are read at every use, labels and weights stay in memory."""

from __future__ import annotations

import mmap
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dropmargin.data import Partitions
from dropmargin.data.partitions import apply_steps
from dropmargin.estimators.rows import ValidRows
from dropmargin.threads import in_threads
from dropmargin.typing import Array


class BlockPartitions(Partitions):
    """Blocks of rows that a subclass reads; see `fetch`.

    Parameters
    ----------
    labels : sequence of ndarray
        Of each block.
    names : sequence of str
        Of the blocks, in errors.
    n_features : int
    """

    feature_names: tuple[str, ...] | None = None
    #: Whether the feature indices of svmlight files start at 0.
    zero_based: bool | None = None

    def __init__(self, labels: Sequence[Array], names: Sequence[str], n_features: int) -> None:
        self.labels, self.names, self.n_partitions = list(labels), list(names), len(labels)
        self.shape = sum(map(len, labels)), n_features
        self.weights: list[Array | None] = [None] * len(labels)
        self.n_threads = 1

    @abstractmethod
    def fetch(self, index: int) -> Any:
        """Return the rows of a block as an array or canonical CSR."""

    @property
    def classes(self) -> Array:
        """All labels, sorted."""
        return np.unique(np.concatenate([np.unique(labels) for labels in self.labels]))

    def set_weights(self, weights: Array) -> None:
        """Set the sample weights of all rows, in their order."""
        self.weights = list(np.split(weights, np.cumsum([len(labels) for labels in self.labels])[:-1]))

    def results(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[Any]:
        count = 1 if self.n_threads == 1 else 2 * self.n_threads  # at a time: few results are in memory
        for begin in range(0, self.n_partitions, count):
            numbers = range(begin, min(begin + count, self.n_partitions))
            yield from in_threads([partial(self._call, i, function, args) for i in numbers], self.n_threads)

    def _call(self, index: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        rows = ValidRows(self.fetch(index), self.labels[index], self.weights[index], index)
        part = apply_steps(rows, self.steps)
        result = function(part, *args)
        vars(part).clear()  # what refers to itself would stay in memory for a while
        return result


class ArrayPartitions(BlockPartitions):
    """Slices of the rows of an array, in memory or memory-mapped, at the given edges."""

    def __init__(self, X: Array, y: Array, edges: Sequence[int]) -> None:
        names = [f"rows {begin + 1} to {end}" for begin, end in pairwise(edges)]
        super().__init__(np.split(y, edges[1:-1]), names, X.shape[1])
        self._X, self._edges = X, edges
        self._dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)

    def fetch(self, index: int) -> Any:
        mapped = getattr(self._X, "_mmap", None)
        if mapped is not None:
            offset = getattr(self._X, "offset", 0)
            if mapped.size() < offset - offset % mmap.ALLOCATIONGRANULARITY + len(mapped):
                # Reading beyond the end would end the process.
                raise ValueError("The file of X has become shorter since it was opened: open it again.")
            # The pages of earlier blocks are released; changes of a private mapping exist in memory only.
            if hasattr(mmap, "MADV_DONTNEED") and self._X.mode != "c":  # type: ignore[attr-defined]
                mapped.madvise(mmap.MADV_DONTNEED)
        rows = self._X[self._edges[index] : self._edges[index + 1]]
        return np.ascontiguousarray(rows, dtype=self._dtype).view(np.ndarray)
