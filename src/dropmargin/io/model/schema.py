"""The error of model files, and checks that every reader of their facts shares.

A file is written by a stranger until the opposite is proved: each value is checked for its exact type before use, and
every complaint is a `ModelFormatError` with a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

# What a signed 64-bit integer holds; no honest number in a file is larger, but for labels, which are arrays.
_MOST = 2**63 - 1


class ModelFormatError(ValueError):
    """A file that is not a model file, or is damaged, or says what no model says."""


def fields(value: Any, where: str, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a JSON object after checking that it has all required keys, and no other but the optional ones."""
    if type(value) is not dict:
        raise ModelFormatError(f"{where} must be an object, got {shown(value)}")
    missing = [key for key in required if key not in value]
    if missing:
        raise ModelFormatError(f"{where} lacks {missing[0]!r}")
    unknown = [key for key in value if key not in required and key not in optional]
    if unknown:
        raise ModelFormatError(
            f"{where} has {shown(unknown[0])}, which this version of dropmargin does not know; a newer one may"
        )
    return value


def items(value: Any, where: str) -> list[Any]:
    """Return a JSON array."""
    if type(value) is not list:
        raise ModelFormatError(f"{where} must be an array, got {shown(value)}")
    return value


def text(value: Any, where: str) -> str:
    """Return a string."""
    if type(value) is not str:
        raise ModelFormatError(f"{where} must be a string, got {shown(value)}")
    return value


def choice(value: Any, where: str, allowed: Collection[str]) -> str:
    """Return a string that is one of those allowed."""
    if type(value) is not str or value not in allowed:
        raise ModelFormatError(f"{where} must be one of {sorted(allowed)}, got {shown(value)}")
    return value


def integer(value: Any, where: str, low: int = 0, high: int = _MOST) -> int:
    """Return an integer of a range; true and false are none."""
    if type(value) is not int or not low <= value <= high:
        raise ModelFormatError(f"{where} must be an integer in [{low}, {high}], got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a value for an error message: its beginning, if it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)} entries"
    shortened = repr(value)
    return shortened if len(shortened) <= 60 else f"{shortened[:57]}..."


# Plain values -------------------------------------------------------------------------------------------------------

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it: NumPy's numbers as Python's, tuples as arrays, ``{"float": "inf"}`` for infinity.

    Raises a `ValueError` that names ``where`` for anything that is not plain data.
    """
    if value is None or isinstance(value, bool | str):
        return _checked_text(value, where) if isinstance(value, str) else value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        if abs(int(value)) > _MOST:
            raise ValueError(f"{where} must be below 2**63 to be stored, got {shown(value)}.")
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else {"float": repr(number)}
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise ValueError(f"{where} must have strings as keys to be stored, got {shown(wrong[0])}.")
        return {_checked_text(key, where): to_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"{where} must be plain data (numbers, strings, lists, dicts) to be stored, got {shown(value)}.")


def from_plain(value: Any, where: str) -> Any:
    """Return what `to_plain` was given, with lists for tuples."""
    if type(value) is float and not math.isfinite(value):
        raise ModelFormatError(f"{where} has a number beyond the range of floating point")
    if type(value) is int:
        return integer(value, where, -_MOST)
    if type(value) is list:
        return [from_plain(item, where) for item in value]
    if type(value) is dict:
        if value.keys() == {"float"}:
            return _NOT_FINITE[choice(value["float"], where, _NOT_FINITE)]
        return {key: from_plain(item, where) for key, item in value.items()}
    return value


def _checked_text(value: str, where: str) -> str:
    """Return a string as Python's own, if UTF-8 can hold it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} has {value!r}, which is no valid Unicode text and cannot be stored.") from None
    return str(value)
