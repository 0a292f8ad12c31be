"""Several data files of one format: the list of files, checks over all of them, and reading in blocks of rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dropmargin.data import canonical, to_arrays
from dropmargin.errors import ParameterError
from dropmargin.io.data import DataFormatError, Dataset, ReadOptions, find_format, read_chunks
from dropmargin.io.data.dataset import concatenate
from dropmargin.io.data.sources import Source, line_blocks
from dropmargin.io.data.svmlight import BlockParser, IndexRange
from dropmargin.progress import Progress

_FORMATS = ("svmlight", "parquet", "arrow", "npz")
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

    def fingerprint(self) -> list[list[str]]:
        """Return names and hashes of the content of all files, to tell whether a cache of them is stale."""
        return [[str(path.resolve()), _content_hash(path)] for path in self.paths]


def _content_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def find_files(paths: PathLike | Iterable[PathLike], options: ReadOptions | None, progress: bool) -> DataFiles:
    """Return the files of a folder, sorted by name and without those that begin with a dot or ``_``, or of a list.

    Files of several formats are an error, and so is a format that cannot be read in chunks.
    """
    options = ReadOptions() if options is None else options
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    found: list[Path] = []
    for given in map(Path, paths):
        if not given.is_dir():
            found.append(given)
            continue
        inside = sorted(path for path in given.iterdir() if path.is_file() and path.name[0] not in "._")
        if not inside:
            raise ValueError(f"There are no files in {str(given)!r}.")
        found += inside
    if not found:
        raise ValueError("paths must name at least one file or folder, got none.")
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(f"{str(path)!r} does not exist, or is not a file.")
    formats: dict[str, Path] = {}  # and the first file of each
    for path in found:
        formats.setdefault(find_format(path, options.format), path)
    if len(formats) > 1:
        listed = ", ".join(f"{path.name} is {form}" for form, path in formats.items())
        raise ValueError(f"The files are of several formats: {listed}. Pass files of one format only.")
    ((form, first),) = formats.items()
    if form not in _FORMATS:
        raise ParameterError(
            f"{first.name} is {form}, which cannot be read in chunks for a fit: use one of {list(_FORMATS)}. "
            "Encode tables with categories or text first, and save the result as npz.",
            "memory_limit",
            f"this is for {', '.join(_FORMATS)} files; {first} is read as {form}",
        )
    if form in ("parquet", "arrow") and options.target is None:
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
            parser = BlockParser(str(path), IndexRange.from_options(options))
            with Source(path, options.max_ratio).open() as stream:
                for buffer, length in line_blocks(stream, str(path), _CHUNK_BYTES):
                    parser.parse(buffer, length)
                    progress.advance(length // _STEP)
            if parser.smallest is not None and parser.largest is not None:
                smallest = parser.smallest if smallest is None else min(smallest, parser.smallest)
                largest = max(largest, parser.largest)
    zero_based = smallest == 0 if options.zero_based is None else options.zero_based
    seen = largest + 1 if zero_based else max(largest, 0)
    n_features = seen if options.n_features is None else options.n_features
    if seen > n_features and not options.ignore_extra:
        raise ValueError(
            f"The files have features up to index {largest}, counted from {0 if zero_based else 1}, but "
            f"n_features={n_features}; raise it, or set ignore_extra=True."
        )
    return replace(files, options=replace(options, zero_based=zero_based, n_features=n_features))


def read_blocks(files: DataFiles, block_bytes: int) -> Iterator[tuple[int, Dataset]]:
    """Yield blocks of about ``block_bytes`` bytes, each with the number of its file; no block has rows of two files."""
    expected: Any = None
    with _bar(files, "converting files") as progress:
        for number, path in enumerate(files.paths):
            waiting: list[Dataset] = []
            n_bytes = 0
            for part in read_chunks(path, files.options, chunk_bytes=max(1, min(_CHUNK_BYTES, block_bytes))):
                if part.is_table and expected is not None and set(part.feature_names or ()) == set(expected):
                    part = replace(part, X=part.X[list(expected)], feature_names=expected)  # in the same order
                X = canonical(_matrix_of(part, path))
                if part.y is None:
                    raise DataFormatError(
                        "there are no labels: there is no array 'y' (--target names another)", str(path)
                    )
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


def _matrix_of(part: Dataset, path: Path) -> Any:
    """Return the rows as a matrix; columns of categories are an error."""
    if not part.is_table:
        return part.X
    for name, dtype in part.X.dtypes.items():
        if dtype.kind != "f":
            what = f"column {name!r} holds categories, not numbers (encode it first, or use --ignore {name})"
            raise DataFormatError(what, str(path))
    return part.X.to_numpy()


def _bar(files: DataFiles, label: str) -> Progress:
    n_steps = max(1, sum(path.stat().st_size // _STEP for path in files.paths))
    return Progress(n_steps, label, verbose=int(files.progress))
