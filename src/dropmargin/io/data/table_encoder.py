"""Tables as matrices: numbers pass, names become one column per name, and missing cells stay missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.io.data.cells import numbers_from_cells
from dropmargin.io.data.dataset import MISSING_VALUES, ColumnKind, Frame
from dropmargin.io.data.frames import as_frame, is_named, names_of_numbers
from dropmargin.io.data.state import check_keys, check_string, check_strings, check_whole
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
    cell is NaN, in all columns of its names, for a classifier with ``missing="drop"``; so is every cell of a column
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
        unknown = [name for name in self.categorical if name not in frame.names]
        if unknown:
            raise ValueError(f"categorical has {unknown!r}, but the columns are {list(frame.names)!r}.")
        if not frame.names or not len(frame):
            raise ValueError(f"X must have rows and columns, got a table of shape {frame.shape}.")
        columns = []
        for name, values in zip(frame.names, frame.columns, strict=True):
            categories = None
            if values.dtype == object or name in self.categorical:
                names = values if values.dtype == object else names_of_numbers(values)
                categories = tuple(sorted({cell for cell in names if cell is not None}))
                if len(categories) > limit:
                    raise ValueError(
                        f"Column {name!r} has {len(categories)} different names, max_categories={limit}: leave it out "
                        "if it identifies rows, use TextEncoder if it is text, or raise max_categories."
                    )
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
        n_rows = len(frame)
        parts = [self._encode(column, frame, n_rows) for column in self._columns]
        if self.sparse_output_:
            return sparse.csr_array(sparse.hstack(parts, format="csr"))
        return np.hstack([part.toarray() for part in parts])

    def _encode(self, column: _Column, frame: Frame, n_rows: int) -> sparse.csr_array:
        """Return the matrix of one column; what is missing is stored as NaN."""
        values = frame.get(column.name)
        if values is None:
            return sparse.csr_array(np.full((n_rows, column.width), np.nan))
        if column.categories is None:
            numbers = values if values.dtype != object else _as_numbers(column.name, values)
            return sparse.csr_array(numbers[:, None])
        names = values if values.dtype == object else names_of_numbers(values)
        return _one_hot(names, column.categories)

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
        """Return all that `from_state` needs: facts for JSON, and arrays (none)."""
        check_is_fitted(self, "column_kinds_")
        columns = [
            {"name": column.name, "categories": None if column.categories is None else list(column.categories)}
            for column in self._columns
        ]
        facts = {"categorical": list(self.categorical), "max_categories": self.max_categories, "columns": columns}
        return facts, {}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> TableEncoder:
        """Return the fitted encoder of a state; a state that is not right in all its parts is a ValueError."""
        check_keys("The state of a TableEncoder", facts, {"categorical", "max_categories", "columns"})
        check_keys("The arrays of a TableEncoder", arrays, set())
        limit = check_whole("max_categories", facts["max_categories"], 1)
        if not isinstance(facts["columns"], list) or not facts["columns"]:
            raise ValueError("columns must be a list of at least one column.")
        columns = []
        for entry in facts["columns"]:
            check_keys("A column of a TableEncoder", entry, {"name", "categories"})
            categories = entry["categories"]
            if categories is not None:
                categories = tuple(check_strings("categories", categories))
                if list(categories) != sorted(categories) or len(categories) > limit:
                    raise ValueError(f"categories must be sorted, and at most max_categories={limit}.")
            columns.append(_Column(check_string("name", entry["name"]), categories))
        names = [column.name for column in columns]
        check_strings("The names of columns", names)
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


def _as_numbers(name: str, cells: Array) -> Array:
    """Return a column of strings as the numbers that it should hold."""

    def complain(position: int, what: str) -> NoReturn:
        raise ValueError(f"Row {position + 1}: {what}, but the column held numbers when the encoder was fitted.")

    stripped = ["" if cell is None else str(cell).strip() for cell in cells]
    return numbers_from_cells(stripped, frozenset(MISSING_VALUES), name, complain)


def _one_hot(names: Array, categories: tuple[str, ...]) -> sparse.csr_array:
    """Return a row of one 1 for a known name, of zeros for another, of NaN for none."""
    width = len(categories)
    position = {category: j for j, category in enumerate(categories)}
    codes = np.array([width if name is None else position.get(name, -1) for name in names], dtype=np.int64)
    missing = codes == width
    counts = np.where(missing, width, codes >= 0)
    row_pointers = np.concatenate(([0], np.cumsum(counts)))
    columns = np.empty(row_pointers[-1], dtype=np.int64)
    values = np.ones(row_pointers[-1])
    columns[row_pointers[:-1][(codes >= 0) & ~missing]] = codes[(codes >= 0) & ~missing]
    inside = np.repeat(missing, counts)
    columns[inside] = np.tile(np.arange(width), missing.sum())
    values[inside] = np.nan
    return sparse.csr_array((values, columns, row_pointers), shape=(len(names), width))
