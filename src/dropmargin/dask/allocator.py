"""Memory that a task frees is there for its next array.

Dask has its workers give freed memory back to the system at once (``MALLOC_TRIM_THRESHOLD_`` in their environment),
which also turns off glibc's habit of keeping large pieces that are used again and again. A task that works with arrays
as long as a partition then spends a third of its time on getting the same pages anew. While a task is under way, they
are kept; after it, all is as Dask wants it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

# Of malloc.h; the second is glibc's default, the third as much as it allows.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_DEFAULT_MMAP = 2**17
_LARGEST_MMAP = 2**25
_KEPT = 2**29


class _KeptMemory:
    """Has glibc keep what is freed while any task is under way; without Dask's setting, or without glibc, does nothing.

    The thresholds belong to the process: the first task sets them, the last takes them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._set = _find_mallopt()
        self._trim = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0 and self._set is not None:
                self._set(_MMAP_THRESHOLD, _LARGEST_MMAP)
                self._set(_TRIM_THRESHOLD, _KEPT)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._set is not None:
                self._set(_MMAP_THRESHOLD, _DEFAULT_MMAP)
                self._set(_TRIM_THRESHOLD, int(self._trim))


def _find_mallopt() -> Callable[[int, int], int] | None:
    wanted = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    if not wanted.isdigit() or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return None
    try:
        return ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return None


#: To be entered around a task.
kept_memory = _KeptMemory()
