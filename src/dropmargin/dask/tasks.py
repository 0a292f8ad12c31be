"""Functions that run on the workers: a function of each partition of a group, and the nodes of a tree of sums.

They are pure and at module level: Dask can run a task again on another worker, with the same result to the last bit.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import pickle

from dropmargin.data import Block, Rows
from dropmargin.data.partitions import Totals, add_pair
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array

#: Sums over partitions, by their nodes in the tree: level and position, see `join_nodes`.
Nodes = dict[tuple[int, int], Totals]


class _Untokenized:
    """An object for which Dask computes no hash of its content."""

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class Request(NamedTuple):
    """A function, its arguments (those at ``slots`` differ between partitions), and NumPy's error state."""

    function: Callable[..., Any]
    args: list[Any]
    slots: list[int]
    error_state: dict[str, Any]


class Payload(_Untokenized):
    """A request that is pickled once, for any number of tasks."""

    def __init__(self, request: Request) -> None:
        # Dask sends an array without a copy, but copies bytes.
        self.content: Array = np.frombuffer(pickle.dumps(request), dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    def unpack(self) -> Request:
        return pickle.loads(self.content.data)


class Column(_Untokenized):
    """A value for each partition of a group."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


@dataclass
class Group(_Untokenized):
    indices: tuple[int, ...]
    n_partitions: int  # of all partitions
    n_threads: int


def map_group(group: Group, payload: Payload, parts: Sequence[Any], *columns: Any) -> list[Any]:
    """Return the results of a function for the partitions of a group, in their order.

    ``columns`` have the arguments that differ between partitions: a `Column`, or the results of another function.
    """
    request = payload.unpack()
    own = zip(*(column.values if isinstance(column, Column) else column for column in columns), strict=True)
    own_args = list(own) if columns else [()] * len(parts)
    jobs = [partial(_call, part, request, args) for part, args in zip(parts, own_args, strict=True)]
    with one_blas_thread():
        return in_threads(jobs, group.n_threads, threading.Event())


def _call(part: Any, request: Request, own_args: Sequence[Any]) -> Any:
    args = list(request.args)
    for slot, arg in zip(request.slots, own_args, strict=True):
        args[slot] = arg
    with np.errstate(**request.error_state):
        return request.function(part, *args)


def identity(payload: Payload) -> Payload:
    """Return the payload as the result of a task, which Dask can recompute, unlike the data of ``Client.scatter``."""
    return payload


# Sums ---------------------------------------------------------------------------------------------------------------


def sum_group(group: Group, *args: Any) -> Nodes:
    """Return the results of `map_group`, with those of neighbours added."""
    results = zip(group.indices, map_group(group, *args), strict=True)
    return join_nodes({(0, i): own for i, own in results}, group.n_partitions)


def add_nodes(first: Nodes, second: Nodes, n_partitions: int) -> Nodes:
    """Return the sums of both, with neighbours added."""
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
    return sum(value.nbytes for totals in nodes.values() for value in totals if isinstance(value, np.ndarray))


def _size_of_attributes(value: Any) -> int:
    return sum(sizeof(own) for own in vars(value).values())


# Dask schedules tasks and spills data by size; for classes that it does not know, it counts the object alone.
for _kind in (Rows, Block, Payload):
    sizeof.register(_kind, _size_of_attributes)
