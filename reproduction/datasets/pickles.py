"""Reads arrays from the pickled batches of CIFAR-10 without running code.

A pickle names functions and calls them. Here the only allowed names are mapped to two classes of this module, which
only store their arguments. These are checked before they become NumPy arrays.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.io.data.errors import one_line
from dropmargin.typing import Array

_BYTE = (b"u1", "u1", b"uint8", "uint8")


class _PickledType:
    """Replaces `numpy.dtype`."""

    def __init__(self, name: Any = None, *rest: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and padding, which bytes do not have


class _PickledArray:
    """Replaces `numpy.ndarray`, and the function that creates an empty array for unpickling."""

    def __init__(self, *rest: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def to_array(self, width: int) -> Array:
        """Return a matrix of bytes with ``width`` columns."""
        _, shape, kind, is_fortran, data = self.state
        n_rows, n_columns = shape
        is_bytes = isinstance(kind, _PickledType) and kind.name in _BYTE and isinstance(data, bytes)
        if not is_bytes or n_columns != width or len(data) != n_rows * width:
            raise ValueError(f"the array is not one of bytes with {width} columns")
        return np.frombuffer(data, dtype=np.uint8).reshape((n_rows, width), order="F" if is_fortran else "C")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]


def read_batch(data: bytes, where: str, width: int) -> tuple[Array, Array]:
    """Return the pixels (a row per image) and the labels of a pickled batch.

    Parameters
    ----------
    data : bytes
        A pickled dictionary with an array ``data`` and a list ``labels``.
    where : str
        The file, for error messages.
    width : int
        The number of pixels of an image.
    """
    try:
        _check_memo(data)
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        pixels = batch[b"data"].to_array(width)
        labels = batch[b"labels"]
        if type(labels) is not list or not all(type(label) is int and 0 <= label <= 255 for label in labels):
            raise ValueError("the labels are not a list of small numbers")
        if len(labels) != len(pixels):
            raise ValueError(f"there are {len(labels)} labels for {len(pixels)} images")
    except MemoryError:
        raise
    except Exception as error:  # broken and malicious files raise errors of many types
        raise DataFormatError(f"this is not a batch of CIFAR-10: {one_line(error)}", where) from error
    return pixels, np.array(labels, dtype=np.uint8)


def _check_memo(data: bytes) -> None:
    """Refuse an index of the unpickler's memo that would allocate gigabytes."""
    for operation, argument, _ in pickletools.genops(data):
        if operation.name in ("PUT", "LONG_BINPUT") and not (isinstance(argument, int) and 0 <= argument <= len(data)):
            raise ValueError("an index of its memo is too large")
