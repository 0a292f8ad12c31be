"""Blocks of lines of an svmlight file, parsed by compiled code (`_svmlight.c`) if it was built, else by Python.

The environment variable ``DROPMARGIN_KERNELS=0`` turns compiled code off.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dropmargin.compiled import load_library
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.svmlight_lines import LARGEST_INTEGER, IndexRange, LineError, parse_line
from dropmargin.typing import Array

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


def _load() -> ctypes.CDLL | None:
    library = load_library(Path(__file__).with_name("_svmlight.so"))
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
