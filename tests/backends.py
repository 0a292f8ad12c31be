"""The backends of `Partitions`, for the conformance tests: each yields partitions of the same parts.

To add one, write a context manager that takes a list of `Rows` and a temporary folder and yields the partitions, and
add it to `BACKENDS`. Its results must be those of `reference` to the last bit.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from functools import cache, partial

import dask
from distributed import Client

from dropmargin import DropoutSVC
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import LocalPartitions, Rows, canonical
from dropmargin.streaming.blocks import FileBlocks, fetched_rows
from dropmargin.streaming.checkpoint import Log, LoggedPartitions
from dropmargin.streaming.partitions import FilePartitions


class Elsewhere(LocalPartitions):
    """Partitions in this process that behave like those of a backend whose rows are not in memory."""

    keeps_large_values = False

    def rows_in_memory(self):
        return None


def reference(parts):
    """Return the partitions whose results all backends must have: in this process, one after the other."""
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
    """Rows that are fetched at every use, each time as a new object."""
    fetched = [Rows(partial(_copy, canonical(rows.X)), rows.y, rows.sample_weight) for rows in parts]
    with Elsewhere(fetched, 2) as data:
        yield data


@contextmanager
def _files(n_threads, room, parts, folder):
    """Blocks in files, of which some may stay in memory."""
    own = folder / uuid.uuid4().hex
    own.mkdir()
    blocks = FileBlocks(own)
    for rows in parts:
        blocks.add(canonical(rows.X))
    blocks.keep(room)
    rows = fetched_rows(blocks, [(rows.y, rows.sample_weight) for rows in parts])
    with FilePartitions(rows, n_threads, folder, room) as data:
        yield data


@contextmanager
def _logged(parts, folder):
    """Files, with a checkpoint."""
    with Log(folder / f"{uuid.uuid4().hex}.log", 32 * "0", DropoutSVC()) as log, _files(1, 0, parts, folder) as data:
        yield LoggedPartitions(data, log)


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
#: Backends that take minutes for all conformance tests.
SLOW_BACKENDS = ("dask",)
