"""Partitions of rows on a Dask cluster.

All data on the cluster are futures that Dask can recompute: there are no actors and no scattered data, and tasks are
not restricted to workers. Dask recomputes the data of a lost worker. Partial results are added by a tree over the
indices of the partitions, so the result is the same to the last bit after the loss of a worker. The client has the
whole state of a fit.

Each request is one message to the scheduler, with one task for each worker that has partitions: its share. A mapped
function is not sent until another call needs its results, and then together with that call, as a task of its own. Its
results are futures as well, one for each share, which stay with the workers as long as the caller refers to them; a
function that declares zero products is called anew by each task that needs its results. Transformed partitions are
stored in the same way. If the shares have changed, because workers joined or left, the results of new shares are
computed from the partitions. Arguments are part of the message; large ones are the result of a task on one worker,
from which the others fetch them.
"""

from __future__ import annotations

import copy
import operator
import uuid
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from dask.task_spec import List, Task, TaskRef
from distributed import Client, Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.placement import Placement, Share
from dropmargin.data import Partitions, PerPartition
from dropmargin.data.partitions import Totals

P = TypeVar("P")

# Arguments that are sent with each task of a message have at most this size in all.
_INLINE_BYTES_IN_ALL = 2**24


class _Stored:
    """Results on the workers: a future for each share, by the indices of its partitions."""

    def __init__(self, name: str) -> None:
        self.name = f"dropmargin-{name}-{uuid.uuid4().hex}"
        self.futures: dict[tuple[int, ...], Future] = {}


