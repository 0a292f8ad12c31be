"""Columns of tables for the encoders: as NumPy arrays, what training data tell about them, and their features.

Tables are those of pandas, polars and pyarrow, dicts and matrices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dropmargin.data.inputs import column_names, fill_masked
from dropmargin.errors import ParameterError
from dropmargin.io.data.cells import (
    PARTS,
    PER_CENT,
    common_unit,
    date_parts,
    find_order,
    has_decimal_comma,
    is_in_unit,
    is_plain_number,
    number_as_category,
    parse_date,
    parse_quantity,
    two_units,
)
from dropmargin.io.data.dataset import MISSING_VALUES, ColumnKind
from dropmargin.io.data.errors import quoted
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
    array = np.asarray(values) if hasattr(values, "__array__") else np.fromiter(values, dtype=object)
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


def is_missing(cell: Any) -> bool:
    """Return whether a single value is missing: None, NaN, or `pandas.NA`."""
    return cell is None or type(cell).__name__ in _MISSING_TYPES or (isinstance(cell, float) and cell != cell)


def _category(column: str, cell: Any) -> str:
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, Real) and not isinstance(cell, bool):
        return number_as_category(float(cell))
    raise ValueError(f"Column {column!r} has {cell!r} of type {type(cell).__name__}; use numbers or strings.")


# What training data tell about a column -----------------------------------------------------------------------------

# With fewer rows, different values do not show that a column identifies rows.
_MIN_ROWS = 20
# The name of a column of integers that identify rows, whatever their order: id, user_id, PassengerId.
_ID_NAME = re.compile(r"(?:.*[^A-Za-z])?(?:id|ID|Id|index|Index)|.*[a-z](?:Id|ID)")


@dataclass(frozen=True)
class TableColumn:
    """A column that is encoded.

    ``parts`` are the sorted categories, or the parts of a date (`cells.PARTS`); a number has none. ``form`` is how text
    is read: the order of day and month (`cells.ORDERS`), or the unit of numbers (`cells.UNITS`).
    """

    name: str
    kind: ColumnKind
    parts: tuple[str, ...] = ()
    form: str = ""

    @property
    def width(self) -> int:
        return 1 if self.kind == "number" else len(self.parts)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: ``age``, ``colour=red``, ``born:year``."""
        mark = ":" if self.kind == "date" else "="
        return [self.name] if self.kind == "number" else [f"{self.name}{mark}{part}" for part in self.parts]

    def numbers(self, values: Array | Categories) -> Array:
        """Return the features of a number or a date, a column each, not scaled; missing values are NaN."""
        if isinstance(values, Categories):
            values = _parsed(self.name, values, self.kind, self.form)
        elif self.kind == "date" and values.dtype.kind != "M" and np.isnan(values).all():
            values = np.full(len(values), "NaT", "M8[s]")
        elif (values.dtype.kind == "M") != (self.kind == "date"):
            found, held = ("numbers", "dates") if self.kind == "date" else ("dates", "numbers")
            raise ValueError(f"Column {self.name!r} has {found}, but the column held {held} in the training data.")
        elif self.form == PER_CENT and not np.isnan(values).all():
            raise ValueError(f"Column {self.name!r} has plain numbers, but held numbers in % in the training data.")
        return date_parts(values, self.parts) if self.kind == "date" else values[:, None]

    def codes(self, values: Array | Categories) -> Array:
        """Return the position of each category: -1 for missing values, -2 for categories that are not known."""
        return as_categories(values).codes_in(self.parts)


def learn_column(
    name: str, values: Array | Categories, *, categorical: bool, keep: bool, max_categories: int
) -> TableColumn | str:
    """Return what the training data tell about a column, or the reason why it is left out."""
    if categorical:
        column = TableColumn(name, "category", tuple(as_categories(values).present()))
    elif isinstance(values, Categories):
        present = values.present()
        kind, form = _kind_of_text(name, present)
        if kind != "category":
            values = _parsed(name, values, kind, form)
        column = TableColumn(name, kind, tuple(present) if kind == "category" else (), form)
    else:
        column = TableColumn(name, "date" if values.dtype.kind == "M" else "number")
        if column.kind == "number" and np.isinf(values).any():
            raise ValueError(f"Column {name!r} has infinite numbers: replace them, for example by missing values.")
    if not keep and not categorical and (reason := _reason_to_leave_out(column, values, max_categories)):
        return reason
    if column.kind == "date":
        column = TableColumn(name, "date", _varying_parts(values), column.form)
    return column


