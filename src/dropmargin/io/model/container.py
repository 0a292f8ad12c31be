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
from dropmargin.io.model.values import ModelFormatError, check_choice, check_type, shorten
from dropmargin.typing import Array

#: Increased whenever an older dropmargin would misread a new file. Format 1 was that of dropmargin 0.1.
FORMAT = 2
#: Parsed JSON takes up to twenty times the memory of its text. Long lists are arrays.
MAX_JSON = 2**23
_ENTRY, _DIGEST, _END = "dropmargin", "sha256", b"\xff"
_DTYPES = {f"{kind}{size}" for kind in "IU" for size in (8, 16, 32, 64)} | {"BOOL", "F16", "F32", "F64"}


def encode(entries: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """Return the content of a model file; a `ValueError` names what cannot be stored."""
    tensors: dict[str, Array] = {}
    strings = {}
    for name, array in arrays.items():
        if array.dtype.kind in "UO" and array.ndim == 1 and all(isinstance(item, str) for item in array):
            tensors[name] = np.frombuffer(b"".join(_to_utf8(item) + _END for item in array), dtype=np.uint8)
            strings[name] = "str" if array.dtype.kind == "U" else "object"
        elif array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
            tensors[name] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
        else:
            got = f"dtype {array.dtype}, {shorten(array.ravel()[:3].tolist())}"
            raise ValueError(f"{name} must hold numbers, booleans or strings to be stored, got {got}.")
    text = json.dumps({"format": FORMAT, **entries, "strings": strings}, ensure_ascii=False)
    if len(text) > MAX_JSON:
        raise ValueError(f"The model has {len(text)} characters of JSON besides its arrays, more than {MAX_JSON}.")
    _to_utf8(text)
    tensors[_DIGEST] = np.frombuffer(_digest(text, tensors), dtype=np.uint8)
    return save_tensors(tensors, {_ENTRY: text})


def _to_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        wrong = ascii(text[error.start])
        raise ValueError(f"The model has {wrong}, which is not valid Unicode and cannot be stored.") from None


def decode(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the entries and the arrays of a model file; anything wrong with it is a `ModelFormatError`."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe could wait forever
        raise ModelFormatError("it is not a regular file")
    with open(path, "rb") as start:
        if start.read(9)[8:] != b"{":
            raise ModelFormatError("it is not a model file of dropmargin")
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            text = (file.metadata() or {}).get(_ENTRY)
            if text is None:
                raise ModelFormatError("it is a safetensors file, but not a model file of dropmargin")
            entries = _parse(text)
            tensors = {name: _read_tensor(file, name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except safetensors.SafetensorError as error:
        raise ModelFormatError(f"it is not a model file of dropmargin, or it is damaged ({error})") from None
    if tensors.pop(_DIGEST, np.zeros(0)).tobytes() != _digest(text, tensors):
        raise ModelFormatError("its SHA-256 is wrong: the file was damaged or changed after it was saved")
    for name, kind in check_type(entries.pop("strings", None), "strings", dict).items():
        tensors[name] = _decode_strings(name, kind, tensors.get(name))
    return entries, tensors


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


def _decode_strings(name: str, kind: Any, content: Array | None) -> Array:
    """Return the array of strings of a tensor."""
    check_choice(kind, f"the type of array {shorten(name)}", ("str", "object"))
    if content is None or content.dtype != np.uint8 or not (content.tobytes() or _END).endswith(_END):
        raise ModelFormatError(f"array {shorten(name)} lacks its text")
    try:
        strings = [item.decode() for item in content.tobytes().split(_END)[:-1]]
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"array {shorten(name)} has text that is not UTF-8 ({error})") from None
    array = np.fromiter(strings, dtype=object, count=len(strings))
    width = max(map(len, strings), default=0)
    if kind == "str" and 4 * width * len(array) > 8 * (content.size + len(array)) + 2**24:
        raise ModelFormatError(f"array {shorten(name)} has a string of {width} characters, too long for type str")
    return array.astype(str) if kind == "str" else array


def _parse(text: str) -> dict[str, Any]:
    """Return the entries of the metadata without the format, which is checked first."""
    if len(text) > MAX_JSON:
        raise ModelFormatError(f"its JSON text has {len(text)} characters, more than the {MAX_JSON} allowed")
    try:
        entries = check_type(json.loads(text), "the JSON text", dict)
        json.dumps(entries, ensure_ascii=False).encode()  # an escaped half of a surrogate pair is no Unicode
    except ModelFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"its text is not valid JSON ({str(error)[:200]})") from None
    found = entries.pop("format", None)
    if type(found) is int and found > FORMAT:
        raise ModelFormatError(f"it has format {found}, and this is format {FORMAT}: install a newer dropmargin")
    if found != FORMAT or type(found) is not int:
        raise ModelFormatError(f"its format must be {FORMAT}, got {shorten(found)}")
    return entries
