"""What is sent to a cluster at once: a question, and all that has to be computed before it can be answered.

A function that is mapped is not sent until a question needs its results, and then with that question. The results stay
with the workers, beside the partition that each is of, and later questions refer to them by name. That is no more than
a memory: a worker that has not got them says so, and is told again how they are computed.
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

# Arguments up to this size are sent with each task, if all tasks together have no more than so many.
_INLINE_BYTES = 2**20
_INLINE_BYTES_IN_ALL = 2**24


class Question:
    """A function of a partition, and its arguments as they are now: what the caller changes later does not count.

    Parameters
    ----------
    function : callable
    args : sequence
        A `PerPartition` is dealt out by partition; its items are values, or `Mapped`, of which each gets its own.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = f"dropmargin-{function.__name__.strip('_')}-{uuid.uuid4().hex}"
        self.own = [arg for arg in args if isinstance(arg, PerPartition)]
        numbers = iter(range(len(self.own)))
        common = [tasks.Own(next(numbers)) if isinstance(arg, PerPartition) else arg for arg in args]
        self.parcel = tasks.Payload(tasks.Request(function, common, dict(np.geterr())))

    @property
    def needs(self) -> list[Mapped]:
        """What is mapped and among the arguments, and what that needs in turn, in an order to compute it in."""
        found: dict[Mapped, None] = {}
        for mapped in {item: None for items in self.own for item in items if isinstance(item, Mapped)}:
            found |= dict.fromkeys([*mapped.question.needs, mapped])
        return list(found)

    def owns(self, numbers: Sequence[int]) -> list[list[Any]]:
        """Return the own arguments of some partitions: values, and names of what is mapped."""
        return [
            [tasks.Ref(item.question.name) if isinstance(item, Mapped) else item for item in items]
            for items in ([values[i] for values in self.own] for i in numbers)
        ]


class Mapped:
    """A question whose answers stay with the workers."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.is_there = False  # whether workers have been told how to compute them, and are trusted to remember
        self._was_forgotten = False

    def note_told(self) -> None:
        """Take note that all workers have the answers now."""
        self.is_there = not self._was_forgotten

    def note_forgotten(self) -> None:
        """Take note that a worker may have lost its answers.

        Then it is told each time: where partitions go to the disk and come back, nothing beside them stays.
        """
        self.is_there, self._was_forgotten = False, True


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
        self._groups = groups
        self._graph: dict[str, Any] = {}
        self._homes: dict[str, str | None] = {}
        self._n_bytes = 0

    def ask(
        self,
        task: Callable[..., Any],
        question: Question,
        *more: Any,
        told: Sequence[Mapped] = (),
        alive: frozenset[str] = frozenset(),
    ) -> list[str]:
        """Add a task for each group, and return their keys.

        Parameters
        ----------
        told : sequence of Mapped
            Those for which it is said how they are computed; the others must be there.
        alive : frozenset of str
            The names of all that may still be asked for.
        """
        parcel = self._deliver(question)
        recipes = [(mapped.question, self._deliver(mapped.question)) for mapped in told]
        keys = [f"{question.name}-{uuid.uuid4().hex}-{k}" for k in range(len(self._groups))]
        for key, (numbers, home, n_threads) in zip(keys, self._groups, strict=True):
            own = [tasks.Recipe(other.name, other.owns(numbers)) for other, _ in recipes]
            plan = tasks.Plan(numbers, question.owns(numbers), own, alive, n_threads)
            parts = [self._parts[i] for i in numbers]
            self._graph[key] = (task, parcel, plan, parts, [other for _, other in recipes], *more)
            self._homes[key] = home
            self._n_bytes += plan.nbytes
        return keys

    def make(self, steps: Sequence[Question]) -> list[str]:
        """Add a task for each partition that makes another of it, and return their keys; each must be a group."""
        name = f"dropmargin-part-{uuid.uuid4().hex}"
        parcels = [self._deliver(question) for question in steps]
        keys = [f"{name}-{k}" for k in range(len(self._groups))]
        for key, ((number,), home, _) in zip(keys, self._groups, strict=True):
            plans = [tasks.Plan([number], question.owns([number])) for question in steps]
            self._graph[key] = (tasks.make_part, self._parts[number], parcels, plans)
            self._homes[key] = home
        return keys

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
        return cluster.start(self._graph, keys, self._homes, self._n_bytes)

    def _deliver(self, question: Question) -> Any:
        """Return a question's parcel, or, if it is large, the key of a task that has it."""
        parcel = question.parcel
        self._n_bytes += parcel.nbytes
        if parcel.nbytes <= min(_INLINE_BYTES, _INLINE_BYTES_IN_ALL / len(self._groups)):
            return parcel
        key = f"{question.name}-args-{uuid.uuid4().hex}"
        self._graph[key] = (tasks.deliver, parcel)
        return key
