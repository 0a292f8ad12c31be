"""`TableEncoder`: from a raw data frame to a matrix, a group of features per column."""

from __future__ import annotations

import html
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dropmargin.tables.cells import Cells, ColumnRule, Texts, apply_rule, decide, n_rows, no_cells, read_cells
from dropmargin.tables.columns import CategoryEncoder, ColumnEncoder, DateEncoder, NumberEncoder, TextEncoder
from dropmargin.typing import Array

# With fewer rows, different values do not show that a column identifies rows.
_MIN_ROWS = 20
# The name of a column of integers that identify rows, whatever their order: id, user_id, PassengerId.
_ID_NAME = re.compile(r"(?:.*[^A-Za-z])?(?:id|ID|Id|index|Index)|.*[a-z](?:Id|ID)")
_MAX_LISTED = 10
_IGNORED = ", which the training data did not have: ignored."


class Column(NamedTuple):
    """A column of the training data: its name and kind, the number of its features, why it is left out (or "")."""

    name: str
    kind: str
    n_features: int
    reason: str = ""


def column_names(X: Any) -> list[str] | None:
    """Return the names of the columns of a data frame, a pyarrow table or a dict as strings, None for an array."""
    if hasattr(X, "collect_schema") and not hasattr(X, "__len__"):
        raise ValueError("X is a LazyFrame of polars, which has not been read: pass X.collect().")
    names = list(X) if isinstance(X, Mapping) and not hasattr(X, "toarray") else getattr(X, "column_names", None)
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


