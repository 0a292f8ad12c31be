"""Partitions of rows on a Dask cluster.

All data on the cluster are futures that Dask can recompute: there are no actors and no scattered data, and tasks are
not restricted to workers. Dask recomputes the data of a lost worker. Partial results are added by a tree over the
indices of the partitions, so the result is the same to the last bit after the loss of a worker. The client has the
whole state of a fit.

Each request is one message to the scheduler, with one task for each worker that has partitions. A mapped function is
not sent until another call needs its results, and then together with that call, as a task of its own. Its results are
futures as well, which stay with the workers as long as the caller refers to them. Arguments are part of the message;
large ones are the result of a task on one worker, from which the others fetch them.
"""

from __future__ import annotations

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


class Call:
    """A function of each partition and its arguments, pickled at once; as an item of `PerPartition`, its results.

    Each partition gets its own item of a `PerPartition` argument: a value, or its result of another call. ``groups``
    are the results after the first request that needs them: futures, each of some partitions.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        slots = [slot for slot, arg in enumerate(args) if isinstance(arg, PerPartition)]
        self.own_args: list[PerPartition] = [args[slot] for slot in slots]
        common = [None if slot in slots else arg for slot, arg in enumerate(args)]
        self.payload = tasks.Payload(tasks.Request(function, common, slots, dict(np.geterr())))
        self.groups: list[tuple[list[int], Future]] = []


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
        steps: Sequence[Call] = (),
        shared_cache: dict[Any, Any] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(len(parts), shared_cache)
        self._parts, self._steps = list(parts), list(steps)
        self._cluster = Cluster(client, timeout)
        self._inline_bytes, self._client_bytes = inline_bytes, client_bytes
        self._placement = Placement(client, len(parts)) if placement is None else placement
        self._large: set[Any] = set()  # calls whose sums are added on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return PerPartition([Call(function, args)] * self.n_partitions)

    def gather(self, values: PerPartition) -> list[Any]:
        call = values[0]
        if not isinstance(call, Call):
            return list(values)
        if not call.groups:
            self._send(tasks.map_group, call)
        results = self._cluster.fetch([future for _, future in call.groups])
        found = reduce(operator.or_, results)
        return [found[i] for i in range(self.n_partitions)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        sums = self._cluster.fetch(self._send(tasks.sum_group, Call(function, args), kind in self._large))
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
            steps=[*self._steps, Call(function, args)],
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
        payloads = List(*(message.add_payload(step) for step in self._steps))
        name = f"dropmargin-part-{uuid.uuid4().hex}"
        keys = []
        for i, (part, worker) in enumerate(zip(self._parts, workers, strict=True)):
            own_args = tasks.OwnArgs([[arg[i] for arg in step.own_args] for step in self._steps])
            keys.append(message.add_task(f"{name}-{i}", worker, tasks.transform, part, payloads, own_args))
        self._parts, self._steps = message.send(self._cluster, keys), []

    def _send(self, task: Callable[..., Any], call: Call, joined: bool = False) -> list[Future]:
        """Return the results of a task for groups of partitions; if ``joined``, one result for all."""
        self._apply_steps()
        with self._cluster.explained():
            shares = self._placement.shares(self._parts)
        message = _Message(self._inline_bytes, len(shares))
        sent: dict[Call, list[str]] = {}
        keys = self._add_call(message, shares, task, call, sent)
        if task is tasks.map_group:
            sent[call] = keys
        if joined:
            keys = message.add_sums(keys, self.n_partitions)
        every = dict.fromkeys([*keys, *chain.from_iterable(sent.values())])
        futures = dict(zip(every, message.send(self._cluster, list(every)), strict=True))
        for other, own in sent.items():
            other.groups = [(share.indices, futures[key]) for share, key in zip(shares, own, strict=True)]
        return [futures[key] for key in keys]

    def _add_call(
        self, message: _Message, shares: list[Share], task: Callable[..., Any], call: Call, sent: dict[Call, list[str]]
    ) -> list[str]:
        """Add a call to a message, after those whose results it needs and that were not ``sent``; return its keys."""
        needed = [arg[0] for arg in call.own_args if isinstance(arg[0], Call)]
        for other in needed:
            if not other.groups and other not in sent:
                sent[other] = self._add_call(message, shares, tasks.map_group, other, sent)
        payload = message.add_payload(call)
        keys = []
        for k, (indices, worker, n_threads) in enumerate(shares):
            own_args = [None if isinstance(arg[0], Call) else [arg[i] for i in indices] for arg in call.own_args]
            results = [
                List(TaskRef(sent[other][k]))
                if other in sent
                else List(*(future for own, future in other.groups if not set(own).isdisjoint(indices)))
                for other in needed
            ]
            group = tasks.Group(indices, self.n_partitions, n_threads, own_args)
            parts = List(*(self._parts[i] for i in indices))
            keys.append(message.add_task(f"{call.name}-{k}", worker, task, group, payload, parts, List(*results)))
        return keys


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

    def add_payload(self, call: Call) -> Any:
        """Return the payload of a call as an argument of tasks."""
        self._n_bytes += call.payload.nbytes
        if call.payload.nbytes <= self._inline_bytes:
            return call.payload
        return TaskRef(self.add_task(f"{call.name}-args-{uuid.uuid4().hex}", None, tasks.identity, call.payload))

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
