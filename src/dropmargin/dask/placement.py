"""Assignment of partitions to workers: by where the data are, balanced by the numbers of threads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from distributed import Client, Future

# The locations of data and workers are updated after this many seconds, because workers may join or leave.
_UPDATE_SECONDS = 2.0


class Share(NamedTuple):
    """The indices of some partitions, their worker, and the number of its threads to use."""

    indices: tuple[int, ...]
    worker: str | None
    n_threads: int


class Placement:
    """The preferred worker of each partition. Dask may run the tasks on other workers."""

    def __init__(self, client: Client, parts: Sequence[Future]) -> None:
        self._client, self._parts = client, list(parts)
        self._shares: list[Share] = []
        self._updated = -np.inf

    def shares(self) -> list[Share]:
        """Return the partitions of each worker that has any; a partition that is not computed yet is a share alone."""
        if time.monotonic() - self._updated > _UPDATE_SECONDS or any(share.worker is None for share in self._shares):
            threads = self._client.nthreads()
            held = self._client.who_has(self._parts)
            workers = assign_workers([held.get(part.key, ()) for part in self._parts], threads)
            shares = [Share((i,), None, 1) for i, worker in enumerate(workers) if worker is None]
            for worker in {worker for worker in workers if worker is not None}:
                own = tuple(i for i, other in enumerate(workers) if other == worker)
                shares.append(Share(own, worker, min(len(own), max(1, threads.get(worker, 1)))))
            # sorted by the first partition, so that sums of neighbours are added early
            self._shares = sorted(shares, key=lambda share: share.indices)
            self._updated = time.monotonic()
        return self._shares


def assign_workers(held: Sequence[Sequence[str]], threads: Mapping[str, int]) -> list[str | None]:
    """Return a worker for each partition: one that has it, unless that worker has too many for its threads.

    ``held`` are the workers that have each partition; a partition that no worker has is not assigned.
    """
    n_partitions, n_threads = len(held), max(1, sum(threads.values()))
    most = {worker: -(-n_partitions * n // n_threads) for worker, n in threads.items()}
    loads = dict.fromkeys(threads, 0)
    workers: list[str | None] = [None] * n_partitions
    # 1. Partitions stay where they are, up to the share of each worker.
    surplus = []
    for i, holders in enumerate(held):
        present = [worker for worker in sorted(holders) if worker in loads]
        free = [worker for worker in present if loads[worker] < most[worker]]
        if free:
            workers[i] = worker = min(free, key=lambda worker: loads[worker] / threads[worker])
            loads[worker] += 1
        elif present:
            surplus.append(i)
    # 2. The others go to the workers with the fewest partitions per thread.
    for i in surplus:
        workers[i] = worker = min(sorted(threads), key=lambda worker: (loads[worker] + 1) / threads[worker])
        loads[worker] += 1
    return workers