def read_table(X: Any, only: Any = None) -> dict[str, Cells]:
    """Return the cells of each column of a table by name; the columns of an array are ``x0``, ``x1`` and so on."""
    names = column_names(X)
    if names is None:
        X = np.array(X, dtype=object) if isinstance(X, list) else X
        X = check_array(X, dtype=None, ensure_all_finite=False)
        if X.dtype.kind in "fiub":
            check_array(X, ensure_all_finite="allow-nan")
        return {f"x{j}": read_cells(f"x{j}", X[:, j]) for j in range(X.shape[1])}
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Column names must differ, but {twice!r} is there twice: rename or drop one of them.")
    columns = (own for _, own in X.items()) if hasattr(X, "items") else (X[name] for name in names)
    wanted = ((name, own) for name, own in zip(names, columns, strict=True) if only is None or name in only)
    cells = {name: own if isinstance(own, Texts) else read_cells(name, own) for name, own in wanted}
    if len({n_rows(one) for one in cells.values()}) > 1:
        raise ValueError("The columns of a table must have the same length.")
    return cells


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table as a matrix with a group of features per column; a missing cell is NaN in all of them.

    The kind of a column is decided once, from all of its training cells: a number (also text such as ``$1,200.50``,
    ``12%`` or ``1,5``), a date (also text such as ``2024-03-04 12:30`` or ``31/12/2024``), a category, or, if it is
    named in ``text``, text. Columns that are constant, identify rows, or have too many categories are left out.

    In `transform` an absent column is a missing value in every row, with a warning; other columns than those of the
    training data are ignored, with a warning. A column of another kind is an error.

    Parameters
    ----------
    basis : {"linear", "spline", "fourier"}, default="spline"
        The features of numbers and dates: the scaled numbers, the basis functions of a spline, or both, for
        `FourierFeatures`.
    scaling : {"standard", "quantile"}, default="standard"
        The scale of numbers of the linear basis: mean 0 and variance 1, or normal scores of their quantiles.
    text : sequence of str, default=()
        Columns of text, whose words are features. A missing text has no words.
    categorical : sequence of str, default=()
        Columns of categories, even if all of these are numbers or dates. They are not left out.
    keep : sequence of str, default=()
        Columns that are not left out.
    max_categories : int, default=255
        A column with more categories than this is left out.

    Attributes
    ----------
    columns_ : list of Column
        Name, kind, number of features and, of columns that are left out, the reason, for each column.
    encoders_ : dict of str to ColumnEncoder
        The encoder of each column that is not left out.
    rules_ : dict of str to ColumnRule
        How the cells of these columns are read.
    feature_columns_ : ndarray of str of shape (n_features_out,)
        The column of each feature.
    feature_groups_ : ndarray of str of shape (n_features_out,)
        The group of each feature, for ``DropoutNoise(groups=...)``: its column; of text, its own name, because words
        are lost one by one.
    is_word_ : ndarray of bool of shape (n_features_out,)
        Whether a feature is a word of a text.
    in_kernel_ : ndarray of bool of shape (n_features_out,)
        Whether a feature enters the kernel of `FourierFeatures`: not those of a spline.
    column_kinds_ : dict of str to str
        The kind of each column that is not text and not left out.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Names of the columns of the table, unless it is an array.

    See Also
    --------
    TableClassifier : Encodes and fits.

    Examples
    --------
    >>> from dropmargin.tables import TableEncoder
    >>> encoder = TableEncoder(basis="linear").fit({"size": [1.5, 2.5], "colour": ["red", "blue"]})
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'colour=blue', 'colour=red']
    >>> encoder.transform({"size": [3.0], "colour": [None]})
    array([[ 2., nan, nan]])
    """

    def __init__(
        self,
        basis: str = "spline",
        scaling: str = "standard",
        text: Sequence[str] = (),
        categorical: Sequence[str] = (),
        keep: Sequence[str] = (),
        max_categories: int = 255,
    ) -> None:
        self.basis = basis
        self.scaling = scaling
        self.text = text
        self.categorical = categorical
        self.keep = keep
        self.max_categories = max_categories

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TableEncoder:
        """Decide the kinds of the columns and learn their features.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or array
            The rows.
        y : object, default=None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the scales and knots of numbers.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        names, cells = column_names(X), read_table(X)
        for parameter in ("text", "categorical", "keep"):
            given = getattr(self, parameter)
            unknown = [given] if isinstance(given, str) else [name for name in given if name not in cells]
            if unknown:
                raise ValueError(
                    f"{parameter} must be a list of columns of X, got {given!r}; X has {list(cells)[:20]}."
                )
        self.columns_: list[Column] = []
        self.encoders_: dict[str, ColumnEncoder] = {}
        self.rules_: dict[str, ColumnRule] = {}
        for name, own in cells.items():
            self._fit_column(name, own, sample_weight)
        self.n_features_in_ = len(cells)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.set_features(n_rows(next(iter(cells.values()))) if cells else 0)
        return self

    def _fit_column(self, name: str, cells: Cells, sample_weight: Any) -> None:
        kind = "text" if name in self.text else "category" if name in self.categorical else None
        rule = decide(name, cells, kind)
        cells = apply_rule(rule, name, cells)
        is_free = name not in self.text and name not in self.categorical and name not in self.keep
        reason = _reason_to_leave_out(name, rule.kind, cells, self.max_categories) if is_free else ""
        if reason:
            self.columns_.append(Column(name, rule.kind, 0, reason))
            return
        made: dict[str, ColumnEncoder] = {
            "number": NumberEncoder(self.basis, self.scaling),
            "date": DateEncoder(self.basis, self.scaling),
            "category": CategoryEncoder(),
            "text": TextEncoder(),
        }
        encoder = made[rule.kind].fit(cells, sample_weight=sample_weight)
        self.encoders_[name], self.rules_[name] = encoder, rule
        self.columns_.append(Column(name, rule.kind, 0))

    def with_basis(self, basis: str, scaling: str = "standard") -> TableEncoder:
        """Return the fitted encoder with another basis and scaling of numbers and dates.

        Parameters
        ----------
        basis, scaling : str
            As in the constructor.

        Returns
        -------
        encoder : TableEncoder
            A fitted encoder. Without knots and quantiles that it does not need, so that it has no way back.
        """
        check_is_fitted(self, "encoders_")
        made = copy(self).set_params(basis=basis, scaling=scaling)
        made.encoders_ = {name: own.with_basis(basis, scaling) for name, own in self.encoders_.items()}
        made.set_features()
        return made

    def set_features(self, n_samples: int = 0) -> None:
        """Set the attributes that follow from the encoders."""
        if not self.encoders_:
            reasons = "; ".join(f"{column.name}: {column.reason}" for column in self.columns_[:_MAX_LISTED])
            raise ValueError(f"X has no column to learn from, with n_samples={n_samples} ({reasons}).")
        n_features = {name: len(own.get_feature_names_out([name])) for name, own in self.encoders_.items()}
        self.columns_ = [column._replace(n_features=n_features.get(column.name, 0)) for column in self.columns_]
        used = [column for column in self.columns_ if not column.reason]
        self.feature_columns_ = np.repeat([c.name for c in used], [c.n_features for c in used]).astype(object)
        self.is_word_ = np.repeat([c.kind == "text" for c in used], [c.n_features for c in used])
        self.in_kernel_ = np.concatenate([encoder.in_kernel() for encoder in self.encoders_.values()])
        self.column_kinds_ = {c.name: c.kind for c in used if c.kind != "text"}
        self.feature_groups_ = np.where(self.is_word_, self.get_feature_names_out(), self.feature_columns_)

    def transform(self, X: Any) -> Any:
        """Encode a table.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, dict of columns, or array
            The rows.

        Returns
        -------
        matrix : ndarray or csr_array of shape (n_samples, n_features_out)
            Sparse if there are columns of text. NaN is a missing value.
        """
        check_is_fitted(self, "encoders_")
        names, own = column_names(X), [column.name for column in self.columns_]
        if names is None or (not hasattr(self, "feature_names_in_") and names != own):  # columns have places, no names
            cells = read_table(X)
            if len(cells) != len(own):
                # The words of scikit-learn.
                raise ValueError(
                    f"X has {len(cells)} features, but {type(self).__name__} is expecting {len(own)} features as input."
                )
            cells = dict(zip(own, cells.values(), strict=True))
        else:
            present = {column.name for column in self.columns_}
            given = set(names)
            absent = [name for name in self.encoders_ if name not in given]
            warn_columns(absent, [name for name in names if name not in present])
            cells = read_table(X, self.encoders_)
        n = n_rows(next(iter(cells.values()))) if cells else len(X)
        parts = []
        for name, encoder in self.encoders_.items():
            rule = self.rules_[name]
            parts.append(encoder.transform(apply_rule(rule, name, cells[name]) if name in cells else no_cells(rule, n)))
        if self.is_word_.any():
            return sparse.csr_array(sparse.hstack([sparse.csr_array(part) for part in parts], format="csr"))
        return np.hstack(parts)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features, such as ``size``, ``colour=red``, ``born:year`` and ``review: good``.

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str
            The names.
        """
        check_is_fitted(self, "encoders_")
        return np.concatenate([encoder.get_feature_names_out([name]) for name, encoder in self.encoders_.items()])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def warn_columns(absent: list[str], extra: list[str]) -> None:
    """Warn about columns that are absent, or that the training data did not have, at the line of the caller."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in ("dropmargin", "sklearn"):
        frame, level = frame.f_back, level + 1
    for names, verb, rest in ((absent, "lacks", ": missing in every row."), (extra, "has", _IGNORED)):
        if names:
            text = f"X {verb} column{'s' * (len(names) > 1)} {_listed(names)}{rest}"
            warnings.warn(text, UserWarning, stacklevel=level)


