"""Training data on a cluster: dask arrays, data frames and lists of delayed values as partitions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.utils import is_dataframe_like, is_series_like
from distributed import Future

from dropmargin.data import Rows


class Blocks(NamedTuple):
    """The blocks of rows of a collection: delayed values or futures, and their numbers of rows if these are known."""

    parts: list[Any]
    sizes: tuple[float, ...] | None = None


def is_frame(value: Any) -> bool:
    return is_dask_collection(value) and (is_dataframe_like(value) or is_series_like(value))


def blocks_of(name: str, value: Any) -> Blocks:
    """Return the blocks of a collection; ``name`` is that of the parameter."""
    if isinstance(value, da.Array):
        if value.ndim not in (1, 2) or (name == "X" and value.ndim != 2):
            n_dimensions = "two dimensions" if name == "X" else "one dimension"
            raise ValueError(f"{name} must have {n_dimensions}, got the shape {value.shape}.")
        if value.ndim == 2 and value.numblocks[1] != 1:
            raise ValueError(
                f"{name} has {value.numblocks[1]} blocks along its columns, and must have one: "
                f"{name}.rechunk({{1: -1}})."
            )
        return Blocks(list(value.to_delayed().ravel()), value.chunks[0])
    if is_frame(value):
        # Not optimised: Dask may merge the partitions of a file if few of its columns are used, and not merge those of
        # other columns of the same file. Columns of one data frame are read once, because their tasks are the same.
        return Blocks(list(value.to_delayed(optimize_graph=False)))
    if _is_delayed_list(value):
        return Blocks(list(value))
    raise TypeError(
        f"{name} must be a dask array, a dask data frame or series, or a list of delayed partitions, got "
        f"{type(value).__name__}. For data in memory use the method fit of the estimator, or "
        f"dask.array.from_array({name}, chunks=...)."
    )


def _is_delayed_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(part, Delayed | Future) for part in value)


def feature_names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame, if all are strings."""
    names = tuple(X.columns) if is_frame(X) and is_dataframe_like(X) else ()
    return names if names and all(isinstance(name, str) for name in names) else None


def partition_rows(X: Any, y: Any, sample_weight: Any) -> list[Delayed]:
    """Return the training data as delayed `Rows`, after all checks that need no work on the cluster."""
    if y is None:
        if sample_weight is not None:
            raise ValueError("sample_weight needs y; or pass X as a list of delayed triples (rows, labels, weights).")
        if not _is_delayed_list(X):
            raise ValueError("y is missing. It may be None only if X is a list of delayed pairs (rows, labels).")
        return [_delay(_rows_of_tuple)(number, part) for number, part in enumerate(X)]
    given = {"X": X, "y": y, "sample_weight": sample_weight}
    blocks = {name: blocks_of(name, value) for name, value in given.items() if value is not None}
    for name, other in blocks.items():
        _check_alignment(blocks["X"], name, other)
    parts = zip(*(own.parts for own in blocks.values()), strict=True)
    return [_delay(Rows)(*own, number=number) for number, own in enumerate(parts)]


def _delay(function: Any) -> Any:
    return dask.delayed(function, pure=False, traverse=False)


def _check_alignment(X: Blocks, name: str, other: Blocks) -> None:
    """Refuse blocks that cannot be of the same rows as those of X; unknown sizes are compared in the first pass."""
    remedy = f"they must have the same blocks, as by {name}.rechunk((X.chunks[0],))"
    if X.sizes is None or other.sizes is None:
        remedy = "pass columns of one data frame, and do not convert some of them to arrays"
    if len(X.parts) != len(other.parts):
        raise ValueError(f"X has {len(X.parts)} blocks of rows, but {name} has {len(other.parts)}: {remedy}.")
    for i, (rows, others) in enumerate(zip(X.sizes or (), other.sizes or (), strict=False)):
        if rows != others and not np.isnan(rows) and not np.isnan(others):
            raise ValueError(f"Block {i} of X has {rows} rows, but that of {name} has {others}: {remedy}.")


def _rows_of_tuple(number: int, values: Sequence[Any]) -> Rows:
    if not isinstance(values, list | tuple) or len(values) not in (2, 3):
        raise TypeError(
            f"A partition must be a pair (rows, labels) or a triple with weights, got {type(values).__name__}."
        )
    X, y, sample_weight = (*values, None)[:3]
    return Rows(X, y, sample_weight, number)
