"""What runs on the workers: one function of a group of partitions, and the nodes of a tree of sums.

Everything here is pure and at module level: a task that is lost with its worker is run again elsewhere, and gives the
same bits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import pickle

from dropmargin.classifiers.partitioned import Rows
from dropmargin.classifiers.threads import one_blas_thread
from dropmargin.linalg import Block
from dropmargin.linalg.partitions import Totals, add_pair
from dropmargin.objective import Labelled
from dropmargin.typing import Array

#: A node of the tree of sums: level and place, see `join_nodes`.
Node = tuple[int, int]
#: Sums over partitions, by their nodes in the tree.
Nodes = dict[Node, Totals]


class Opaque:
    """Something that Dask is to hand on and not to look into: neither for tasks and keys, nor to make a name of it."""

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class Parcel(Opaque):
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
    """In the place of a partition's own argument: an item of one of the values that the task depends on."""

    value: int
    item: int


class Plan(Opaque):
    """The partitions' own arguments of a group.

    Parameters
    ----------
    numbers : sequence of int
        The partitions.
    owns : sequence of sequences
        For each of them its own arguments: a value, or a `Ref` to it.
    """

    def __init__(self, numbers: Sequence[int], owns: Sequence[Sequence[Any]]) -> None:
        self.numbers = numbers
        self.owns = owns


class Request(NamedTuple):
    """A function and its arguments, with `Own` in the place of those that differ; NumPy's error state of the caller."""

    function: Callable[..., Any]
    args: list[Any]
    error_state: dict[str, Any]


def deliver(parcel: Parcel) -> Parcel:
    """Return what is sent: a task that only carries it, so that it can be had again if the worker that has it is lost.

    (What is sent by ``Client.scatter`` cannot.)
    """
    return parcel


def unpack(parcel: Parcel) -> Any:
    """Return what is in a parcel."""
    return parcel.unpack()


def map_group(parcel: Parcel, plan: Plan, parts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return ``function(part, *args)`` of each partition of a group."""
    request: Request = parcel.unpack()
    results = []
    with one_blas_thread, np.errstate(**request.error_state):
        for part, own in zip(parts, plan.owns, strict=True):
            mine = [values[item.value][item.item] if isinstance(item, Ref) else item for item in own]
            args = [mine[arg.number] if isinstance(arg, Own) else arg for arg in request.args]
            results.append(request.function(part, *args))
    return results


def map_one(parcel: Parcel, plan: Plan, parts: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return ``function(part, *args)`` of a group of one."""
    return map_group(parcel, plan, parts, values)[0]


# Sums ---------------------------------------------------------------------------------------------------------------


def sum_group(parcel: Parcel, plan: Plan, parts: Sequence[Any], values: Sequence[Any], n_partitions: int) -> Nodes:
    """Return the results of a group of partitions; those of neighbours are added."""
    results = map_group(parcel, plan, parts, values)
    return join_nodes({(0, number): own for number, own in zip(plan.numbers, results, strict=True)}, n_partitions)


def add_nodes(first: Nodes, second: Nodes, n_partitions: int) -> Nodes:
    """Return all sums of both, joined as far as they go."""
    return join_nodes(first | second, n_partitions)


def join_nodes(sums: Nodes, n_partitions: int) -> Nodes:
    """Return the nodes that are left when all neighbours that are there have been added.

    Node ``(0, i)`` is partition ``i``, and ``(l + 1, i)`` the sum of ``(l, 2 i)`` and ``(l, 2 i + 1)``, or the former
    alone, if it is the last of its level. This is the order of `linalg.partitions.Summation`.
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
for _kind in (Rows, Labelled, Block, Parcel):
    sizeof.register(_kind, _size_of_parts)
