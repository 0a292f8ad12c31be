"""Functions that run on the workers: a function of each partition of a group, and the nodes of a tree of sums.

They are pure and at module level: Dask can run a task again on another worker, with the same result to the last bit, or
with the result `CacheMiss` if the worker lacks a cached value.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import pickle

from dropmargin.dask.allocator import kept_memory
from dropmargin.data import Block, Rows
from dropmargin.data.partitions import Totals, add_pair
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array

#: A node of the tree of sums: level and position, see `join_nodes`.
Node = tuple[int, int]
#: Sums over partitions, by their nodes in the tree.
Nodes = dict[Node, Totals]


class Opaque:
    """An object that Dask does not traverse, neither in search of tasks and keys nor to compute a token."""

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class Payload(Opaque):
    """A value that is pickled once, for any number of tasks.

    Parameters
    ----------
    value : object
    """

    def __init__(self, value: Any) -> None:
        # Dask sends an array without a copy, but copies bytes.
        self.content: Array = np.frombuffer(pickle.dumps(value), dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def unpack(self) -> Any:
        """Return a new copy of the value."""
        return pickle.loads(self.content.data)


@dataclass(frozen=True)
class ArgSlot:
    """Placeholder of an argument that differs between partitions; ``number`` is its index among these."""

    number: int


@dataclass(frozen=True)
class CachedRef:
    """Placeholder of an argument of a partition: the result of the call of this name, in the cache of the worker."""

    name: str


class PendingCall(NamedTuple):
    """The name of a call whose results are cached, and the arguments of each partition of a group."""

    name: str
    partition_args: list[list[Any]]


class Plan(Opaque):
    """The arguments that differ between the partitions of a group.

    Parameters
    ----------
    indices : sequence of int
        The partitions.
    partition_args : sequence of sequences
        The arguments of each partition: values or `CachedRef`.
    recipes : sequence of PendingCall
        Calls whose results are needed and may not be in the cache.
    live : frozenset of str
        Names of the calls whose results are still referenced.
    n_threads : int, default=1
        The number of partitions that are processed in parallel.
    """

    def __init__(
        self,
        indices: Sequence[int],
        partition_args: list[list[Any]],
        recipes: Sequence[PendingCall] = (),
        live: frozenset[str] = frozenset(),
        n_threads: int = 1,
    ) -> None:
        self.indices = indices
        self.partition_args = partition_args
        self.recipes = recipes
        self.live = live
        self.n_threads = n_threads

    @property
    def nbytes(self) -> int:
        """The size of the arrays among the arguments."""
        lists = [self.partition_args, *(recipe.partition_args for recipe in self.recipes)]
        return sum(arg.nbytes for every in lists for args in every for arg in args if isinstance(arg, np.ndarray))


class Request(NamedTuple):
    """A function, its arguments (`ArgSlot` for those that differ between partitions), and NumPy's error state."""

    function: Callable[..., Any]
    args: list[Any]
    error_state: dict[str, Any]


def deliver(payload: Payload) -> Payload:
    """Return the payload: the result of a task, which Dask can recompute if the worker that has it is lost.

    (Dask cannot recompute the data of ``Client.scatter``.)
    """
    return payload


class CacheMiss:
    """The result of a task if a cached value is missing and its call was not sent."""


# Results of calls, by partition and name. The cache only saves time: it is not pickled with a partition, and is deleted
# with it.
_CACHE: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def map_group(payload: Payload, plan: Plan, parts: Sequence[Any], recipes: Sequence[Payload]) -> list[Any] | CacheMiss:
    """Return ``function(part, *args)`` of each partition of a group, after computing the results that it needs."""
    request: Request = payload.unpack()
    before: list[Request] = [recipe.unpack() for recipe in recipes]
    jobs = [partial(_map_one, part, k, request, plan, before) for k, part in enumerate(parts)]
    try:
        with one_blas_thread(), kept_memory:
            return in_threads(jobs, plan.n_threads, threading.Event())
    except _CacheMissError:
        return CacheMiss()


