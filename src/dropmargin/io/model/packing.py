"""Parameters and encoders as JSON values and arrays, and back.

Plain values are themselves. An array, or a list or tuple of numbers or of strings, is ``{"array": type}``, and an array
of this name is in the file; a dict is ``{"mapping": [[key, value], ...]}``. An encoder is the state that it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from dropmargin.io.model.checks import ModelFormatError, check_choice, check_fields, check_type, shorten, to_plain
from dropmargin.typing import Array

_TYPES: dict[str, Any] = {"list": list, "tuple": tuple, "ndarray": np.ndarray}
_MAX_DEPTH = 10


def pack(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return a value as JSON, and add its arrays to ``arrays``; a `ValueError` names a value that cannot be stored."""
    if isinstance(value, Mapping):
        entries = enumerate(value.items())
        return {"mapping": [[to_plain(k, name), pack(v, _part(name, i, k), arrays)] for i, (k, v) in entries]}
    if type(value) not in _TYPES.values() or np.ndim(value) == 0:
        return to_plain(value[()] if isinstance(value, np.ndarray) else value, name)
    is_text = type(value) is not np.ndarray and all(isinstance(item, str) for item in value)
    array = np.array(value, dtype=object) if is_text else np.asarray(value)
    if array.dtype.kind == "U" and type(value) is not np.ndarray:  # NumPy turns numbers beside strings into strings
        raise ValueError(f"{name} must hold numbers or strings, not both, to be stored, got {shorten(value)}.")
    arrays[name] = array
    return {"array": type(value).__name__}


def unpack(entry: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return the value that `pack` has packed, and remove its arrays from ``arrays``."""
    if type(entry) is not dict:
        return check_type(entry, name, int, float, bool, str, type(None))
    if "mapping" in entry and name.count(".") < _MAX_DEPTH:
        pairs = check_type(check_fields(entry, name, ("mapping",))["mapping"], name, list)
        if any(type(p) is not list or len(p) != 2 or type(p[0]) not in (str, int, float, bool) for p in pairs):
            raise ModelFormatError(f"{name} must hold pairs of a key and a value")
        found = {key: unpack(value, _part(name, i, key), arrays) for i, (key, value) in enumerate(pairs)}
        if len(found) < len(pairs):
            raise ModelFormatError(f"{name} has a key twice")
        return found
    kind = check_choice(check_fields(entry, name, ("array",))["array"], name, _TYPES)
    if name not in arrays:
        raise ModelFormatError(f"it lacks the array {name!r}")
    array = arrays.pop(name)
    return array if kind == "ndarray" else _TYPES[kind](array.tolist())


def _part(name: str, index: int, key: Any) -> str:
    """Return the name of a value of a dict; a key with other characters than letters is replaced by its number."""
    return f"{name}.{key if isinstance(key, str) and key.isidentifier() else index}"


# Encoders -----------------------------------------------------------------------------------------------------------

#: The encoders that a file can name, with their modules, which are imported only if they are needed. Each class has
#: ``get_state()``, a dict, ``from_state(state)``, which checks everything, and ``get_feature_names_out()``.
KINDS = {f"{kind.title()}Encoder": f"dropmargin.io.data.{kind}_encoder" for kind in ("table", "text", "frame")}
_NAME = "preprocessing"


def encoder_kind(step: Any) -> str | None:
    """Return the name of an encoder that a file can hold, None for any other step of a pipeline."""
    name = type(step).__name__
    return name if KINDS.get(name) == type(step).__module__ else None


def encode_preprocessing(step: Any, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return an encoder as JSON values, and add its arrays to ``arrays``."""
    return {"kind": type(step).__name__, "state": pack(step.get_state(), _NAME, arrays)}


def decode_preprocessing(entries: Any, arrays: dict[str, Array]) -> Any:
    """Return the encoder of JSON values and arrays, all checked; removes its arrays from ``arrays``."""
    entries = check_fields(entries, _NAME, ("kind", "state"))
    kind = check_choice(entries["kind"], "kind of preprocessing", KINDS)
    state = unpack(entries["state"], _NAME, arrays)
    try:
        return getattr(import_module(KINDS[kind]), kind).from_state(state)
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFormatError(f"{kind}: {str(error).removesuffix('.')}") from None
