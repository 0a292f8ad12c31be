"""What runs on the workers: one function of a group of partitions, and the nodes of a tree of sums.

Everything here is pure and at module level: a task that is lost with its worker is run again elsewhere, and gives the
same bits, or says that it needs to be told more (`CacheMiss`).
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

#: A node of the tree of sums: level and place, see `join_nodes`.
Node = tuple[int, int]
#: Sums over partitions, by their nodes in the tree.
Nodes = dict[Node, Totals]


class Opaque:
    """Something that Dask is to hand on and not to look into: neither for tasks and keys, nor to make a name of it."""

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class Payload(Opaque):
    """A value, pickled once, however many tasks it goes to.

    Parameters
    ----------
    value : object
    """

    def __init__(self, value: Any) -> None:
        # An array of bytes travels without being copied; bytes do not.
        self.content: Array = np.frombuffer(pickle.dumps(value), dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def unpack(self) -> Any:
        """Return the value, a new one each time."""
        return pickle.loads(self.content.data)


@dataclass(frozen=True)
class Own:
    """In the place of an argument: the partition's own, of this number."""

    number: int


@dataclass(frozen=True)
class Ref:
    """In the place of a partition's own argument: what was mapped under this name."""

    name: str


class Recipe(NamedTuple):
    """The name of what is mapped, and the own arguments of each partition of a group."""

    name: str
    owns: list[list[Any]]


class Plan(Opaque):
    """The partitions' own arguments of a group.

    Parameters
    ----------
    numbers : sequence of int
        The partitions.
    owns : sequence of sequences
        For each of them its own arguments: a value, or a `Ref` to it.
    recipes : sequence of Recipe
        What may have to be mapped before.
    alive : frozenset of str
        What was mapped and may still be asked for.
    n_threads : int, default=1
        How many partitions are worked on at once.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        owns: list[list[Any]],
        recipes: Sequence[Recipe] = (),
        alive: frozenset[str] = frozenset(),
        n_threads: int = 1,
    ) -> None:
        self.numbers = numbers
        self.owns = owns
        self.recipes = recipes
        self.alive = alive
        self.n_threads = n_threads

    @property
    def nbytes(self) -> int:
        """The size of the arrays among the own arguments."""
        every = [self.owns, *(recipe.owns for recipe in self.recipes)]
        return sum(item.nbytes for owns in every for own in owns for item in own if isinstance(item, np.ndarray))


class Request(NamedTuple):
    """A function and its arguments, with `Own` in the place of those that differ; NumPy's error state of the caller."""

    function: Callable[..., Any]
    args: list[Any]
    error_state: dict[str, Any]


def deliver(parcel: Payload) -> Payload:
    """Return what is sent: a task that only carries it, so that it can be had again if the worker that has it is lost.

    (What is sent by ``Client.scatter`` cannot.)
    """
    return parcel


class CacheMiss:
    """The answer of a worker that has not got what was mapped, and was not told how it is computed."""


# What was mapped, by partition and name. Nothing depends on it but the time that a question takes: it is not pickled
# with a partition, and gone with it.
_KEPT: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def map_group(parcel: Payload, plan: Plan, parts: Sequence[Any], recipes: Sequence[Payload]) -> list[Any] | CacheMiss:
    """Return ``function(part, *args)`` of each partition of a group, after what has to be mapped before."""
    request: Request = parcel.unpack()
    before: list[Request] = [recipe.unpack() for recipe in recipes]
    jobs = [partial(_map_one, part, k, request, plan, before) for k, part in enumerate(parts)]
    try:
        with one_blas_thread(), kept_memory:
            return in_threads(jobs, plan.n_threads, threading.Event())
    except _NotThereError:
        return CacheMiss()


def _map_one(part: Any, k: int, request: Request, plan: Plan, before: Sequence[Request]) -> Any:
    # What nobody can ask for any more goes first, to make room.
    old = _KEPT.pop(part, {})
    kept = {name: old[name] for name in plan.alive if name in old}
    del old
    if kept or plan.recipes:
        _KEPT[part] = kept
    for other, recipe in zip(before, plan.recipes, strict=True):
        if recipe.name not in kept:
            kept[recipe.name] = _call(part, other, recipe.owns[k], kept)
    return _call(part, request, plan.owns[k], kept)


class _NotThereError(Exception):
    """Something was asked for that has not been mapped here."""


def _call(part: Any, request: Request, own: Sequence[Any], kept: dict[str, Any]) -> Any:
    if any(isinstance(item, Ref) and item.name not in kept for item in own):
        raise _NotThereError
    mine = [kept[item.name] if isinstance(item, Ref) else item for item in own]
    args = [mine[arg.number] if isinstance(arg, Own) else arg for arg in request.args]
    with np.errstate(**request.error_state):
        return request.function(part, *args)


def make_part(part: Any, parcels: Sequence[Payload], plans: Sequence[Plan]) -> Any:
    """Return what some functions, one after the other, make of a partition."""
    with one_blas_thread(), kept_memory:
        for parcel, plan in zip(parcels, plans, strict=True):
            part = _call(part, parcel.unpack(), plan.owns[0], {})
    return part


# Sums ---------------------------------------------------------------------------------------------------------------


def sum_group(
    parcel: Payload, plan: Plan, parts: Sequence[Any], recipes: Sequence[Payload], n_partitions: int
) -> Nodes | CacheMiss:
    """Return the results of a group of partitions; those of neighbours are added."""
    results = map_group(parcel, plan, parts, recipes)
    if isinstance(results, CacheMiss):
        return results
    return join_nodes({(0, number): own for number, own in zip(plan.numbers, results, strict=True)}, n_partitions)


def add_nodes(first: Nodes | CacheMiss, second: Nodes | CacheMiss, n_partitions: int) -> Nodes | CacheMiss:
    """Return all sums of both, joined as far as they go."""
    if isinstance(first, CacheMiss) or isinstance(second, CacheMiss):
        return CacheMiss()
    return join_nodes(first | second, n_partitions)


def join_nodes(sums: Nodes, n_partitions: int) -> Nodes:
    """Return the nodes that are left when all neighbours that are there have been added.

    Node ``(0, i)`` is partition ``i``, and ``(l + 1, i)`` the sum of ``(l, 2 i)`` and ``(l, 2 i + 1)``, or the former
    alone, if it is the last of its level. This is the order of `data.partitions.Summation`.
    """
    left: Nodes = {}
    level, width = 0, n_partitions
    waiting = dict(sums)
    while width > 1:
        here = {place: waiting.pop((level, place)) for _, place in sorted(n for n in waiting if n[0] == level)}
        for place, value in here.items():
            partner = place ^ 1
            if partner >= width:
                waiting[level + 1, place // 2] = value
            elif partner not in here:
                left[level, place] = value
            elif place < partner:
                waiting[level + 1, place // 2] = add_pair(value, here[partner])
        level, width = level + 1, (width + 1) // 2
    return left | waiting


def size_of_nodes(nodes: Nodes) -> int:
    """Return the bytes of all sums."""
    return sum(value.nbytes for totals in nodes.values() for value in totals if isinstance(value, np.ndarray))


# Sizes --------------------------------------------------------------------------------------------------------------


def _size_of_parts(holder: Any) -> int:
    return sum(sizeof(value) for value in vars(holder).values())


# Dask decides by sizes where tasks go and what goes to the disk; of classes that it does not know it sees a shell.
for _kind in (Rows, Block, Payload):
    sizeof.register(_kind, _size_of_parts)
