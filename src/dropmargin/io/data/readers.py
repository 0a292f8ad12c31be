"""The data file formats, and the two functions that read them: whole, or in chunks."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from dropmargin.errors import ParameterError
from dropmargin.estimators.validation import check_integer
from dropmargin.io.data.cells import UNITS
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import one_line
from dropmargin.io.data.sources import STDIN, Source

CHUNK_BYTES = 2**22
_LABEL_OPTIONS = frozenset({"label_kind", "label_unit", "skip_unlabelled"})
_TYPED_OPTIONS = frozenset({"target", "text", "columns", "categorical", "ignore", "ids"}) | _LABEL_OPTIONS
_TEXT_OPTIONS = _TYPED_OPTIONS | {"separator", "decimal", "missing_values"}
_SVMLIGHT_OPTIONS = frozenset({"zero_based", "n_features", "ignore_extra"})
_CHOICES: dict[str, tuple[Any, ...]] = {
    "zero_based": (None, True, False),
    "label_kind": (None, "integer", "number", "string"),
    "label_unit": (None, *UNITS),
    "decimal": (".", ","),
}


@dataclass(frozen=True)
class Format:
    """Ends of file names, the module with ``read`` and ``chunks``, and those options that only some formats have."""

    extensions: tuple[str, ...]
    module: str
    options: frozenset[str]


#: Every format by its name.
FORMATS = {
    "svmlight": Format((".svm", ".svmlight", ".libsvm"), "svmlight", _SVMLIGHT_OPTIONS),
    "csv": Format((".csv",), "tables", _TEXT_OPTIONS),
    "tsv": Format((".tsv", ".tab"), "tables", _TEXT_OPTIONS),
    "jsonl": Format((".jsonl", ".ndjson"), "tables", _TYPED_OPTIONS),
    "parquet": Format((".parquet", ".pq"), "tables", _TYPED_OPTIONS),
    "arrow": Format((".arrow", ".feather"), "tables", _TYPED_OPTIONS),
    "npz": Format((".npz",), "npz", frozenset({"target"})),
    "text": Format((".txt",), "tables", frozenset({"target"}) | _LABEL_OPTIONS),
}
#: The formats that are read as data frames.
TABLES = ("csv", "tsv", "jsonl", "parquet", "arrow")


def read_data(path: str | os.PathLike[str], options: ReadOptions | None = None, *, sha256: bool = False) -> Dataset:
    """Read all rows of a data file. The file is read once.

    Parameters
    ----------
    path : str or path-like
        ``-`` is standard input. Gzip data are decompressed, whatever the file name.
    options : ReadOptions, optional
        Format, target column and the other options of a reader.
    sha256 : bool, default=False
        Whether to compute the hash of the file.

    Returns
    -------
    Dataset
        The rows as ``X`` and the labels as ``y``.

    Raises
    ------
    DataFormatError
        If the file is malformed.
    ValueError
        If an option is wrong.

    See Also
    --------
    TableEncoder : Encodes a table as a matrix.

    Examples
    --------
    >>> import os, tempfile
    >>> from dropmargin.io.data import ReadOptions, read_data
    >>> path = os.path.join(tempfile.mkdtemp(), "table.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("size,colour,label\\n1.5,red,yes\\n2.5,blue,no\\n")
    >>> data = read_data(path, ReadOptions(target="label"))
    >>> data.X.shape, data.y.tolist()
    ((2, 2), ['yes', 'no'])
    """
    module, options = _prepare(path, options)
    source = Source(path, options.max_ratio, sha256)
    data: Dataset = module.read(source, options)
    return replace(data, sha256=source.sha256)


def read_chunks(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Dataset]:
    """Return an iterator over the rows of a data file in chunks of about ``chunk_bytes`` bytes of the file.

    A chunk does not determine the type of its columns: see ``zero_based``, ``n_features``, ``columns`` and
    ``label_kind`` of `ReadOptions`. Labels that are numbers are int64 in a chunk in which all are integers.

    Parameters
    ----------
    path : str or path-like
    options : ReadOptions, optional
    chunk_bytes : int

    Returns
    -------
    iterator of Dataset
    """
    module, options = _prepare(path, options)
    check_integer("chunk_bytes", chunk_bytes, 1)
    chunks: Iterator[Dataset] = module.chunks(Source(path, options.max_ratio), options, chunk_bytes)
    return chunks


def find_format(path: str | os.PathLike[str], given: str | None = None) -> str:
    """Return the name of the format of a file: ``given``, or determined by the end of its name, before any ``.gz``."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format must be one of {list(FORMATS)}, got {given!r}.")
        return given
    name = os.fspath(path)
    suffix = PurePath(name.lower().removesuffix(".gz")).suffix
    for found, form in FORMATS.items():
        if suffix in form.extensions:
            return found
    if name == STDIN:
        reason = f"the format must be given for standard input: one of {', '.join(FORMATS)}"
        raise ParameterError(f"format must be given for standard input: one of {list(FORMATS)}.", "format", reason)
    known = ", ".join(end for form in FORMATS.values() for end in form.extensions)
    what = f"the format of {name} is not known: use a file name that ends in one of {known} (each also with .gz)"
    raise ParameterError(f"{what}, or set format to one of {list(FORMATS)}.", "format", f"{what}, or add this option")