def _listed(names: list[str], show: Callable[[str], str] = repr) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(show, names[:_MAX_LISTED])) + more


def _reason_to_leave_out(name: str, kind: str, cells: Cells, max_categories: int) -> str:
    """Return why a column cannot help: it has one value, identifies rows or has too many categories."""
    if isinstance(cells, Texts):
        n_present, n_different = int((cells.codes >= 0).sum()), len(cells.present())
        is_id = 2 * n_different > n_present
    else:
        present = cells[cells == cells]  # without NaN and NaT
        n_present = len(present)
        n_different = 0 if not n_present else 1 if (present == present[0]).all() else 2
        is_id = kind == "number" and n_present >= _MIN_ROWS and _are_ids(name, present)
    if n_different < 2:
        return "no values" if not n_present else "constant"
    if is_id and n_present >= _MIN_ROWS:
        if kind == "number":
            return "identifies rows: its integers are all different"
        return f"identifies rows: {n_different} different values in {n_present} rows; name it in text to use its words"
    if kind == "category" and n_different > max_categories:
        return f"{n_different} categories, more than {max_categories}"
    return ""


def _are_ids(name: str, present: Array) -> bool:
    """Return whether numbers identify rows: different integers that ascend or descend, or have the name of an id."""
    if (present != np.floor(present)).any():
        return False
    steps = np.diff(present)
    if (steps > 0).all() or (steps < 0).all():
        return True
    return _ID_NAME.fullmatch(name) is not None and len(np.unique(present)) == len(present)


def columns_text(columns: list[Column]) -> str:
    """Return a line per kind of column, and a line per column that is left out."""
    used = [column for column in columns if not column.reason]
    kinds = {kind: [one.name for one in used if one.kind == kind] for kind in dict.fromkeys(one.kind for one in used)}
    left_out = [column for column in columns if column.reason]
    lines = [f"  {kind}: {_listed(names, str)}" for kind, names in kinds.items()]
    lines += [f"  left out: {column.name} ({column.reason})" for column in left_out[:_MAX_LISTED]]
    return "\n".join([*lines, *[f"  left out: {len(left_out) - _MAX_LISTED} more"] * (len(left_out) > _MAX_LISTED)])


def columns_html(columns: list[Column]) -> str:
    """Return a table with a row per column."""
    rows = "".join(
        f"<tr><td>{html.escape(c.name)}</td><td>{c.kind}</td><td>{c.n_features or ''}</td>"
        f"<td>{html.escape('left out: ' + c.reason) if c.reason else ''}</td></tr>"
        for c in columns[:100]
    )
    more = f"<p>and {len(columns) - 100} more columns</p>" if len(columns) > 100 else ""
    return f"<table><tr><th>column</th><th>kind</th><th>features</th><th></th></tr>{rows}</table>{more}"
