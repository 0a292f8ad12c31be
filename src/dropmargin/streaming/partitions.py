"""Partitions in files: rows are read at every call, while labels and scores stay in memory.

A mapped function is not called until another call needs its results, and then together with that call: the scores and
the values computed from them take one pass over the files.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import Partitions, PerPartition, Rows
from dropmargin.data.partitions import Summation, Totals, identity, select_args
from dropmargin.streaming.blocks import FileBlocks, fetched_rows
from dropmargin.threads import Job, Threads


class FilePartitions(Partitions[Any]):
    """Partitions whose rows are fetched from files.

    ``parts`` are `Rows`, or a function that returns them, which is called at the first request; then ``n_partitions``
    is their number. ``n_threads`` of them are processed in parallel, which does not change a result. The rows of
    `map_partitions` with ``stored=True`` are in the folder ``scratch``, and may use ``room`` bytes of memory.
    """

    def __init__(
        self,
        parts: Sequence[Any] | Callable[[], Iterable[Any]],
        n_threads: int,
        scratch: Path,
        room: int,
        n_partitions: int | None = None,
        shared_cache: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(n_partitions or len(parts), shared_cache)  # type: ignore[arg-type]
        self._given = parts
        self._n_threads, self._scratch, self._room = min(n_threads, self.n_partitions), scratch, room

    @cached_property
    def _parts(self) -> list[Any]:
        return list(self._given() if callable(self._given) else self._given)

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self._n_threads)

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return PerPartition(_Lazy(function, select_args(args, i)) for i in range(self.n_partitions))

    def gather(self, values: PerPartition) -> list[Any]:
        return list(self._results(identity, (values,)))

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        summation = Summation()
        for result in self._results(function, args):
            summation.add(result)
        return summation.total()

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> FilePartitions:
        parts = partial(self._stored if stored else self._results, function, args)
        return FilePartitions(parts, self._n_threads, self._scratch, self._room, self.n_partitions, shared_cache)

    def close(self) -> None:
        if "_threads" in vars(self):
            self._threads.close()
        for name in ("_given", "_parts"):
            vars(self).pop(name, None)

    def _stored(self, function: Callable[..., Rows], args: Sequence[Any]) -> list[Rows]:
        """Write the rows of ``function(part, *args)`` to files, which exist as long as they are referenced."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        blocks = FileBlocks(Path(tempfile.mkdtemp(prefix="sample-", dir=self._scratch)))
        weakref.finalize(blocks, shutil.rmtree, blocks.folder, ignore_errors=True)
        targets = []
        for rows in self._results(function, args):
            blocks.add(rows.X)
            targets.append((rows.y, rows.sample_weight))
        blocks.keep(self._room)
        return fetched_rows(blocks, targets)

    def _results(self, function: Callable[..., Any], args: Sequence[Any]) -> Iterator[Any]:
        """Yield the results in the order of the partitions; a few are computed ahead."""
        calls = (partial(_call, part, function, select_args(args, i)) for i, part in enumerate(self._parts))
        if self._n_threads <= 1:
            for call in calls:
                yield call()
            return
        waiting: deque[Job[Any]] = deque()
        try:
            for call in calls:
                waiting.append(self._threads.submit(call))
                if len(waiting) > 2 * self._n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job in waiting:
                job.cancel()


class _Lazy:
    """The result of a mapped function for one partition, computed when it is first needed."""

    def __init__(self, function: Callable[..., Any], args: list[Any]) -> None:
        self._call: tuple[Callable[..., Any], list[Any], Any] | None = (function, args, np.geterr())
        self._value: Any = None

    def value(self, part: Any) -> Any:
        if self._call is not None:
            function, args, state = self._call
            with np.errstate(**state):
                self._value = _call(part, function, args)
            self._call = None
        return self._value


def _call(part: Any, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return ``function(part, *args)``, with the lazy arguments computed."""
    return function(part, *(arg.value(part) if isinstance(arg, _Lazy) else arg for arg in args))
