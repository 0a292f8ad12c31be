"""Python values as JSON and arrays, and back.

Numbers, strings, true, false and None are themselves. An array, or a list or tuple of numbers or of strings, is
``{"array": type}``, and an array of the value's name is in the file. Other lists and tuples are ``{"items": [...],
"type": type}``, a dict is ``{"mapping": [[key, value], ...]}``, and an object is what `descriptions` says of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from dropmargin.typing import Array

PLAIN = (bool, int, float, str, type(None))
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple}


class ModelFormatError(ValueError):
    """A file that is not a model file, that is damaged, or whose content is not a valid model."""


def check_type(value: Any, where: str, *types: type) -> Any:
    """Return a value that has exactly one of some types; true and false are not integers."""
    if type(value) not in types:
        names = " or ".join(kind.__name__ for kind in types)
        raise ModelFormatError(f"{where} must be of type {names}, got {shorten(value)}")
    return value


def check_choice(value: Any, where: str, allowed: Collection[str]) -> str:
    """Return a string that is one of those allowed."""
    if type(value) is not str or value not in allowed:
        raise ModelFormatError(f"{where} must be one of {sorted(allowed)}, got {shorten(value)}")
    return value


def check_entries(value: Any, where: str, names: Collection[str]) -> dict[str, Any]:
    """Return a JSON object that has exactly the entries of some names."""
    entries = check_type(value, where, dict)
    if set(entries) != set(names):
        wrong = min(set(entries) ^ set(names))
        raise ModelFormatError(f"{where} {'lacks' if wrong in names else 'has the unknown entry'} {shorten(wrong)}")
    return entries


def shorten(value: Any) -> str:
    """Return a value for an error message, shortened if it is long."""
    if isinstance(value, dict | list) and len(value) > 3:
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def pack(value: Any, name: str, arrays: dict[str, Array], pack_object: Callable[..., Any]) -> Any:
    """Return a value as JSON, and add its arrays to ``arrays``; ``pack_object`` does so for objects."""
    if isinstance(value, (*PLAIN, np.generic)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Mapping):
        pairs = enumerate(value.items())
        return {"mapping": [[_key(k, name), pack(v, f"{name}.{i}", arrays, pack_object)] for i, (k, v) in pairs]}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": "ndarray"}
    if type(value) not in _SEQUENCES.values():
        return pack_object(value, name, arrays)
    is_text = all(isinstance(item, str) for item in value)
    if value and (is_text or all(type(item) in (int, float) for item in value)):
        arrays[name] = np.array(value, dtype=object if is_text else None)
        return {"array": type(value).__name__}
    items = [pack(item, f"{name}.{index}", arrays, pack_object) for index, item in enumerate(value)]
    return {"items": items, "type": type(value).__name__}


def _key(key: Any, name: str) -> Any:
    if not isinstance(key, (*PLAIN, np.generic)):
        raise ValueError(f"{name} must have numbers or strings as keys to be stored, got {key!r:.60}.")
    return key.item() if isinstance(key, np.generic) else key


def unpack(entry: Any, name: str, arrays: dict[str, Array], unpack_object: Callable[..., Any]) -> Any:
    """Return the value that `pack` has packed, and remove its arrays from ``arrays``."""
    if type(entry) is not dict:
        return check_type(entry, name, *PLAIN)
    if "mapping" in entry:
        pairs = check_type(check_entries(entry, name, ("mapping",))["mapping"], name, list)
        if any(type(pair) is not list or len(pair) != 2 or type(pair[0]) not in PLAIN for pair in pairs):
            raise ModelFormatError(f"{name} must hold pairs of a key and a value")
        return {key: unpack(item, f"{name}.{i}", arrays, unpack_object) for i, (key, item) in enumerate(pairs)}
    if "items" in entry:
        items = check_type(check_entries(entry, name, ("items", "type"))["items"], name, list)
        kind = check_choice(entry["type"], name, _SEQUENCES)
        return _SEQUENCES[kind](unpack(item, f"{name}.{i}", arrays, unpack_object) for i, item in enumerate(items))
    if "array" not in entry:
        return unpack_object(entry, name, arrays)
    kind = check_choice(check_entries(entry, name, ("array",))["array"], name, ("ndarray", *_SEQUENCES))
    if name not in arrays:
        raise ModelFormatError(f"it lacks the array {shorten(name)}")
    array = arrays.pop(name)
    return array if kind == "ndarray" else _SEQUENCES[kind](array.tolist())
