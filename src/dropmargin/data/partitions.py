"""Partitions of rows that answer `map` and an ordered `map_sum`: the one seam between the mathematics and the data.

The objective is a sum over rows, so all that it needs from the data is a function applied to every partition and
the sum of the results. The partition and the order of the sum are fixed by the data, so the result is the same to
the last bit whatever the number of threads, or of machines. `LocalPartitions` are those in this process; another
backend (files, a cluster) is another class with these methods, and nothing above it changes.

Functions that are mapped are pure and at module level, so that they can be sent elsewhere. What they return stays where
the partition is, as an item of a `PerPartition`: only the backend looks inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np

from dropmargin.threads import Threads

P = TypeVar("P")
Totals = tuple[Any, ...]


class PerPartition(list[Any]):
    """One item per partition, in their order: as an argument of `map`, each partition is handed its own.

    An item is a value, or whatever a backend keeps in its place (a future, a file). `Partitions.gather` fetches them.
    """


class Partitions(ABC, Generic[P]):
    """A fixed sequence of partitions of rows.

    Parameters
    ----------
    n_partitions : int
    is_local : bool
        Whether all rows are at hand in this process, as ``parts``. If not, solvers that look at all rows at once are
        not used, and what is known of each row does not outlive a step: the scores of the next point are computed
        from its coefficients. So nothing that a backend keeps grows with the number of steps.
    kept : dict, default=None
        What is worth keeping and depends on the rows and their shares of the weight alone: problems that differ in
        nothing else may hand it on to each other.
    """

    def __init__(self, n_partitions: int, *, is_local: bool, kept: dict[Any, Any] | None = None) -> None:
        self.n_partitions = n_partitions
        self.is_local = is_local
        self.n_sweeps = 0  # products with the data so far, counted by whoever asks for them
        self.cache: dict[str, Any] = {}  # what belongs to this problem and is worth keeping
        self.kept = {} if kept is None else kept

    @abstractmethod
    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        """Return ``function(part, *args)`` of each partition; a `PerPartition` argument is dealt out by partition.

        A backend may call the function as late as its results are needed, if ever: the arguments must stay as they are,
        and the results are for questions to these partitions, not to others that are derived of them.
        """

    @abstractmethod
    def gather(self, values: PerPartition) -> list[Any]:
        """Return the values themselves, in the order of the partitions."""

    @abstractmethod
    def derive(
        self, function: Callable[..., Any], *args: Any, kept: dict[Any, Any] | None = None, stored: bool = False
    ) -> Partitions[Any]:
        """Return the partitions ``function(part, *args)``, of the same backend; closing them leaves these open.

        ``stored`` says that they have rows of their own, fewer than these: a backend that would otherwise apply the
        function anew each time should keep the result.
        """

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        """Return the element-wise sum of the tuples ``function(part, *args)``, as `add_up` adds them."""
        return add_up(self.gather(self.map(function, *args)))

    def settle(self, values: PerPartition) -> PerPartition:
        """Return the same values, to be kept for long: a backend that remembers how they came about may forget it.

        Multipliers, which are made of those before, pass through here at every outer step; nothing else does.
        """
        return values

    def close(self) -> None:
        """Give back threads, files and the like."""

    def __enter__(self) -> Partitions[P]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalPartitions(Partitions[P]):
    """Partitions in this process, worked on by ``n_threads`` threads.

    Parameters
    ----------
    parts : sequence
        What the mapped functions get as their first argument.
    n_threads : int, default=1
        How many partitions are worked on at once. It never changes a result.
    is_local : bool, default=True
        If false, the same as any backend whose rows are elsewhere: what others must agree with to the last bit.
    """

    def __init__(
        self, parts: Iterable[P], n_threads: int = 1, kept: dict[Any, Any] | None = None, *, is_local: bool = True
    ) -> None:
        self.parts = list(parts)
        super().__init__(len(self.parts), is_local=is_local, kept=kept)
        self._n_threads = n_threads
        n_threads = min(n_threads, len(self.parts))
        self._threads = Threads(n_threads) if n_threads > 1 else None

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        calls = [partial(function, part, *select_args(args, i)) for i, part in enumerate(self.parts)]
        return PerPartition([call() for call in calls] if self._threads is None else self._threads.run(calls))

    def gather(self, values: PerPartition) -> list[Any]:
        return list(values)

    def derive(
        self, function: Callable[..., Any], *args: Any, kept: dict[Any, Any] | None = None, stored: bool = False
    ) -> LocalPartitions[Any]:
        return LocalPartitions(self.map(function, *args), self._n_threads, kept, is_local=self.is_local)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


def local_parts(data: Partitions[P]) -> list[P]:
    """Return the partitions themselves, for a solver that looks at all rows at once; ``data.is_local`` must hold."""
    assert isinstance(data, LocalPartitions)
    assert data.is_local
    return data.parts


def select_args(args: Sequence[Any], index: int) -> list[Any]:
    """Return the arguments of one partition: its own item of each `PerPartition`, and the others as they are."""
    return [arg[index] if isinstance(arg, PerPartition) else arg for arg in args]


def identity(part: Any, value: Any) -> Any:
    """Return a partition's own value: a question for backends whose `map` has not been called yet."""
    return value


# Sums ---------------------------------------------------------------------------------------------------------------


def add_up(results: Sequence[Totals]) -> Totals:
    """Return the sum of the partitions' results; see `Summation` for the order."""
    summation = Summation()
    for result in results:
        summation.add(result)
    return summation.total()


def add_pair(first: Totals, second: Totals) -> Totals:
    """Return the element-wise sum of two results; ``None`` stays ``None``."""
    return tuple(a if b is None else a + b for a, b in zip(first, second, strict=True))


class Summation:
    """Adds up results as they come, in the order of the partitions, by a tree over their numbers.

    Neighbours are added, ``r0 + r1``, ``r2 + r3``, ..., and a last one without a neighbour goes up as it is; then the
    sums of neighbours are, and so on. So the bits of the sum depend on nothing but the results, and a machine that has
    neighbours can add them before it sends them on. For ``P`` partitions at most ``1 + log2 P`` sums are kept.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, Totals]] = []  # how many partitions, and their sum; the former falls

    def add(self, result: Totals) -> None:
        """Add the next partition's result, which is never changed."""
        self._sums.append((1, result))
        while len(self._sums) > 1 and self._sums[-1][0] == self._sums[-2][0]:
            self._join()

    def total(self) -> Totals:
        """Return the sum of all."""
        while len(self._sums) > 1:
            self._join()
        return tuple(self._sums[0][1])

    def _join(self) -> None:
        n, second = self._sums.pop()
        m, first = self._sums.pop()
        if m > 1:  # a sum of ours: arrays may be added to in place
            totals = list(first)
            for i, value in enumerate(second):
                if isinstance(totals[i], np.ndarray) and value is not None:
                    totals[i] += value
                elif value is not None:
                    totals[i] = totals[i] + value
            first = tuple(totals)
        else:
            first = add_pair(first, second)
        self._sums.append((m + n, first))
