"""Blocks of rows in memory for as long as they are worked on, the next one being read meanwhile."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np

from dropmargin.threads import Job, Threads
from dropmargin.typing import Array


class Blocks(Protocol):
    """Where blocks come from."""

    def n_bytes(self, index: int) -> int:
        """Return the size of a block in memory."""

    def load(self, index: int, buffer: Array) -> Any:
        """Return a block, as a view of a buffer of bytes that it fills."""

    def close(self) -> None:
        """Close the files."""


class BlockReader:
    """Hands out blocks, reads one ahead, and forgets those that are done with.

    The first blocks stay in memory, as many as there is room for. The others share a few buffers: whoever has fetched a
    block must release it, and not look at it again.

    Parameters
    ----------
    source : Blocks
    n_blocks : int
    n_threads : int
        How many blocks are worked on at once.
    room : int
        Bytes for blocks that stay.
    """

    def __init__(self, source: Blocks, n_blocks: int, n_threads: int, room: int) -> None:
        self._source = source
        self._n_blocks = n_blocks
        self._lock = threading.Lock()
        self._staying: dict[int, Job[Any]] = {}
        sizes = [source.n_bytes(i) for i in range(n_blocks)]
        self._n_staying = int(np.searchsorted(np.cumsum(sizes), room, side="right")) if n_blocks else 0
        passing = sizes[self._n_staying :]
        self._buffers = [np.empty(max(passing), dtype=np.uint8) for _ in range(min(n_threads + 1, len(passing)))]
        self._read: dict[int, tuple[Job[Any], Array]] = {}  # by block: its rows, to come, and their buffer
        self._in_use: set[int] = set()
        self._thread = Threads(1, "dropmargin-reader")

    def fetch(self, index: int) -> Any:
        """Return the rows of a block; they are good until it is released."""
        if index < self._n_staying:
            with self._lock:
                if index not in self._staying:
                    buffer = np.empty(self._source.n_bytes(index), dtype=np.uint8)
                    self._staying[index] = self._thread.submit(self._source.load, index, buffer)
                job = self._staying[index]
            return job.result()
        with self._lock:
            if index not in self._read and not self._buffers:
                self._take_back_one()
            self._in_use.add(index)
            self._begin(index)
            self._begin(self._after(index))
            job = self._read[index][0]
        return job.result()

    def release(self, index: int) -> None:
        """Take back a block, if it was fetched and does not stay."""
        with self._lock:
            self._in_use.discard(index)
            found = self._read.pop(index, None)
            if found is not None:
                self._buffers.append(found[1])

    def close(self) -> None:
        """Stop reading, and close the files."""
        self._thread.close()
        self._source.close()
        self._buffers, self._read, self._staying = [], {}, {}

    def _after(self, index: int) -> int:
        return index + 1 if index + 1 < self._n_blocks else self._n_staying

    def _begin(self, index: int) -> None:
        """Have a block read, unless it is already, or no buffer is left for reading ahead."""
        if index not in self._read and self._buffers:
            buffer = self._buffers.pop()
            self._read[index] = self._thread.submit(self._source.load, index, buffer), buffer

    def _take_back_one(self) -> None:
        """Forget a block that was read ahead for work that broke off."""
        idle = next(index for index in self._read if index not in self._in_use)
        job, buffer = self._read.pop(idle)
        job.cancel()
        job.wait()
        self._buffers.append(buffer)
