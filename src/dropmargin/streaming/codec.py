"""Results of requests to the data as bytes: arrays, numbers, blocks of rows, and tuples and lists of them.

The arrays are in the safetensors format, which contains no code. The structure is JSON, as one more array of bytes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dropmargin.data import Block, from_arrays, row_block, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.typing import Array

_STRUCTURE = "structure"


class CodecError(Exception):
    """A value cannot be encoded, or bytes cannot be decoded."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; raise a `CodecError` if it is of another type."""
    arrays: dict[str, Array] = {}
    structure = json.dumps(_describe(value, arrays)).encode()
    return save(arrays | {_STRUCTURE: np.frombuffer(structure, dtype=np.uint8)})


def decode(data: bytes) -> Any:
    """Return the value of the bytes that `encode` has returned; raise a `CodecError` for others."""
    try:
        arrays = load(data)
        structure = json.loads(arrays.pop(_STRUCTURE).tobytes())
        value = _restore(structure, arrays)
    except (SafetensorError, ValueError, TypeError, KeyError, IndexError) as error:
        raise CodecError(str(error)) from error
    if arrays:
        raise CodecError(f"the array {next(iter(arrays))!r} is not part of the structure")
    return value


def _describe(value: Any, arrays: dict[str, Array]) -> Any:
    """Return the structure of a value as JSON, and add its arrays."""
    if value is None or isinstance(value, bool | int | str) or type(value) is float:
        return {"value": value}
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if array.dtype.kind not in "fiub":
            raise CodecError(f"cannot encode an array of type {array.dtype}")
        name = str(len(arrays))
        arrays[name] = array
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if isinstance(value, Block):
        return {"block": [_describe(item, arrays) for item in to_arrays(value.rows)], "shape": value.rows.shape}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_describe(item, arrays) for item in value]}
    raise CodecError(f"cannot encode a {type(value).__name__}")


def _restore(structure: Any, arrays: dict[str, Array]) -> Any:
    """Return the value of a structure, and remove its arrays."""
    kind, content = next(iter(structure.items()))
    if kind == "value":
        return content
    if kind in ("array", "scalar"):
        array = arrays.pop(content).copy()  # the loaded array is read-only
        return array if kind == "array" else array[()]
    items = [_restore(item, arrays) for item in content]
    if kind == "block":
        n_rows, n_features = structure["shape"]
        rows = from_arrays(items, (int(n_rows), int(n_features)))
        fault = structure_fault(rows, exact=True)
        if fault is not None:
            raise CodecError(fault)
        return row_block(rows)
    return {"tuple": tuple, "list": list}[kind](items)
