"""The formats, by name and by the end of a file's name, and the two ways to read them: whole, or in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from dropmargin.io.data.columnar import chunk_columnar, read_columnar
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.delimited import chunk_delimited, read_delimited
from dropmargin.io.data.npz import chunk_npz, read_npz
from dropmargin.io.data.sources import STDIN, Source
from dropmargin.io.data.svmlight import chunk_svmlight, read_svmlight
from dropmargin.io.data.text import chunk_text, read_text

CHUNK_BYTES = 2**22
_TABLE_OPTIONS = frozenset({"target", "text", "columns", "categorical", "ignore"})
_TEXT_TABLE_OPTIONS = _TABLE_OPTIONS | {"separator", "label_kind"}
#: Options that are an error for a format that does not know them.
_SELECTIVE = _TEXT_TABLE_OPTIONS | {"zero_based", "n_features", "ignore_extra"}


@dataclass(frozen=True)
class Format:
    """How to read one format, and which of the options that not all formats know are meant for it."""

    extensions: tuple[str, ...]
    read: Callable[[Source, ReadOptions], Dataset]
    chunks: Callable[[Source, ReadOptions, int], Iterator[Dataset]]
    options: frozenset[str]


#: Every format by its name.
FORMATS = {
    "svmlight": Format(
        (".svm", ".svmlight", ".libsvm"),
        read_svmlight,
        chunk_svmlight,
        frozenset({"zero_based", "n_features", "ignore_extra"}),
    ),
    "csv": Format((".csv",), read_delimited, chunk_delimited, _TEXT_TABLE_OPTIONS),
    "tsv": Format((".tsv", ".tab"), read_delimited, chunk_delimited, _TEXT_TABLE_OPTIONS),
    "parquet": Format((".parquet", ".pq"), read_columnar, chunk_columnar, _TABLE_OPTIONS | {"label_kind"}),
    "arrow": Format((".arrow", ".feather"), read_columnar, chunk_columnar, _TABLE_OPTIONS | {"label_kind"}),
    "npz": Format((".npz",), read_npz, chunk_npz, frozenset({"target"})),
    "text": Format((".txt",), read_text, chunk_text, frozenset({"target", "label_kind"})),
}


def read_data(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Dataset:
    """Return all rows of a data file.

    Parameters
    ----------
    path : str or path-like
        ``-`` is standard input. Gzipped files are unpacked, whatever they are called.
    options : ReadOptions, optional

    Raises
    ------
    DataFormatError
        If the file is not what it should be.
    ValueError
        If an option is.
    """
    source, options, form = _prepare(path, options)
    return form.read(source, options)


def read_chunks(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Dataset]:
    """Yield the rows of a data file in parts of about ``chunk_bytes`` bytes, for files larger than memory.

    Nothing is guessed from a part: see ``zero_based``, ``n_features``, ``columns`` and ``label_kind`` of `ReadOptions`.
    """
    source, options, form = _prepare(path, options)
    if not isinstance(chunk_bytes, int) or chunk_bytes < 1:
        raise ValueError(f"chunk_bytes must be an integer of at least 1, got {chunk_bytes!r}.")
    return form.chunks(source, options, chunk_bytes)


def find_format(path: str | os.PathLike[str], given: str | None = None) -> str:
    """Return the name of a file's format: the one that is given, or that of its name's end, before any ``.gz``."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format must be one of {list(FORMATS)}, got {given!r}.")
        return given
    name = os.fspath(path)
    if name == STDIN:
        raise ValueError(f"format must be given for standard input (--format): one of {list(FORMATS)}.")
    suffix = PurePath(name.lower().removesuffix(".gz")).suffix
    for found, form in FORMATS.items():
        if suffix in form.extensions:
            return found
    known = ", ".join(end for form in FORMATS.values() for end in form.extensions)
    raise ValueError(
        f"The format of {name!r} is not known: its name should end in one of {known} (or with .gz behind it), "
        f"or format (--format) should be one of {list(FORMATS)}."
    )


def _prepare(path: str | os.PathLike[str], options: ReadOptions | None) -> tuple[Source, ReadOptions, Format]:
    options = ReadOptions() if options is None else options
    name = find_format(path, options.format)
    _check_options(options, name)
    # A text file keeps to be told from one that only its name calls so.
    known = options if name == "text" else replace(options, format=name)
    return Source(path, options.max_ratio), known, FORMATS[name]


def _check_options(options: ReadOptions, name: str) -> None:
    plain = ReadOptions()
    for option in sorted(_SELECTIVE - FORMATS[name].options):
        if getattr(options, option) != getattr(plain, option):
            known = [other for other, form in FORMATS.items() if option in form.options]
            got = f"{option}={getattr(options, option)!r}"
            raise ValueError(f"{option} is not for {name} files, but for {', '.join(known)}; got {got}.")
    for option, low in (("max_features", 1), ("max_ratio", 1), ("n_features", 0)):
        value = getattr(options, option)
        if not (isinstance(value, int) and not isinstance(value, bool) and value >= low) and value is not None:
            raise ValueError(f"{option} must be an integer of at least {low}, got {value!r}.")
    if options.n_features is not None and options.n_features > options.max_features:
        raise ValueError(f"n_features={options.n_features} is more than max_features={options.max_features}.")
    if options.zero_based not in (None, True, False):
        raise ValueError(f"zero_based must be True, False or None, got {options.zero_based!r}.")
    if options.label_kind not in (None, "integer", "string"):
        raise ValueError(f"label_kind must be 'integer', 'string' or None, got {options.label_kind!r}.")
    for name, kind in (options.columns or {}).items():
        if kind not in ("number", "category"):
            raise ValueError(f"columns must map names to 'number' or 'category', got {kind!r} for {name!r}.")
