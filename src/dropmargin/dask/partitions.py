"""Partitions of rows on a Dask cluster.

Futures with lineage and nothing else: no actors, no scattered data, nobody is tied to a worker. What a lost worker had
is made again by Dask from where it came from, and as partial results are added by a tree over the numbers of the
partitions, the result is the same to the last bit whatever happens to the cluster. All that a fit must remember is with
the client; what workers keep of it saves time only.

Each question is one message to the scheduler, with one task for each worker that has partitions (`messages`).
Coefficients are in the message; large ones go to one worker as the result of a task, and from there to the others.
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
from dropmargin.dask.messages import Mapped, Message, Question
from dropmargin.dask.placement import Group, Placement
from dropmargin.data import Partitions, PerPartition
from dropmargin.data.partitions import Totals, identity

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
    steps : sequence of Question
        What is to be made of the partitions before they are of use, at the first question.
    """

    def __init__(
        self,
        client: Client,
        parts: Sequence[Future],
        timeout: float | None = 600.0,
        *,
        steps: Sequence[Question] = (),
        shared_cache: dict[Any, Any] | None = None,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(len(parts), shared_cache)
        self._origin, self._steps = list(parts), list(steps)
        self._cluster = Cluster(client, timeout)
        self._placement = Placement(client, len(parts)) if placement is None else placement
        self._alive: WeakSet[Mapped] = WeakSet()  # what may still be asked for
        self._joined: set[Any] = set()  # kinds of questions whose answers are joined on the cluster

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return self._mapped(Question(function, args))

    def gather(self, values: PerPartition) -> list[Any]:
        if not any(isinstance(value, Mapped) for value in values):
            return list(values)
        groups, answers = self._ask(tasks.map_group, Question(identity, [values]))
        found = {
            i: value
            for (numbers, _, _), own in zip(groups, answers, strict=True)
            for i, value in zip(numbers, own, strict=True)
        }
        return [found[i] for i in range(self.n_partitions)]

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        kind = function, tuple(getattr(arg, "shape", None) for arg in args)
        _, every = self._ask(tasks.sum_group, Question(function, args), self.n_partitions, joined=kind in self._joined)
        if sum(tasks.size_of_nodes(nodes) for nodes in every) > _MUCH_AT_ONCE:
            self._joined.add(kind)
        (total,) = tasks.join_nodes(reduce(operator.or_, every), self.n_partitions).values()
        return tuple(total)

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> DaskPartitions[Any]:
        # What a partition is made of must be in its task: it may have to be made again at any time.
        args = tuple(PerPartition(self.gather(arg)) if isinstance(arg, PerPartition) else arg for arg in args)
        return DaskPartitions(
            self._cluster.client,
            self._origin,
            self._cluster.timeout,
            steps=[*self._steps, Question(function, args)],
            shared_cache=shared_cache,
            placement=self._placement,
        )

    def close(self) -> None:
        """Let go of the partitions."""
        self._origin, self._steps = [], []

    def _parts(self) -> list[Future]:
        """Return the partitions; they are made, if that has not been asked for yet."""
        if self._steps:
            with self._cluster.explained():
                homes = self._placement.homes(self._origin)
            message = Message(self._origin, [Group([i], home, 1) for i, home in enumerate(homes)])
            self._origin, self._steps = message.send(self._cluster, message.make(self._steps)), []
        return self._origin

    def _mapped(self, question: Question) -> PerPartition:
        mapped = Mapped(question)
        self._alive.add(mapped)
        return PerPartition([mapped] * self.n_partitions)

    def _ask(
        self, task: Callable[..., Any], question: Question, *more: Any, joined: bool = False
    ) -> tuple[list[Group], list[Any]]:
        """Return groups of partitions, and a task's answer for each; for all at once, if they are to be ``joined``."""
        needs = question.needs
        told = [mapped for mapped in needs if not mapped.is_there]
        alive = frozenset(mapped.question.name for mapped in self._alive)
        parts = self._parts()
        while True:
            with self._cluster.explained():
                groups = self._placement.groups(parts)
            message = Message(parts, groups)
            keys = message.ask(task, question, *more, told=told, alive=alive)
            if joined:
                keys = message.join(keys, self.n_partitions)
            answers = self._cluster.fetch(message.send(self._cluster, keys))
            if not any(isinstance(answer, tasks.CacheMiss) for answer in answers):
                for mapped in told:
                    mapped.note_told()
                return groups, answers
            told = needs  # some worker is new, or has lost what it had: say all there is to know
            for mapped in needs:
                mapped.note_forgotten()
