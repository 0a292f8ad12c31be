"""Tables of other libraries (pandas, polars, pyarrow, a dict of columns, a matrix) as a `Frame`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dropmargin.data.inputs import column_names, fill_masked
from dropmargin.io.data.cells import as_objects
from dropmargin.io.data.columnar import name_of_number
from dropmargin.io.data.dataset import Frame
from dropmargin.typing import Array

# How pandas spells a missing cell, besides None and NaN.
_MISSING_TYPES = ("NAType", "NaTType")


def as_frame(X: Any, only: Collection[str] | None = None) -> Frame:
    """Return a table as a `Frame`: numbers as float64 with NaN, anything else as strings with None.

    A matrix has columns ``x0``, ``x1`` and so on, as scikit-learn names them. Columns of other names than those of
    ``only`` are not looked at, if it is given; there must be one of them.
    """
    if isinstance(X, Frame) and only is None:
        return X
    names = _names(X)
    if names is not None:
        wanted = names if only is None else [name for name in names if name in only]
        if names and not wanted:
            raise ValueError(f"X has none of the columns {list(only or ())[:20]}, but {names[:20]}.")
        return _from_columns([(name, X[name]) for name in wanted])
    matrix = check_array(fill_masked(X), dtype=None, ensure_all_finite=False)
    return _from_columns([(f"x{j}", matrix[:, j]) for j in range(matrix.shape[1])])


def is_named(X: Any) -> bool:
    """Return whether something is a table with names of its columns, and not a matrix."""
    return _names(X) is not None


def _names(X: Any) -> list[Any] | None:
    if isinstance(X, Frame):
        return list(X.names)
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # one kind of sparse matrix is a dict
        return list(X)
    return column_names(X)


def _from_columns(columns: list[tuple[Any, Any]]) -> Frame:
    for name, _ in columns:
        if not isinstance(name, str):
            raise ValueError(
                f"The names of columns must be strings, got {name!r}; as in X.columns = map(str, X.columns)."
            )
    names = tuple(name for name, _ in columns)
    if len(set(names)) < len(names):
        raise ValueError("The columns of a table need different names.")
    return Frame(names, tuple(as_column(name, values) for name, values in columns))


def as_column(name: str, values: Any) -> Array:
    """Return one column: numbers as float64 with NaN, anything else as strings with None."""
    values = fill_masked(values)
    array = np.asarray(values) if hasattr(values, "__array__") else as_objects(list(values))
    if array.ndim != 1:
        raise ValueError(f"Column {name!r} must have one dimension, got {array.ndim}.")
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if array.dtype.kind not in "OUST":
        raise ValueError(f"Column {name!r} is of type {array.dtype}; turn it into numbers or strings first.")
    cells = [None if _is_missing(cell) else cell for cell in array.tolist()]
    if all(cell is None or isinstance(cell, Real | Decimal | np.number) for cell in cells):
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    return as_objects([None if cell is None else _name(name, cell) for cell in cells])


def names_of_numbers(values: Iterable[float]) -> Array:
    """Return a column of numbers as names, for one that held names before."""
    return as_objects([name_of_number(value) for value in values])


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ in _MISSING_TYPES or (isinstance(cell, float) and cell != cell)


def _name(column: str, cell: Any) -> str:
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, Real) and not isinstance(cell, bool):
        return name_of_number(float(cell)) or ""
    raise ValueError(f"Column {column!r} has {cell!r} of type {type(cell).__name__}; use numbers or strings.")
