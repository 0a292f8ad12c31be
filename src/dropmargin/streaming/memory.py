"""How much memory there is, and how a fit to files shares it out."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dropmargin.errors import ParameterError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
# If the system does not say how much a process with NumPy, SciPy and scikit-learn takes.
_USUAL = 250_000_000
# What is known of a row besides its label: codes, weights, and, for each column, labels, scores, moves, curvature.
_PER_ROW, _PER_ROW_AND_COLUMN = 40, 96
# Vectors of a coefficient each, for each column; up to this many features, dense matrices, too.
_VECTORS = 40
_GRAM_FEATURES, _GRAM_MATRICES = 2000, 6
# BLAS has its own buffers, and the allocator its losses; so not all that is left is used, either.
_RESERVE = 40_000_000
_USED_SHARE = 0.8


def parse_size(name: str, value: Any) -> int:
    """Return a number of bytes from an integer or from a text such as ``2GB``, ``500 MB`` or ``1.5GiB``."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = (
        re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B?\s*", value.upper()) if isinstance(value, str) else None
    )
    size = int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else 0
    if size <= 0:
        raise ValueError(f"{name} must be a number of bytes or a text such as '2GB' or '500MB', got {value!r}.")
    return size


def show_size(n_bytes: float) -> str:
    """Return a number of bytes in words."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def resident_bytes() -> int:
    """Return the memory that this process has now."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return _USUAL


def give_back() -> None:
    """Return memory that was freed to the system, where the C library can: a conversion leaves some behind."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Plan:
    """What a fit needs at the least, and what is left for rows that stay in memory."""

    needed: int
    left: int


def check_conversion(limit: int, path: str, whole_bytes: int, block_bytes: int) -> None:
    """Refuse to convert files for which the limit is too small.

    ``whole_bytes`` is the size of the largest file that is read at once (npz), ``path`` its name, or 0. Of that there
    may be two copies for a moment, and some blocks.
    """
    needed = resident_bytes() + _RESERVE + 3 * whole_bytes + 4 * block_bytes
    if needed > limit:
        reason = f"{path}, which is read at once, needs" if whole_bytes else "Converting the files needs"
        remedy = "save it as several files, or raise the limit" if whole_bytes else "raise it, or lower block_bytes"
        what = f"{show_size(limit)} is too small: {reason} about {show_size(needed)}"
        raise ParameterError(
            f"memory_limit={what}; {remedy}.",
            "memory_limit",
            f"{what}; {remedy.removesuffix(', or lower block_bytes')}",
        )


def plan_memory(
    limit: int, *, n_rows: int, n_features: int, n_columns: int, label_bytes: int, block_bytes: int, n_threads: int
) -> Plan:
    """Share out a limit of the whole process's memory; an error if it is too small, before any work.

    ``block_bytes`` is the size of the largest block: each thread works on one, of which it may need a copy, one is read
    ahead, and one may be in the pages of a memory map.
    """
    state = n_rows * (_PER_ROW + label_bytes + _PER_ROW_AND_COLUMN * n_columns)
    vectors = 8 * _VECTORS * (n_features + 1) * n_columns
    if n_features <= _GRAM_FEATURES:
        vectors += 8 * _GRAM_MATRICES * (n_features + 1) ** 2
    work = (2 * n_threads + 2) * block_bytes
    give_back()
    needed = resident_bytes() + _RESERVE + state + vectors + work
    if needed > limit:
        what = (
            f"{show_size(limit)} is too small: {show_size(needed)} are needed at the least, of which "
            f"{show_size(state)} for what is known of each row, {show_size(vectors)} for the coefficients, "
            f"{show_size(work)} for blocks of rows at work, and the rest for the process as it is. "
            "Raise it, or take fewer rows or classes."
        )
        raise ParameterError(f"memory_limit={what}", "memory_limit", what)
    return Plan(needed, int(_USED_SHARE * (limit - needed)))
