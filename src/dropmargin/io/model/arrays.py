"""Arrays in a file: as values in JSON, or as the bytes of an ``.npy`` file. No other array than these can be stored.

Numbers are little-endian and in C order. Strings, in an ``.npy`` file, are bytes: the length of each string in UTF-8 as
32-bit integers, then all strings. Whoever reads states the type and the shape first; the bytes must fit exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.io.model.schema import ModelFormatError, choice, fields, integer, items, shown, text
from dropmargin.typing import Array

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_NUMBERS = ("bool", *_INTEGERS, *_FLOATS)
#: ``str`` is NumPy's type of fixed width, ``object`` an array of Python strings.
_STRINGS = ("str", "object")
_MAX_DIMENSIONS = 2
_LONGEST_NAME = 64
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# A short Python string takes about this many bytes, with its place in an array.
_BYTES_PER_STRING = 72
# Memory may exceed the file by this factor for the sake of strings, and by this constant.
_FACTOR, _CONSTANT = 8, 2**24
_ENDS_AT_ONCE = 2**16


@dataclass(frozen=True)
class Spec:
    """What a file says of an array: name, type, shape, and the bytes that its data take outside of JSON."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int

    @property
    def is_text(self) -> bool:
        """Whether it is an array of strings."""
        return self.dtype in _STRINGS

    @property
    def size(self) -> int:
        """The number of entries, an exact integer however absurd the shape is."""
        return math.prod(self.shape)

    def facts(self) -> dict[str, Any]:
        """Return the description as JSON."""
        extra = {"bytes": self.n_bytes} if self.is_text else {}
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)} | extra


def read_spec(facts: dict[str, Any]) -> Spec:
    """Return the description of an array after checking it; nothing is allocated."""
    name = text(facts.get("name"), "the name of an array")
    if not _is_name(name):
        raise ModelFormatError(f"{shown(name)} is no name of an array")
    where = f"array {name!r}"
    dtype = choice(facts.get("dtype"), f"dtype of {where}", (*_NUMBERS, *_STRINGS))
    is_text = dtype in _STRINGS
    fields(facts, where, ("name", "dtype", "shape", "bytes") if is_text else ("name", "dtype", "shape"), ("values",))
    shape = tuple(integer(n, f"shape of {where}") for n in items(facts["shape"], f"shape of {where}"))
    if not 1 <= len(shape) <= (1 if is_text else _MAX_DIMENSIONS):
        raise ModelFormatError(f"{where} has {len(shape)} dimensions")
    if is_text:
        n_bytes = integer(facts["bytes"], f"bytes of {where}")
        if n_bytes < 4 * shape[0]:
            raise ModelFormatError(f"{where} claims {shape[0]} strings in {n_bytes} bytes")
        return Spec(name, dtype, shape, n_bytes)
    return Spec(name, dtype, shape, math.prod(shape) * np.dtype(dtype).itemsize)


def spec_of(name: str, array: Array) -> Spec:
    """Return the description of an array to be stored, or a `ValueError` if it cannot be."""
    dtype = "str" if array.dtype.kind == "U" else array.dtype.name
    if not _is_name(name) or not 1 <= array.ndim <= _MAX_DIMENSIONS:
        raise ValueError(f"An array {name!r} of shape {array.shape} cannot be stored.")
    if dtype in _NUMBERS:
        return Spec(name, dtype, array.shape, array.nbytes)
    strings = array.tolist()
    if dtype not in _STRINGS or array.ndim > 1 or not all(isinstance(item, str) for item in strings):
        raise ValueError(f"{name} must hold numbers, booleans or strings to be stored, got dtype {array.dtype}.")
    try:
        n_bytes = _text_bytes(strings)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has {shown(error.object)}, which is no valid Unicode text and cannot be stored."
        ) from None
    _check_width(name, dtype, strings, n_bytes, ValueError)
    return Spec(name, dtype, array.shape, n_bytes)


def check_text_memory(specs: list[Spec], n_bytes: int) -> None:
    """Refuse a file of ``n_bytes`` that claims more strings than it can have good use for."""
    if _BYTES_PER_STRING * sum(spec.size for spec in specs if spec.is_text) > _FACTOR * n_bytes + _CONSTANT:
        raise ModelFormatError("it claims more strings than fit its size")


# As values in JSON --------------------------------------------------------------------------------------------------


def to_values(array: Array) -> list[Any]:
    """Return the entries in C order as JSON has them."""
    flat = array.ravel().tolist()
    if array.dtype.kind != "f" or bool(np.isfinite(array).all()):
        return flat
    return [value if math.isfinite(value) else repr(value) for value in flat]


