"""Tables as matrices: numbers pass, names become one column per name, and missing cells stay missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.errors import ParameterError
from dropmargin.io.data.cells import numbers_from_cells
from dropmargin.io.data.dataset import MISSING_VALUES, ColumnKind, Frame
from dropmargin.io.data.frames import as_frame, is_named, names_of_numbers
from dropmargin.io.data.state import check_keys, check_strings, check_whole
from dropmargin.typing import Array

# A wider matrix is sparse if less than a quarter of it would not be zero.
_DENSE_WIDTH, _DENSE_SHARE = 128, 0.25


@dataclass(frozen=True)
class _Column:
    """What is remembered of a column: the names that it held, or None if it held numbers."""

    name: str
    categories: tuple[str, ...] | None

    @property
    def width(self) -> int:
        """How many columns of the matrix it makes."""
        return 1 if self.categories is None else len(self.categories)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table into a matrix of numbers, the same way for every table to come.

    A column of numbers passes; a column of names becomes one column of 0 and 1 for each name seen by `fit`. A missing
    cell is NaN, in all columns of its names, for a classifier with ``missing="rescale"``; so is every cell of a column
    that is not there. A name that `fit` has not seen is zero in all columns. Other columns are not looked at.

    Parameters
    ----------
    categorical : sequence of str
        Columns that hold names even if these are numbers.
    max_categories : int
        More names in a column than this are an error: it holds text, or identifies rows.

    Attributes
    ----------
    column_kinds_ : dict
        What each column held, ``"number"`` or ``"category"``; for ``ReadOptions(columns=...)``.
    sparse_output_ : bool
        Whether `transform` returns a `scipy.sparse.csr_array`: if the matrix is wide and mostly zeros.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    """

    def __init__(self, categorical: Sequence[str] = (), max_categories: int = 1000) -> None:
        self.categorical = categorical
        self.max_categories = max_categories

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Remember columns and names. ``X`` is a Frame, or a table of pandas, polars, pyarrow, or a dict of columns."""
        frame = as_frame(X)
        limit = check_whole("max_categories", self.max_categories, 1)
        if isinstance(self.categorical, str):
            raise ValueError(f"categorical must be a sequence of names, got the string {self.categorical!r}.")
        unknown = [name for name in self.categorical if name not in frame]
        if unknown:
            raise ValueError(f"categorical has {unknown!r}, but the columns are {list(frame.names)!r}.")
        if not frame.names or not len(frame):
            raise ValueError(f"X must have rows and columns, got a table of shape {frame.shape}.")
        columns, categorical = [], frozenset(self.categorical)
        for name, values in zip(frame.names, frame.columns, strict=True):
            categories = None
            if values.dtype == object or name in categorical:
                names = values if values.dtype == object else names_of_numbers(values)
                categories = tuple(sorted({cell for cell in names if cell is not None}))
                if len(categories) > limit:
                    raise _too_many(name, len(categories), limit)
            columns.append(_Column(name, categories))
        self._remember(columns)
        return self

    def _remember(self, columns: list[_Column]) -> None:
        self._columns = columns
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.column_kinds_: dict[str, ColumnKind] = {
            column.name: "number" if column.categories is None else "category" for column in columns
        }
        width = sum(column.width for column in columns)
        self.sparse_output_ = width > _DENSE_WIDTH and len(columns) < _DENSE_SHARE * width

    def transform(self, X: Any) -> Any:
        """Return a float64 matrix, dense or CSR, NaN where cells are missing."""
        check_is_fitted(self, "column_kinds_")
        frame = as_frame(X, self.column_kinds_)
        if not is_named(X) and frame.shape[1] != self.n_features_in_:  # nothing tells which of them is absent
            expected = f"TableEncoder is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {frame.shape[1]} features, but {expected}.")
        if not frame.names:
            raise ValueError("X is a table without columns.")
        entries = self._entries(frame)
        shape = (len(frame), sum(column.width for column in self._columns))
        if self.sparse_output_:
            rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
            return sparse.csr_array((values, (rows, columns)), shape=shape)
        matrix = np.zeros(shape)
        for rows, columns, values in entries:
            matrix[rows, columns] = values
        return matrix

    def _entries(self, frame: Frame) -> Iterator[tuple[Array, Array, Array]]:
        """Yield rows, columns and values of the entries that are not zero, for each column of the table in turn."""
        start = 0
        for column in self._columns:
            cells = frame.get(column.name)
            if cells is None:
                rows, columns = _all_entries(np.arange(len(frame)), column.width)
                values = np.full(len(rows), np.nan)
            elif column.categories is None:
                numbers = cells if cells.dtype != object else _as_numbers(column.name, cells)
                rows = np.flatnonzero(numbers)
                columns, values = np.zeros_like(rows), numbers[rows]
            else:
                names = cells if cells.dtype == object else names_of_numbers(cells)
                rows, columns, values = _one_hot(names, column.categories)
            yield rows, columns + start, values
            start += column.width

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the matrix's columns: ``age``, ``colour=red``, ``colour=blue``."""
        check_is_fitted(self, "column_kinds_")
        if input_features is not None and list(input_features) != list(self.feature_names_in_):
            raise ValueError("input_features is not equal to feature_names_in_.")
        names = []
        for column in self._columns:
            if column.categories is None:
                names.append(column.name)
            else:
                names += [f"{column.name}={category}" for category in column.categories]
        return np.array(names, dtype=object)

    def get_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return all that `from_state` needs: facts for JSON, and arrays.

        ``names`` are those of the columns, ``widths`` how many categories each has (-1 for a column of numbers), and
        ``categories`` those of all columns in turn: flat lists, since a file limits how many lists it may hold.
        """
        check_is_fitted(self, "column_kinds_")
        facts = {
            "categorical": list(self.categorical),
            "max_categories": self.max_categories,
            "names": [column.name for column in self._columns],
            "categories": [category for column in self._columns for category in column.categories or ()],
        }
        widths = [-1 if column.categories is None else column.width for column in self._columns]
        return facts, {"widths": np.array(widths, dtype=np.int64)}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> TableEncoder:
        """Return the fitted encoder of a state; a state that is not right in all its parts is a ValueError."""
        is_nested = isinstance(facts, Mapping) and "columns" in facts
        own = {"columns"} if is_nested else {"names", "categories"}
        check_keys("The state of a TableEncoder", facts, {"categorical", "max_categories", *own})
        check_keys("The arrays of a TableEncoder", arrays, set() if is_nested else {"widths"})
        limit = check_whole("max_categories", facts["max_categories"], 1)
        if is_nested:
            columns = _nested_columns(facts["columns"])
        else:
            columns = _flat_columns(facts["names"], facts["categories"], arrays["widths"])
        check_strings("The names of columns", [column.name for column in columns])
        for column in columns:
            categories = list(column.categories or ())
            check_strings("categories", categories)
            if categories != sorted(categories) or len(categories) > limit:
                raise ValueError(f"categories must be sorted, and at most max_categories={limit}.")
        categorical = check_strings("categorical", facts["categorical"])
        if not set(categorical) <= {column.name for column in columns if column.categories is not None}:
            raise ValueError("categorical must name columns that have categories.")
        encoder = cls(tuple(categorical), limit)
        encoder._remember(columns)
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _too_many(name: str, n_categories: int, limit: int) -> ParameterError:
    """Return the error for a column of more categories than are allowed."""
    found = f"{name!r} has {n_categories} different names"
    return ParameterError(
        f"Column {found}, max_categories={limit}: leave it out if it identifies rows, use TextEncoder if it is text, "
        "or raise max_categories.",
        "max_categories",
        f"column {found}, more than {limit}: leave it out (--ignore) if it identifies rows, read it as text (--text) "
        "if it is text, or raise the limit",
    )


def _flat_columns(names: Any, categories: Any, widths: Any) -> list[_Column]:
    """Return the columns of a state that `TableEncoder.get_state` returns."""
    if not isinstance(names, list) or not names or not isinstance(categories, list):
        raise ValueError("names and categories must be lists, and names must have at least one column.")
    if not isinstance(widths, np.ndarray) or widths.dtype != np.int64 or widths.shape != (len(names),):
        raise ValueError(f"widths must be an int64 array of {len(names)} numbers.")
    total = len(categories)
    if widths.min() < -1 or widths.max() > total or np.maximum(widths, 0).sum() != total:
        raise ValueError(f"widths must be -1 or numbers that add up to the {total} categories.")
    columns, start = [], 0
    for name, width in zip(names, widths.tolist(), strict=True):
        stop = start + max(width, 0)
        columns.append(_Column(name, None if width < 0 else tuple(categories[start:stop])))
        start = stop
    return columns


def _nested_columns(entries: Any) -> list[_Column]:
    """Return the columns of a state of dropmargin 0.1.0, an object for each."""
    if not isinstance(entries, list) or not entries:
        raise ValueError("columns must be a list of at least one column.")
    columns = []
    for entry in entries:
        check_keys("A column of a TableEncoder", entry, {"name", "categories"})
        categories = entry["categories"]
        if categories is not None:
            categories = tuple(check_strings("categories", categories))
        columns.append(_Column(entry["name"], categories))
    return columns


def _as_numbers(name: str, cells: Array) -> Array:
    """Return a column of strings as the numbers that it should hold."""

    def complain(position: int, what: str) -> NoReturn:
        raise ValueError(f"Row {position + 1}: {what}, but the column held numbers when the encoder was fitted.")

    stripped = ["" if cell is None else str(cell).strip() for cell in cells]
    return numbers_from_cells(stripped, frozenset(MISSING_VALUES), name, complain)


def _one_hot(names: Array, categories: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Return rows, columns and values of the entries: one 1 for a known name, none for another, all NaN for none."""
    width = len(categories)
    position: dict[str | None, int] = {category: j for j, category in enumerate(categories)}
    position[None] = width
    codes = np.array([position.get(name, -1) for name in names], dtype=np.intp)
    known = np.flatnonzero((codes >= 0) & (codes < width))
    missing_rows, missing_columns = _all_entries(np.flatnonzero(codes == width), width)
    rows = np.concatenate((known, missing_rows))
    columns = np.concatenate((codes[known], missing_columns))
    values = np.concatenate((np.ones(len(known)), np.full(len(missing_rows), np.nan)))
    return rows, columns, values


def _all_entries(rows: Array, width: int) -> tuple[Array, Array]:
    """Return the row and the column of each entry of some rows."""
    return np.repeat(rows, width), np.tile(np.arange(width), len(rows))
