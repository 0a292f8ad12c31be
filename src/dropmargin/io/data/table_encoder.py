"""`TableEncoder`: tables as matrices of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.errors import ParameterError
from dropmargin.io.data.cells import parse_number
from dropmargin.io.data.dataset import MISSING_VALUES, ColumnKind
from dropmargin.io.data.errors import quoted
from dropmargin.io.data.frames import Categories, as_categories, table_columns, table_names
from dropmargin.io.data.state import check_keys, check_strings, check_whole
from dropmargin.typing import Array

# A matrix of more columns than this is sparse if less than this share of it is not zero.
_MAX_DENSE_WIDTH, _MIN_DENSE_SHARE = 128, 0.25
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class _Column:
    """A column of the training data: its sorted categories, or None if it held numbers."""

    name: str
    categories: tuple[str, ...] | None

    @property
    def width(self) -> int:
        """Number of columns of the matrix."""
        return 1 if self.categories is None else len(self.categories)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table as a matrix of numbers: numbers unchanged, categories one-hot, missing values as NaN.

    A column of categories becomes one column of 0 and 1 for each category that `fit` has seen. A missing value is NaN
    in all of them, for a classifier with ``missing="rescale"``; a category that `fit` has not seen is 0 in all of
    them. A column that is absent in `transform` is missing in every row, and columns that `fit` has not seen are
    ignored.

    Parameters
    ----------
    categorical : sequence of str
        Columns of categories, even if all of these are numbers.
    max_categories : int
        More categories in a column than this are an error: the column holds text, or identifies rows.

    Attributes
    ----------
    column_kinds_ : dict
        The kind of each column, ``"number"`` or ``"category"``, for ``ReadOptions(columns=...)``.
    sparse_output_ : bool
        Whether `transform` returns a `scipy.sparse.csr_array`: if the matrix is wide and mostly zero.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Names of the columns of the table.

    See Also
    --------
    TextEncoder : Encodes documents.
    sklearn.preprocessing.OneHotEncoder : Encodes missing values as a category.

    Examples
    --------
    >>> from dropmargin.io.data import TableEncoder
    >>> encoder = TableEncoder().fit({"size": [1.5, 2.0], "colour": ["red", "blue"]})
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'colour=blue', 'colour=red']
    >>> encoder.transform({"size": [3.0], "colour": [None]})
    array([[ 3., nan, nan]])
    """

    def __init__(self, categorical: Sequence[str] = (), max_categories: int = 1000) -> None:
        self.categorical = categorical
        self.max_categories = max_categories

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the columns and their categories.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or matrix
        y : ignored

        Returns
        -------
        TableEncoder
        """
        columns, n_rows = table_columns(X)
        limit = check_whole("max_categories", self.max_categories, 1)
        if isinstance(self.categorical, str):
            raise ValueError(f"categorical must be a sequence of names, got the string {self.categorical!r}.")
        unknown = [name for name in self.categorical if name not in columns]
        if unknown:
            raise ValueError(f"categorical has {unknown!r}, but the columns are {list(columns)!r}.")
        if not columns or not n_rows:
            raise ValueError(f"X must have rows and columns, got a table of shape {(n_rows, len(columns))}.")
        learned, categorical = [], frozenset(self.categorical)
        for name, values in columns.items():
            categories = None
            if isinstance(values, Categories) or name in categorical:
                categories = tuple(as_categories(values).present())
                if len(categories) > limit:
                    raise _too_many(name, len(categories), limit)
            learned.append(_Column(name, categories))
        self._set_columns(learned)
        return self

    def _set_columns(self, columns: list[_Column]) -> None:
        self._columns = columns
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.column_kinds_: dict[str, ColumnKind] = {
            column.name: "number" if column.categories is None else "category" for column in columns
        }
        width = sum(column.width for column in columns)
        self.sparse_output_ = width > _MAX_DENSE_WIDTH and len(columns) < _MIN_DENSE_SHARE * width

    def transform(self, X: Any) -> Any:
        """Encode a table.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or matrix

        Returns
        -------
        ndarray or csr_array of float64
        """
        check_is_fitted(self, "column_kinds_")
        columns, n_rows = table_columns(X, self.column_kinds_)
        if table_names(X) is None and len(columns) != self.n_features_in_:
            expected = f"TableEncoder is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {len(columns)} features, but {expected}.")
        if not columns:
            raise ValueError("X is a table without columns.")
        entries = self._entries(columns, n_rows)
        shape = (n_rows, sum(column.width for column in self._columns))
        if self.sparse_output_:
            rows, positions, values = map(np.concatenate, zip(*entries, strict=True))
            dtype = np.int32 if max(*shape, len(values)) <= _INT32_MAX else np.int64
            X = sparse.csr_array((values, (rows.astype(dtype), positions.astype(dtype))), shape=shape)
            X.indices, X.indptr = X.indices.astype(dtype, copy=False), X.indptr.astype(dtype, copy=False)
            return X
        matrix = np.zeros(shape)
        for rows, positions, values in entries:
            matrix[rows, positions] = values
        return matrix

    def _entries(self, columns: Mapping[str, Any], n_rows: int) -> Iterator[tuple[Array, Array, Array]]:
        """Yield rows, columns and values of the nonzero entries, for each column of the table."""
        start = 0
        for column in self._columns:
            values = columns.get(column.name)
            if values is None:
                rows, positions = _all_entries(np.arange(n_rows), column.width)
                entries = np.full(len(rows), np.nan)
            elif column.categories is None:
                numbers = _as_numbers(column.name, values) if isinstance(values, Categories) else values
                rows = np.flatnonzero(numbers)
                positions, entries = np.zeros_like(rows), numbers[rows]
            else:
                codes = as_categories(values).codes_in(column.categories)
                known = np.flatnonzero(codes >= 0)
                missing, missing_positions = _all_entries(np.flatnonzero(codes == -1), column.width)
                rows = np.concatenate((known, missing))
                positions = np.concatenate((codes[known], missing_positions))
                entries = np.concatenate((np.ones(len(known)), np.full(len(missing), np.nan)))
            yield rows, positions + start, entries
            start += column.width

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of the matrix: ``age``, ``colour=blue``, ``colour=red``.

        Parameters
        ----------
        input_features : array-like of str or None
            Must be equal to ``feature_names_in_`` if given.

        Returns
        -------
        ndarray of str
        """
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
        """Return the fitted state for `from_state`: values for JSON, and arrays.

        ``names`` are the column names, ``widths`` the numbers of categories (-1 for a column of numbers), and
        ``categories`` those of all columns in one list, because a file limits the number of its lists.
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
        """Return the fitted encoder with a state of `get_state`; every part is checked, an error is a ValueError."""
        check_keys("The state of a TableEncoder", facts, {"categorical", "max_categories", "names", "categories"})
        check_keys("The arrays of a TableEncoder", arrays, {"widths"})
        limit = check_whole("max_categories", facts["max_categories"], 1)
        columns = _columns_of_state(facts["names"], facts["categories"], arrays["widths"])
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
        encoder._set_columns(columns)
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _too_many(name: str, n_categories: int, limit: int) -> ParameterError:
    """Return the error for a column with more categories than allowed."""
    found = f"{name!r} has {n_categories} different categories"
    return ParameterError(
        f"Column {found}, max_categories={limit}: leave it out if it identifies rows, use TextEncoder if it is text, "
        "or raise max_categories.",
        "max_categories",
        f"column {found}, more than {limit}: leave it out (--ignore) if it identifies rows, read it as text (--text) "
        "if it is text, or raise the limit",
    )


def _columns_of_state(names: Any, categories: Any, widths: Any) -> list[_Column]:
    """Return the columns of a state of `TableEncoder.get_state`."""
    if not isinstance(names, list) or not names or not isinstance(categories, list):
        raise ValueError("names and categories must be lists, and names must have at least one column.")
    if not isinstance(widths, np.ndarray) or widths.dtype != np.int64 or widths.shape != (len(names),):
        raise ValueError(f"widths must be an int64 array of {len(names)} numbers.")
    total = len(categories)
    if widths.min() < -1 or widths.max() > total or np.maximum(widths, 0).sum() != total:
        raise ValueError(f"widths must be -1 or numbers whose sum is {total}, the number of categories.")
    columns, start = [], 0
    for name, width in zip(names, widths.tolist(), strict=True):
        stop = start + max(width, 0)
        columns.append(_Column(name, None if width < 0 else tuple(categories[start:stop])))
        start = stop
    return columns


def _as_numbers(name: str, column: Categories) -> Array:
    """Return the numbers in a column of text."""
    values = np.full(len(column.names) + 1, np.nan)
    for code in np.unique(column.codes[column.codes >= 0]).tolist():
        text = column.names[code].strip()
        value = np.nan if text in MISSING_VALUES else parse_number(text)
        if value is None:
            row = int(np.argmax(column.codes == code)) + 1
            what = f"{quoted(text)} in column {quoted(name)} is not a finite number"
            raise ValueError(f"Row {row}: {what}, but the column held numbers in the training data.")
        values[code] = value
    return values[column.codes]


def _all_entries(rows: Array, width: int) -> tuple[Array, Array]:
    """Return the row and the column of each entry of some rows."""
    return np.repeat(rows, width), np.tile(np.arange(width), len(rows))
