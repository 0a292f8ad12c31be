"""Blocks of lines of an svmlight file, parsed by compiled code (`_svmlight.c`) if it was built, else by Python.

The environment variable ``DROPMARGIN_KERNELS=0`` turns compiled code off.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dropmargin.compiled import load_library
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.svmlight_lines import LARGEST_INTEGER, IndexRange, LineError, Row, parse_line
from dropmargin.typing import Array

_DONE, _REJECTED = 0, 1
_QID_UNKNOWN, _QID_ABSENT, _QID_PRESENT = -1, 0, 1


@dataclass(frozen=True)
class RawRows:
    """Rows with the indices of the file; ``row_ends[i]`` is the number of entries up to the end of row ``i``.

    The arrays may be views of buffers that are reused for the next rows.
    """

    labels: Array
    qids: Array | None
    row_ends: Array
    indices: Array
    values: Array


class _State(ctypes.Structure):
    """`svmlight_state` of the C code."""

    _fields_ = [
        ("lowest", ctypes.c_int64),
        ("highest", ctypes.c_int64),
        ("max_rows", ctypes.c_int64),
        ("max_entries", ctypes.c_int64),
        ("has_qid", ctypes.c_int64),
        ("n_lines", ctypes.c_int64),
        ("n_rows", ctypes.c_int64),
        ("n_entries", ctypes.c_int64),
        ("begin", ctypes.c_int64),
        ("smallest", ctypes.c_int64),
        ("largest", ctypes.c_int64),
    ]


def _load() -> ctypes.CDLL | None:
    library = load_library(Path(__file__).with_name("_svmlight.so"))
    if library is None:
        return None
    pointer = ctypes.c_void_p
    library.svmlight_parse.argtypes = [pointer, ctypes.c_int64, ctypes.POINTER(_State), *[pointer] * 5]
    library.svmlight_parse.restype = ctypes.c_int64
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
        self._state = _State(
            lowest=indices.lowest,
            highest=indices.highest,
            has_qid=_QID_UNKNOWN,
            smallest=LARGEST_INTEGER,
            largest=-1,
        )
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
        labels, qids, row_ends, indices, values = self._sized_buffers(length)
        state.max_rows, state.max_entries = len(labels), len(indices)
        text = np.frombuffer(buffer, dtype=np.uint8)
        arrays = (array.ctypes.data for array in (labels, qids, row_ends, indices, values))
        status = self._library.svmlight_parse(text.ctypes.data, length, ctypes.byref(state), *arrays)
        if status == _REJECTED:
            end = buffer.find(b"\n", state.begin)
            row = self._parse_line(bytes(buffer[state.begin : end]), state.n_lines + 1)  # raises its error
            raise self._qid_error(row, state.n_lines + 1)
        if status != _DONE:
            raise RuntimeError(f"The compiled reader of svmlight files ended with status {status}.")
        n, m = state.n_rows, state.n_entries
        qid = qids[:n] if state.has_qid == _QID_PRESENT else None
        return RawRows(labels[:n], qid, row_ends[:n], indices[:m], values[:m])

    def _sized_buffers(self, length: int) -> list[Array]:
        """Return arrays for all rows and entries in so many bytes: a row has two bytes at least, an entry four."""
        n_rows, n_entries = length // 2 + 1, length // 4 + 1
        if not self._buffers or len(self._buffers[0]) < n_rows:
            sizes = ((n_rows, np.float64), (n_rows, np.int64), (n_rows, np.int64), (n_entries, np.int64))
            self._buffers = [np.empty(n, dtype=dtype) for n, dtype in (*sizes, (n_entries, np.float64))]
        return self._buffers

    def _parse_line(self, line: bytes, number: int) -> Row | None:
        try:
            return parse_line(line, self._range)
        except LineError as error:
            raise DataFormatError(error.what, self._name, number, error.column) from None

    def _qid_error(self, row: Row | None, number: int) -> DataFormatError:
        if row is None or row.qid is None:
            return DataFormatError("qid is missing, but the lines before have one", self._name, number)
        return DataFormatError("this line has a qid, but the lines before have none", self._name, number)

    def _parse_lines(self, buffer: bytearray, length: int) -> RawRows:
        state = self._state
        labels: list[float] = []
        qids: list[int | None] = []
        row_ends: list[int] = []
        indices: list[int] = []
        values: list[float] = []
        lines = bytes(buffer[:length]).split(b"\n")
        if not lines[-1]:  # after the last newline
            lines.pop()
        for line in lines:
            state.n_lines += 1
            row = self._parse_line(line, state.n_lines)
            if row is None:
                continue
            has_qid = _QID_ABSENT if row.qid is None else _QID_PRESENT
            if state.has_qid not in (_QID_UNKNOWN, has_qid):
                raise self._qid_error(row, state.n_lines)
            state.has_qid = has_qid
            labels.append(row.label)
            qids.append(row.qid)
            indices += row.indices
            values += row.values
            row_ends.append(len(indices))
            if row.indices:
                state.smallest = min(state.smallest, row.indices[0])
                state.largest = max(state.largest, row.indices[-1])
        return RawRows(
            np.array(labels, dtype=np.float64),
            np.array(qids, dtype=np.int64) if state.has_qid == _QID_PRESENT else None,
            np.array(row_ends, dtype=np.int64),
            np.array(indices, dtype=np.int64),
            np.array(values, dtype=np.float64),
        )
