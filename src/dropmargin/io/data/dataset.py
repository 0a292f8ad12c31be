"""`Dataset`, which the readers return, and `ReadOptions`, which they take."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.io.data.errors import DataFormatError
from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a data file.

    Parameters
    ----------
    X : csr_array, ndarray or pandas.DataFrame
        A matrix or a table. Cells of a CSV file are text, which `dropmargin.tables` reads by one rule per column.
        Documents are a table with the column ``text``.
    y : ndarray or None
        Labels: integers if all are, in text written as ``7``, not as ``007`` or ``7.0``; other numbers in files with
        types; else strings.
    feature_names : tuple of str, or None
        The array ``feature_names`` of an npz file.
    zero_based : bool or None
        svmlight: whether feature indices start at 0.
    ids : list of str, or None
        The column ``ids`` of `ReadOptions` as text; missing values are empty.
    notes : tuple of str
        What a user should know: names that were made up for columns, a separator that was found, rows without a label
        that were left out.
    """

    X: Any
    y: Array | None = None
    feature_names: tuple[str, ...] | None = None
    zero_based: bool | None = None
    ids: list[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    def labels(self) -> list[Any]:
        """Return the labels as Python's numbers or strings."""
        return [] if self.y is None else self.y.tolist()

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
    ids : str, optional
        Tables: column that is read as text beside the features, to identify rows.
    ignore : sequence of str
        Tables: columns that are not read.
    columns : sequence of str, optional
        Tables: the columns to read, as far as the file has them. By default all columns are read.
    separator : str, optional
        csv: one character; by default that of comma, semicolon and tab that the first two rows have.
    encoding : str, optional
        csv, tsv, jsonl, text: such as ``latin-1``, by default UTF-8 (or UTF-16 with a byte order mark).
    skip_unlabelled : bool
        Tables: leave out rows without a label instead of raising an error.
    zero_based : bool, optional
        svmlight: whether feature indices start at 0. By default they do if index 0 occurs anywhere in the file;
        required for reading in chunks.
    n_features : int, optional
        svmlight: number of features, by default the largest index. Required for reading in chunks.
    ignore_extra : bool
        svmlight: leave out features beyond ``n_features`` instead of raising an error.
    max_features : int
        svmlight, npz: more features than this are an error: a model has several numbers for each feature, also if no
        row has it.
    """

    format: str | None = None
    target: str | None = None
    ids: str | None = None
    ignore: Sequence[str] = ()
    columns: Sequence[str] | None = None
    separator: str | None = None
    encoding: str | None = None
    skip_unlabelled: bool = False
    zero_based: bool | None = None
    n_features: int | None = None
    ignore_extra: bool = False
    max_features: int = 2**22


def concatenate(parts: list[Dataset]) -> Dataset:
    """Return consecutive rows of one file as one data set; ``parts`` must not be empty."""
    first, rows = parts[0], [part.X for part in parts]
    if len(parts) == 1:
        return first
    if first.is_table:
        import pandas as pd

        X = pd.concat(rows, ignore_index=True)
    else:
        X = sparse.vstack(rows, format="csr") if hasattr(first.X, "tocsr") else np.concatenate(rows)
    y = None if first.y is None else labels_of([label for part in parts for label in part.labels()], "the file")
    ids = None if first.ids is None else [name for part in parts for name in part.ids or ()]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return replace(first, X=X, y=y, ids=ids, notes=notes)


def labels_of(values: list[Any], name: str) -> Array:
    """Return labels without a change of any: integers, other numbers, true and false, or text.

    Text is integers if each is written as its number is: ``007`` is not ``7``.
    """
    kinds = {type(value) for value in values}
    if kinds == {str} and all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in values):
        return np.array(values, dtype=np.int64)
    if kinds == {bool}:
        return np.array(values)
    if values and all(issubclass(kind, int | float) for kind in kinds):
        if any(value != value or abs(value) == math.inf for value in values):
            raise DataFormatError("there are labels that are not finite numbers", name)
        whole = [int(value) for value in values] if all(value == int(value) for value in values) else []
        low, high = min(whole, default=1), max(whole, default=0)
        if whole and not (low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63)):
            return np.array(whole, dtype=np.uint64 if high >= 2**63 else np.int64)
        if not whole or float in kinds:
            return np.array(values, dtype=np.float64)
    return np.array([str(value) for value in values])
