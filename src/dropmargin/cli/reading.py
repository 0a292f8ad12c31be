"""Rows of data files for a saved model, chunk by chunk: a file may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from sklearn.pipeline import Pipeline

from dropmargin.cli.console import Console, UsageError, printable
from dropmargin.cli.training import basic_read_options, report_reading, require_target
from dropmargin.io.data import TABLES, Dataset, ReadOptions, find_format, read_chunks
from dropmargin.io.data.dataset import LabelKind
from dropmargin.io.data.errors import AbsentColumnError, DataFormatError
from dropmargin.io.data.frame_encoder import FrameEncoder
from dropmargin.io.data.readers import CHUNK_BYTES
from dropmargin.io.data.table_encoder import TableEncoder
from dropmargin.io.data.text_encoder import TextEncoder
from dropmargin.io.model import load_described
from dropmargin.progress import Progress
from dropmargin.typing import Array

_LINES = ("svmlight", "csv", "tsv", "jsonl", "text")
# Each column of a chunk has a fixed cost, so the chunks of a wide table have more bytes.
_BYTES_PER_COLUMN = 128


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The content of a model file: the estimator, the encoder before it, and the summary of the training."""

    path: str
    encoder: Any
    estimator: Any
    summary: dict[str, Any]

    @classmethod
    def described(cls, path: str) -> tuple[SavedModel, dict[str, Any]]:
        """Load a model file, and return it and its description."""
        model, facts = load_described(path)
        encoder, estimator = (model[0], model[-1]) if isinstance(model, Pipeline) else (None, model)
        return cls(path, encoder, estimator, facts["summary"] or {}), facts

    @classmethod
    def from_file(cls, path: str) -> SavedModel:
        return cls.described(path)[0]

    @property
    def takes(self) -> str:
        """The kind of the training data: ``text``, ``tables`` or ``numbers``."""
        if self.encoder is None:
            return "numbers"
        return "text" if isinstance(self.encoder, TextEncoder) else "tables"

    @property
    def feature_names(self) -> Array | None:
        if self.encoder is not None:
            return self.encoder.get_feature_names_out()
        return getattr(self.estimator, "feature_names_in_", None)

    @property
    def feature_labels(self) -> list[str]:
        """The names of the features, or their numbers in the data file."""
        if self.feature_names is not None:
            return [str(name) for name in self.feature_names]
        first = 0 if self.summary.get("zero_based") is True else 1
        return [str(j + first) for j in range(self.estimator.n_features_in_)]

    @property
    def predicts_numbers(self) -> bool:
        return not hasattr(self.estimator, "classes_")

    @property
    def drops_missing(self) -> bool:
        """Whether the estimator accepts missing values."""
        return getattr(self.estimator, "missing", "error") != "error"


def read_parts(
    path: str, model: SavedModel, options: SimpleNamespace, console: Console, *, labels: bool
) -> Iterator[Dataset]:
    """Return an iterator over rows of a data file, encoded for the estimator; the options are checked before."""
    form = find_format(path, options.format)
    _check_format(path, form, model)
    own: dict[str, Any] = {"categorical": (), "ignore": ()}  # the model has the columns
    target, decimal, missing = (model.summary.get(name) for name in ("target", "decimal", "missing_values"))
    if form in ("csv", "tsv") and options.decimal is None and decimal == ",":
        own["decimal"] = decimal
    if form in ("csv", "tsv") and options.missing_values is None and isinstance(missing, list):
        own["missing_values"] = ("", *map(str, missing))
    if labels and options.target is None and form in TABLES and isinstance(target, str):
        own["target"] = target
    if form == "svmlight":
        own |= {"zero_based": _zero_based(options.zero_based, model, console), "ignore_extra": options.ignore_extra}
        own["n_features"] = model.estimator.n_features_in_
    if form in ("svmlight", "npz"):
        own["max_features"] = max(model.estimator.n_features_in_, ReadOptions().max_features)
    read_options = replace(basic_read_options(options, form), **own)
    if labels:
        read_options = require_target(path, form, read_options)
    if form in TABLES:
        read_options = _choose_columns(path, read_options, model)
    if form not in ("svmlight", "npz") and read_options.target is not None:
        is_integer = not model.predicts_numbers and model.estimator.classes_.dtype.kind in "iu"
        kind: LabelKind = "number" if model.predicts_numbers else "integer" if is_integer else "string"
        unit = model.summary.get("target_unit") if kind == "number" else None
        read_options = replace(read_options, label_kind=kind, label_unit=unit)
    return _parts(path, form, read_options, model, console, labels, options)


def _check_format(path: str, form: str, model: SavedModel) -> None:
    """Raise an error if a file of this format cannot hold the features of the model."""
    suitable = {"text": (*TABLES, "text"), "tables": TABLES, "numbers": ("svmlight", "npz")}[model.takes]
    if model.takes == "numbers" and model.feature_names is not None:
        suitable += TABLES
    if form not in suitable:
        raise UsageError(
            f"{model.path} was trained on {model.takes}, but {path} is read as {form}; "
            f"it should be {', '.join(suitable[:-1])} or {suitable[-1]} (see --format)"
        )


