"""The backends of the seam, for the conformance suite: each makes `Partitions` of the same parts.

To add one, write a function that takes a list of `Rows` and a temporary folder and yields the partitions, and name it
in `BACKENDS`. It must agree with `reference` to the last bit.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from functools import cache, partial

import dask
from distributed import Client

from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import LocalPartitions, Rows, canonical
from dropmargin.streaming.checkpoint import Log, LoggedPartitions
from dropmargin.streaming.partitions import FilePartitions, fetched_rows
from dropmargin.streaming.reader import BlockReader
from dropmargin.streaming.store import BlockWriter, StoredBlocks


class Elsewhere(LocalPartitions):
    """Partitions in this process that behave as those of a backend whose rows are elsewhere."""

    keeps_large_values = False

    def rows_in_memory(self):
        return None


def reference(parts):
    """Return the partitions that all others must agree with: in this process, one after the other."""
    return Elsewhere(parts)


@contextmanager
def _serial(parts, folder):
    with reference(parts) as data:
        yield data


@contextmanager
def _threads(n_threads, parts, folder):
    with Elsewhere(parts, n_threads) as data:
        yield data


@contextmanager
def _fetched(parts, folder):
    """Rows that come anew each time they are asked for, and are never the same object."""
    fetched = [Rows(partial(_copy, canonical(rows.X)), rows.y, rows.sample_weight) for rows in parts]
    with Elsewhere(fetched, 2) as data:
        yield data


@contextmanager
def _files(n_threads, room, parts, folder):
    """Blocks of one file, of which some may stay in memory."""
    writer = BlockWriter(folder / f"rows-{uuid.uuid4().hex}.bin")
    for rows in parts:
        writer.add(canonical(rows.X))
    writer.close()
    reader = BlockReader(StoredBlocks(writer.path, writer.blocks), len(parts), n_threads, room)
    rows = fetched_rows(reader, [(rows.y, rows.sample_weight) for rows in parts])
    with FilePartitions(rows, reader, n_threads=n_threads, scratch=folder, room=room) as data:
        yield data
    reader.close()


@contextmanager
def _logged(parts, folder):
    """Files, with a checkpoint."""
    log = Log(folder / f"{uuid.uuid4().hex}.log", bytes(32), bytes(32))
    with _files(1, 0, parts, folder) as data:
        yield LoggedPartitions(lambda: data, len(parts), log, is_owned=False)
    log.close()


@contextmanager
def _dask(parts, folder):
    """A cluster of two workers in this process, started once."""
    client = _cluster()
    futures = client.compute([dask.delayed(rows, traverse=False, pure=False) for rows in parts], sync=False)
    with DaskPartitions(client, futures, timeout=100.0) as data:
        yield data


@cache
def _cluster():
    return Client(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0", set_as_default=False)


def _copy(X):
    return X.copy()


#: Name to context manager of (parts, folder).
BACKENDS = {
    "serial": _serial,
    "2 threads": partial(_threads, 2),
    "3 threads": partial(_threads, 3),
    "fetched rows": _fetched,
    "files": partial(_files, 1, 0),
    "files, 3 threads": partial(_files, 3, 3000),
    "files with a log": _logged,
    "dask": _dask,
}
#: Those that take minutes for the whole suite.
SLOW_BACKENDS = ("dask",)
