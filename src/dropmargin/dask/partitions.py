"""Partitions of rows on a Dask cluster.

All data on the cluster are futures that Dask can recompute: there are no actors and no scattered data, and tasks are
not restricted to workers. Dask recomputes the data of a lost worker. Partial results are added by a tree over the
indices of the partitions, so the result is the same to the last bit after the loss of a worker. The client has the
whole state of a fit; the caches of the workers only save time.

Each request is one message to the scheduler, with one task for each worker that has partitions. A mapped function is
not sent until another call needs its results, and then together with that call. The workers cache its results next to
the partition, and later calls refer to them by name. A worker without a cached result reports a cache miss, and the
call is sent again. Arguments are part of the message; large ones are the result of a task on one worker, from which the
others fetch them.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
from dask.task_spec import List, Task, TaskRef
from distributed import Client, Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.placement import Placement, Share
from dropmargin.data import Partitions, PerPartition
from dropmargin.data.partitions import Totals, identity

P = TypeVar("P")

# Arguments that are sent with each task of a message have at most this size in all.
_INLINE_BYTES_IN_ALL = 2**24


class RemoteCall:
    """A function of each partition and its arguments, pickled at once; as an item of `PerPartition`, its results.

    Each partition gets its own item of a `PerPartition` argument: a value, or its result of another `RemoteCall`.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        self.is_cached = False  # whether the workers have computed the results and are assumed to have them
        self._was_lost = False
        slots = [slot for slot, arg in enumerate(args) if isinstance(arg, PerPartition)]
        self._own_args: list[PerPartition] = [args[slot] for slot in slots]
        common = [None if slot in slots else arg for slot, arg in enumerate(args)]
        self.payload = tasks.Payload(tasks.Request(function, common, slots, dict(np.geterr())))

    @property
    def requires(self) -> list[RemoteCall]:
        """The calls whose results are arguments, and those that these require, in the order of computation."""
        required: dict[RemoteCall, None] = {}
        for call in {item: None for items in self._own_args for item in items if isinstance(item, RemoteCall)}:
            required |= dict.fromkeys([*call.requires, call])
        return list(required)

    def own_args(self, index: int) -> list[Any]:
        """Return the arguments that differ between partitions, for one partition."""
        own = [items[index] for items in self._own_args]
        return [tasks.CachedRef(item.name) if isinstance(item, RemoteCall) else item for item in own]

    def mark_cached(self) -> None:
        """Record that the workers have computed the results."""
        self.is_cached = not self._was_lost

    def mark_lost(self) -> None:
        """Record that results were lost, as when Dask spills a partition: from then on the call is always sent."""
        self.is_cached, self._was_lost = False, True


