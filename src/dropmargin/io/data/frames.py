"""Columns of pandas, polars and pyarrow tables, of dicts and of matrices as NumPy arrays, for the encoders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dropmargin.data.inputs import column_names, fill_masked
from dropmargin.io.data.cells import number_as_category
from dropmargin.typing import Array

# Types of missing values of pandas, besides None and NaN.
_MISSING_TYPES = ("NAType", "NaTType")


@dataclass(frozen=True, eq=False)
class Categories:
    """A column of categories: ``names[code]`` for each of ``codes``, missing if the code is -1."""

    codes: Array
    names: list[str]

    def present(self) -> list[str]:
        """Return the categories that occur, sorted."""
        used = np.unique(self.codes)
        return sorted({self.names[code] for code in used[used >= 0].tolist()})

    def codes_in(self, names: tuple[str, ...]) -> Array:
        """Return codes in another list of categories: -1 for missing values, -2 for categories that it lacks."""
        positions = {name: i for i, name in enumerate(names)}
        table = np.array([*(positions.get(name, -2) for name in self.names), -1], dtype=np.int64)
        return table[self.codes]

    def to_pandas(self) -> Any:
        """Return a `pandas.Categorical`."""
        import pandas as pd

        return pd.Categorical.from_codes(self.codes, self.names)


def table_columns(X: Any, only: Collection[str] | None = None) -> tuple[dict[str, Array | Categories], int]:
    """Return the columns of a table by name, float64 or datetime64 arrays or `Categories`, and the number of rows.

    The columns of a matrix are ``x0``, ``x1`` and so on, as in scikit-learn. If ``only`` is given, other columns are
    left out; the table must have one of them.
    """
    names = table_names(X)
    if names is None:
        X = check_array(fill_masked(X), dtype=None, ensure_all_finite=False)
        return {f"x{j}": _as_column(f"x{j}", X[:, j]) for j in range(X.shape[1])}, X.shape[0]
    wanted = names if only is None else [name for name in names if name in only]
    if names and not wanted:
        raise ValueError(f"X has none of the columns {list(only or ())[:20]}, but {names[:20]}.")
    for name in wanted:
        if not isinstance(name, str):
            raise ValueError(f"Column names must be strings, got {name!r}; use X.columns = map(str, X.columns).")
    if len(set(wanted)) < len(wanted):
        raise ValueError("The columns of a table must have different names.")
    numbers = _number_columns(X, set(wanted)) if hasattr(X, "iloc") else {}
    columns = {name: numbers[name] if name in numbers else _as_column(name, X[name]) for name in wanted}
    lengths = {len(column.codes if isinstance(column, Categories) else column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError("The columns of a table must have the same length.")
    return columns, lengths.pop() if lengths else 0


def table_names(X: Any) -> list[Any] | None:
    """Return the column names of a table, None if ``X`` is not one."""
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # one format of sparse matrices is a dict
        return list(X)
    return column_names(X)


def as_categories(column: Array | Categories) -> Categories:
    """Return a column of numbers or dates as categories such as ``"1"``; categories unchanged."""
    if isinstance(column, Categories):
        return column
    is_present = ~(np.isnat(column) if column.dtype.kind == "M" else np.isnan(column))
    values, inverse = np.unique(column[is_present], return_inverse=True)
    codes = np.full(len(column), -1, dtype=np.int64)
    codes[is_present] = inverse
    if column.dtype.kind == "M":
        return Categories(codes, [str(value) for value in values])
    return Categories(codes, [number_as_category(value) for value in values.tolist()])


def _number_columns(X: Any, wanted: set[str]) -> dict[str, Array]:
    """Return the NumPy columns of numbers of a pandas frame, converted at once: there may be very many."""
    is_number = [
        name in wanted and isinstance(dtype, np.dtype) and dtype.kind in "fiub"
        for name, dtype in zip(X.columns, X.dtypes, strict=True)
    ]
    matrix = X.loc[:, is_number].to_numpy(dtype=np.float64)
    return dict(zip(X.columns[is_number], matrix.T, strict=True))


def _as_column(name: str, values: Any) -> Array | Categories:
    """Return one column as float64 numbers or datetime64, with NaN or NaT for missing values, or as categories."""
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:  # pandas: the local time
        values = values.dt.tz_localize(None)
    if getattr(getattr(values, "dtype", None), "name", "") == "category":  # pandas
        names = list(values.cat.categories)
        if all(isinstance(category, str) for category in names):
            return Categories(values.cat.codes.to_numpy(), names)
    values = fill_masked(values)
    array = np.asarray(values) if hasattr(values, "__array__") else _as_objects(list(values))
    if array.ndim != 1:
        raise ValueError(f"Column {name!r} must have one dimension, got {array.ndim}.")
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if array.dtype.kind == "M":
        return array.astype("datetime64[s]")
    if array.dtype.kind not in "OUST":
        raise ValueError(f"Column {name!r} is of type {array.dtype}; convert it to numbers or strings.")
    cells = [None if is_missing(cell) else cell for cell in array.tolist()]
    if all(cell is None or isinstance(cell, Real | Decimal | np.number) for cell in cells):
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    if all(cell is None or isinstance(cell, date) for cell in cells):  # also a datetime
        texts = ["NaT" if cell is None else cell.isoformat()[:19] for cell in cells]  # without the time zone
        return np.array(texts, dtype="datetime64[s]")
    known: dict[Any, int] = {}
    codes = [-1 if cell is None else known.setdefault(_category(name, cell), len(known)) for cell in cells]
    return Categories(np.array(codes, dtype=np.int64), list(known))


def _as_objects(values: list[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def is_missing(cell: Any) -> bool:
    """Return whether a single value is missing: None, NaN, or `pandas.NA`."""
    return cell is None or type(cell).__name__ in _MISSING_TYPES or (isinstance(cell, float) and cell != cell)


def _category(column: str, cell: Any) -> str:
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, Real) and not isinstance(cell, bool):
        return number_as_category(float(cell))
    raise ValueError(f"Column {column!r} has {cell!r} of type {type(cell).__name__}; use numbers or strings.")
