"""Type checks of the fitted state of an encoder that comes from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dropmargin.typing import Array


def check_keys(what: str, found: Any, wanted: set[str]) -> None:
    """Check that a mapping has exactly these keys."""
    if not isinstance(found, Mapping):
        raise ValueError(f"{what} must be a mapping, got {type(found).__name__}.")
    if set(found) != wanted:
        raise ValueError(f"{what} must have the entries {sorted(wanted)}, got {sorted(map(str, found))[:20]}.")


def check_string(what: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {type(value).__name__}.")
    return value


def check_strings(what: str, value: Any) -> list[str]:
    """Return a list of different strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{what} must be a list of strings.")
    if len(set(value)) < len(value):
        raise ValueError(f"{what} must not have a string twice.")
    return value


def check_flag(what: str, value: Any) -> bool:
    """Return a bool; 0 and 1 are errors."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} must be true or false, got {value!r:.40}.")
    return value


def check_whole(what: str, value: Any, low: int) -> int:
    """Return a whole number of at least ``low``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"{what} must be a whole number of at least {low}, got {value!r:.40}.")
    return value


def check_vector(what: str, value: Any, length: int) -> Array:
    """Return a copy of a float64 vector of finite numbers."""
    right = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == (length,)
    if not right or not np.isfinite(value).all():
        raise ValueError(f"{what} must be a float64 array of {length} finite numbers.")
    return np.array(value)
