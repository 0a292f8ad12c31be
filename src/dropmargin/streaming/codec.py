"""Results of the seam as bytes: arrays, numbers, blocks of rows, and tuples and lists of them. Nothing is unpickled."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from dropmargin.data import Block, from_arrays, row_block, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.typing import Array

_KINDS = "fiub"


class CodecError(Exception):
    """This cannot be turned into bytes, or these bytes into anything."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; a `CodecError` if it is of another kind."""
    arrays: list[Array] = []
    spec = json.dumps(_describe(value, arrays)).encode()
    return b"".join([struct.pack("<Q", len(spec)), spec, *(array.tobytes() for array in arrays)])


def decode(data: bytes) -> Any:
    """Return the value of what `encode` has returned; a `CodecError` if it is something else."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        value, end = _restore(json.loads(data[8 : 8 + length]), data, 8 + length)
    except (ValueError, TypeError, KeyError, IndexError, struct.error) as error:
        raise CodecError(str(error)) from error
    if end != len(data):
        raise CodecError("there is more than was said")
    return value


def _describe(value: Any, arrays: list[Array]) -> Any:
    """Return what the value is, as JSON, and append its arrays."""
    if value is None or isinstance(value, bool | int | str) or type(value) is float:
        return {"value": value}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind not in _KINDS:
            raise CodecError(f"an array of type {array.dtype}")
        arrays.append(np.ascontiguousarray(array))
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [array.dtype.newbyteorder("<").str, list(array.shape)]}
    if isinstance(value, Block):
        return {"block": list(value.rows.shape), "items": [_describe(item, arrays) for item in to_arrays(value.rows)]}
    if isinstance(value, tuple | list):
        return {"items": [_describe(item, arrays) for item in value], "tuple": isinstance(value, tuple)}
    raise CodecError(f"a {type(value).__name__}")


def _restore(spec: Any, data: bytes, begin: int) -> tuple[Any, int]:
    """Return the value that a description and the bytes from ``begin`` make, and where they end."""
    if "value" in spec:
        return spec["value"], begin
    if "items" in spec:
        items = []
        for item in spec["items"]:
            value, begin = _restore(item, data, begin)
            items.append(value)
        if "block" in spec:
            n_rows, n_features = spec["block"]
            rows = from_arrays(items, (int(n_rows), int(n_features)))
            fault = structure_fault(rows, exact=True)
            if fault is not None:
                raise CodecError(fault)
            return row_block(rows), begin
        return tuple(items) if spec["tuple"] else items, begin
    kind = "array" if "array" in spec else "scalar"
    name, shape = spec[kind]
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS:
        raise CodecError(f"an array of type {dtype}")
    end = begin + dtype.itemsize * math.prod(shape)
    if end > len(data):
        raise CodecError("it ends too early")
    array = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=begin).reshape(shape).copy()
    return (array if kind == "array" else array[()]), end
