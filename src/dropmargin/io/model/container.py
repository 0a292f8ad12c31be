"""A model file: arrays as the tensors of a safetensors file, and everything else as JSON in its metadata.

The metadata have one entry, ``dropmargin``: a JSON object with the format number, the entries given to `encode`, and
``strings``, which names the arrays of strings and their type. Such an array is a tensor of bytes: the strings in UTF-8,
each followed by the byte 0xFF. The tensor ``sha256`` is the digest of all other tensors and of the metadata.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save as save_tensors

from dropmargin.io.atomic import Path
from dropmargin.io.model.checks import ModelFormatError, check_choice, check_type, shorten
from dropmargin.typing import Array

#: Increased whenever an older dropmargin would misread a new file. Format 1 was that of dropmargin 0.1.
FORMAT = 2
#: Parsed JSON takes up to twenty times the memory of its text. Long lists of strings are arrays.
MAX_JSON = 2**23
_ENTRY, _DIGEST = "dropmargin", "sha256"
# The byte after each string, which UTF-8 does not use, and the character that stands for it in Python.
_END, _ESCAPED_END = 0xFF, "\udcff"
_DTYPES = {f"{kind}{size}" for kind in "IU" for size in (8, 16, 32, 64)} | {"BOOL", "F16", "F32", "F64"}
# A 64-bit integer has at most 20 characters.
_MAX_DIGITS = 20


def encode(entries: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """Return the content of a model file; a `ValueError` names an array that cannot be stored."""
    tensors: dict[str, Array] = {}
    strings = {}
    for name, array in arrays.items():
        if array.dtype.kind in "UO":
            tensors[name] = _encode_strings(name, array)
            strings[name] = "str" if array.dtype.kind == "U" else "object"
        elif array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
            tensors[name] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        else:
            raise ValueError(f"{name} must hold numbers, booleans or strings to be stored, got dtype {array.dtype}.")
    text = json.dumps({"format": FORMAT, **entries, "strings": strings}, ensure_ascii=False)
    if len(text) > MAX_JSON:
        raise ValueError(f"The model has {len(text)} characters of JSON besides its arrays, more than {MAX_JSON}.")
    tensors[_DIGEST] = np.frombuffer(_digest(text, tensors), dtype=np.uint8)
    return save_tensors(tensors, {_ENTRY: text})


def decode(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the entries and the arrays of a model file; anything wrong with it is a `ModelFormatError`."""
    _check_start(path)
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            text = (file.metadata() or {}).get(_ENTRY)
            if text is None:
                raise ModelFormatError("it is a safetensors file, but not a model file of dropmargin")
            entries = _parse(text)
            tensors = {name: _read_tensor(file, name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except safetensors.SafetensorError as error:
        raise ModelFormatError(f"it is not a model file of dropmargin, or it is damaged ({error})") from None
    digest = tensors.pop(_DIGEST, np.zeros(0))
    if digest.tobytes() != _digest(text, tensors):
        raise ModelFormatError("its SHA-256 is wrong: the file was damaged or changed after it was saved")
    strings = check_type(entries.pop("strings", None), "strings", dict)
    for name, kind in strings.items():
        tensors[name] = _decode_strings(name, kind, tensors.get(name))
    return entries, tensors


def _check_start(path: Path) -> None:
    """Check that a path is a regular file that may be a model file of this format."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe could wait forever
        raise ModelFormatError("it is not a regular file")
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith((b'{\n "format": "dropmargin model"', b"PK\x03\x04")):
        old = "one of dropmargin 0.1, which later versions cannot read: train and save the model again"
        raise ModelFormatError(f"it is not a model file, or {old}")
    if start[8:9] != b"{":
        raise ModelFormatError("it is not a model file of dropmargin")


def _read_tensor(file: Any, name: str) -> Array:
    """Return a tensor as an array, after checking its type."""
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _DTYPES:
        raise ModelFormatError(f"array {shorten(name)} has the type {dtype}, which no model has")
    try:
        array = file.get_tensor(name)
    except ValueError as error:  # such as a shape of (0, 2**62)
        raise ModelFormatError(f"array {shorten(name)} cannot be read: {error}") from None
    if dtype == "BOOL" and array.size and array.view(np.uint8).max() > 1:
        raise ModelFormatError(f"array {shorten(name)} has bytes that are neither true nor false")
    return array


def _digest(text: str, tensors: dict[str, Array]) -> bytes:
    """Return the SHA-256 of the metadata and of the name, type, shape and data of all tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()


# Strings ------------------------------------------------------------------------------------------------------------


def _encode_strings(name: str, array: Array) -> Array:
    """Return strings in UTF-8, each followed by the byte 0xFF, which UTF-8 does not use."""
    strings = array.tolist()
    if array.ndim != 1 or not all(isinstance(item, str) for item in strings):
        raise ValueError(f"{name} must hold numbers, booleans or strings to be stored, got {shorten(strings)}.")
    try:
        "".join(strings).encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start]
        raise ValueError(f"{name} has {wrong!r}, which is not valid Unicode and cannot be stored.") from None
    return np.frombuffer(_ESCAPED_END.join([*strings, ""]).encode(errors="surrogateescape"), dtype=np.uint8)


def _decode_strings(name: str, kind: Any, text: Array | None) -> Array:
    """Return the array of strings of a tensor."""
    check_choice(kind, f"the type of array {shorten(name)}", ("str", "object"))
    if text is None or text.dtype != np.uint8 or (text.size and text.reshape(-1)[-1] != _END):
        raise ModelFormatError(f"array {shorten(name)} lacks its text")
    *strings, _ = text.tobytes().decode(errors="surrogateescape").split(_ESCAPED_END)
    try:
        "".join(strings).encode()
    except UnicodeEncodeError as error:
        raise ModelFormatError(f"array {shorten(name)} has text that is not UTF-8 ({error})") from None
    array = np.fromiter(strings, dtype=object, count=len(strings))
    if kind == "object":
        return array
    width = max(map(len, strings), default=0)
    if 4 * width * len(array) > 8 * (text.size + len(array)) + 2**24:
        raise ModelFormatError(f"array {shorten(name)} has a string of {width} characters, too long for type str")
    return array.astype(str)


# JSON ---------------------------------------------------------------------------------------------------------------


def _parse(text: str) -> dict[str, Any]:
    """Return the entries of the metadata without the format, which is checked first."""
    if len(text) > MAX_JSON:
        raise ModelFormatError(f"its JSON text has {len(text)} characters, more than the {MAX_JSON} allowed")
    try:
        entries = json.loads(text, object_pairs_hook=_refuse_duplicates, parse_int=_parse_integer)
        json.dumps(entries, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        wrong = ascii(error.object[error.start])
        raise ModelFormatError(f"its JSON text has {wrong}, half of a surrogate pair") from None
    except ModelFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"its text is not valid JSON ({error})") from None
    found = check_type(entries, "the JSON text", dict).pop("format", None)
    if type(found) is int and found > FORMAT:
        raise ModelFormatError(f"it has format {found}, and this is format {FORMAT}: install a newer dropmargin")
    if found != FORMAT or type(found) is not int:
        raise ModelFormatError(f"its format must be {FORMAT}, got {shorten(found)}")
    return entries


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFormatError("its JSON text has an object with the same key twice")
    return found


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ModelFormatError(f"its JSON text has an integer of {len(digits)} digits")
    return int(digits)
