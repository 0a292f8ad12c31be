"""Partitions of rows on a Dask cluster.

Futures with lineage and nothing else: no actors, no scattered data, nobody is tied to a worker. What a lost worker had
is made again by Dask from where it came from, and as partial results are added in the order of the partitions, the
result is the same to the last bit whatever happens to the cluster. All that a fit remembers is with the client.

Each pass is one message to the scheduler, with one task for each thread that has partitions. Coefficients are in the
message; large ones go to one worker as the result of a task, and from there to the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from distributed import Client, Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.dask.placement import Placement
from dropmargin.linalg import Partitions, PerPartition
from dropmargin.linalg.partitions import Summation, Totals

P = TypeVar("P")

# Arguments up to this size are sent with each task, if all tasks together have no more than so many.
_INLINE_BYTES = 2**20
_INLINE_BYTES_IN_ALL = 2**24


class Share:
    """An item of what a task returned for its group of partitions; it stays on the cluster as long as this is kept."""

    def __init__(self, future: Future, item: int) -> None:
        self.future = future
        self.item = item


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
        self._pairwise: set[Any] = set()  # questions whose answers are added by a tree

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        futures, groups = self._start(tasks.map_group, self._groups(), function, args)
        return self._shares(futures, groups)

    def gather(self, values: PerPartition) -> list[Any]:
        shares = [value for value in values if isinstance(value, Share)]
        found = iter(self._cluster.fetch([share.future for share in shares]))
        return [next(found)[value.item] if isinstance(value, Share) else value for value in values]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        question = function, tuple(getattr(arg, "shape", None) for arg in args)
        futures, _ = self._start(
            tasks.sum_group, self._groups(), function, args, self.n_partitions, joined=question in self._pairwise
        )
        every = self._cluster.fetch(futures)
        sums = {node: total for nodes in every for node, total in nodes.sums.items()}
        if every[0].is_pairwise:
            self._pairwise.add(question)
            (total,) = tasks.join_nodes(sums, self.n_partitions, tasks.add_pair).values()
            return tuple(total)
        summation = Summation(self.n_partitions)
        for i in range(self.n_partitions):
            summation.add(sums[0, i])
        return summation.total()

    def derive(
        self, function: Callable[..., Any], *args: Any, kept: dict[Any, Any] | None = None, stored: bool = False
    ) -> DaskPartitions[Any]:
        with self._cluster.explained():
            homes = self._placement.homes(self._parts)
        groups = [([i], home) for i, home in enumerate(homes)]
        futures, _ = self._start(tasks.map_one, groups, function, args)
        return DaskPartitions(
            self._cluster.client, futures, self._cluster.timeout, kept=kept, placement=self._placement
        )

    def settle(self, values: PerPartition) -> PerPartition:
        found, groups = self.gather(values), self._groups()
        name = f"dropmargin-settled-{uuid.uuid4().hex}"
        keys = [f"{name}-{k}" for k in range(len(groups))]
        graph = {
            key: (tasks.unpack, tasks.Parcel([found[i] for i in numbers]))
            for key, (numbers, _) in zip(keys, groups, strict=True)
        }
        homes = {key: home for key, (_, home) in zip(keys, groups, strict=True)}
        return self._shares(self._cluster.start(graph, keys, homes), groups)

    def close(self) -> None:
        """Let go of the partitions."""
        self._parts = []

    def _groups(self) -> list[tuple[list[int], str | None]]:
        with self._cluster.explained():
            return self._placement.groups(self._parts)

    def _start(
        self,
        task: Callable[..., Any],
        groups: list[tuple[list[int], str | None]],
        function: Callable[..., Any],
        args: Sequence[Any],
        *more: Any,
        joined: bool = False,
    ) -> tuple[list[Future], list[tuple[list[int], str | None]]]:
        """Start a task for each group of partitions, or a tree of them (``joined``), whose root alone is returned."""
        name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        graph: dict[str, Any] = {}
        own, common = _split(args)
        parcel: Any = tasks.Parcel(tasks.Request(function, common, dict(np.geterr())))
        if parcel.nbytes > min(_INLINE_BYTES, _INLINE_BYTES_IN_ALL / len(groups)):
            graph[f"{name}-args"] = (tasks.deliver, parcel)
            parcel = f"{name}-args"
        keys = [f"{name}-{k}" for k in range(len(groups))]
        homes: dict[str, str | None] = {}
        for key, (numbers, home) in zip(keys, groups, strict=True):
            plan, values = _plan(numbers, own)
            graph[key] = (task, parcel, plan, [self._parts[i] for i in numbers], values, *more)
            homes[key] = home
        if joined:
            keys = _add_tree(graph, keys, self.n_partitions)
        return self._cluster.start(graph, keys, homes), groups

    @staticmethod
    def _shares(futures: list[Future], groups: list[tuple[list[int], str | None]]) -> PerPartition:
        shares = {
            number: Share(future, item)
            for future, (numbers, _) in zip(futures, groups, strict=True)
            for item, number in enumerate(numbers)
        }
        return PerPartition(shares[i] for i in range(len(shares)))


def _add_tree(graph: dict[str, Any], keys: list[str], n_partitions: int) -> list[str]:
    """Add the tasks that join the sums of groups, two by two, to a graph; return the key of the last."""
    level = 0
    while len(keys) > 1:
        level += 1
        pairs = [keys[k : k + 2] for k in range(0, len(keys), 2)]
        keys = [pair[0] if len(pair) == 1 else f"{pair[0]}+{level}" for pair in pairs]
        graph |= {
            key: (tasks.add_nodes, *pair, n_partitions) for key, pair in zip(keys, pairs, strict=True) if len(pair) == 2
        }
    return keys


def _split(args: Sequence[Any]) -> tuple[list[PerPartition], list[Any]]:
    """Return the arguments that differ by partition, and all, with `tasks.Own` in the place of these."""
    own: list[PerPartition] = []
    common: list[Any] = []
    for arg in args:
        if isinstance(arg, PerPartition):
            common.append(tasks.Own(len(own)))
            own.append(arg)
        else:
            common.append(arg)
    return own, common


def _plan(numbers: Sequence[int], own: Sequence[PerPartition]) -> tuple[tasks.Plan, list[Future]]:
    """Return a group's own arguments, and the futures that they refer to."""
    futures: dict[Any, Future] = {}
    places: dict[Any, int] = {}

    def refer(value: Any) -> Any:
        if not isinstance(value, Share):
            return value
        key = value.future.key
        futures[key] = value.future
        return tasks.Ref(places.setdefault(key, len(places)), value.item)

    owns = [[refer(values[i]) for values in own] for i in numbers]
    return tasks.Plan(numbers, owns), list(futures.values())
