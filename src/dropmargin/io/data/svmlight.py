"""svmlight (LIBSVM, LIBLINEAR) files.

::

    line  = [label [qid] {index:value}] [# comment]
    label = number, up to 2^53 in size                qid = "qid:" digits, which are ignored
    index = digits                                    value = number or "nan", which stands for a missing value

Numbers are decimal, such as ``-1.5e3``, and separated by spaces or tabs. Indices may have any order, but must not
occur twice. Blocks of lines are parsed by compiled code (`_svmlight.c`) if it was built, else by Python; both accept
the same lines, and Python describes the error of a line. The environment variable ``DROPMARGIN_KERNELS=0`` turns
compiled code off.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dropmargin.compiled import load_library
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError, quoted
from dropmargin.io.data.sources import Source, line_blocks
from dropmargin.typing import Array

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile(rb"[0-9]+")
_TOKEN = re.compile(rb"[^ \t]+")
_LARGEST_LABEL = 2.0**53
LARGEST_INTEGER = 2**63 - 1


class LineError(Exception):
    """A malformed line: what is wrong, and the column if it is not the whole line."""

    def __init__(self, what: str, column: int | None = None) -> None:
        super().__init__(what)
        self.what, self.column = what, column


@dataclass(frozen=True)
class IndexRange:
    """The feature indices that a file may have."""

    lowest: int
    highest: int
    beyond: str

    @classmethod
    def from_options(cls, options: ReadOptions) -> IndexRange:
        """Return the range; it includes 0 if ``zero_based`` is not given."""
        first = 0 if options.zero_based else 1
        lowest = 1 if options.zero_based is False else 0
        if options.n_features is not None and not options.ignore_extra:
            beyond = f"but there are {options.n_features} features (--ignore-extra leaves the others out)"
            return cls(lowest, options.n_features - 1 + first, beyond)
        if options.ignore_extra:
            return cls(lowest, LARGEST_INTEGER, "which is 2^63 or more")
        beyond = f"but at most {options.max_features} features are allowed (raise --max-features if that is intended)"
        return cls(lowest, options.max_features - 1 + first, beyond)

    def error(self, index: int) -> str:
        """Return the message for an index outside of the range."""
        if index < self.lowest:
            return f"feature index {index}, but indices start at {self.lowest} (use --zero-based)"
        return f"feature index {index if index < 2**64 else 'of more than 64 bits'}, {self.beyond}"


def parse_line(line: bytes, indices: IndexRange) -> tuple[float, list[tuple[int, float]]] | None:
    """Return the label and the sorted entries of a line without its newline, or None if the line is empty."""
    body = line.rstrip(b"\r").split(b"#", 1)[0]
    tokens = [(match.group(), match.start() + 1) for match in _TOKEN.finditer(body)]
    if not tokens:
        return None
    label = _parse_label(*tokens[0])
    if len(tokens) > 1 and tokens[1][0].startswith(b"q"):
        _check_qid(*tokens.pop(1))
    entries = [_parse_entry(token, column, indices) for token, column in tokens[1:]]
    entries.sort(key=lambda entry: entry[0])
    for (index, _), (following, _) in itertools.pairwise(entries):
        if index == following:
            raise LineError(f"feature index {index} occurs twice")
    return label, entries


def _parse_label(token: bytes, column: int) -> float:
    if not _NUMBER.fullmatch(token):
        if b":" in token:
            raise LineError(f"the label is missing: the line begins with {quoted(token)}", column)
        if b"," in token:
            raise LineError(f"several labels, {quoted(token)}, but a row has one", column)
        raise LineError(f"the label {quoted(token)} is not a number", column)
    label = float(token)
    if not -_LARGEST_LABEL <= label <= _LARGEST_LABEL:
        raise LineError(f"the label {quoted(token)} is too large (labels are numbers up to 2^53)", column)
    return label


def _check_qid(token: bytes, column: int) -> None:
    if not token.startswith(b"qid:") or not _DIGITS.fullmatch(token[4:]):
        raise LineError(f"{quoted(token)} should be qid: and digits, or index:value", column)
    if _integer(token[4:]) > LARGEST_INTEGER:
        raise LineError(f"{quoted(token)} is 2^63 or more", column)


def _integer(digits: bytes) -> int:
    """Return the number, or 2^64 if it is larger: Python refuses to convert thousands of digits."""
    significant = digits.lstrip(b"0") or b"0"
    return int(significant) if len(significant) <= 19 else 2**64


def _parse_entry(token: bytes, column: int, indices: IndexRange) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    if not colon:
        raise LineError(f"expected index:value, got {quoted(token)}", column)
    if not _DIGITS.fullmatch(index):
        if index == b"qid":
            raise LineError("qid must follow the label", column)
        raise LineError(f"the feature index {quoted(index)} is not an integer of at least 0", column)
    number = _integer(index)
    if not indices.lowest <= number <= indices.highest:
        raise LineError(indices.error(number))
    return number, _parse_value(value, index, column)


def _parse_value(token: bytes, index: bytes, column: int) -> float:
    if token.lower() == b"nan":
        return float("nan")
    of = f"of feature {_integer(index)}"
    if not token:
        raise LineError(f"the value {of} is missing", column)
    if not _NUMBER.fullmatch(token):
        if token.lower().lstrip(b"+-") in (b"inf", b"infinity"):
            raise LineError(f"the value {of} is infinite", column)
        raise LineError(f"the value {quoted(token)} {of} is not a number", column)
    value = float(token)
    if value - value != 0.0:
        raise LineError(f"the value {quoted(token)} {of} is too large", column)
    return value


# Blocks of lines ----------------------------------------------------------------------------------------------------

_DONE, _REJECTED = 0, 1


class RawRows(NamedTuple):
    """Rows with the indices of the file; ``row_ends[i]`` is the number of entries up to the end of row ``i``.

    The arrays may be views of buffers that are reused for the next rows.
    """

    labels: Array
    row_ends: Array
    indices: Array
    values: Array


class _State(ctypes.Structure):
    """`svmlight_state` of the C code."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("lowest", "highest", "max_rows", "max_entries")),
        *((name, ctypes.c_int64) for name in ("n_lines", "n_rows", "n_entries", "begin", "smallest", "largest")),
    ]


