"""Partitions of rows on a Dask cluster.

All data on the cluster are futures that Dask can recompute: there are no actors and no scattered data, and tasks are
not restricted to workers. Dask recomputes the data of a lost worker. The client has the whole state of a fit.

A call is one message to the scheduler, with one task for each worker that has partitions, which returns the sum of its
results. Transformed partitions are stored on the workers from their first use on, as long as the client refers to them.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from dask.task_spec import List, Task, TaskRef
from distributed import Client, Future
from distributed.protocol import pickle

from dropmargin.dask.cluster import Cluster
from dropmargin.data import Block, Partitions, Rows
from dropmargin.data.partitions import add, apply_steps
from dropmargin.threads import in_threads, one_blas_thread

# The locations of data and workers are updated after this many seconds, because workers may join or leave.
_UPDATE_SECONDS = 2.0
# Larger arguments are the result of a task on one worker, from which the others fetch them.
_INLINE_BYTES = 2**20


class Share(NamedTuple):
    """The indices of the partitions of a worker, or of one that is not computed yet; threads to use."""

    indices: list[int]
    worker: str | None
    n_threads: int


class Payload:
    """A function and its arguments, pickled once for any number of tasks, and NumPy's error state."""

    def __init__(self, *content: Any) -> None:
        # Dask sends an array without a copy, but copies bytes.
        self.content = np.frombuffer(pickle.dumps((content, np.geterr())), dtype=np.uint8)

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class DaskPartitions(Partitions):
    """Partitions on a cluster; if Dask cannot recompute the futures in ``parts``, the loss of a worker is an error.

    Parameters
    ----------
    client : distributed.Client
    parts : sequence of Future
    timeout : float or None, default=600
        The longest time in seconds without a finished task.
    """

    def __init__(self, client: Client, parts: Sequence[Future], timeout: float | None = 600.0) -> None:
        self.n_partitions = len(parts)
        self._cluster, self._parts = Cluster(client, timeout, parts), list(parts)
        self._shares: list[Share] = []
        self._updated = -np.inf

    def results(self, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
        shares, found = self._call(_map, function, *args)
        numbers = chain.from_iterable(share.indices for share in shares)
        own = dict(zip(numbers, chain.from_iterable(found), strict=True))
        return [own[i] for i in range(self.n_partitions)]

    def map_sum(self, function: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
        return reduce(add, self._call(_sum, function, *args)[1])

    def release(self) -> None:
        """Release all results on the workers, the partitions and those that were made from these."""
        self._parts = []
        self._cluster.release()

    def _call(self, task: Callable[..., Any], *content: Any) -> tuple[list[Share], list[Any]]:
        """Return the partitions of each worker, and the results of a task for each."""
        if self.steps:
            each = [(part, Share([], None, 1)) for part in self._parts]
            self._parts, self.steps = self._send(_transform, Payload(self.steps), each), ()
        shares = self._update_shares()
        own = [(List(*(self._parts[i] for i in share.indices)), share) for share in shares]
        return shares, self._cluster.fetch(self._send(task, Payload(*content), own))

    def _send(self, function: Callable[..., Any], payload: Any, parts: Sequence[tuple[Any, Share]]) -> list[Future]:
        """Send tasks in one message, and return their futures."""
        name, sent = f"dropmargin-{uuid.uuid4().hex}", payload
        graph, workers = {}, {}
        if payload.content.nbytes > _INLINE_BYTES:
            graph[f"{name}-args"], sent = Task(f"{name}-args", _same, payload), TaskRef(f"{name}-args")
        keys = [f"{name}-{i}" for i in range(len(parts))]
        for key, (own, share) in zip(keys, parts, strict=True):
            graph[key] = Task(key, function, sent, own, share.n_threads)
            workers[key] = [share.worker] if share.worker else []
        return self._cluster.start(graph, keys, workers)

    def _update_shares(self) -> list[Share]:
        """Return the partitions of each worker that has any; those that no worker has are on their own."""
        if time.monotonic() - self._updated > _UPDATE_SECONDS or any(share.worker is None for share in self._shares):
            client = self._cluster.client
            with self._cluster.explained():
                threads, held = client.nthreads(), client.who_has(self._parts)
            loads: Counter[str] = Counter()
            found: dict[Any, Share] = {}
            for i, part in enumerate(self._parts):
                present = [worker for worker in sorted(held.get(part.key, ())) if worker in threads]
                worker = min(present, key=lambda own: loads[own] / threads[own], default=None)
                share = found.setdefault(worker or i, Share([], worker, threads.get(worker, 1)))
                share.indices.append(i)
                loads[worker or ""] += 1
            self._shares, self._updated = list(found.values()), time.monotonic()
        return self._shares


# Functions that run on the workers ----------------------------------------------------------------------------------


def _same(payload: Payload) -> Payload:
    return payload


def _transform(payload: Payload, part: Any, n_threads: int) -> Any:
    (steps,), state = pickle.loads(payload.content.data)
    with np.errstate(**state):
        return apply_steps(part, steps)


def _map(payload: Payload, parts: Sequence[Any], n_threads: int) -> list[Any]:
    """Return the results of a function for some partitions."""
    (function, *args), state = pickle.loads(payload.content.data)
    with one_blas_thread(), np.errstate(**state):
        return in_threads([partial(function, part, *args) for part in parts], n_threads)


def _sum(payload: Payload, parts: Sequence[Any], n_threads: int) -> tuple[Any, ...]:
    return reduce(add, _map(payload, parts, n_threads))


def _size_of_attributes(value: Any) -> int:
    return sum(sizeof(own) for own in vars(value).values())


# Dask schedules tasks and spills data by size; for classes that it does not know, it counts the object alone.
for _kind in (Rows, Block, Payload):
    sizeof.register(_kind, _size_of_attributes)
