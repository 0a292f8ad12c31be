"""Type checks of the fitted state of an encoder that comes from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.typing import Array


def check_keys(what: str, found: Any, wanted: set[str]) -> None:
    """Check that a dict has exactly these keys."""
    if not isinstance(found, dict) or set(found) != wanted:
        raise ValueError(f"{what} must be a dict with the entries {sorted(wanted)}.")


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


def check_vector(what: str, value: Any, length: int) -> Array:
    """Return a copy of a float64 vector of finite numbers."""
    right = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == (length,)
    if not right or not np.isfinite(value).all():
        raise ValueError(f"{what} must be a float64 array of {length} finite numbers.")
    return np.array(value)
