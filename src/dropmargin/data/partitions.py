"""Partitions of rows that answer `map` and an ordered `map_sum`: the one seam between the mathematics and the data.

The objective is a sum over rows, so all that it needs from the data is a function applied to every partition and
the sum of the results. The partitions and the order of the sum are fixed by the data, so the result is the same to
the last bit whatever the number of threads or of machines. `LocalPartitions` are those in this process; files and
clusters are other subclasses of `Partitions`.

Mapped functions are pure and at module level, so that they can be sent elsewhere. Their results stay where the
partition is, as items of a `PerPartition`. A function that multiplies with the rows declares how often with `products`;
`Partitions` adds these numbers up.
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
F = TypeVar("F", bound=Callable[..., Any])
Totals = tuple[Any, ...]


def products(number: int) -> Callable[[F], F]:
    """Declare how many products with the rows, or with their transpose, a mapped function computes.

    A function that declares none is cheap: a backend may call it at every use and not store its results.
    """

    def declare(function: F) -> F:
        function.n_products = number  # type: ignore[attr-defined]
        return function

    return declare


class PerPartition(list[Any]):
    """One item per partition, in their order: as an argument of `map`, each partition is handed its own.

    An item is a value, or whatever a backend keeps in its place (a future, a file). `Partitions.gather` fetches them.
    """


class Partitions(ABC, Generic[P]):
    """A fixed sequence of partitions of rows.

    Parameters
    ----------
    n_partitions : int
    shared_cache : dict, default=None
        Cache shared by problems with the same rows and relative sample weights, for example other values of ``C``.

    Attributes
    ----------
    n_products : int
        Products with the rows so far; two of them, one with ``X`` and one with its transpose, are a pass.
    pass_share : float
        What a pass over these rows counts as, less than 1 if they are part of others.
    cache : dict
        Cache of this problem alone.
    """

    #: Whether values as large as the rows may be kept from one call to the next; if not, they are computed anew.
    keeps_large_values = False

    def __init__(self, n_partitions: int, shared_cache: dict[Any, Any] | None = None) -> None:
        self.n_partitions = n_partitions
        self.n_products = 0
        self.pass_share = 1.0
        self.cache: dict[str, Any] = {}
        self.shared_cache = {} if shared_cache is None else shared_cache

    @property
    def n_passes(self) -> float:
        """Passes over the data so far."""
        return self.pass_share * self.n_products / 2

    @abstractmethod
    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        """Return ``function(part, *args)`` of each partition; each gets its own item of a `PerPartition` argument.

        A backend may call the function when its results are first needed: the arguments must not change. The results
        are arguments for these partitions only, not for others that are made of them.
        """

    @abstractmethod
    def gather(self, values: PerPartition) -> list[Any]:
        """Return the values themselves, in the order of the partitions."""

    @abstractmethod
    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> Partitions[Any]:
        """Return the partitions ``function(part, *args)``, of the same backend; closing them leaves these open.

        ``stored`` says that they have rows of their own, fewer than these: a backend that would otherwise call the
        function at every use stores the result.
        """

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        """Return the element-wise sum of the tuples ``function(part, *args)``, as `add_up` adds them."""
        return add_up(self.gather(self.map(function, *args)))

    def rows_in_memory(self) -> list[P] | None:
        """Return all partitions, for a solver that needs all rows at once; ``None`` if they are not in this process."""
        return None

    def count(self, function: Callable[..., Any]) -> None:
        """Add the products that a function declares; each backend calls this once for each call of `map`."""
        self.n_products += getattr(function, "n_products", 0)

    def close(self) -> None:
        """Release threads, files and the like."""

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
        How many partitions are worked on at once. It does not change a result.
    shared_cache : dict, default=None
    """

    keeps_large_values = True

    def __init__(self, parts: Iterable[P], n_threads: int = 1, shared_cache: dict[Any, Any] | None = None) -> None:
        self.parts = list(parts)
        super().__init__(len(self.parts), shared_cache)
        self._n_threads = n_threads
        n_threads = min(n_threads, len(self.parts))
        self._threads = Threads(n_threads) if n_threads > 1 else None

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        if self._threads is not None:
            calls = [partial(function, part, *select_args(args, i)) for i, part in enumerate(self.parts)]
            return PerPartition(self._threads.run(calls))
        results = PerPartition()
        for i, part in enumerate(self.parts):
            results.append(function(part, *select_args(args, i)))
        return results

    def gather(self, values: PerPartition) -> list[Any]:
        return list(values)

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> LocalPartitions[Any]:
        return type(self)(self.map(function, *args), self._n_threads, shared_cache)

    def rows_in_memory(self) -> list[P] | None:
        return self.parts

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


def select_args(args: Sequence[Any], index: int) -> list[Any]:
    """Return the arguments of one partition: its own item of each `PerPartition`, and the others as they are."""
    return [arg[index] if isinstance(arg, PerPartition) else arg for arg in args]


def identity(part: Any, value: Any) -> Any:
    """Return a partition's own value: a request for backends whose `map` has not been called yet."""
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