LIBRARY_PATH = Path(__file__).with_name("_svmlight.so")


def _load() -> ctypes.CDLL | None:
    library = load_library(LIBRARY_PATH)
    if library is None:
        return None
    pointer = ctypes.c_void_p
    library.svmlight_read.argtypes = [pointer, ctypes.c_int64, ctypes.POINTER(_State), *[pointer] * 4]
    library.svmlight_read.restype = ctypes.c_int64
    return library


_LIBRARY = _load()


def available() -> bool:
    """Return whether svmlight files are parsed by compiled code."""
    return _LIBRARY is not None


class BlockParser:
    """Parses a file block by block, and records the smallest and largest index of the file."""

    def __init__(self, name: str, indices: IndexRange, compiled: bool = True) -> None:
        self._name, self._range = name, indices
        self._library = _LIBRARY if compiled else None
        limits = {"lowest": indices.lowest, "highest": indices.highest}
        self._state = _State(**limits, smallest=LARGEST_INTEGER, largest=-1)
        self._buffers: list[Array] = []

    @property
    def smallest(self) -> int | None:
        """Smallest index so far."""
        return None if self._state.largest < 0 else int(self._state.smallest)

    @property
    def largest(self) -> int | None:
        """Largest index so far."""
        return None if self._state.largest < 0 else int(self._state.largest)

    def parse(self, buffer: bytearray, length: int) -> RawRows:
        """Return the rows of the next block of `line_blocks`."""
        if self._library is None:
            return self._parse_lines(buffer, length)
        state = self._state
        labels, row_ends, indices, values = arrays = self._sized_buffers(length)
        state.max_rows, state.max_entries = len(labels), len(indices)
        text = np.frombuffer(buffer, dtype=np.uint8)
        addresses = (array.ctypes.data for array in arrays)
        status = self._library.svmlight_read(text.ctypes.data, length, ctypes.byref(state), *addresses)
        if status == _REJECTED:
            end = buffer.find(b"\n", state.begin)
            self._parse_line(bytes(buffer[state.begin : end]), state.n_lines + 1)  # raises its error
        if status != _DONE:
            raise RuntimeError(f"The compiled reader of svmlight files ended with status {status}.")
        n, m = state.n_rows, state.n_entries
        return RawRows(labels[:n], row_ends[:n], indices[:m], values[:m])

    def _sized_buffers(self, length: int) -> list[Array]:
        """Return arrays for all rows and entries in so many bytes: a row has two bytes at least, an entry four."""
        n_rows, n_entries = length // 2 + 1, length // 4 + 1
        if not self._buffers or len(self._buffers[0]) < n_rows:
            sizes = ((n_rows, np.float64), (n_rows, np.int64), (n_entries, np.int64), (n_entries, np.float64))
            self._buffers = [np.empty(n, dtype=dtype) for n, dtype in sizes]
        return self._buffers

    def _parse_line(self, line: bytes, number: int) -> tuple[float, list[tuple[int, float]]] | None:
        try:
            return parse_line(line, self._range)
        except LineError as error:
            raise DataFormatError(error.what, self._name, number, error.column) from None

    def _parse_lines(self, buffer: bytearray, length: int) -> RawRows:
        state = self._state
        labels: list[float] = []
        row_ends: list[int] = []
        entries: list[tuple[int, float]] = []
        for line in bytes(buffer[:length]).removesuffix(b"\n").split(b"\n"):
            state.n_lines += 1
            if (row := self._parse_line(line, state.n_lines)) is not None:
                labels.append(row[0])
                entries += row[1]
                row_ends.append(len(entries))
        indices = np.array([index for index, _ in entries], dtype=np.int64)
        state.smallest = min(state.smallest, indices.min(initial=LARGEST_INTEGER))
        state.largest = max(state.largest, indices.max(initial=-1))
        values = np.array([value for _, value in entries], dtype=np.float64)
        return RawRows(np.array(labels, dtype=np.float64), np.array(row_ends, dtype=np.int64), indices, values)