def _kind_of_text(name: str, present: list[str]) -> tuple[ColumnKind, str]:
    """Return the kind of a column of text, and its form: the unit of numbers, the order of day and month of dates."""
    quantities = [quantity for quantity in map(parse_quantity, present) if quantity is not None]
    # Text of plain numbers is a category here: the readers convert the numbers of files without types.
    if present and len(quantities) == len(present):
        if not all(map(is_plain_number, present)):
            unit = common_unit(quantity.unit for quantity in quantities)
            if unit is None:
                raise _refused(name, f"has numbers in several units, such as {two_units(present)}")
            return "number", unit
    elif 2 * sum(map(has_decimal_comma, present)) > len(present):
        raise _refused(name, f"has numbers with a decimal comma, such as {quoted(present[-1])}", "use --decimal , or ")
    try:
        order = find_order(present)
    except ValueError as problem:
        raise _refused(name, str(problem)) from None
    return ("category", "") if order is None else ("date", order)


def _refused(name: str, problem: str, hint: str = "") -> ParameterError:
    return ParameterError(
        f"Column {name!r} {problem}: convert it, leave it out, or name it in categorical.",
        None,
        f"column {quoted(name)} {problem} ({hint}correct it, leave it out by --ignore {name}, or treat it as "
        f"categories by --categorical {name})",
    )


def _reason_to_leave_out(column: TableColumn, values: Array | Categories, max_categories: int) -> str | None:
    """Return why a column cannot help: it has one value, identifies rows or has too many categories."""
    if column.kind == "category":
        assert isinstance(values, Categories)
        n_present, n_different = int((values.codes >= 0).sum()), len(column.parts)
        is_id = 2 * n_different > n_present
    else:
        assert not isinstance(values, Categories)
        present = values[values == values]  # without NaN and NaT
        n_present = len(present)
        n_different = 0 if not n_present else 1 if (present == present[0]).all() else 2
        is_id = column.kind == "number" and n_present >= _MIN_ROWS and _are_ids(column.name, present)
    if n_different < 2:
        return "it has no values" if not n_present else "it is constant"
    if is_id and n_present >= _MIN_ROWS:
        if column.kind == "number":
            return "it identifies rows: its integers are all different"
        return f"it identifies rows: {n_different} different values in {n_present} rows"
    if column.kind == "category" and n_different > max_categories:
        return f"it has {n_different} categories, more than {max_categories}"
    return None


def _are_ids(name: str, present: Array) -> bool:
    """Return whether numbers identify rows: different integers that ascend or descend, or have the name of an id."""
    if (present != np.floor(present)).any():
        return False
    steps = np.diff(present)
    if (steps > 0).all() or (steps < 0).all():
        return True
    return _ID_NAME.fullmatch(name) is not None and len(np.unique(present)) == len(present)


def _varying_parts(when: Array | Categories) -> tuple[str, ...]:
    """Return the parts of dates that are not constant, at least the year; within a year it tells the month, too."""
    assert not isinstance(when, Categories)
    matrix = date_parts(when[~np.isnat(when)], PARTS)
    varying = {part: len(np.unique(values)) > 1 for part, values in zip(PARTS, matrix.T, strict=True)}
    varying |= {"year": True, "month": varying["month"] and len(np.unique(np.floor(matrix[:, 0]))) > 1}
    return tuple(part for part in PARTS if varying[part])


def _parsed(name: str, column: Categories, kind: str, form: str) -> Array:
    """Return the numbers or dates in a column of text; each different text is parsed once."""
    parse: Callable[[str], float | None] = partial(_number_in, unit=form)
    missing: Any = np.nan
    what = f"a finite number in {form}" if form else "a finite number"
    if kind == "date":
        parse, missing = partial(parse_date, order=form), np.datetime64("NaT", "s")
        what = f"a date with the {form} first" if form else "a date"
    values = np.array([missing] * (len(column.names) + 1))
    for code in np.unique(column.codes[column.codes >= 0]).tolist():
        text = column.names[code].strip()
        if text in MISSING_VALUES:
            continue
        value = parse(text)
        if value is None:
            row = int(np.argmax(column.codes == code)) + 1
            raise ValueError(
                f"Row {row}: {quoted(text)} in column {quoted(name)} is not {what}, but the column held {kind}s in the "
                "training data."
            )
        values[code] = value
    return values[column.codes]


def _number_in(text: str, unit: str) -> float | None:
    """Return the number in text if it is on the scale of a column with this unit."""
    quantity = parse_quantity(text)
    return None if quantity is None or not is_in_unit(quantity.unit, unit) else quantity.value
