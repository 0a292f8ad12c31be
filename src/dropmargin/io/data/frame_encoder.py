"""`FrameEncoder`: tables with columns of text and other columns as one sparse matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from dropmargin.io.data.dataset import ColumnKind, small_indices
from dropmargin.io.data.frames import table_names
from dropmargin.io.data.state import check_keys, check_strings
from dropmargin.io.data.table_encoder import NothingToLearnError, TableEncoder, TableTags
from dropmargin.io.data.text_encoder import TextEncoder
from dropmargin.typing import Array


class FrameEncoder(TableTags, TransformerMixin, BaseEstimator):
    """Encode a table with columns of text: these by a `TextEncoder` each, all other columns by a `TableEncoder`.

    The features of the table are first, followed by the terms of each column of text. A missing value is NaN in the
    features of the table, and an empty document in a column of text: it has none of the terms. An absent column of the
    table is missing in every row; an absent column of text is an error.

    Parameters
    ----------
    text : sequence of str
        Columns of text.
    text_encoder : TextEncoder, optional
        Has the parameters for every column of text; ``TextEncoder()`` by default.
    table_encoder : TableEncoder, optional
        Has the parameters for the other columns; ``TableEncoder()`` by default.

    Attributes
    ----------
    text_encoders_ : list of TextEncoder
        The fitted encoder of each column of text.
    table_encoder_ : TableEncoder or None
        The fitted encoder of the other columns; None if there are none.
    column_kinds_ : dict
        The kind of each other column, ``"number"`` or ``"category"``, for ``ReadOptions(columns=...)``.
    left_out_ : dict
        Columns that the encoder of the other columns leaves out, with the reasons.
    feature_columns_ : ndarray of str
        The column of the table that each feature comes from; a term has its own name, as in `get_feature_names_out`.
    feature_groups_ : ndarray of int
        The group of each feature, for ``DropoutNoise(groups=...)``: the features of one column of the table are a
        group, each term is a group of its own.

    See Also
    --------
    TextEncoder : Encodes documents alone.
    TableEncoder : Encodes tables of numbers and categories.
    sklearn.compose.ColumnTransformer : Combines any transformers; it cannot be saved in a model file.

    Examples
    --------
    >>> from dropmargin.io.data import FrameEncoder
    >>> table = {"review": ["good film", "bad"], "colour": ["red", "blue"]}
    >>> encoder = FrameEncoder(["review"]).fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['colour=blue', 'colour=red', 'review: bad', 'review: film', 'review: good']
    >>> encoder.transform({"review": ["good, good"], "colour": ["red"]}).toarray()
    array([[0., 1., 0., 0., 1.]])
    """

    def __init__(
        self,
        text: Sequence[str] = (),
        text_encoder: TextEncoder | None = None,
        table_encoder: TableEncoder | None = None,
    ) -> None:
        self.text = text
        self.text_encoder = text_encoder
        self.table_encoder = table_encoder

    def fit(self, X: Any, y: Any = None) -> FrameEncoder:
        """Learn the terms of the text, and the other columns.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or dict of columns
            The rows.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the terms of the text and the other columns, and encode these rows.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or dict of columns
            The rows.
        y : object, default=None
            Ignored.

        Returns
        -------
        csr_array of float64
            A row per row of ``X``, a column per feature.
        """
        names = table_names(X)
        if names is None:
            raise ValueError(f"X must be a table with named columns, got {type(X).__name__}.")
        if isinstance(self.text, str) or not self.text:
            raise ValueError(f"text must be a sequence of at least one column name, got {self.text!r}.")
        wanted = check_strings("text", list(self.text))
        template = TextEncoder() if self.text_encoder is None else self.text_encoder
        encoders = [clone(template).set_params(column=name) for name in wanted]
        documents = [encoder.fit_transform(X) for encoder in encoders]
        others = {name: X[name] for name in names if name not in wanted}
        table, left_out = None, None
        if others:
            table = TableEncoder() if self.table_encoder is None else clone(self.table_encoder)
            try:
                documents.insert(0, table.fit_transform(others))
            except NothingToLearnError as error:  # the text suffices
                table, left_out = None, error.left_out
        self._set_encoders(table, encoders, left_out)
        return _stack(documents)

    def transform(self, X: Any) -> Any:
        """Encode a table.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or dict of columns
            The rows.

        Returns
        -------
        csr_array of float64
            A row per row of ``X``, a column per feature.
        """
        check_is_fitted(self, "text_encoders_")
        if table_names(X) is None:
            raise ValueError(f"X must be a table with named columns, got {type(X).__name__}.")
        parts = [encoder.transform(X) for encoder in self.text_encoders_]
        if self.table_encoder_ is not None:
            # One column at least, so that the number of rows is known if all columns of the table are absent.
            columns = {name: X[name] for name in table_names(X) or () if name in self.column_kinds_}
            absent = {next(iter(self.column_kinds_)): np.full(parts[0].shape[0], np.nan)}
            parts.insert(0, self.table_encoder_.transform(columns or absent))
        return _stack(parts)

    def _set_encoders(
        self, table: TableEncoder | None, encoders: list[TextEncoder], left_out: dict[str, str] | None = None
    ) -> None:
        self.table_encoder_, self.text_encoders_ = table, encoders
        self.column_kinds_: dict[str, ColumnKind] = {} if table is None else table.column_kinds_
        self.left_out_ = left_out or {} if table is None else table.left_out_
        columns = [] if table is None else table.feature_columns_.tolist()
        terms = self._term_names()
        self.feature_columns_ = np.array([*columns, *terms], dtype=object)
        numbers = {name: i for i, name in enumerate(dict.fromkeys(columns))}
        groups = [*(numbers[name] for name in columns), *range(len(numbers), len(numbers) + len(terms))]
        self.feature_groups_ = np.array(groups, dtype=np.int64)

    def _term_names(self) -> list[str]:
        return [f"{encoder.column}: {term}" for encoder in self.text_encoders_ for term in encoder.terms_]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features: those of the table, and terms such as ``review: good``.

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str
            The names of the features.
        """
        check_is_fitted(self, "text_encoders_")
        names = [] if self.table_encoder_ is None else self.table_encoder_.get_feature_names_out().tolist()
        return np.array(names + self._term_names(), dtype=object)

    def get_state(self) -> dict[str, Any]:
        """Return the fitted state for `from_state`: the states of the encoders, those of text by column.

        Returns
        -------
        state : dict
            Plain values, lists of strings and arrays.
        """
        check_is_fitted(self, "text_encoders_")
        return {
            "table": None if self.table_encoder_ is None else self.table_encoder_.get_state(),
            "text": {encoder.column: encoder.get_state() for encoder in self.text_encoders_},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FrameEncoder:
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
        check_keys("The state of a FrameEncoder", state, {"table", "text"})
        table = None if state["table"] is None else TableEncoder.from_state(state["table"])
        if not isinstance(state["text"], dict) or not state["text"]:
            raise ValueError("text must be a dict with at least one column.")
        text, encoders = list(state["text"]), [TextEncoder.from_state(own) for own in state["text"].values()]
        if [encoder.column for encoder in encoders] != text:
            raise ValueError("text must name the columns of the text encoders.")
        if table is not None and not set(text).isdisjoint(table.column_kinds_):
            raise ValueError("text must not name a column of the table.")
        parameters = [encoder.get_params() | {"column": None} for encoder in encoders]
        if any(other != parameters[0] for other in parameters):
            raise ValueError("The text encoders must have the same parameters.")
        made = cls(text, TextEncoder(**parameters[0]), None if table is None else clone(table))
        made._set_encoders(table, encoders)
        return made


def _stack(parts: list[Any]) -> Any:
    return small_indices(sparse.hstack([sparse.csr_array(part) for part in parts], format="csr"))
