"""What a user hands over as partitions of rows: dask arrays, data frames, lists of delayed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.utils import is_dataframe_like, is_series_like
from distributed import Client, Future

from dropmargin.data import Rows

# A task that reads rows may fail for a moment's reason.
_READING_RETRIES = 2


@dataclass(frozen=True)
class Blocks:
    """A collection as a list of its blocks.

    Parameters
    ----------
    name : str
        What the caller calls it.
    parts : list of Delayed or Future
    sizes : tuple of float, or None
        The number of rows of each; NaN or ``None`` if it is not known.
    feature_names : tuple of str, or None
    """

    name: str
    parts: list[Any]
    sizes: tuple[float, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def check_alignment(self, other: Blocks) -> None:
        """Refuse blocks that cannot be of the same rows as these; what is not known is found out in the first pass."""
        if len(self.parts) != len(other.parts):
            raise ValueError(
                f"{self.name} has {len(self.parts)} blocks of rows, but {other.name} has {len(other.parts)}: "
                f"they must be cut alike, as by {other.name}.rechunk({self.name}.chunks[0])."
            )
        for i, (own, others) in enumerate(zip(self.sizes or (), other.sizes or (), strict=False)):
            if own != others and not np.isnan(own) and not np.isnan(others):
                raise ValueError(
                    f"Block {i} of {self.name} has {own} rows, but that of {other.name} has {others}: "
                    f"they must be cut alike, as by {other.name}.rechunk({self.name}.chunks[0])."
                )


def is_distributed(X: Any) -> bool:
    """Return whether ``X`` is on a cluster, or to be made there."""
    return is_dask_collection(X) or (
        isinstance(X, list | tuple) and bool(X) and all(isinstance(part, Delayed | Future) for part in X)
    )


def blocks_of(name: str, value: Any) -> Blocks:
    """Return the blocks of rows of a collection."""
    if isinstance(value, da.Array):
        if value.ndim not in (1, 2) or (name == "X" and value.ndim != 2):
            raise ValueError(f"{name} must have {'two dimensions' if name == 'X' else 'one dimension'}, "
                             f"got the shape {value.shape}.")  # fmt: skip
        if value.ndim == 2 and value.numblocks[1] != 1:
            raise ValueError(
                f"{name} is cut along its columns, into {value.numblocks[1]} blocks, and must be cut along its rows "
                f"only: {name}.rechunk({{1: -1}})."
            )
        return Blocks(name, list(value.to_delayed().ravel()), value.chunks[0])
    if is_dask_collection(value) and (is_dataframe_like(value) or is_series_like(value)):
        names = tuple(value.columns) if is_dataframe_like(value) else ()
        is_named = bool(names) and all(isinstance(column, str) for column in names)
        return Blocks(name, list(value.to_delayed()), None, names if is_named else None)
    if is_distributed(value) and isinstance(value, list | tuple):
        return Blocks(name, list(value))
    raise TypeError(
        f"{name} must be a dask array, a dask data frame or series, or a list of delayed partitions, got "
        f"{type(value).__name__}. For data in memory use the same class of dropmargin itself, or "
        f"dask.array.from_array({name}, chunks=...)."
    )


@dataclass(frozen=True)
class Partitioned:
    """Training data as futures of `Rows`, not started yet."""

    rows: list[Delayed]
    feature_names: tuple[str, ...] | None

    def start(self, client: Client) -> list[Future]:
        """Have the cluster make them; the futures know how they are made, so that it can be done again."""
        return client.compute(self.rows, sync=False, retries=_READING_RETRIES, optimize_graph=True)


def partition(X: Any, y: Any, sample_weight: Any = None) -> Partitioned:
    """Return the partitions of training data, after all checks that need no work on the cluster.

    Parameters
    ----------
    X : dask array or data frame, list of delayed partitions, or list of pairs (or triples) if ``y`` is None
    y, sample_weight : dask array or series, or list of delayed parts; or None
    """
    if y is None:
        if sample_weight is not None:
            raise ValueError("sample_weight needs y; or make X a list of triples (rows, labels, weights).")
        return _partition_pairs(X)
    blocks = [blocks_of("X", X), blocks_of("y", y)]
    if sample_weight is not None:
        blocks.append(blocks_of("sample_weight", sample_weight))
    for other in blocks[1:]:
        blocks[0].check_alignment(other)
    make = dask.delayed(Rows, pure=False, traverse=False)
    rows = [make(*parts) for parts in zip(*(own.parts for own in blocks), strict=True)]
    return Partitioned(rows, blocks[0].feature_names)


def _partition_pairs(pairs: Any) -> Partitioned:
    if not isinstance(pairs, list | tuple) or not pairs:
        raise ValueError("y is needed, unless X is a list of pairs (rows, labels).")
    if is_distributed(pairs):
        make = dask.delayed(_rows_of, pure=False, traverse=False)
        return Partitioned([make(pair) for pair in pairs], None)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Sequence) or len(pair) not in (2, 3) or not is_distributed(list(pair)):
            raise TypeError(
                "X without y must be a list of delayed pairs (rows, labels) or triples (rows, labels, weights); "
                f"item {i} is {pair!r:.80}."
            )
    make = dask.delayed(Rows, pure=False, traverse=False)
    return Partitioned([make(*pair) for pair in pairs], None)


def _rows_of(pair: Sequence[Any]) -> Rows:
    if not isinstance(pair, list | tuple) or len(pair) not in (2, 3):
        raise TypeError(
            f"A partition must be a pair (rows, labels) or a triple with weights, got {type(pair).__name__}."
        )
    return Rows(*pair)