def _prepare(path: str | os.PathLike[str], options: ReadOptions | None) -> tuple[Any, ReadOptions]:
    """Return the module of a reader, and the options with the format of the file."""
    options = ReadOptions() if options is None else options
    name = find_format(path, options.format)
    _check_options(options, name)
    try:
        module = importlib.import_module(f"dropmargin.io.data.{FORMATS[name].module}")
    except ImportError as error:
        what = f"{name} files need pandas and pyarrow ({one_line(error)})"
        raise ImportError(f"{what}. Install them with: pip install 'dropmargin[cli]'") from error
    # The reader of text files distinguishes a format that is given from one that the file name has.
    known = options if name == "text" else replace(options, format=name)
    return module, known


def _check_options(options: ReadOptions, name: str) -> None:
    default = ReadOptions()
    for option in sorted((_TEXT_OPTIONS | _SVMLIGHT_OPTIONS) - FORMATS[name].options):
        if getattr(options, option) != getattr(default, option):
            known = [other for other, form in FORMATS.items() if option in form.options]
            got = f"{option}={getattr(options, option)!r}"
            raise ParameterError(
                f"{option} is an option of {', '.join(known)} files, not of {name} files; got {got}.",
                option,
                f"this is for {', '.join(known)} files; the data are read as {name} (see --format)",
            )
    for option, low in (("max_features", 1), ("max_ratio", 1), ("n_features", 0)):
        if getattr(options, option) is not None:
            check_integer(option, getattr(options, option), low)
    if options.n_features is not None and options.n_features > options.max_features:
        raise ValueError(f"n_features={options.n_features} is more than max_features={options.max_features}.")
    for option, allowed in _CHOICES.items():
        if getattr(options, option) not in allowed:
            raise ValueError(f"{option} must be one of {list(allowed)}, got {getattr(options, option)!r}.")
    if options.separator is not None and (len(options.separator) != 1 or options.separator in '"\r\n'):
        raise ValueError(f"separator must be one character, not a quote or a line end, got {options.separator!r}.")
    if options.decimal == options.separator:
        raise ValueError(f"decimal must not be the separator, got {options.decimal!r}.")
    if options.target is not None and options.target in options.text_columns:
        raise ValueError(f"target and text are the same column, {options.target!r}.")
    for column, kind in (options.columns or {}).items():
        if kind not in ("number", "category", "date"):
            raise ValueError(f"columns must map names to 'number', 'category' or 'date', got {kind!r} for {column!r}.")
