"""Partitions of rows on a Dask cluster.

All data on the cluster are futures that Dask can recompute: there are no actors and no scattered data, and tasks are
not restricted to workers. Dask recomputes the data of a lost worker. Partial results are added by a tree over the
indices of the partitions, so the result is the same to the last bit after the loss of a worker. The client has the
whole state of a fit; the caches of the workers only save time.

Each call is one message to the scheduler, with one task for each worker that has partitions (`messages`). Arguments are
part of the message; large ones are the result of a task on one worker, from which the others fetch them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar
from weakref import WeakSet

from distributed import Client, Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.messages import CachedResult, Message, RemoteCall
from dropmargin.dask.placement import Group, Placement
from dropmargin.data import Partitions, PerPartition
from dropmargin.data.partitions import Totals, identity

P = TypeVar("P")


# Larger partial sums are added on the cluster, by a tree of tasks, and not by the client.
_MAX_CLIENT_BYTES = 2**26


class DaskPartitions(Partitions[P]):
    """Partitions on a cluster.

    Parameters
    ----------
    client : Client
        A synchronous client.
    parts : sequence of Future
        The partitions. If Dask cannot recompute them, the loss of a worker is an error.
    timeout : float or None, default=600
        The longest time in seconds without a finished task; after that a `ClusterError` is raised.
    steps : sequence of RemoteCall
        Functions to apply to the partitions, one after the other, at the first call.
    """

    def __init__(
        self,
        client: Client,
        parts: Sequence[Future],
        timeout: float | None = 600.0,
        *,
        steps: Sequence[RemoteCall] = (),
        shared_cache: dict[Any, Any] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(len(parts), shared_cache)
        self._origin, self._steps = list(parts), list(steps)
        self._cluster = Cluster(client, timeout)
        self._placement = Placement(client, len(parts)) if placement is None else placement
        self._live: WeakSet[CachedResult] = WeakSet()  # results that are still referenced
        self._large: set[Any] = set()  # calls whose sums are added on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return self._mapped(RemoteCall(function, args))

    def gather(self, values: PerPartition) -> list[Any]:
        if not any(isinstance(value, CachedResult) for value in values):
            return list(values)
        groups, results = self._run(tasks.map_group, RemoteCall(identity, [values]))
        by_partition = {
            i: value
            for (indices, _, _), own in zip(groups, results, strict=True)
            for i, value in zip(indices, own, strict=True)
        }
        return [by_partition[i] for i in range(self.n_partitions)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        _, sums = self._run(tasks.sum_group, RemoteCall(function, args), self.n_partitions, joined=kind in self._large)
        if sum(tasks.size_of_nodes(nodes) for nodes in sums) > _MAX_CLIENT_BYTES:
            self._large.add(kind)
        (total,) = tasks.join_nodes(reduce(operator.or_, sums), self.n_partitions).values()
        return tuple(total)

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> DaskPartitions[Any]:
        # The task of a partition must contain all arguments, so that Dask can recompute it at any time.
        args = tuple(PerPartition(self.gather(arg)) if isinstance(arg, PerPartition) else arg for arg in args)
        return DaskPartitions(
            self._cluster.client,
            self._origin,
            self._cluster.timeout,
            steps=[*self._steps, RemoteCall(function, args)],
            shared_cache=shared_cache,
            placement=self._placement,
        )

    def close(self) -> None:
        """Release the partitions."""
        self._origin, self._steps = [], []

    def _parts(self) -> list[Future]:
        """Return the partitions, after applying the steps at the first call."""
        if self._steps:
            with self._cluster.explained():
                workers = self._placement.workers(self._origin)
            message = Message(self._origin, [Group([i], worker, 1) for i, worker in enumerate(workers)])
            self._origin, self._steps = message.send(self._cluster, message.add_partitions(self._steps)), []
        return self._origin

    def _mapped(self, call: RemoteCall) -> PerPartition:
        mapped = CachedResult(call)
        self._live.add(mapped)
        return PerPartition([mapped] * self.n_partitions)

    def _run(
        self, task: Callable[..., Any], call: RemoteCall, *more: Any, joined: bool = False
    ) -> tuple[list[Group], list[Any]]:
        """Return groups of partitions, and the result of a task for each group; if ``joined``, one result for all."""
        required = call.requires
        sent = [mapped for mapped in required if not mapped.is_cached]
        live = frozenset(mapped.call.name for mapped in self._live)
        parts = self._parts()
        while True:
            with self._cluster.explained():
                groups = self._placement.groups(parts)
            message = Message(parts, groups)
            keys = message.add_call(task, call, *more, sent=sent, live=live)
            if joined:
                keys = message.add_sums(keys, self.n_partitions)
            results = self._cluster.fetch(message.send(self._cluster, keys))
            if not any(isinstance(result, tasks.CacheMiss) for result in results):
                for mapped in sent:
                    mapped.mark_cached()
                return groups, results
            sent = required  # a worker is new or has lost its cache: send all calls again
            for mapped in required:
                mapped.mark_lost()
