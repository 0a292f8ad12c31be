"""Partitions of rows that answer `map` and an ordered `map_sum`.

The objective is a sum over rows, so all that it needs from the data is a function applied to every partition and
the sum of the results. The partition and the order of the sum are fixed by the data, so the result is the same to
the last bit whatever the number of threads. Another backend (files, a cluster) is another class with these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np

P = TypeVar("P")


def _with_error_state(state: Any, function: Callable[..., Any], *args: Any) -> Any:
    with np.errstate(**state):
        return function(*args)


class PerPartition(list[Any]):
    """Results of a `map` that stay with their partitions: as an argument, each partition is handed its own."""


class Partitions(Generic[P]):
    """A fixed sequence of partitions in this process, worked on by ``n_threads`` threads.

    Parameters
    ----------
    parts : sequence
        What the mapped functions get as their first argument.
    n_threads : int, default=1
        How many partitions are worked on at once. It never changes a result.
    kept : dict, default=None
        What is worth keeping and depends on the rows and their shares of the weight alone: problems that differ in
        nothing else may hand it on to each other.
    """

    def __init__(self, parts: Sequence[P], n_threads: int = 1, kept: dict[Any, Any] | None = None) -> None:
        self.parts = list(parts)
        self._pool = ThreadPoolExecutor(n_threads) if min(n_threads, len(self.parts)) > 1 else None
        self.n_sweeps = 0  # products with the data so far, counted by whoever asks for them
        self.cache: dict[str, Any] = {}  # what belongs to this problem and is worth keeping
        self.kept = {} if kept is None else kept

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        """Return ``[function(part, *args) for part in parts]``; a `PerPartition` argument is dealt out by part."""
        dealt = [[arg[i] if isinstance(arg, PerPartition) else arg for arg in args] for i in range(len(self.parts))]
        if self._pool is None:
            return PerPartition(function(part, *own) for part, own in zip(self.parts, dealt, strict=True))
        state = np.geterr()  # NumPy's error state belongs to a thread: hand the caller's on
        futures = [
            self._pool.submit(_with_error_state, state, function, part, *own)
            for part, own in zip(self.parts, dealt, strict=True)
        ]
        try:
            return PerPartition(future.result() for future in futures)
        except BaseException:  # an interrupt, too: leave no work behind
            for future in futures:
                future.cancel()
            raise

    def map_sum(self, function: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
        """Return the element-wise sum of the tuples ``function(part, *args)``, added in the order of the parts."""
        results = self.map(function, *args)
        totals = list(results[0])
        for count, result in enumerate(results[1:]):
            for i, value in enumerate(result):
                if count and isinstance(value, np.ndarray):
                    totals[i] += value  # no longer the first partition's own
                elif value is not None:
                    totals[i] = totals[i] + value
        return tuple(totals)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Partitions[P]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
