"""The seam between the mathematics and the place of the rows: a function applied to every partition, and the sum.

A backend is a subclass of `Partitions` with one method, `results`. Mapped functions are at module level, so that they
can be sent elsewhere, and stateless: what they need of the rows beyond their arguments they compute. (Blocks in memory
keep what was computed last, see `Block.memo`.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any

from dropmargin.threads import in_threads


class Partitions(ABC):
    """A fixed sequence of partitions of rows.

    Attributes
    ----------
    n_partitions : int
    steps : tuple of (callable, tuple)
        Functions and their arguments that are applied to a partition, in turn, before a mapped function.
    """

    n_partitions: int
    steps: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = ()

    @abstractmethod
    def results(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Iterable[Any]:
        """Return ``function(part, *args)`` of each partition after its `steps`, in their order."""

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return ``function(part, *args)`` of each partition."""
        return list(self.results(function, args))

    def map_sum(self, function: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
        """Return the element-wise sum of the tuples ``function(part, *args)``, in the order of the partitions."""
        return reduce(add, self.results(function, args))

    def transformed(self, function: Callable[..., Any], *args: Any) -> Partitions:
        """Return the partitions ``function(part, *args)``; a backend computes them at every use."""
        other = copy(self)
        other.steps = (*self.steps, (function, args))
        return other

    def single(self) -> Any:
        """Return the one partition in memory, for code that needs all rows at once; else ``None``."""
        return None


def add(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the element-wise sum of two results; ``None`` stays ``None``."""
    return tuple(a if b is None else a + b for a, b in zip(first, second, strict=True))


def apply_steps(part: Any, steps: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Any:
    """Return a partition after some functions."""
    return reduce(lambda own, step: step[0](own, *step[1]), steps, part)


class LocalPartitions(Partitions):
    """Partitions in this process, worked on by ``n_threads`` threads, which do not change a result.

    Parameters
    ----------
    parts : iterable
        What the mapped functions get as their first argument.
    n_threads : int, default=1
    """

    def __init__(self, parts: Iterable[Any], n_threads: int = 1) -> None:
        self.parts, self.n_threads = list(parts), n_threads
        self.n_partitions = len(self.parts)

    def results(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[Any]:
        return iter(in_threads([partial(function, part, *args) for part in self.parts], self.n_threads))

    def transformed(self, function: Callable[..., Any], *args: Any) -> LocalPartitions:
        return LocalPartitions([function(part, *args) for part in self.parts], self.n_threads)

    def single(self) -> Any:
        return self.parts[0] if len(self.parts) == 1 else None
