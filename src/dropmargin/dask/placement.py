"""Which worker works on which partition: where the data are, and as evenly as threads are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from distributed import Client, Future

# Where data and workers are is asked for anew after this many seconds: some may have come or gone.
_RENEWAL_SECONDS = 2.0


class Group(NamedTuple):
    """Some partitions, the worker where they are, and how many of its threads are to work on them."""

    numbers: list[int]
    home: str | None
    n_threads: int


class Placement:
    """The worker of each partition, as a wish: tasks may run anywhere, and who is lost is replaced.

    Parameters
    ----------
    client : Client
    n_partitions : int
    """

    def __init__(self, client: Client, n_partitions: int) -> None:
        self._client = client
        self._homes: list[str | None] = [None] * n_partitions
        self._threads: Mapping[str, int] = {}
        self._renewed = -np.inf

    def homes(self, parts: Sequence[Future]) -> list[str | None]:
        """Return the worker of each partition; none, if it is not made yet."""
        if time.monotonic() - self._renewed > _RENEWAL_SECONDS or None in self._homes:
            self._threads = self._client.nthreads()
            held = self._client.who_has(list(parts))
            self._homes = share_out([held.get(part.key, ()) for part in parts], self._threads)
            self._renewed = time.monotonic()
        return self._homes

    def groups(self, parts: Sequence[Future]) -> list[Group]:
        """Return groups of partitions, one for each worker that has any; those that nobody has are on their own."""
        homes = self.homes(parts)
        groups = [Group([i], None, 1) for i, home in enumerate(homes) if home is None]
        for worker in {home for home in homes if home is not None}:
            own = [i for i, home in enumerate(homes) if home == worker]
            groups.append(Group(own, worker, min(len(own), max(1, self._threads.get(worker, 1)))))
        # by their first partition, so that sums of neighbours meet early
        return sorted(groups, key=lambda group: group.numbers)


def share_out(held: Sequence[Sequence[str]], threads: Mapping[str, int]) -> list[str | None]:
    """Return a worker for each partition: one that has it, unless it has more than its share by its threads.

    Parameters
    ----------
    held : sequence of sequences of str
        The workers that have each partition; a partition that nobody has gets no worker.
    threads : mapping of str to int
        The workers and their threads.
    """
    n_partitions, n_threads = len(held), max(1, sum(threads.values()))
    shares = {worker: -(-n_partitions * n // n_threads) for worker, n in threads.items()}
    loads = dict.fromkeys(threads, 0)
    homes: list[str | None] = [None] * n_partitions
    surplus = []
    for i, holders in enumerate(held):
        there = [worker for worker in sorted(holders) if worker in loads]
        free = [worker for worker in there if loads[worker] < shares[worker]]
        if free:
            homes[i] = min(free, key=lambda worker: loads[worker] / threads[worker])
            loads[homes[i]] += 1  # type: ignore[index]
        elif there:
            surplus.append(i)
    for i in surplus:
        homes[i] = min(sorted(threads), key=lambda worker: (loads[worker] + 1) / threads[worker])
        loads[homes[i]] += 1  # type: ignore[index]
    return homes
