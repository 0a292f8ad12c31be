"""What is sent to a cluster at once: the tasks of one question, and of all that has to be computed before it.

A function that is mapped is not sent until a question needs its results, and then with that question. So a step of a
solver is a few messages, however many functions it maps on the way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Future

from dropmargin.dask import tasks
from dropmargin.dask.cluster import Cluster
from dropmargin.linalg import PerPartition

#: Some partitions, and the worker where they are.
Group = tuple[list[int], str | None]

# Arguments up to this size are sent with each task, if all tasks together have no more than so many.
_INLINE_BYTES = 2**20
_INLINE_BYTES_IN_ALL = 2**24


class Question:
    """A function of a partition, and its arguments as they are now: what the caller changes later does not count.

    Parameters
    ----------
    function : callable
    args : sequence
        A `PerPartition` is dealt out by partition; its items are values, or `Share`s.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        self.own = [arg for arg in args if isinstance(arg, PerPartition)]
        numbers = iter(range(len(self.own)))
        common = [tasks.Own(next(numbers)) if isinstance(arg, PerPartition) else arg for arg in args]
        self.parcel = tasks.Parcel(tasks.Request(function, common, dict(np.geterr())))


class Mapped:
    """The results of a question, which stay on the cluster as long as this is kept.

    Parameters
    ----------
    question : Question or None
        Not sent yet; ``None``, if the results are to be put there.
    """

    def __init__(self, question: Question | None) -> None:
        self.question = question
        self._places: dict[int, tuple[Future, int]] | None = None

    @property
    def is_sent(self) -> bool:
        return self._places is not None

    def place(self, number: int) -> tuple[Future, int]:
        """Return what a partition's result is an item of."""
        assert self._places is not None
        return self._places[number]

    def put(self, futures: Sequence[Future], groups: Sequence[Group]) -> None:
        """Note that each future has the results of a group."""
        self._places = {
            number: (future, item)
            for future, (numbers, _) in zip(futures, groups, strict=True)
            for item, number in enumerate(numbers)
        }
        self.question = None  # Dask knows how to make them again

    def shares(self, n_partitions: int) -> PerPartition:
        """Return the results by partition."""
        return PerPartition(Share(self, i) for i in range(n_partitions))


@dataclass(frozen=True, eq=False)
class Share:
    """A partition's own item of what was mapped."""

    mapped: Mapped
    number: int


class Message:
    """Tasks that are sent together.

    Parameters
    ----------
    parts : sequence of Future
        The partitions.
    groups : sequence of Group
        Each task works on one of these.
    """

    def __init__(self, parts: Sequence[Future], groups: Sequence[Group]) -> None:
        self._parts = parts
        self.groups = groups
        self._graph: dict[str, Any] = {}
        self._homes: dict[str, str | None] = {}
        self._mapped: dict[Mapped, list[str]] = {}

    def ask(self, task: Callable[..., Any], question: Question, *more: Any) -> list[str]:
        """Add a task for each group, after those that it waits for; return their keys."""
        self.include(question.own)
        parcel: Any = question.parcel
        if parcel.nbytes > min(_INLINE_BYTES, _INLINE_BYTES_IN_ALL / len(self.groups)):
            parcel = f"{question.name}-args"
            self._graph[parcel] = (tasks.deliver, question.parcel)
        keys = [f"{question.name}-{k}" for k in range(len(self.groups))]
        for k, (numbers, home) in enumerate(self.groups):
            plan, values = self._plan(k, question.own)
            own = [self._parts[i] for i in numbers]
            self._graph[keys[k]] = (task, parcel, plan, own, values, *more)
            self._homes[keys[k]] = home
        return keys

    def include(self, own: Sequence[PerPartition]) -> None:
        """Add the tasks of all that is mapped here and not on the cluster yet."""
        for mapped in {value.mapped: None for values in own for value in values if isinstance(value, Share)}:
            if not mapped.is_sent and mapped not in self._mapped:
                assert mapped.question is not None
                self._mapped[mapped] = self.ask(tasks.map_group, mapped.question)

    def join(self, keys: list[str], n_partitions: int) -> list[str]:
        """Add the tasks that join the sums of groups, two by two; return the key of the last."""
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
        """Send all, and return the futures of some keys."""
        if not self._graph:
            return []
        wanted = [*keys, *(key for own in self._mapped.values() for key in own)]
        futures = dict(zip(wanted, cluster.start(self._graph, wanted, self._homes), strict=True))
        for mapped, own in self._mapped.items():
            mapped.put([futures[key] for key in own], self.groups)
        return [futures[key] for key in keys]

    def put(self, cluster: Cluster, values: Sequence[Any]) -> Mapped:
        """Send values by partition: each group's as the result of a task that does nothing else."""
        name = f"dropmargin-put-{uuid.uuid4().hex}"
        keys = [f"{name}-{k}" for k in range(len(self.groups))]
        for key, (numbers, home) in zip(keys, self.groups, strict=True):
            self._graph[key] = (tasks.unpack, tasks.Parcel([values[i] for i in numbers]))
            self._homes[key] = home
        mapped = Mapped(None)
        mapped.put(self.send(cluster, keys), self.groups)
        return mapped

    def _plan(self, group: int, own: Sequence[PerPartition]) -> tuple[tasks.Plan, list[Any]]:
        """Return a group's own arguments, and the futures and keys that they refer to."""
        numbers, _ = self.groups[group]
        found: list[Any] = []
        places: dict[Any, int] = {}

        def find(key: Any, source: Any) -> int:
            if key not in places:
                places[key] = len(found)
                found.append(source)
            return places[key]

        def refer(value: Any, item: int) -> Any:
            if not isinstance(value, Share):
                return value
            if value.mapped.is_sent:
                future, item = value.mapped.place(value.number)
                return tasks.Ref(find(future.key, future), item)
            key = self._mapped[value.mapped][group]
            return tasks.Ref(find(key, key), item)

        owns = [[refer(values[i], item) for values in own] for item, i in enumerate(numbers)]
        return tasks.Plan(numbers, owns), found
