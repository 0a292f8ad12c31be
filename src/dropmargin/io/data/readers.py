"""The formats of data files, and the functions that read one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from dropmargin.errors import ParameterError
from dropmargin.io.data.dataset import Dataset, ReadOptions, concatenate
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.sources import STDIN, files_of, name_of

CHUNK_BYTES = 2**24


@dataclass(frozen=True)
class Format:
    """The endings of the file names of a format, and the options of its reader besides format."""

    endings: tuple[str, ...]
    options: frozenset[str]


_TABLE = frozenset({"target", "ids", "ignore", "columns", "skip_unlabelled"})
_SVMLIGHT = frozenset({"zero_based", "n_features", "ignore_extra", "max_features"})
FORMATS = {
    "svmlight": Format((".svm", ".svmlight", ".libsvm"), _SVMLIGHT),
    "csv": Format((".csv",), _TABLE | {"separator", "encoding"}),
    "tsv": Format((".tsv", ".tab"), _TABLE | {"encoding"}),
    "jsonl": Format((".jsonl", ".ndjson"), _TABLE | {"encoding"}),
    "parquet": Format((".parquet", ".pq"), _TABLE),
    "arrow": Format((".arrow", ".feather"), _TABLE),
    "npz": Format((".npz",), frozenset({"target", "max_features"})),
    "text": Format((".txt",), frozenset({"target", "encoding"})),
}
#: The formats that are read as matrices.
MATRICES = ("svmlight", "npz")


def read_data(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Dataset:
    """Read all rows of a data file.

    Parameters
    ----------
    path : str or path-like
        ``-`` is standard input. Gzip data are decompressed, whatever the file name. A folder has Parquet or Arrow
        files, or documents in a folder per label.
    options : ReadOptions, optional
        Format, target column and the other options of a reader.

    Returns
    -------
    Dataset
        The rows as ``X`` and the labels as ``y``.

    Raises
    ------
    DataFormatError
        If the file is malformed, or has no rows.
    ValueError
        If an option is wrong.

    See Also
    --------
    read_chunks : Read a file in parts.

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
    parts = list(_chunks(path, options, None))
    if not parts:
        raise DataFormatError("there are no rows", name_of(path))
    return concatenate(parts)


def read_chunks(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Dataset]:
    """Return an iterator over the rows of a data file in chunks of about ``chunk_bytes`` bytes of the file.

    Parameters
    ----------
    path : str or path-like
        As for `read_data`.
    options : ReadOptions, optional
        As for `read_data`. An svmlight file needs ``zero_based`` and ``n_features``.
    chunk_bytes : int, default=2**24
        The size of a chunk.

    Returns
    -------
    iterator of Dataset
        Labels of text are integers in a chunk in which all are.

    See Also
    --------
    read_data : Read all rows.

    Examples
    --------
    >>> import os, tempfile
    >>> from dropmargin.io.data import read_chunks
    >>> path = os.path.join(tempfile.mkdtemp(), "table.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("size,colour\\n1.5,red\\n2.5,blue\\n")
    >>> [part.n_samples for part in read_chunks(path)]
    [2]
    """
    return _chunks(path, options, chunk_bytes)


def find_format(path: str | os.PathLike[str], given: str | None = None) -> str:
    """Return the name of the format of a file: ``given``, or determined by the end of its name, before any ``.gz``."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format must be one of {list(FORMATS)}, got {given!r}.")
        return given
    name = os.fspath(path)
    if name == STDIN:
        reason = f"the format must be given for standard input: one of {', '.join(FORMATS)}"
        raise ParameterError(f"format must be given for standard input: one of {list(FORMATS)}.", "format", reason)
    is_folder = Path(path).is_dir()
    names = [file.name for file in files_of(path)] if is_folder else [name]
    for file in names[:1]:
        suffix = PurePath(file.lower().removesuffix(".gz")).suffix
        for found, form in FORMATS.items():
            if suffix in form.endings and (not is_folder or found in ("parquet", "arrow", "text")):
                return found
    if is_folder:
        what = "a folder must have Parquet or Arrow files, or documents (.txt) in a folder per label"
        raise DataFormatError(what, name)
    known = ", ".join(end for form in FORMATS.values() for end in form.endings)
    what = f"the format of {name} is not known: use a file name that ends in one of {known} (each also with .gz)"
    raise ParameterError(f"{what}, or set format to one of {list(FORMATS)}.", "format", f"{what}, or add this option")


def _chunks(path: Any, options: ReadOptions | None, chunk_bytes: int | None) -> Iterator[Dataset]:
    """Return the chunks of a file; ``None`` bytes for those of a file that is read whole."""
    options = ReadOptions() if options is None else options
    options = replace(options, format=find_format(path, options.format))
    form = str(options.format)
    _check_options(options, form)
    if form in MATRICES:
        from dropmargin.io.data import matrices

        read = matrices.npz_chunks if form == "npz" else matrices.svmlight_chunks
        return read(path, options, chunk_bytes)
    try:
        from dropmargin.io.data import tables
    except ImportError as error:
        raise ImportError(f"{form} files need pandas and pyarrow: pip install 'dropmargin[cli]'") from error
    readers = {"jsonl": tables.json_chunks, "text": tables.text_chunks}
    readers |= dict.fromkeys(("csv", "tsv"), tables.csv_chunks)
    return readers.get(form, tables.arrow_chunks)(path, options, chunk_bytes or CHUNK_BYTES)


def _check_options(options: ReadOptions, name: str) -> None:
    """Refuse options of other formats: they would have no effect."""
    default = ReadOptions()
    for option in sorted(frozenset().union(*(form.options for form in FORMATS.values())) - FORMATS[name].options):
        if getattr(options, option) != getattr(default, option):
            known = ", ".join(other for other, form in FORMATS.items() if option in form.options)
            what = f"{option} is an option of {known} files, not of {name} files; got {getattr(options, option)!r}."
            reason = f"this is for {known} files; the data are read as {name} (see --format)"
            raise ParameterError(what, option, reason)
    if options.separator is not None and (len(options.separator) != 1 or options.separator in '"\r\n'):
        raise ValueError(f"separator must be one character, not a quote or a line end, got {options.separator!r}.")