# Files --------------------------------------------------------------------------------------------------------------

_BLOCK_BYTES = 2**22
_INT32_MAX = 2**31 - 1


def read(source: Source, options: ReadOptions) -> Dataset:
    """Return all rows; indices start at 0 if ``zero_based`` is not given and index 0 occurs."""
    parser = BlockParser(source.name, IndexRange.from_options(options))
    pieces: list[list[Array]] = [[], [], [], []]
    n_entries = 0
    with source.open() as stream:
        for buffer, length in line_blocks(stream, source.name, _BLOCK_BYTES):
            rows = parser.parse(buffer, length)  # in buffers that are reused
            is_small = rows.indices.max(initial=0) <= _INT32_MAX
            indices = rows.indices.astype(np.int32 if is_small else np.int64)
            arrays = (rows.labels.copy(), indices, rows.values.copy(), rows.row_ends + n_entries)
            for piece, array in zip(pieces, arrays, strict=True):
                piece.append(array)
            n_entries += len(indices)
    zero_based = parser.smallest == 0 if options.zero_based is None else options.zero_based
    first = 0 if zero_based else 1
    n_seen = 0 if parser.largest is None else parser.largest + 1 - first
    n_features = options.n_features
    if n_features is None:
        n_features = n_seen
    elif n_seen > n_features and not options.ignore_extra:  # known only after index 0 has occurred
        what = f"feature index {parser.largest}, but there are {n_features} features, counted from 0"
        raise DataFormatError(what, source.name)
    if n_features > options.max_features:
        what = f"{n_features} features, but at most {options.max_features} are allowed"
        raise DataFormatError(f"{what} (raise --max-features if that is intended)", source.name)
    if not sum(map(len, pieces[0])):
        raise DataFormatError("there are no rows", source.name)
    labels, indices, values, row_ends = (np.concatenate(pieces.pop(0)) for _ in range(4))  # each frees its blocks
    X = _as_csr(indices, values, row_ends, first, n_features)
    return Dataset(X, integers_if_possible(labels), zero_based=zero_based)


def chunks(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of about ``chunk_bytes`` bytes at a time; ``zero_based`` and ``n_features`` must be given."""
    if options.zero_based is None or options.n_features is None:
        missing = "zero_based" if options.zero_based is None else "n_features"
        raise ValueError(f"{missing} must be given for svmlight files in chunks: a chunk does not determine it.")
    parser = BlockParser(source.name, IndexRange.from_options(options))
    first = 0 if options.zero_based else 1
    with source.open() as stream:
        for buffer, length in line_blocks(stream, source.name, chunk_bytes):
            rows = parser.parse(buffer, length)
            if len(rows.labels):
                X = _as_csr(rows.indices, rows.values.copy(), rows.row_ends, first, options.n_features)
                yield Dataset(X, integers_if_possible(rows.labels.copy()), zero_based=options.zero_based)


def _as_csr(indices: Array, values: Array, row_ends: Array, first: int, n_features: int) -> sparse.csr_array:
    """Return a matrix from indices that start at ``first``; those beyond ``n_features`` are left out."""
    if len(indices) and int(indices.max()) - first >= n_features:
        inside = indices < n_features + first
        row_ends = np.concatenate(([0], np.cumsum(inside)))[row_ends]
        indices, values = indices[inside], values[inside]
    small = n_features <= _INT32_MAX and len(values) <= _INT32_MAX
    dtype = np.int32 if small else np.int64
    columns = np.subtract(indices, first, dtype=dtype, casting="unsafe")
    row_pointers = np.zeros(len(row_ends) + 1, dtype=dtype)
    row_pointers[1:] = row_ends
    return sparse.csr_array((values, columns, row_pointers), shape=(len(row_ends), n_features))


def integers_if_possible(labels: Array) -> Array:
    """Return labels as int64 if all of them are integers; all are at most 2^53."""
    integers = labels.astype(np.int64)
    return integers if np.array_equal(integers, labels) else labels