def _map_one(part: Any, k: int, request: Request, plan: Plan, before: Sequence[Request]) -> Any:
    # Results that are no longer referenced are deleted first, to free memory.
    old = _CACHE.pop(part, {})
    cache = {name: old[name] for name in plan.live if name in old}
    del old
    if cache or plan.recipes:
        _CACHE[part] = cache
    for other, recipe in zip(before, plan.recipes, strict=True):
        if recipe.name not in cache:
            cache[recipe.name] = _call(part, other, recipe.partition_args[k], cache)
    return _call(part, request, plan.partition_args[k], cache)


class _CacheMissError(Exception):
    """A result is not in the cache of this worker."""


def _call(part: Any, request: Request, partition_args: Sequence[Any], cache: dict[str, Any]) -> Any:
    if any(isinstance(arg, CachedRef) and arg.name not in cache for arg in partition_args):
        raise _CacheMissError
    own = [cache[arg.name] if isinstance(arg, CachedRef) else arg for arg in partition_args]
    args = [own[arg.number] if isinstance(arg, ArgSlot) else arg for arg in request.args]
    with np.errstate(**request.error_state):
        return request.function(part, *args)


def make_part(part: Any, payloads: Sequence[Payload], plans: Sequence[Plan]) -> Any:
    """Return the result of applying several functions to a partition, one after the other."""
    with one_blas_thread(), kept_memory:
        for payload, plan in zip(payloads, plans, strict=True):
            part = _call(part, payload.unpack(), plan.partition_args[0], {})
    return part


# Sums ---------------------------------------------------------------------------------------------------------------


def sum_group(
    payload: Payload, plan: Plan, parts: Sequence[Any], recipes: Sequence[Payload], n_partitions: int
) -> Nodes | CacheMiss:
    """Return the results of a group of partitions, with those of neighbours added."""
    results = map_group(payload, plan, parts, recipes)
    if isinstance(results, CacheMiss):
        return results
    return join_nodes({(0, index): own for index, own in zip(plan.indices, results, strict=True)}, n_partitions)


def add_nodes(first: Nodes | CacheMiss, second: Nodes | CacheMiss, n_partitions: int) -> Nodes | CacheMiss:
    """Return the sums of both, with neighbours added."""
    if isinstance(first, CacheMiss) or isinstance(second, CacheMiss):
        return CacheMiss()
    return join_nodes(first | second, n_partitions)


def join_nodes(sums: Nodes, n_partitions: int) -> Nodes:
    """Return the remaining nodes after all pairs of neighbours have been added.

    Node ``(0, i)`` is partition ``i``, and ``(l + 1, i)`` is the sum of ``(l, 2 i)`` and ``(l, 2 i + 1)``, or the first
    of these alone if it is the last of its level. This is the order of `data.partitions.Summation`.
    """
    remaining: Nodes = {}
    level, width = 0, n_partitions
    pending = dict(sums)
    while width > 1:
        current = {place: pending.pop((level, place)) for _, place in sorted(n for n in pending if n[0] == level)}
        for place, value in current.items():
            partner = place ^ 1
            if partner >= width:
                pending[level + 1, place // 2] = value
            elif partner not in current:
                remaining[level, place] = value
            elif place < partner:
                pending[level + 1, place // 2] = add_pair(value, current[partner])
        level, width = level + 1, (width + 1) // 2
    return remaining | pending


def size_of_nodes(nodes: Nodes) -> int:
    """Return the bytes of all sums."""
    return sum(value.nbytes for totals in nodes.values() for value in totals if isinstance(value, np.ndarray))


# Sizes --------------------------------------------------------------------------------------------------------------


def _size_of_parts(holder: Any) -> int:
    return sum(sizeof(value) for value in vars(holder).values())


# Dask schedules tasks and spills data by size; for classes that it does not know, it counts the object alone.
for _kind in (Rows, Block, Payload):
    sizeof.register(_kind, _size_of_parts)
