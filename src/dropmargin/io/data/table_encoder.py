"""`TableEncoder`: tables as matrices of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.errors import ParameterError, ParameterWarning
from dropmargin.estimators.validation import check_integer
from dropmargin.io.data.cells import ORDERS, PARTS, UNITS
from dropmargin.io.data.dataset import ColumnKind, small_indices
from dropmargin.io.data.errors import quoted
from dropmargin.io.data.frames import TableColumn, learn_column, table_columns, table_names
from dropmargin.io.data.state import check_flag, check_keys, check_strings, check_vector
from dropmargin.typing import Array

# A matrix of more columns than this is sparse if less than this share of it is not zero.
_MAX_DENSE_WIDTH, _MIN_DENSE_SHARE = 128, 0.25
_MAX_LISTED = 10


class TableTags:
    """The tags of an encoder of tables."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


class TableEncoder(TableTags, TransformerMixin, BaseEstimator):
    """Encode a table as a matrix: numbers standardised, categories one-hot, dates as parts, missing values as NaN.

    A column of categories becomes one feature of 0 and 1 for each category that `fit` has seen. Text such as
    ``$1,200.50`` or ``12%`` is a number; all numbers of a column are in the unit of the training data. A date (datetime
    values, or text such as ``2024-03-04 12:30`` or ``4 Mar 2024``) becomes its decimal year, month (if there are
    several years), weekday (Monday is 0) and hour, without those that are constant. A missing value is NaN in all
    features of its column, for a classifier with ``missing="rescale"``; a category that `fit` has not seen is 0 in all
    of them. A column that is absent in `transform` is missing in every row, and columns that `fit` has not seen are
    ignored.

    `fit` leaves out columns that are constant, identify rows (text with more different values than half of the rows;
    integers that are all different and ascending, descending or named like ``user_id``; from 20 rows on) or have
    too many categories, with a warning.

    Parameters
    ----------
    categorical : sequence of str
        Columns of categories, even if all of these are numbers or dates. They are not left out.
    max_categories : int
        A column with more categories than this is left out.
    keep : sequence of str
        Columns that are not left out.
    scale : bool
        Whether numbers, also those of dates, are divided by their standard deviation in the training data, and their
        mean is subtracted first. The mean is not subtracted if the matrix is sparse: zeros stay zeros. Dropout
        towards the mean does not depend on it.

    Attributes
    ----------
    column_kinds_ : dict
        The kind of each encoded column, ``"number"``, ``"category"`` or ``"date"``, for ``ReadOptions(columns=...)``.
    left_out_ : dict
        The columns that were left out, with the reason.
    feature_columns_ : ndarray of str
        The column of the table that each feature comes from, for ``DropoutNoise(groups=...)``.
    mean_, scale_ : ndarray of shape (n_features_out,)
        A feature is ``(number - mean_) / scale_``; 0 and 1 where numbers are unchanged.
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
    >>> encoder = TableEncoder().fit({"size": [1.5, 2.5], "colour": ["red", "blue"]})
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'colour=blue', 'colour=red']
    >>> encoder.transform({"size": [3.0], "colour": [None]})
    array([[ 2., nan, nan]])
    """

    def __init__(
        self,
        categorical: Sequence[str] = (),
        max_categories: int = 1000,
        keep: Sequence[str] = (),
        scale: bool = True,
    ) -> None:
        self.categorical = categorical
        self.max_categories = max_categories
        self.keep = keep
        self.scale = scale

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the columns, their categories and their scales.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or matrix
            The rows.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        columns, n_rows = table_columns(X)
        limit = check_integer("max_categories", self.max_categories, 1)
        scale = check_flag("scale", self.scale)
        categorical, keep = (_check_names(name, getattr(self, name), columns) for name in ("categorical", "keep"))
        if not columns or not n_rows:
            raise ValueError(f"X must have rows and columns, got a table of shape {(n_rows, len(columns))}.")
        found = {
            name: learn_column(name, values, categorical=name in categorical, keep=name in keep, max_categories=limit)
            for name, values in columns.items()
        }
        learned = [column for column in found.values() if isinstance(column, TableColumn)]
        left_out = {name: reason for name, reason in found.items() if isinstance(reason, str)}
        if not learned:
            raise NothingToLearnError(left_out, n_rows)
        self._set_columns(list(columns), learned)
        self.left_out_ = left_out
        self.mean_, self.scale_ = np.zeros(self._n_out), np.ones(self._n_out)
        if scale:
            self._learn_scales(columns)
        if left_out:
            what = f"left out: {listed(left_out)}"
            message = f"Columns are {what}. Name them in keep or categorical if they are needed."
            warnings.warn(ParameterWarning(message, "keep", what), stacklevel=2)
        return self

    def _set_columns(self, names: list[str], columns: list[TableColumn]) -> None:
        self._columns = columns
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.column_kinds_: dict[str, ColumnKind] = {column.name: column.kind for column in columns}
        widths = [column.width for column in columns]
        self._n_out = sum(widths)
        self.feature_columns_ = np.repeat(np.array([column.name for column in columns], dtype=object), widths)
        self.sparse_output_ = self._n_out > _MAX_DENSE_WIDTH and len(columns) < _MIN_DENSE_SHARE * self._n_out

    def _learn_scales(self, columns: Mapping[str, Any]) -> None:
        numeric = [column for column in self._columns if column.kind != "category"]
        if numeric:  # all at once: there may be very many
            positions = np.repeat([c.kind != "category" for c in self._columns], [c.width for c in self._columns])
            blocks = [column.numbers(columns[column.name]) for column in numeric]
            mean, self.scale_[positions] = _moments(np.concatenate(blocks, axis=1))
            if not self.sparse_output_:
                self.mean_[positions] = mean

    def transform(self, X: Any) -> Any:
        """Encode a table.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or matrix
            The rows.

        Returns
        -------
        ndarray or csr_array of float64
            A row per row of ``X``, a column per feature.
        """
        check_is_fitted(self, "column_kinds_")
        columns, n_rows = table_columns(X, self.column_kinds_)
        if table_names(X) is None and len(columns) != self.n_features_in_:
            expected = f"TableEncoder is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {len(columns)} features, but {expected}.")
        if not columns:
            raise ValueError("X is a table without columns.")
        starts = np.cumsum([0, *(column.width for column in self._columns)])
        blocks = [
            self._encode(column, columns.get(column.name), n_rows, slice(start, start + column.width))
            for column, start in zip(self._columns, starts, strict=False)
        ]
        return small_indices(sparse.hstack(blocks, format="csr")) if self.sparse_output_ else np.hstack(blocks)

    def _encode(self, column: TableColumn, values: Any, n_rows: int, features: slice) -> Any:
        """Return the features of a column of the table, sparse if the output is; None is a column that is absent."""
        if column.kind == "category":
            codes = np.full(n_rows, -1) if values is None else column.codes(values)
            # A row per category, zeros for a category that is not known (-2) and NaN for a missing value (-1).
            n, last = column.width, np.full((1, column.width), np.nan)
            if self.sparse_output_:
                return sparse.vstack([sparse.eye_array(n), sparse.csr_array((1, n)), last], format="csr")[codes]
            return np.vstack([np.eye(n), np.zeros((1, n)), last])[codes]
        block = np.full((n_rows, column.width), np.nan) if values is None else column.numbers(values)
        block = (block - self.mean_[features]) / self.scale_[features]
        return sparse.csr_array(block) if self.sparse_output_ else block

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of the matrix: ``age``, ``colour=blue``, ``born:year``.

        Parameters
        ----------
        input_features : array-like of str or None
            Must be equal to ``feature_names_in_`` if given.

        Returns
        -------
        ndarray of str
            The names of the features.
        """
        check_is_fitted(self, "column_kinds_")
        if input_features is not None and list(input_features) != list(self.feature_names_in_):
            raise ValueError("input_features is not equal to feature_names_in_.")
        return np.array([name for column in self._columns for name in column.feature_names], dtype=object)

    def get_state(self) -> dict[str, Any]:
        """Return the fitted state for `from_state`: a dict of plain values, lists of strings and arrays.

        ``columns`` are the names of all columns and ``names`` those of the encoded ones, with their ``kinds`` and
        ``orders`` (of day and month; the units of numbers). ``parts`` are the categories and parts of dates of all
        columns in one list, and ``widths`` their numbers (0 for numbers).

        Returns
        -------
        state : dict
            Plain values, lists of strings and arrays.
        """
        check_is_fitted(self, "column_kinds_")
        return {
            "categorical": list(self.categorical),
            "max_categories": self.max_categories,
            "keep": list(self.keep),
            "scale": self.scale,
            "columns": self.feature_names_in_.tolist(),
            "names": [column.name for column in self._columns],
            "kinds": [column.kind for column in self._columns],
            "orders": [column.form for column in self._columns],
            "parts": [part for column in self._columns for part in column.parts],
            "widths": np.array([len(column.parts) for column in self._columns], dtype=np.int64),
            "mean": self.mean_,
            "deviation": self.scale_,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TableEncoder:
        """Return the fitted encoder with a state of `get_state`; every part is checked, an error is a ValueError.

        Parameters
        ----------
        state : dict
            A state of `get_state`.

        Returns
        -------
        encoder : object
            The fitted encoder.
        """
        parameters = ("categorical", "max_categories", "keep", "scale")
        wanted = {*parameters, "columns", "names", "kinds", "orders", "parts", "widths", "mean", "deviation"}
        check_keys("The state of a TableEncoder", state, wanted)
        columns = _columns_of_state(state)
        names = check_strings("columns", state["columns"])
        used = check_strings("The names of columns", [column.name for column in columns])
        categorical, keep = (check_strings(name, state[name]) for name in ("categorical", "keep"))
        if not {*used, *categorical, *keep} <= set(names):
            raise ValueError("columns must have the names of all columns.")
        if not set(categorical) <= {column.name for column in columns if column.kind == "category"}:
            raise ValueError("categorical must name columns that have categories.")
        limit = check_integer("max_categories", state["max_categories"], 1)
        encoder = cls(tuple(categorical), limit, tuple(keep), check_flag("scale", state["scale"]))
        encoder._set_columns(names, columns)
        encoder.left_out_ = dict.fromkeys((name for name in names if name not in encoder.column_kinds_), "")
        encoder.mean_, encoder.scale_ = (check_vector(k, state[k], encoder._n_out) for k in ("mean", "deviation"))
        if not (encoder.scale_ > 0.0).all():
            raise ValueError("deviation must have positive numbers.")
        return encoder


def _check_names(parameter: str, given: Any, columns: Mapping[str, Any]) -> frozenset[str]:
    if isinstance(given, str):
        raise ValueError(f"{parameter} must be a sequence of names, got the string {given!r}.")
    unknown = [name for name in given if name not in columns]
    if unknown:
        shown = ", ".join(map(quoted, list(columns)[:20])) + (" ..." if len(columns) > 20 else "")
        reason = f"there is no column {quoted(unknown[0])} besides target and text; the columns are {shown}"
        message = f"{parameter} has {unknown!r}, but the columns are {list(columns)!r}."
        raise ParameterError(message, parameter, reason)
    return frozenset(given)


def listed(left_out: dict[str, str]) -> str:
    """Return columns that are left out, and the reasons."""
    shown = "; ".join(f"{name!r}: {reason}" for name, reason in list(left_out.items())[:_MAX_LISTED])
    return shown + (f"; and {len(left_out) - _MAX_LISTED} more" if len(left_out) > _MAX_LISTED else "")


class NothingToLearnError(ParameterError):
    """Every column of a table is left out; ``left_out`` has the reasons."""

    def __init__(self, left_out: dict[str, str], n_rows: int) -> None:
        what = f"there is no column to learn from in {n_rows} sample{'s' if n_rows > 1 else ''} ({listed(left_out)})"
        super().__init__(f"{what[0].upper()}{what[1:]}; name columns in keep.", None, f"{what}; --keep keeps a column")
        self.left_out, self.n_rows = left_out, n_rows

    def __reduce__(self) -> Any:
        return type(self), (self.left_out, self.n_rows)


def _moments(block: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of each column, without NaN; 1 for a deviation of zero."""
    largest = np.abs(np.nan_to_num(block)).max(axis=0)
    largest[largest == 0.0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without values, which was kept
        mean, deviation = np.nanmean(block / largest, axis=0), np.nanstd(block / largest, axis=0)
    mean, deviation = np.nan_to_num(mean * largest), np.nan_to_num(deviation * largest)
    return mean, np.where(deviation > 0.0, deviation, 1.0)


def _columns_of_state(state: dict[str, Any]) -> list[TableColumn]:
    """Return the columns of a state of `TableEncoder.get_state`."""
    names, kinds, orders, parts, widths = (state[name] for name in ("names", "kinds", "orders", "parts", "widths"))
    if not all(isinstance(given, list) for given in (names, kinds, orders, parts)) or not names:
        raise ValueError("names, kinds, orders and parts must be lists, and names must have at least one column.")
    if not isinstance(widths, np.ndarray) or widths.dtype != np.int64 or widths.shape != (len(names),):
        raise ValueError(f"widths must be a vector of {len(names)} int64.")
    total = len(parts)
    is_sum = widths.min() >= 0 and widths.max() <= total and widths.sum() == total
    if not is_sum or not len(names) == len(kinds) == len(orders):
        raise ValueError("names, kinds and orders must have the same length, and widths be the numbers of parts.")
    columns, start = [], 0
    for name, kind, order, width in zip(names, kinds, orders, widths.tolist(), strict=True):
        own = check_strings("categories", parts[start : start + width])
        start += width
        if order not in {"number": UNITS, "category": ("",), "date": ORDERS}.get(kind, ()):
            raise ValueError("kinds must be number, category or date, and orders those of dates, or units of numbers.")
        if (kind == "number" and own) or (kind == "category" and own != sorted(own)):
            raise ValueError("categories must be sorted, and numbers must have none.")
        if kind == "date" and (not own or own != [part for part in PARTS if part in own]):
            raise ValueError(f"parts of a date must be some of {PARTS}.")
        columns.append(TableColumn(name, kind, tuple(own), order))
    return columns
