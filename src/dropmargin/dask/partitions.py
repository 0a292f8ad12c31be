"""Partitions of rows on a Dask cluster.

Futures with lineage and nothing else: no actors, no scattered data, nobody is tied to a worker. What a lost worker had
is made again by Dask from where it came from, and as partial results are added in the order of the partitions, the
result is the same to the last bit whatever happens to the cluster. All that a fit remembers is with the client.

Each question is one message to the scheduler, with one task for each thread that has partitions and for each function
that has to be mapped before (`messages`). Coefficients are in the message; large ones go to one worker as the result
of a task, and from there to the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

from distributed import Client, Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.messages import Group, Mapped, Message, Question, Share
from dropmargin.dask.placement import Placement
from dropmargin.linalg import Partitions, PerPartition
from dropmargin.linalg.partitions import Totals

P = TypeVar("P")


# Sums of more bytes than these are joined on the cluster, by a tree of tasks, and not by the client.
_MUCH_AT_ONCE = 2**26


class DaskPartitions(Partitions[P]):
    """Partitions on a cluster.

    Parameters
    ----------
    client : Client
        Of the synchronous kind.
    parts : sequence of Future
        The partitions; if they cannot be made again, the loss of a worker is an error.
    timeout : float or None, default=600
        The most seconds without any task being finished; then a `ClusterError` is raised.
    """

    def __init__(
        self,
        client: Client,
        parts: Sequence[Future],
        timeout: float | None = 600.0,
        *,
        kept: dict[Any, Any] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(len(parts), is_local=False, kept=kept)
        self._parts = list(parts)
        self._cluster = Cluster(client, timeout)
        self._placement = Placement(client, len(self._parts)) if placement is None else placement
        self._joined: set[Any] = set()  # kinds of questions whose answers are joined on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        return Mapped(Question(function, args)).shares(self.n_partitions)

    def gather(self, values: PerPartition) -> list[Any]:
        message = Message(self._parts, self._groups())
        message.include([values])
        message.send(self._cluster, [])
        places = [value.mapped.place(value.number) if isinstance(value, Share) else None for value in values]
        found = iter(self._cluster.fetch([place[0] for place in places if place is not None]))
        return [value if place is None else next(found)[place[1]] for value, place in zip(values, places, strict=True)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        message = Message(self._parts, self._groups())
        keys = message.ask(tasks.sum_group, Question(function, args), self.n_partitions)
        if kind in self._joined:
            keys = message.join(keys, self.n_partitions)
        every = self._cluster.fetch(message.send(self._cluster, keys))
        if sum(tasks.size_of_nodes(nodes) for nodes in every) > _MUCH_AT_ONCE:
            self._joined.add(kind)
        whole = reduce(operator.or_, every)
        (total,) = tasks.join_nodes(whole, self.n_partitions).values()
        return tuple(total)

    def derive(
        self, function: Callable[..., Any], *args: Any, kept: dict[Any, Any] | None = None, stored: bool = False
    ) -> DaskPartitions[Any]:
        with self._cluster.explained():
            homes = self._placement.homes(self._parts)
        message = Message(self._parts, [([i], home) for i, home in enumerate(homes)])
        futures = message.send(self._cluster, message.ask(tasks.map_one, Question(function, args)))
        return DaskPartitions(
            self._cluster.client, futures, self._cluster.timeout, kept=kept, placement=self._placement
        )

    def settle(self, values: PerPartition) -> PerPartition:
        found = self.gather(values)
        message = Message(self._parts, self._groups())
        return message.put(self._cluster, found).shares(self.n_partitions)

    def close(self) -> None:
        """Let go of the partitions."""
        self._parts = []

    def _groups(self) -> list[Group]:
        with self._cluster.explained():
            return self._placement.groups(self._parts)