class DaskPartitions(Partitions[P]):
    """Partitions on a cluster; if Dask cannot recompute the futures in ``parts``, the loss of a worker is an error.

    Arguments larger than ``inline_bytes`` are sent to one worker, from which the others fetch them. Partial sums larger
    than ``client_bytes`` are added on the cluster, by a tree of tasks, and not by the client. ``steps`` are applied to
    the partitions, one after the other, at the first request.
    """

    def __init__(
        self,
        client: Client,
        parts: Sequence[Future],
        timeout: float | None = 600.0,
        *,
        inline_bytes: int = 2**20,
        client_bytes: int = 2**26,
        steps: Sequence[RemoteCall] = (),
        shared_cache: dict[Any, Any] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(len(parts), shared_cache)
        self._parts, self._steps = list(parts), list(steps)
        self._cluster = Cluster(client, timeout)
        self._inline_bytes, self._client_bytes = inline_bytes, client_bytes
        self._placement = Placement(client, len(parts)) if placement is None else placement
        self._live: WeakSet[RemoteCall] = WeakSet()  # calls whose results are still referenced
        self._large: set[Any] = set()  # calls whose sums are added on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        call = RemoteCall(function, args)
        self._live.add(call)
        return PerPartition([call] * self.n_partitions)

    def gather(self, values: PerPartition) -> list[Any]:
        if not any(isinstance(value, RemoteCall) for value in values):
            return list(values)
        shares, results = self._run(tasks.map_group, RemoteCall(identity, [values]))
        indices = [i for share in shares for i in share.indices]
        found = dict(zip(indices, chain.from_iterable(results), strict=True))
        return [found[i] for i in range(self.n_partitions)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        _, sums = self._run(tasks.sum_group, RemoteCall(function, args), joined=kind in self._large)
        if sum(tasks.size_of_nodes(nodes) for nodes in sums) > self._client_bytes:
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
            self._parts,
            self._cluster.timeout,
            inline_bytes=self._inline_bytes,
            client_bytes=self._client_bytes,
            steps=[*self._steps, RemoteCall(function, args)],
            shared_cache=shared_cache,
            placement=self._placement,
        )

    def close(self) -> None:
        """Release the partitions."""
        self._parts, self._steps = [], []

    def _apply_steps(self) -> None:
        """Have the workers apply the steps to the partitions, at the first request."""
        if not self._steps:
            return
        with self._cluster.explained():
            workers = self._placement.workers(self._parts)
        message = _Message(self._inline_bytes, self.n_partitions)
        payloads = message.add_payloads(self._steps)
        name = f"dropmargin-part-{uuid.uuid4().hex}"
        keys = []
        for i, (part, worker) in enumerate(zip(self._parts, workers, strict=True)):
            own_args = tasks.OwnArgs([step.own_args(i) for step in self._steps])
            keys.append(message.add_task(f"{name}-{i}", worker, tasks.transform, part, payloads, own_args))
        self._parts, self._steps = message.send(self._cluster, keys), []

    def _run(self, task: Callable[..., Any], call: RemoteCall, joined: bool = False) -> tuple[list[Share], list[Any]]:
        """Return shares of the partitions, and the result of a task for each; if ``joined``, one result for all."""
        required = call.requires
        sent = [other for other in required if not other.is_cached]
        live = frozenset(other.name for other in self._live)
        self._apply_steps()
        while True:
            with self._cluster.explained():
                shares = self._placement.shares(self._parts)
            results = self._send([*sent, call], task, shares, live, joined)
            if not any(isinstance(result, tasks.CacheMiss) for result in results):
                for other in sent:
                    other.mark_cached()
                return shares, results
            sent = required  # a worker is new or has lost its cache: send all calls again
            for other in required:
                other.mark_lost()

    def _send(
        self, calls: list[RemoteCall], task: Callable[..., Any], shares: list[Share], live: frozenset[str], joined: bool
    ) -> list[Any]:
        """Return the results of a task for each share, whose last call is the request."""
        message = _Message(self._inline_bytes, len(shares))
        payloads = message.add_payloads(calls)
        name = f"{calls[-1].name}-{uuid.uuid4().hex}"
        keys = []
        for k, (indices, worker, n_threads) in enumerate(shares):
            own_args = [[other.own_args(i) for i in indices] for other in calls]
            names = [other.name for other in calls]
            group = tasks.Group(indices, self.n_partitions, n_threads, names, own_args, live)
            parts = List(*(self._parts[i] for i in indices))
            keys.append(message.add_task(f"{name}-{k}", worker, task, group, payloads, parts))
        if joined:
            keys = message.add_sums(keys, self.n_partitions)
        return self._cluster.fetch(message.send(self._cluster, keys))


class _Message:
    """About ``n_tasks`` tasks that are sent together; payloads up to ``inline_bytes`` are part of each task."""

    def __init__(self, inline_bytes: int, n_tasks: int) -> None:
        self._inline_bytes = min(inline_bytes, _INLINE_BYTES_IN_ALL / n_tasks)
        self._graph: dict[str, Task] = {}
        self._workers: dict[str, str | None] = {}
        self._n_bytes = 0

    def add_task(self, key: str, worker: str | None, function: Callable[..., Any], *args: Any) -> str:
        """Add a task with its preferred worker, and return its key."""
        self._graph[key] = Task(key, function, *args)
        self._workers[key] = worker
        return key

    def add_payloads(self, calls: Sequence[RemoteCall]) -> List:
        """Return the payloads of some calls as an argument of tasks."""
        args: list[Any] = []
        for call in calls:
            self._n_bytes += call.payload.nbytes
            if call.payload.nbytes <= self._inline_bytes:
                args.append(call.payload)
            else:
                key = f"{call.name}-args-{uuid.uuid4().hex}"
                args.append(TaskRef(self.add_task(key, None, tasks.identity, call.payload)))
        return List(*args)

    def add_sums(self, keys: list[str], n_partitions: int) -> list[str]:
        """Add tasks that add the sums of two tasks each, up to one sum, and return its key."""
        while len(keys) > 1:
            pairs = [keys[k : k + 2] for k in range(0, len(keys), 2)]
            keys = [
                self.add_task(f"{pair[0]}+{len(keys)}", None, tasks.add_nodes, *map(TaskRef, pair), n_partitions)
                if len(pair) == 2
                else pair[0]
                for pair in pairs
            ]
        return keys

    def send(self, cluster: Cluster, keys: Sequence[str]) -> list[Future]:
        """Send all tasks, and return the futures of some keys."""
        return cluster.start(self._graph, keys, self._workers, self._n_bytes)
