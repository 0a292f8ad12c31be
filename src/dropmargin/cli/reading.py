"""Data files as a saved model takes them, part by part: a file may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dropmargin.cli.console import Console, UsageError, printable
from dropmargin.cli.training import basic_read_options, find_format_or_complain, require_target
from dropmargin.io.data import Frame, ReadOptions, TableEncoder, TextEncoder, read_chunks
from dropmargin.io.data.readers import CHUNK_BYTES
from dropmargin.io.model import load_described
from dropmargin.progress import Progress
from dropmargin.typing import Array

_TABLES = ("csv", "tsv", "parquet", "arrow")
_LINES = ("svmlight", "csv", "tsv", "text")
# Each column of a part has a fixed cost; a part of so many bytes per column has some rows to share it.
_BYTES_PER_COLUMN = 128


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model file: the classifier, what stands before it, and what the file says of its training."""

    path: str
    encoder: Any
    classifier: Any
    summary: dict[str, Any]

    @classmethod
    def from_file(cls, path: str) -> SavedModel:
        """Read and check a model file."""
        model, facts = load_described(path)
        encoder, classifier = (model[0], model[-1]) if isinstance(model, Pipeline) else (None, model)
        return cls(path, encoder, classifier, facts["summary"] or {})

    @property
    def takes(self) -> str:
        """What the model was trained on: ``text``, ``tables`` or ``numbers``."""
        if self.encoder is None:
            return "numbers"
        return "text" if isinstance(self.encoder, TextEncoder) else "tables"

    @property
    def feature_names(self) -> Array | None:
        """The names of the columns that the classifier takes, if they have any."""
        if self.encoder is not None:
            return self.encoder.get_feature_names_out()
        return getattr(self.classifier, "feature_names_in_", None)

    @property
    def drops_missing(self) -> bool:
        """Whether the classifier takes missing values."""
        return getattr(self.classifier, "missing", "error") == "rescale"


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a file as the classifier takes them, and their labels if these were asked for."""

    X: Any
    y: Array | None


def read_parts(
    path: str, model: SavedModel, options: SimpleNamespace, console: Console, *, labels: bool
) -> Iterator[Part]:
    """Yield the rows of a data file, encoded; everything that can be wrong without reading it is checked at once."""
    form = find_format_or_complain(path, options.format)
    _refuse_misfit(path, form, model)
    read_options = basic_read_options(options, form)
    if labels:
        known = model.summary.get("target")
        if read_options.target is None and form in _TABLES and isinstance(known, str):
            read_options = replace(read_options, target=known)
        read_options = require_target(path, form, read_options)
    if form == "svmlight":
        read_options = replace(
            read_options,
            zero_based=_zero_based(read_options.zero_based, model, console),
            n_features=model.classifier.n_features_in_,
            ignore_extra=options.ignore_extra,
        )
    elif form in _TABLES:
        read_options = _choose_columns(path, read_options, model)
    if form not in ("svmlight", "npz") and read_options.target is not None:
        has_integers = model.classifier.classes_.dtype.kind in "iu"
        read_options = replace(read_options, label_kind="integer" if has_integers else "string")
    return _parts(path, form, read_options, model, console, labels)


def _refuse_misfit(path: str, form: str, model: SavedModel) -> None:
    """Refuse a file of a format that cannot hold what the model was trained on."""
    fitting = {"text": (*_TABLES, "text"), "tables": _TABLES, "numbers": ("svmlight", "npz")}[model.takes]
    if model.takes == "numbers" and model.feature_names is not None:
        fitting += _TABLES
    if form not in fitting:
        raise UsageError(
            f"{model.path} was trained on {model.takes}, but {path} is read as {form}; "
            f"it should be {', '.join(fitting[:-1])} or {fitting[-1]} (see --format)"
        )


def _choose_columns(path: str, given: ReadOptions, model: SavedModel) -> ReadOptions:
    """Return the options with the columns of a table that the model knows."""
    if model.takes == "text":
        column = given.text or model.encoder.column
        if column is None:
            raise UsageError(f"{model.path} was trained on text: name the column of {path} that has it by --text")
        return replace(given, text=column)
    if given.text is not None:
        raise UsageError(f"--text is for models that were trained on text; {model.path} was trained on {model.takes}")
    if isinstance(model.encoder, TableEncoder):
        return replace(given, columns=model.encoder.column_kinds_)
    names = [] if model.feature_names is None else model.feature_names.tolist()
    return replace(given, columns=dict.fromkeys(names, "number"))


def _zero_based(given: bool | None, model: SavedModel, console: Console) -> bool:
    known = model.summary.get("zero_based")
    if given is None and not isinstance(known, bool):
        console.note(f"{model.path} does not say from where features are counted: from 1, if not --zero-based")
        return False
    return bool(known if given is None else given)


def _parts(
    path: str, form: str, read_options: ReadOptions, model: SavedModel, console: Console, labels: bool
) -> Iterator[Part]:
    part_bytes = max(CHUNK_BYTES, _BYTES_PER_COLUMN * len(read_options.columns or ()))
    n_parts, is_first, n_rows = _count_parts(path, form, part_bytes), True, 0
    with Progress(n_parts, printable(path), verbose=0 if console.quiet or not n_parts else 1) as progress:
        for data in read_chunks(path, read_options, chunk_bytes=part_bytes):
            if labels and data.y is None:
                raise UsageError(f"{path} has no labels: it should have an array 'y', or name another one by --target")
            if is_first and isinstance(data.X, Frame):
                _tell_absent(path, data.X, read_options, model, console)
            is_first = False
            yield Part(_encode(data.X, model, path), data.y)
            n_rows += data.n_samples
            progress.advance()
    if not n_rows:
        raise ValueError(f"{path}: there are no rows")


def _count_parts(path: str, form: str, part_bytes: int) -> int:
    """Return about how many parts there will be, or 0 if the size of the file does not tell."""
    if form not in _LINES or path.endswith(".gz") or not os.path.isfile(path):
        return 0
    return os.path.getsize(path) // part_bytes + 1


def _tell_absent(path: str, frame: Frame, read_options: ReadOptions, model: SavedModel, console: Console) -> None:
    absent = [name for name in read_options.columns or () if name not in frame]
    if not absent:
        return
    listed = ", ".join(map(repr, absent[:20])) + (" ..." if len(absent) > 20 else "")
    if not model.drops_missing:
        raise ValueError(
            f"{path} lacks columns of the training data, {listed}, and {model.path} cannot do without: "
            "train it with --missing rescale"
        )
    console.note(f"{path} lacks columns of the training data, which are taken as missing: {listed}")


def _encode(X: Any, model: SavedModel, path: str) -> Any:
    if model.encoder is not None:
        return model.encoder.transform(X)
    names = model.feature_names
    if isinstance(X, Frame) and names is not None:
        absent = np.full(len(X), np.nan)
        columns = [X.get(name) for name in names.tolist()]
        return np.column_stack([absent if column is None else column for column in columns])
    if X.shape[1] != model.classifier.n_features_in_:
        raise ValueError(
            f"{path} has {X.shape[1]} features, but {model.path} was trained on {model.classifier.n_features_in_}"
        )
    return X


def explain_missing(error: ValueError, path: str, model: SavedModel) -> ValueError:
    """Return the error to raise instead of scikit-learn's for missing values."""
    if "contains NaN" in str(error) and not model.drops_missing:
        return ValueError(
            f"{path} has missing values, which {model.path} does not take: train it with --missing rescale"
        )
    return error
