"""The error for bad model files, and the checks of JSON values that all readers share.

Values from a file are checked for their exact type before they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np


class ModelFormatError(ValueError):
    """A file that is not a model file, that is damaged, or whose content is not a valid model."""


def check_fields(value: Any, where: str, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a JSON object after checking that it has all required entries, and no others than the optional ones."""
    if type(value) is not dict:
        raise ModelFormatError(f"{where} must be an object, got {shorten(value)}")
    missing = [key for key in required if key not in value]
    if missing:
        raise ModelFormatError(f"{where} lacks {missing[0]!r}")
    allowed = [*required, *optional]
    unknown = [key for key in value if key not in allowed]
    if unknown:
        raise ModelFormatError(f"{where} has the unknown entry {shorten(unknown[0])}; known are {', '.join(allowed)}")
    return value


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


def shorten(value: Any) -> str:
    """Return a value for an error message, shortened if it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_plain(value: Any, where: str) -> Any:
    """Return a value as Python's JSON module takes it: NumPy scalars as Python scalars, tuples as lists.

    Raises a `ValueError` that names ``where`` for anything else than numbers, strings, None, lists and dicts.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} has {value!r}, which is not valid Unicode and cannot be stored.") from None
        return str(value)
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise ValueError(f"{where} must have strings as keys to be stored, got {shorten(wrong[0])}.")
        return {to_plain(key, where): to_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"{where} must be plain data (numbers, strings, lists, dicts) to be stored, got {shorten(value)}.")