class Call(_Stored):
    """A function of each partition and its arguments, pickled at once; as an item of `PerPartition`, its results.

    Each partition gets its own item of a `PerPartition` argument: a value, or its result of another call.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        super().__init__(function.__name__.strip("_"))
        self.is_cheap = getattr(function, "n_products", None) == 0
        slots = [slot for slot, arg in enumerate(args) if isinstance(arg, PerPartition)]
        self.own_args: list[PerPartition] = [args[slot] for slot in slots]
        common = [None if slot in slots else arg for slot, arg in enumerate(args)]
        self.payload = tasks.Payload(tasks.Request(function, common, slots, dict(np.geterr())))


class _Parts(_Stored):
    """The partitions of a list of futures, or other partitions after some steps."""

    def __init__(self, source: Any, steps: Sequence[Call] = ()) -> None:
        super().__init__("part")
        self.source, self.steps = source, steps

    def after(self, step: Call) -> _Parts:
        """Return these partitions after one more step; those that no request has needed yet are not stored."""
        if self.steps and not self.futures:
            return _Parts(self.source, [*self.steps, step])
        return _Parts(self, [step])


class DaskPartitions(Partitions[P]):
    """Partitions on a cluster; if Dask cannot recompute the futures in ``parts``, the loss of a worker is an error.

    Arguments larger than ``inline_bytes`` are sent to one worker, from which the others fetch them. Partial sums larger
    than ``client_bytes`` are added on the cluster, by a tree of tasks, and not by the client.
    """

    def __init__(
        self,
        client: Client,
        parts: Sequence[Future],
        timeout: float | None = 600.0,
        *,
        inline_bytes: int = 2**20,
        client_bytes: int = 2**26,
    ) -> None:
        super().__init__(len(parts))
        self._parts = _Parts(list(parts))
        self._cluster = Cluster(client, timeout)
        self._inline_bytes, self._client_bytes = inline_bytes, client_bytes
        self._placement = Placement(client, parts)
        self._large: set[Any] = set()  # calls whose sums are added on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return PerPartition([Call(function, args)] * self.n_partitions)

    def gather(self, values: PerPartition) -> list[Any]:
        call = values[0]
        if not isinstance(call, Call):
            return list(values)
        message = self._message()
        results = self._cluster.fetch(message.send([message.store(call, share) for share in message.shares]))
        indices = np.concatenate([share.indices for share in message.shares])
        found = list(chain.from_iterable(results))
        return [found[k] for k in np.argsort(indices)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        message = self._message()
        nodes = message.add_sums(Call(function, args), joined=kind in self._large)
        sums = self._cluster.fetch(message.send(nodes))
        if sum(tasks.size_of_nodes(nodes) for nodes in sums) > self._client_bytes:
            self._large.add(kind)
        (total,) = tasks.join_nodes(reduce(operator.or_, sums), self.n_partitions).values()
        return tuple(total)

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> DaskPartitions[Any]:
        # The task of a partition must contain all arguments, so that Dask can recompute it at any time.
        args = tuple(PerPartition(self.gather(arg)) if isinstance(arg, PerPartition) else arg for arg in args)
        out: DaskPartitions[Any] = copy.copy(self)
        Partitions.__init__(out, self.n_partitions, shared_cache)
        out._parts = self._parts.after(Call(function, args))
        return out

    def close(self) -> None:
        self._parts, self._placement = _Parts([]), Placement(self._cluster.client, [])

    def release(self) -> None:
        """Close these partitions and all that were made from them, and release all results on the workers."""
        self.close()
        self._cluster.release()

    def _message(self) -> _Message:
        with self._cluster.explained():
            shares = self._placement.shares()
        return _Message(self._cluster, self._parts, shares, self._inline_bytes)


class _Message:
    """Tasks for the shares of the partitions that are sent together; payloads up to ``inline_bytes`` are part of each.

    Several functions may be one task: Dask evaluates a task that is an argument of another one in the same place.
    """

    def __init__(self, cluster: Cluster, parts: _Parts, shares: list[Share], inline_bytes: int) -> None:
        self.shares = shares
        self._cluster, self._parts = cluster, parts
        self._n_partitions = sum(len(share.indices) for share in shares)
        self._inline_bytes = min(inline_bytes, _INLINE_BYTES_IN_ALL / len(shares))
        self._graph: dict[str, Task] = {}
        self._workers: dict[str, str] = {}
        self._stored: dict[tuple[_Stored, tuple[int, ...]], TaskRef] = {}
        self._payloads: dict[Call, Any] = {}
        self._n_bytes = 0

    def send(self, results: Sequence[TaskRef]) -> list[Future]:
        """Send all tasks, and return the futures of some results."""
        futures = {ref.key: ref for ref in results if isinstance(ref, Future)}
        keys = dict.fromkeys(ref.key for ref in (*results, *self._stored.values()) if ref.key not in futures)
        if keys:
            started = self._cluster.start(self._graph, keys, self._workers, self._n_bytes)
            futures |= zip(keys, started, strict=True)
        now = {share.indices for share in self.shares}
        for (owner, indices), ref in self._stored.items():
            owner.futures = {own: future for own, future in owner.futures.items() if own in now}
            owner.futures[indices] = futures[ref.key]
        return [futures[ref.key] for ref in results]

    def add_sums(self, call: Call, joined: bool) -> list[TaskRef]:
        """Add a task for the sums of each share; if ``joined``, also tasks that add two of these each, up to one."""
        sums = [self._add(call.name, share.worker, tasks.sum_group, *self._args(call, share)) for share in self.shares]
        while joined and len(sums) > 1:
            pairs = [sums[k : k + 2] for k in range(0, len(sums), 2)]
            sums = [
                pair[0] if len(pair) == 1 else self._add(call.name, None, tasks.add_nodes, *pair, self._n_partitions)
                for pair in pairs
            ]
        return sums

    def store(self, owner: Call | _Parts, share: Share) -> TaskRef:
        """Return the results for a share; if they are not there yet, add a task for them."""
        if share.indices in owner.futures:
            return owner.futures[share.indices]
        place = owner, share.indices
        if place not in self._stored:
            args = self._args(owner, share) if isinstance(owner, Call) else self._last_step(owner, share)
            self._stored[place] = self._add(owner.name, share.worker, tasks.map_group, *args)
        return self._stored[place]

    def _args(self, call: Call, share: Share, parts: Any = None) -> list[Any]:
        """Return the arguments of `tasks.map_group`."""
        columns = [self._column(own, share) for own in call.own_args]
        group = tasks.Group(share.indices, self._n_partitions, share.n_threads)
        return [group, self._payload(call), self._rows(self._parts, share) if parts is None else parts, *columns]

    def _column(self, own: PerPartition, share: Share) -> Any:
        call = own[0]
        if not isinstance(call, Call):
            return tasks.Column([own[i] for i in share.indices])
        if call.is_cheap and share.indices not in call.futures:
            return Task(None, tasks.map_group, *self._args(call, share))
        return self.store(call, share)

    def _rows(self, parts: _Parts, share: Share) -> Any:
        if parts.steps:
            return self.store(parts, share)
        return List(*(parts.source[i] for i in share.indices))

    def _last_step(self, parts: _Parts, share: Share) -> list[Any]:
        rows = self._rows(parts.source, share)
        for step in parts.steps[:-1]:
            rows = Task(None, tasks.map_group, *self._args(step, share, rows))
        return self._args(parts.steps[-1], share, rows)

    def _payload(self, call: Call) -> Any:
        if call not in self._payloads:
            payload = self._payloads[call] = call.payload
            self._n_bytes += payload.nbytes
            if payload.nbytes > self._inline_bytes:
                self._payloads[call] = self._add(f"{call.name}-args", None, tasks.identity, payload)
        return self._payloads[call]

    def _add(self, name: str, worker: str | None, function: Callable[..., Any], *args: Any) -> TaskRef:
        """Add a task with its preferred worker."""
        key = f"{name}-{uuid.uuid4().hex}"
        self._graph[key] = Task(key, function, *args)
        if worker is not None:
            self._workers[key] = worker
        return TaskRef(key)