def _choose_columns(path: str, given: ReadOptions, model: SavedModel) -> ReadOptions:
    """Return the options with the columns of the training data."""
    if model.takes == "text":
        text = given.text_columns or ((model.encoder.column,) if model.encoder.column else ())
        if len(text) != 1:
            raise UsageError(f"{model.path} was trained on text: name the column of {path} that has it with --text")
        return replace(given, text=text, columns={})
    if isinstance(model.encoder, FrameEncoder):
        known = tuple(model.encoder.text)
        if given.text_columns not in ((), known):
            raise UsageError(f"--text: {model.path} was trained on text of the columns {', '.join(map(repr, known))}")
        return replace(given, text=known, columns=model.encoder.column_kinds_)
    if given.text_columns:
        raise UsageError(f"--text is for models that were trained on text; {model.path} was trained on {model.takes}")
    if isinstance(model.encoder, TableEncoder):
        return replace(given, columns=model.encoder.column_kinds_)
    names = [] if model.feature_names is None else model.feature_names.tolist()
    return replace(given, columns=dict.fromkeys(names, "number"))


def _zero_based(given: bool | None, model: SavedModel, console: Console) -> bool:
    known = model.summary.get("zero_based")
    if given is None and not isinstance(known, bool):
        console.note(f"{model.path} does not record where feature indices start: from 1, if not --zero-based")
        return False
    return bool(known if given is None else given)


def _parts(
    path: str,
    form: str,
    read_options: ReadOptions,
    model: SavedModel,
    console: Console,
    labels: bool,
    given: SimpleNamespace,
) -> Iterator[Dataset]:
    """Yield encoded rows; ``given`` are the options of the command."""
    chunk_bytes = max(CHUNK_BYTES, _BYTES_PER_COLUMN * len(read_options.columns or ()))
    n_chunks, is_first, n_rows, n_unlabelled = _count_chunks(path, form, chunk_bytes), True, 0, 0
    with Progress(n_chunks, printable(path), verbose=0 if console.quiet or not n_chunks else 1) as progress:
        for data in _chunks(path, read_options, chunk_bytes, model, given):
            if labels and data.y is None:
                raise UsageError(f"{path} has no labels: it should have an array 'y', or name another with --target")
            if is_first and data.is_table:
                _check_columns(path, data, read_options, model, console)
            if is_first:
                report_reading(replace(data, n_unlabelled=0), path, console)
            is_first = False
            if data.n_samples:
                yield replace(data, X=_encode(data, model, path, n_rows))
            n_rows += data.n_samples
            n_unlabelled += data.n_unlabelled
            progress.advance()
    if n_unlabelled:
        report_reading(Dataset([], n_unlabelled=n_unlabelled), path, console)
    if not n_rows:
        raise ValueError(f"{path}: there are no rows{' with a label' if n_unlabelled else ''}")


def _chunks(
    path: str, read_options: ReadOptions, chunk_bytes: int, model: SavedModel, given: SimpleNamespace
) -> Iterator[Dataset]:
    """Yield the rows of a file; an error does not blame an option that was not used, but says what the model needs."""
    try:
        yield from read_chunks(path, read_options, chunk_bytes=chunk_bytes)
    except AbsentColumnError as error:
        if getattr(given, error.option):
            raise
        what = f"there is no column {error.missing_column!r}, as in the training data of {model.path}"
        if error.option == "target" or not isinstance(model.encoder, FrameEncoder):
            what += f" (--{error.option} names another)"
        raise DataFormatError(f"{what}; {error.more}", error.name, error.line) from None


def _count_chunks(path: str, form: str, chunk_bytes: int) -> int:
    """Return the approximate number of chunks, 0 if the file size does not determine it."""
    if form not in _LINES or path.endswith(".gz") or not os.path.isfile(path):
        return 0
    return os.path.getsize(path) // chunk_bytes + 1


def _check_columns(path: str, data: Dataset, read_options: ReadOptions, model: SavedModel, console: Console) -> None:
    """Report columns of the training data that the file does not have: an error if missing values are one."""
    absent = [name for name in read_options.columns or () if name not in data.X]
    if not absent:
        return
    listed = ", ".join(map(repr, absent[:20])) + (" ..." if len(absent) > 20 else "")
    if not model.drops_missing:
        raise ValueError(
            f"{path} lacks columns of the training data, {listed}, and {model.path} does not accept missing values: "
            "train it with --missing rescale"
        )
    console.note(f"{path} lacks columns of the training data, which are taken as missing: {listed}")


def _encode(data: Dataset, model: SavedModel, path: str, n_before: int) -> Any:
    """Return the rows for the estimator; ``n_before`` rows of the file come before them."""
    if model.takes == "text" and data.is_table:  # the column of the text may have another name
        return model.encoder.transform(data.X.iloc[:, 0])
    if model.encoder is not None:
        try:
            return model.encoder.transform(data.X)
        except ValueError as error:
            where = f"{path}, after row {n_before}" if n_before else path
            raise ValueError(f"{where}: {error}") from error
    if data.is_table:
        for name in data.X.columns[data.X.dtypes == "category"]:
            what = f"column {name!r} has numbers with a unit, such as {data.X[name].dropna().iloc[0]!r}"
            raise ValueError(f"{path}: {what}, but {model.path} was trained on plain numbers")
        return data.X.reindex(columns=model.feature_names).to_numpy(dtype="float64")
    if data.X.shape[1] != model.estimator.n_features_in_:
        raise ValueError(
            f"{path} has {data.X.shape[1]} features, but {model.path} was trained on {model.estimator.n_features_in_}"
        )
    return data.X


def explain_missing(error: ValueError, path: str, model: SavedModel) -> ValueError:
    """Return the error to raise in place of that of scikit-learn for missing values."""
    if "contains NaN" in str(error) and not model.drops_missing:
        return ValueError(f"{path} has missing values, unlike {model.path}: train it with --missing rescale")
    return error
