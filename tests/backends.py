"""The backends of `Partitions`, for the conformance tests: each yields partitions of the same parts.

To add one, write a context manager that takes a list of `Rows` and yields the partitions, and add it to `BACKENDS`. It
must have the optimum of `reference`.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial

import dask
from distributed import Client

from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data import LocalPartitions, Rows, canonical
from dropmargin.streaming.partitions import BlockPartitions


class Elsewhere(LocalPartitions):
    """Partitions in this process that behave like those of a backend whose rows are not in memory."""

    def __init__(self, parts, n_threads=1):
        super().__init__(numbered(parts), n_threads)

    def transformed(self, function, *args):
        other = Elsewhere([], self.n_threads)
        other.parts, other.n_partitions = [function(part, *args) for part in self.parts], self.n_partitions
        return other

    def single(self):
        return None


def numbered(parts):
    """Return rows with the numbers of their partitions."""
    return [Rows(rows.X, rows.y, rows.sample_weight, number) for number, rows in enumerate(parts)]


def reference(parts):
    """Return the partitions whose results all backends must have: in this process, one after the other."""
    return Elsewhere(parts)


@contextmanager
def _local(n_threads, parts):
    yield Elsewhere(parts, n_threads)


class Fetched(BlockPartitions):
    """Rows that are fetched at every use, each time as a new object."""

    def __init__(self, parts, n_threads):
        super().__init__([rows.y for rows in parts], [str(k) for k in range(len(parts))], parts[0].X.shape[1])
        self.own, self.n_threads = [canonical(rows.X) for rows in parts], n_threads
        self.weights = [rows.sample_weight for rows in parts]

    def fetch(self, index):
        return self.own[index].copy()


@contextmanager
def _fetched(n_threads, parts):
    yield Fetched(parts, n_threads)


@contextmanager
def _dask(parts):
    """A cluster of two workers in this process, started once."""
    client, parts = _cluster(), numbered(parts)
    futures = client.compute([dask.delayed(rows, traverse=False, pure=False) for rows in parts], sync=False)
    data = DaskPartitions(client, futures, timeout=100.0)
    yield data
    data.release()


@cache
def _cluster():
    return Client(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0", set_as_default=False)


#: Name to context manager of the parts.
BACKENDS = {
    "serial": partial(_local, 1),
    "3 threads": partial(_local, 3),
    "blocks": partial(_fetched, 1),
    "blocks, 3 threads": partial(_fetched, 3),
    "dask": _dask,
}
#: Backends that take minutes for all conformance tests.
SLOW_BACKENDS = ("dask",)
