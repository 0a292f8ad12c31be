"""`Dataset`, which the readers return, `ReadOptions`, which they take, and the columns of a table that are read."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from dropmargin.data import stack_rows
from dropmargin.io.data.errors import AbsentColumnError, DataFormatError, quoted
from dropmargin.typing import Array

#: Fields of a CSV or TSV file that are missing values.
MISSING_VALUES = ("", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "?")

ColumnKind = Literal["number", "category", "date"]
LabelKind = Literal["integer", "number", "string"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a data file.

    Parameters
    ----------
    X : csr_array, ndarray, pandas.DataFrame or list of str
        A matrix, a table or documents. Columns of a table have the dtype float64, category or, in files with types,
        datetime64; those of text have strings. Numbers with a unit, such as ``12%``, are categories, too, which
        `TableEncoder` converts.
    y : ndarray or None
        Labels: int64 if all are integers, in text written as ``7``, not as ``007`` or ``7.0``; else strings. Other
        numbers (float64) in files with types, svmlight and npz files, and with ``label_kind="number"``.
    feature_names : tuple of str, or None
        Column names of a table, or the array ``feature_names`` of an npz file.
    zero_based : bool or None
        svmlight: whether feature indices start at 0.
    sha256 : str or None
        Hash of the bytes of the file, compressed if the file is, if `read_data` was called with ``sha256=True``.
    ids : list of str, or None
        The column ``ids`` of `ReadOptions` as text; missing values are empty.
    n_unlabelled : int
        Number of rows that were left out because they have no label (``skip_unlabelled``).
    separator : str or None
        csv: the character between cells, if it was found in the header and is not a comma.
    """

    X: Any
    y: Array | None = None
    feature_names: tuple[str, ...] | None = None
    zero_based: bool | None = None
    sha256: str | None = None
    ids: list[str] | None = None
    n_unlabelled: int = 0
    separator: str | None = None

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.X) if isinstance(self.X, list) else self.X.shape[0]

    @property
    def is_table(self) -> bool:
        """Whether ``X`` is a data frame."""
        return hasattr(self.X, "columns")


@dataclass(frozen=True)
class ReadOptions:
    """Options of the data file readers. The option ``zero_based`` is ``--zero-based`` on the command line, and so on.

    Parameters
    ----------
    format : str, optional
        ``svmlight``, ``csv``, ``tsv``, ``jsonl``, ``parquet``, ``arrow``, ``npz`` or ``text``; by default determined
        by the file name.
    target : str, optional
        Column of the labels (npz: the array, ``y`` by default). Without it a table has no labels.
        Text: if given, each line is a label, a tab and a document.
    text : str or sequence of str
        Tables: columns of documents, which are strings in the data frame, empty if they are missing.
    zero_based : bool, optional
        svmlight: whether feature indices start at 0. By default they do if index 0 occurs anywhere in the file;
        required for reading in chunks.
    n_features : int, optional
        svmlight: number of features, by default the largest index. Required for reading in chunks.
    ignore_extra : bool
        svmlight: leave out features beyond ``n_features`` instead of raising an error.
    max_features : int
        svmlight, npz: more features than this are an error, raised before memory is allocated: a model has several
        numbers for each feature, also if no row has it.
    separator : str, optional
        csv, tsv: one character; by default a comma, or a semicolon or tab if the header of a csv file has more of
        these (csv), or a tab (tsv).
    decimal : {".", ","}
        csv, tsv: the decimal mark of numbers.
    columns : mapping of str to {"number", "category", "date"}, optional
        Tables: the columns to read, if the file has them, and their kinds, as in `TableEncoder.column_kinds_`. By
        default all columns are read, and the whole file determines the kinds.
    categorical : sequence of str
        Tables: columns of categories, even if all of these are numbers.
    ignore : sequence of str
        Tables: columns that are not read.
    ids : str, optional
        Tables: column that is read as text beside the features, to identify rows.
    skip_unlabelled : bool
        Tables and text: leave out rows without a label instead of raising an error.
    label_kind : {"integer", "number", "string"}, optional
        Tables and text: type of the labels; ``"number"`` is that of regression. By default the file determines it.
    label_unit : str, optional
        Tables and text, with ``label_kind="number"``: the unit of labels in text, ``"%"``, a currency or, for plain
        numbers, empty. By default the rows determine it.
    missing_values : sequence of str
        csv, tsv: fields that are missing values.
    max_ratio : int
        Largest allowed ratio of the sizes of decompressed and compressed data, from 64 MB on.
    """

    format: str | None = None
    target: str | None = None
    text: str | Sequence[str] = ()
    zero_based: bool | None = None
    n_features: int | None = None
    ignore_extra: bool = False
    max_features: int = 2**22
    separator: str | None = None
    decimal: str = "."
    columns: Mapping[str, ColumnKind] | None = None
    categorical: Sequence[str] = ()
    ignore: Sequence[str] = ()
    ids: str | None = None
    skip_unlabelled: bool = False
    label_kind: LabelKind | None = None
    label_unit: str | None = None
    missing_values: Sequence[str] = MISSING_VALUES
    max_ratio: int = 200

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of documents."""
        return (self.text,) if isinstance(self.text, str) else tuple(self.text)


def concatenate(parts: list[Dataset]) -> Dataset:
    """Return consecutive rows, matrices or documents of one file, as one data set; ``parts`` must not be empty."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    rows = [part.X for part in parts]
    X = list(chain.from_iterable(rows)) if isinstance(first.X, list) else stack_rows(rows)
    y = None if first.y is None else np.concatenate([part.y for part in parts])
    return Dataset(X, y, first.feature_names, first.zero_based)


