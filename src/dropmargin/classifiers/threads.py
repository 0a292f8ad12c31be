"""Threads of a fit: independent jobs side by side, and one thread for BLAS in each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def in_threads(jobs: Sequence[Callable[[], T]], n_threads: int, stop: threading.Event) -> list[T]:
    """Return the results of independent jobs; if one fails, or at an interrupt, ``stop`` tells the others to end."""
    if n_threads == 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            return list(pool.map(_with_error_state, repeat(np.geterr()), jobs))
        except BaseException:  # jobs that wait are dropped, jobs at work look at ``stop`` at their next step
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _with_error_state(state: Any, job: Callable[[], T]) -> T:
    """Run a job under the NumPy error state of the caller, which is another thread."""
    with np.errstate(**state):
        return job()


class _OneBlasThread:
    """Limits BLAS to one thread while any fit is under way: partitions have threads of their own, and both would fight.

    The limit belongs to the process, so that fits that overlap share it: the first sets it, the last takes it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                _in_passing(self._set)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _in_passing(self._limit.restore_original_limits)

    def _set(self) -> None:
        # Finding the libraries takes milliseconds, so it is done once.
        self._controller = self._controller or ThreadpoolController()
        self._limit = self._controller.limit(limits=1, user_api="blas")


def _in_passing(function: Callable[[], None]) -> None:
    """Call a function in a thread of its own: a limit may be taken back by others only once its thread has ended."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


#: Shared by all fits of the process: ``with one_blas_thread: ...``
one_blas_thread = _OneBlasThread()