def from_values(spec: Spec, values: Any) -> Array:
    """Return the array of some JSON values, none of which is changed by a bit."""
    where = f"values of array {spec.name!r}"
    values = items(values, where)
    if spec.size != len(values):
        raise ModelFormatError(f"{where}: {len(values)} of them do not fill the shape {list(spec.shape)}")
    if spec.is_text:
        _check_types(values, str, where)
        if _text_bytes(values) != spec.n_bytes:
            raise ModelFormatError(f"{where} do not take {spec.n_bytes} bytes")
        return _as_text(spec, values)
    if spec.dtype == "bool":
        _check_types(values, bool, where)
        return np.array(values, dtype=bool).reshape(spec.shape)
    if spec.dtype in _INTEGERS:
        _check_types(values, int, where)
        limits = np.iinfo(spec.dtype)
        if values and not (limits.min <= min(values) and max(values) <= limits.max):
            raise ModelFormatError(f"{where} leave the range of {spec.dtype}")
        return np.array(values, dtype=spec.dtype).reshape(spec.shape)
    if not all(math.isfinite(value) for value in values if type(value) is float):  # such as 1e400
        raise ModelFormatError(f"{where} leave the range of floating point")
    values = [_NOT_FINITE.get(value, value) if type(value) is str else value for value in values]
    _check_types(values, float, where)
    exact = np.array(values, dtype=np.float64).reshape(spec.shape)
    with np.errstate(over="ignore"):
        array = exact.astype(spec.dtype)
    if not np.array_equal(array.astype(np.float64), exact, equal_nan=True):
        raise ModelFormatError(f"{where} are not numbers of type {spec.dtype}")
    return array


def _check_types(values: list[Any], kind: type, where: str) -> None:
    for value in values:
        if type(value) is not kind:
            raise ModelFormatError(f"{where} must be of type {kind.__name__}, got {shown(value)}")


# As the bytes of an .npy file ---------------------------------------------------------------------------------------


def npy_header(spec: Spec) -> bytes:
    """Return the header of the ``.npy`` file of an array, one and the same for every version of NumPy."""
    dtype, shape = (np.dtype("u1"), (spec.n_bytes,)) if spec.is_text else (_little_endian(spec.dtype), spec.shape)
    described = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape!r}, }}"
    padding = -(10 + len(described) + 1) % 64
    body = described.encode() + b" " * padding + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def to_bytes(spec: Spec, array: Array) -> memoryview:
    """Return the data of an array; numbers in C order are not copied."""
    if spec.is_text:
        encoded = [item.encode() for item in array.tolist()]
        lengths = np.array([len(item) for item in encoded], dtype="<u4")
        return memoryview(lengths.tobytes() + b"".join(encoded))
    plain = np.ascontiguousarray(array, dtype=_little_endian(spec.dtype))
    return plain.reshape(-1).view(np.uint8).data


def from_bytes(spec: Spec, data: memoryview) -> Array:
    """Return the array of ``spec.n_bytes`` bytes, as a copy."""
    if spec.is_text:
        return _text_from_bytes(spec, data)
    if spec.dtype == "bool" and spec.size and np.frombuffer(data, dtype=np.uint8).max() > 1:
        raise ModelFormatError(f"array {spec.name!r} has bytes that are neither true nor false")
    return np.frombuffer(data, dtype=_little_endian(spec.dtype)).astype(spec.dtype).reshape(spec.shape)


def _text_from_bytes(spec: Spec, data: memoryview) -> Array:
    n = spec.size
    ends = 4 * n + np.cumsum(np.frombuffer(data[: 4 * n], dtype="<u4"), dtype=np.int64)
    if len(data) != (ends[-1] if n else 0):
        raise ModelFormatError(f"the lengths of the strings of array {spec.name!r} do not add up to its bytes")
    try:
        return _as_text(spec, _cut(data, 4 * n, ends))
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"array {spec.name!r} has text that is not UTF-8 ({error})") from None


def _cut(data: memoryview, begin: int, ends: Array) -> Iterator[str]:
    """Yield the strings that end where ``ends`` says; few of these are Python's integers at a time."""
    for chunk in range(0, len(ends), _ENDS_AT_ONCE):
        for end in ends[chunk : chunk + _ENDS_AT_ONCE].tolist():
            yield str(data[begin:end], "utf-8")
            begin = end


def _as_text(spec: Spec, strings: Iterable[str]) -> Array:
    array = np.fromiter(strings, dtype=object, count=spec.size)
    _check_width(spec.name, spec.dtype, array, spec.n_bytes, ModelFormatError)
    return array.astype(str) if spec.dtype == "str" else array


def _text_bytes(strings: list[str]) -> int:
    """Return the bytes that `to_bytes` makes of strings."""
    return sum(4 + len(item.encode()) for item in strings)


def _check_width(name: str, dtype: str, strings: Any, n_bytes: int, error: type[ValueError]) -> None:
    """Refuse an array of fixed width if one long string would make it huge."""
    if dtype != "str":
        return
    width = max(map(len, strings), default=0)
    if 4 * width * len(strings) > _FACTOR * n_bytes + _CONSTANT:
        raise error(f"array {name!r} has a string of {width} characters: too long for one of fixed width")


def _little_endian(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _is_name(name: str) -> bool:
    """Return whether a name is made of lower-case letters, digits, dots and underscores, and begins with a letter."""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_.")
    return 0 < len(name) <= _LONGEST_NAME and set(name) <= allowed and name[0].isalpha() and ".." not in name