def small_indices(X: Any) -> sparse.csr_array:
    """Return a CSR matrix as an array with int32 indices, as other libraries need them, unless it is too large."""
    X = sparse.csr_array(X)
    if max(*X.shape, X.nnz) < 2**31:
        X.indices, X.indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
    return X


_MAX_LISTED = 20


class Rows(NamedTuple):
    """Consecutive rows: a `pyarrow.Table`, and the line of each row in the file (without lines, its number).

    ``numerals`` are columns of numbers that are given as text, with all their digits.
    """

    table: Any
    lines: Sequence[int]
    numerals: frozenset[str] = frozenset()


def select_columns(names: Sequence[str], options: ReadOptions, file: str, line: int | None = None) -> list[str]:
    """Return the columns to read: features, target, text, ids. Duplicate, empty and absent names are an error."""
    counts = Counter(names)
    if "" in counts:
        raise DataFormatError(f"column {list(names).index('') + 1} has no name (name it, or remove it)", file, line)
    if len(counts) < len(names):
        raise DataFormatError(f"there are two columns named {quoted(counts.most_common(1)[0][0])}", file, line)
    asked = [("target", options.target), *(("text", name) for name in options.text_columns), ("ids", options.ids)]
    asked += [(option, name) for option in ("categorical", "ignore") for name in getattr(options, option)]
    for option, name in asked:
        if name is not None and name not in counts:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {quoted(close[0])}? " if close else ""
            more = f"{_separator_hint(names) or hint}The columns are {_listed(names)}"
            raise AbsentColumnError(name, option, more, file, line)
    extra = [name for name in (options.target, *options.text_columns, options.ids) if name is not None]
    excluded = {options.target, *options.text_columns, *options.ignore}
    features = [name for name in names if name not in excluded]
    used = [f"--{option}" for option in ("target", "ignore") if getattr(options, option)]
    what = f"there are no columns besides those of {' and '.join(used)}" if used else "there are no columns"
    if options.columns is not None:
        features = [name for name in features if name in options.columns]
        what = f"the file has none of the columns {_listed(list(options.columns))}, but {_listed(names)}"
        what += f"; {hint.rstrip()}" if (hint := _separator_hint(names)) else ""
    if not features and not options.text_columns:
        raise DataFormatError(what, file, line)
    return list(dict.fromkeys(features + extra))


def _separator_hint(names: Sequence[str]) -> str:
    """Return a question if there is one column, with another separator in its name."""
    separator = next((c for c in ";\t|," if c in names[0]), None) if len(names) == 1 else None
    return f"is the separator {separator!r} (--separator)? " if separator is not None else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(quoted(name) for name in names[:_MAX_LISTED]) + more
