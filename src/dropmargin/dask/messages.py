"""Messages to a cluster: a call, together with the calls whose results it needs.

A mapped function is not sent until another call needs its results, and then together with that call. The workers cache
the results of a partition next to the partition, and later calls refer to them by name. A worker without a cached
result reports a cache miss, and the call is sent again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from distributed import Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.placement import Group
from dropmargin.data import PerPartition

# Arguments up to this size are sent with each task, if those of all tasks together have at most the second size.
_INLINE_BYTES = 2**20
_INLINE_BYTES_IN_ALL = 2**24


class RemoteCall:
    """A function of a partition and its arguments, which are pickled at once: later changes have no effect.

    Parameters
    ----------
    function : callable
    args : sequence
        Each partition gets its own item of a `PerPartition`: a value, or its part of a `CachedResult`.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        self._per_partition = [arg for arg in args if isinstance(arg, PerPartition)]
        numbers = iter(range(len(self._per_partition)))
        common = [tasks.ArgSlot(next(numbers)) if isinstance(arg, PerPartition) else arg for arg in args]
        self.payload = tasks.Payload(tasks.Request(function, common, dict(np.geterr())))

    @property
    def requires(self) -> list[CachedResult]:
        """The cached results among the arguments, and those that these require, in the order of computation."""
        required: dict[CachedResult, None] = {}
        for mapped in {item: None for items in self._per_partition for item in items if isinstance(item, CachedResult)}:
            required |= dict.fromkeys([*mapped.call.requires, mapped])
        return list(required)

    def partition_args(self, indices: Sequence[int]) -> list[list[Any]]:
        """Return the arguments that differ, for some partitions: values and references to cached results."""
        return [
            [tasks.CachedRef(item.call.name) if isinstance(item, CachedResult) else item for item in items]
            for items in ([values[i] for values in self._per_partition] for i in indices)
        ]


class CachedResult:
    """The results of a call, in the caches of the workers."""

    def __init__(self, call: RemoteCall) -> None:
        self.call = call
        self.is_cached = False  # whether the workers have computed the results and are assumed to have them
        self._was_lost = False

    def mark_cached(self) -> None:
        """Record that the workers have computed the results."""
        self.is_cached = not self._was_lost

    def mark_lost(self) -> None:
        """Record that a worker may have lost its results.

        From then on the call is always sent: the cache is lost whenever Dask spills a partition to the disk.
        """
        self.is_cached, self._was_lost = False, True


class Message:
    """Tasks that are sent together.

    Parameters
    ----------
    parts : sequence of Future
        The partitions.
    groups : sequence of Group
        The partitions of each task.
    """

    def __init__(self, parts: Sequence[Future], groups: Sequence[Group]) -> None:
        self._parts = parts
        self._groups = groups
        self._graph: dict[str, Any] = {}
        self._workers: dict[str, str | None] = {}
        self._n_bytes = 0

    def add_call(
        self,
        task: Callable[..., Any],
        call: RemoteCall,
        *more: Any,
        sent: Sequence[CachedResult] = (),
        live: frozenset[str] = frozenset(),
    ) -> list[str]:
        """Add a task for each group, and return their keys.

        Parameters
        ----------
        sent : sequence of CachedResult
            Required results whose calls are part of the message; the others must be in the caches.
        live : frozenset of str
            The names of all calls whose results are still referenced.
        """
        payload = self._deliver(call)
        recipes = [(mapped.call, self._deliver(mapped.call)) for mapped in sent]
        keys = [f"{call.name}-{uuid.uuid4().hex}-{k}" for k in range(len(self._groups))]
        for key, (indices, worker, n_threads) in zip(keys, self._groups, strict=True):
            pending = [tasks.PendingCall(other.name, other.partition_args(indices)) for other, _ in recipes]
            plan = tasks.Plan(indices, call.partition_args(indices), pending, live, n_threads)
            parts = [self._parts[i] for i in indices]
            self._graph[key] = (task, payload, plan, parts, [other for _, other in recipes], *more)
            self._workers[key] = worker
            self._n_bytes += plan.nbytes
        return keys

    def add_partitions(self, steps: Sequence[RemoteCall]) -> list[str]:
        """Add a task for each partition that applies the steps to it, and return their keys; groups have one member."""
        name = f"dropmargin-part-{uuid.uuid4().hex}"
        payloads = [self._deliver(call) for call in steps]
        keys = [f"{name}-{k}" for k in range(len(self._groups))]
        for key, ((index,), worker, _) in zip(keys, self._groups, strict=True):
            plans = [tasks.Plan([index], call.partition_args([index])) for call in steps]
            self._graph[key] = (tasks.make_part, self._parts[index], payloads, plans)
            self._workers[key] = worker
        return keys

    def add_sums(self, keys: list[str], n_partitions: int) -> list[str]:
        """Add tasks that add the sums of two groups each, up to one sum, and return its key."""
        level = 0
        while len(keys) > 1:
            level += 1
            pairs = [keys[k : k + 2] for k in range(0, len(keys), 2)]
            keys = [pair[0] if len(pair) == 1 else f"{pair[0]}+{level}" for pair in pairs]
            self._graph |= {
                key: (tasks.add_nodes, *pair, n_partitions)
                for key, pair in zip(keys, pairs, strict=True)
                if len(pair) == 2
            }
        return keys

    def send(self, cluster: Cluster, keys: Sequence[str]) -> list[Future]:
        """Send all tasks, and return the futures of some keys."""
        return cluster.start(self._graph, keys, self._workers, self._n_bytes)

    def _deliver(self, call: RemoteCall) -> Any:
        """Return the payload of a call, or, if it is large, the key of a task that returns it."""
        payload = call.payload
        self._n_bytes += payload.nbytes
        if payload.nbytes <= min(_INLINE_BYTES, _INLINE_BYTES_IN_ALL / len(self._groups)):
            return payload
        key = f"{call.name}-args-{uuid.uuid4().hex}"
        self._graph[key] = (tasks.deliver, payload)
        return key
