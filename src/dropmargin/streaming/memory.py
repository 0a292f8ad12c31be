"""The memory that a fit to files needs, and what remains for rows that stay in memory."""

from __future__ import annotations

import os
import re
from typing import Any

from dropmargin.errors import ParameterError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
# The memory of a process with NumPy, SciPy and scikit-learn, if the system does not report it.
_USUAL_PROCESS = 250_000_000
# Bytes per row besides its label: index of the class, weights; and for each output, targets, scores, directions,
# curvature weights.
_PER_ROW, _PER_ROW_AND_OUTPUT = 40, 96
# Vectors of the length of the coefficients, for each output; with few features, also matrices of their size squared.
_VECTORS = 40
_GRAM_FEATURES, _GRAM_MATRICES = 2000, 6
# Buffers of BLAS and fragmentation; for the same reason only a share of the remaining memory is used.
_RESERVE = 40_000_000
_USED_SHARE = 0.8


def parse_size(name: str, value: Any) -> int:
    """Return a number of bytes from an integer or from a string such as ``2GB``, ``500 MB`` or ``1.5GiB``."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    pattern = r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B?\s*"
    found = re.fullmatch(pattern, value.upper()) if isinstance(value, str) else None
    size = int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else 0
    if size <= 0:
        raise ValueError(f"{name} must be a number of bytes or a string such as '2GB' or '500MB', got {value!r}.")
    return size


def format_size(n_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return _USUAL_PROCESS


def check_conversion(limit: int, path: str, whole_bytes: int, block_bytes: int) -> None:
    """Raise an error if the limit is too small to convert files.

    ``whole_bytes`` is the size of the largest file if files are read at once (npz), else 0; ``path`` is its name. Such
    a file is copied twice, and there are some blocks.
    """
    needed = resident_bytes() + _RESERVE + 3 * whole_bytes + 4 * block_bytes
    if needed > limit:
        reason = f"{path}, which is read at once, needs" if whole_bytes else "Converting the files needs"
        remedy = "save it as several files, or raise the limit" if whole_bytes else "raise it"
        what = f"{format_size(limit)} is too small: {reason} about {format_size(needed)}; {remedy}"
        raise _too_small(what, "" if whole_bytes else ", or lower block_bytes")


def plan_memory(
    limit: int, *, n_rows: int, n_features: int, n_outputs: int, label_bytes: int, block_bytes: int, n_threads: int
) -> int:
    """Return the memory for rows that stay in memory; raise an error if the limit is too small for the fit.

    ``block_bytes`` is the size of the largest block: each thread uses one, of which it may need a copy, one is
    prefetched, and one may be in the pages of a memory map.
    """
    state = n_rows * (_PER_ROW + label_bytes + _PER_ROW_AND_OUTPUT * n_outputs)
    vectors = 8 * _VECTORS * (n_features + 1) * n_outputs
    if n_features <= _GRAM_FEATURES:
        vectors += 8 * _GRAM_MATRICES * (n_features + 1) ** 2
    blocks = (2 * n_threads + 2) * block_bytes
    needed = resident_bytes() + _RESERVE + state + vectors + blocks
    if needed > limit:
        raise _too_small(
            f"{format_size(limit)} is too small: the fit needs at least {format_size(needed)}, of which "
            f"{format_size(state)} are for labels, weights and scores of the rows, {format_size(vectors)} for the "
            f"coefficients, {format_size(blocks)} for blocks of rows in use, and the rest for the process as it is. "
            "Raise it, or use fewer rows or classes",
            ", or lower block_bytes",
        )
    return int(_USED_SHARE * (limit - needed))


def _too_small(what: str, more: str = "") -> ParameterError:
    return ParameterError(f"memory_limit={what}{more}.", "memory_limit", what)
