"""Several data files of one format: the list of files, checks over all of them, and reading in blocks of rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import canonical, to_arrays
from dropmargin.errors import ParameterError
from dropmargin.io.data import DataFormatError, Dataset, ReadOptions, find_format, read_chunks
from dropmargin.io.data.dataset import concatenate
from dropmargin.io.data.errors import one_line
from dropmargin.io.data.matrices import index_range
from dropmargin.io.data.sources import hash_of
from dropmargin.progress import Progress

_TABLES = ("parquet", "arrow", "csv", "tsv")
_FORMATS = ("svmlight", *_TABLES, "npz")
_CHUNK_BYTES = 2**22
_STEP = 2**20  # the unit of progress

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class DataFiles:
    """The files of one data set, in order, the options of their reader, and whether to show progress."""

    paths: tuple[Path, ...]
    format: str
    options: ReadOptions
    progress: bool

    def fingerprint(self) -> list[str | None]:
        """Return hashes of the content of all files."""
        return [hash_of(path) for path in self.paths]


def find_files(paths: PathLike | Iterable[PathLike], options: ReadOptions | None, progress: bool) -> DataFiles:
    """Return the files of a folder, sorted by name and without those that begin with a dot or ``_``, or of a list.

    Files of several formats are an error, and so is a format that cannot be read in chunks.
    """
    options = ReadOptions() if options is None else options
    found: list[Path] = []
    for given in map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths):
        if given.is_dir():
            found += sorted(path for path in given.iterdir() if path.is_file() and path.name[0] not in "._")
        elif given.is_file():
            found.append(given)
        else:
            raise FileNotFoundError(f"{str(given)!r} does not exist, or is not a file.")
    if not found:
        raise ValueError(f"There are no files in {str(paths)!r}.")
    formats: dict[str, Path] = {}  # and the first file of each
    for path in found:
        formats.setdefault(find_format(path, options.format), path)
    if len(formats) > 1:
        listed = ", ".join(f"{path.name} is {form}" for form, path in formats.items())
        raise ValueError(f"The files are of several formats: {listed}. Pass files of one format only.")
    ((form, first),) = formats.items()
    if form not in _FORMATS:
        what = f"files of the formats {', '.join(_FORMATS)}; {first.name} is {form}, which cannot be read in chunks"
        raise ParameterError(f"A fit to files needs {what}.", "stream", f"it needs {what}")
    if form in _TABLES and options.target is None:
        what = f"options.target must name the column of the labels of {form} files, got None."
        raise ParameterError(what, "target", f"name the column of the labels of {first}")
    return DataFiles(tuple(found), form, options, progress)


def scan_files(files: DataFiles) -> DataFiles:
    """Return the files; svmlight files with ``zero_based`` and ``n_features``, determined over all of them together."""
    options = files.options
    if files.format != "svmlight" or (options.zero_based is not None and options.n_features is not None):
        return files
    smallest, largest = None, -1
    with _bar(files, "scanning svmlight files") as progress:
        for path in files.paths:
            low, high = index_range(path, _CHUNK_BYTES)
            progress.advance(path.stat().st_size // _STEP)
            if low is not None:
                smallest = low if smallest is None else min(smallest, low)
                largest = max(largest, high)
    zero_based = smallest == 0 if options.zero_based is None else options.zero_based
    seen = largest + 1 if zero_based else max(largest, 0)
    n_features = seen if options.n_features is None else options.n_features
    if seen > n_features and not options.ignore_extra:
        what = f"The files have features up to index {largest}, counted from {0 if zero_based else 1}"
        raise ValueError(f"{what}, but n_features={n_features}; raise it, or set ignore_extra=True.")
    return replace(files, options=replace(options, zero_based=zero_based, n_features=n_features))


def read_blocks(files: DataFiles, block_bytes: int) -> Iterator[tuple[int, Dataset]]:
    """Yield blocks of about ``block_bytes`` bytes, each with the number of its file; no block has rows of two files."""
    expected: Any = None
    with _bar(files, "converting files") as progress:
        for number, path in enumerate(files.paths):
            waiting: list[Dataset] = []
            n_bytes = 0
            for part in read_chunks(path, files.options, chunk_bytes=max(1, min(_CHUNK_BYTES, block_bytes))):
                if part.is_table:
                    names = tuple(part.X.columns)
                    names = expected if expected is not None and set(names) == set(expected) else names
                    part = replace(part, X=part.X[list(names)], feature_names=names)  # in the same order
                X = canonical(_matrix_of(part, path, files.format))
                if part.y is None:
                    raise DataFormatError("there are no labels, no array 'y' (--target names another)", str(path))
                columns = X.shape[1] if part.feature_names is None else part.feature_names
                expected = columns if expected is None else expected
                if columns != expected:
                    what = f"{_listed(columns)}, but those before have {_listed(expected)}: all files need the same"
                    raise DataFormatError(what, str(path))
                waiting.append(replace(part, X=X))
                n_bytes += sum(array.nbytes for array in to_arrays(X))
                if n_bytes >= block_bytes:
                    yield number, concatenate(waiting)
                    waiting, n_bytes = [], 0
            if waiting:
                yield number, concatenate(waiting)
            progress.advance(path.stat().st_size // _STEP)


def _listed(columns: Any) -> str:
    return f"{columns} features" if isinstance(columns, int) else f"the columns {list(columns)[:20]}"


def _matrix_of(part: Dataset, path: Path, form: str) -> Any:
    """Return the rows as a matrix; cells of CSV files are text, and must be numbers."""
    if not part.is_table:
        return part.X
    import pyarrow as pa

    allowed = [pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null]
    allowed += [pa.types.is_string, pa.types.is_large_string] if form in ("csv", "tsv") else []
    columns = []
    for name in part.X:
        try:
            cells = pa.array(part.X[name])
            if not any(is_kind(cells.type) for is_kind in allowed):
                raise pa.ArrowTypeError(f"it is of type {cells.type}")
            columns.append(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        except pa.ArrowException as error:
            what = f"column {name!r} holds other cells than numbers: {one_line(error)}"
            raise DataFormatError(f"{what} (encode it first, or use --ignore {name})", str(path)) from error
    return np.column_stack(columns)


def _bar(files: DataFiles, label: str) -> Progress:
    n_steps = max(1, sum(path.stat().st_size // _STEP for path in files.paths))
    return Progress(n_steps, label, verbose=int(files.progress))
