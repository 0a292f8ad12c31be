"""Partitions in files: rows are read at every call, while labels and scores stay in memory.

A mapped function is not called until another call needs its results, and then together with that call: the scores and
the values computed from them take one pass over the files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import Partitions, PerPartition, Rows
from dropmargin.data.partitions import Summation, Totals, identity, select_args
from dropmargin.streaming.store import BlockWriter, MappedBlocks, fetched_rows, open_blocks
from dropmargin.threads import Job, Threads


class FilePartitions(Partitions[Any]):
    """Partitions whose rows are blocks in files; partition ``i`` has the rows of block ``i``.

    ``parts`` are `Rows` that are fetched from the blocks, or results of `map_partitions`. ``n_threads`` blocks are
    processed in parallel, which does not change a result. The rows of `map_partitions` with ``stored=True`` are in the
    folder ``scratch``, and may use ``room`` bytes of memory.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        blocks: MappedBlocks,
        *,
        n_threads: int,
        scratch: Path,
        room: int,
        shared_cache: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(len(parts), shared_cache)
        self._parts = list(parts)
        self._blocks = blocks
        self._n_threads, self._scratch, self._room = n_threads, scratch, room
        self._threads = Threads(min(n_threads, len(parts))) if min(n_threads, len(parts)) > 1 else None

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
        parts, blocks = list(self._results(function, args)) if not stored else [], self._blocks
        if stored:
            self._scratch.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="sample-", dir=self._scratch))
            try:
                writer = BlockWriter(folder)
                written = list(self._results(_written, (writer, function, *args)))
                writer.close(sync=False)  # the files are not used after this process ends
                blocks = open_blocks(folder, writer.blocks, written[0].X)
            finally:
                shutil.rmtree(folder, ignore_errors=True)  # mapped files exist until they are closed
            blocks.keep(self._room)
            parts = fetched_rows(blocks, [(part.y, part.sample_weight) for part in written])
        return FilePartitions(
            parts,
            blocks,
            n_threads=self._n_threads,
            scratch=self._scratch,
            room=self._room,
            shared_cache=shared_cache,
        )

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _results(self, function: Callable[..., Any], args: Sequence[Any]) -> Iterator[Any]:
        """Yield the results in the order of the partitions; a few are computed ahead."""
        if self._threads is None or function is _written:  # _written must be called in order
            for i in range(self.n_partitions):
                yield self._call(function, i, select_args(args, i))
            return
        waiting: deque[Job[Any]] = deque()
        try:
            for i in range(self.n_partitions):
                waiting.append(self._threads.submit(self._call, function, i, select_args(args, i)))
                if len(waiting) > 2 * self._n_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job in waiting:
                job.cancel()

    def _call(self, function: Callable[..., Any], index: int, args: list[Any]) -> Any:
        part = self._parts[index]
        try:
            return function(part, *_evaluated(part, args))
        finally:
            self._blocks.release(index)


class _Lazy:
    """The result of a mapped function for one partition, computed when it is first needed."""

    def __init__(self, function: Callable[..., Any], args: list[Any]) -> None:
        self._call: tuple[Callable[..., Any], list[Any], Any] | None = (function, args, np.geterr())
        self._value: Any = None

    def value(self, part: Any) -> Any:
        if self._call is not None:
            function, args, state = self._call
            with np.errstate(**state):
                self._value = function(part, *_evaluated(part, args))
            self._call = None
        return self._value


def _evaluated(part: Any, args: Sequence[Any]) -> list[Any]:
    """Return the arguments, with the lazy ones computed."""
    return [arg.value(part) if isinstance(arg, _Lazy) else arg for arg in args]


def _written(part: Any, writer: BlockWriter, function: Callable[..., Rows], *args: Any) -> Rows:
    """Write the rows of ``function(part, *args)``, and return the number of features in place of the rows."""
    rows = function(part, *args)
    writer.add(rows.X)
    return Rows(rows.X.shape[1], rows.y, rows.sample_weight)
