"""What the readers return, and what they may be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from dropmargin.typing import Array

#: Cells of a table that stand for a missing value.
MISSING_VALUES = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "?")

ColumnKind = Literal["number", "category"]
LabelKind = Literal["integer", "string"]


@dataclass(frozen=True, eq=False)
class Frame:
    """A table: named columns of equal length.

    Parameters
    ----------
    names : tuple of str
    columns : tuple of ndarray
        float64 with NaN for missing cells, or objects: strings with None for missing cells.
    """

    names: tuple[str, ...]
    columns: tuple[Array, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.columns):
            raise ValueError(f"A Frame needs one name per column, got {len(self.names)} and {len(self.columns)}.")
        if len(set(self.names)) < len(self.names):
            raise ValueError("The columns of a Frame need different names.")
        if len({len(column) for column in self.columns}) > 1:
            raise ValueError("The columns of a Frame need the same length.")

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return (len(self.columns[0]) if self.columns else 0, len(self.columns))

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def _by_name(self) -> dict[str, Array]:
        return dict(zip(self.names, self.columns, strict=True))

    def __getitem__(self, name: str) -> Array:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Array | None:
        """Return the column of this name, or None if there is none."""
        return self._by_name.get(name)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a data file.

    Parameters
    ----------
    X : csr_array, ndarray, Frame or list of str
        Numbers, a table, or documents.
    y : ndarray or None
        Labels: int64 if they are whole numbers, strings, or (svmlight, npz) numbers.
    qid : ndarray of int64, or None
    feature_names : tuple of str, or None
    zero_based : bool or None
        For svmlight: whether the file's first index is 0. To be remembered for the files to come.
    """

    X: Any
    y: Array | None = None
    qid: Array | None = None
    feature_names: tuple[str, ...] | None = None
    zero_based: bool | None = None

    @property
    def n_samples(self) -> int:
        """The number of rows."""
        return len(self.X) if isinstance(self.X, list | Frame) else self.X.shape[0]


@dataclass(frozen=True)
class ReadOptions:
    """How to read a data file. On the command line ``zero_based`` is ``--zero-based``, and so on.

    Parameters
    ----------
    format : str, optional
        ``svmlight``, ``csv``, ``tsv``, ``parquet``, ``arrow``, ``npz`` or ``text``; by default the file's name tells.
    target : str, optional
        The column of the labels (npz: the array, ``y`` by default). Without it a table has no labels.
        Text: if given, a line is the label, a tab and the document.
    text : str, optional
        The column of documents in a table; the other columns are not read then.
    zero_based : bool, optional
        svmlight: whether features are counted from 0. By default an index 0 anywhere in the file means that they are;
        a file that is read in parts needs to be told.
    n_features : int, optional
        svmlight: the number of features, by default the largest index.
    ignore_extra : bool
        svmlight: whether to leave out features beyond ``n_features``, instead of an error.
    max_features : int
        svmlight, npz: more features than this are an error, before any memory is used for them.
    separator : str, optional
        Of the cells of a line, by default a comma (csv) or a tab (tsv).
    columns : mapping of str to {"number", "category"}, optional
        Tables: the columns to read, if they are there, and what they hold; as `TableEncoder.column_kinds_` says. By
        default all are read, and the whole file decides what they hold; in parts, cells of text files stay strings.
    categorical : sequence of str
        Tables: columns that hold names even if they look like numbers.
    ignore : sequence of str
        Tables: columns not to read, such as numbers of customers.
    label_kind : {"integer", "string"}, optional
        csv, tsv, text: what labels are. By default the whole file decides; in parts they stay strings.
    missing_values : sequence of str
        csv, tsv: cells that stand for a missing value.
    max_ratio : int
        Compressed files may not grow to more than this many times their size (64 MB are always allowed).
    """

    format: str | None = None
    target: str | None = None
    text: str | None = None
    zero_based: bool | None = None
    n_features: int | None = None
    ignore_extra: bool = False
    max_features: int = 2**25
    separator: str | None = None
    columns: Mapping[str, ColumnKind] | None = None
    categorical: Sequence[str] = ()
    ignore: Sequence[str] = ()
    label_kind: LabelKind | None = None
    missing_values: Sequence[str] = field(default=MISSING_VALUES)
    max_ratio: int = 200


def concatenate(parts: list[Dataset]) -> Dataset:
    """Return consecutive rows of one file as one; there must be a part, if only an empty one."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    X: Any
    if isinstance(first.X, list):
        X = [document for part in parts for document in part.X]
    elif isinstance(first.X, Frame):
        columns = zip(*(part.X.columns for part in parts), strict=True)
        X = Frame(first.X.names, tuple(np.concatenate(column) for column in columns))
    elif isinstance(first.X, np.ndarray):
        X = np.concatenate([part.X for part in parts])
    else:
        X = sparse.csr_array(sparse.vstack([part.X for part in parts], format="csr"))
    y = None if first.y is None else np.concatenate([part.y for part in parts])
    qid = None if first.qid is None else np.concatenate([part.qid for part in parts])
    return Dataset(X, y, qid, first.feature_names, first.zero_based)
