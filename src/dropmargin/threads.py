"""Jobs in threads, and a limit of BLAS to one thread while they run."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def in_threads(jobs: Sequence[Callable[[], T]], n_threads: int, stop: threading.Event | None = None) -> list[T]:
    """Return the results of independent jobs.

    After an error or an interrupt, ``stop`` is set, on which running jobs end, and no other job starts. The error is
    that of the first job, in the order of the jobs, that failed by itself. Threads inherit NumPy's handling of
    floating-point errors.

    An interrupt is raised in the main thread between any two instructions. Inside `threading.Condition`, on which the
    pools of the standard library wait, it leaves a lock behind, and the next wait never ends. So the main thread uses
    locks and threads of `_thread` alone.
    """
    if min(n_threads, len(jobs)) <= 1:
        return [job() for job in jobs]
    state, numbers, is_over = np.geterr(), iter(range(len(jobs))), list[bool]()
    results, errors = dict[int, T](), dict[int, BaseException]()

    def end() -> None:
        is_over.append(True)
        if stop is not None:
            stop.set()

    def work(running: Any) -> None:
        number = -1
        try:
            with np.errstate(**state):
                while not is_over and (number := next(numbers, -1)) >= 0:
                    results[number] = jobs[number]()
        except BaseException as error:
            if stop is None or not stop.is_set():  # else it ended because another job had failed
                errors[number] = error
            end()
        finally:
            running.release()

    locks = []
    try:
        for _ in range(min(n_threads, len(jobs))):
            running = _thread.allocate_lock()
            running.acquire()
            _thread.start_new_thread(work, (running,))
            locks.append(running)
        _wait_for(locks)
    except BaseException:
        end()
        _wait_for(locks)
        raise
    try:
        if errors:
            raise errors[min(errors)]
        return [results[k] for k in range(len(jobs))]
    finally:
        errors.clear()  # its traceback refers to this frame


def _wait_for(locks: list[Any]) -> None:
    for running in locks:
        with running:
            pass


class one_blas_thread:  # noqa: N801, a context like np.errstate
    """Context manager that limits BLAS to one thread during a fit, because jobs run in threads.

    Fits that overlap share the limit: the first one sets it, the last one removes it.
    """

    _lock, _users = threading.RLock(), 0
    _libraries: list[Any] | None = None
    _previous: list[int]

    def __enter__(self) -> None:
        cls = one_blas_thread
        with cls._lock:
            if cls._libraries is None:  # finding the libraries takes milliseconds
                cls._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            if cls._users == 0:
                cls._previous = [library.num_threads for library in cls._libraries]
            try:
                cls._users += 1
                if cls._users == 1:
                    cls._set([1] * len(cls._libraries))
            except BaseException:  # an interrupt: the limit must not stay
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        cls = one_blas_thread
        with cls._lock:
            n_left = cls._users - 1
            try:
                if n_left == 0:
                    cls._set(cls._previous)
            except BaseException:
                if n_left == 0:
                    cls._set(cls._previous)
                raise
            finally:
                cls._users = n_left

    @classmethod
    def _set(cls, numbers: list[int]) -> None:
        for library, number in zip(cls._libraries or (), numbers, strict=True):
            if library.num_threads != number:
                library.set_num_threads(number)
            # Since threadpoolctl 3.8, the thread that has set a limit is the only one that may change it.
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread()

    @classmethod
    def _begin(cls) -> None:
        """Reset lock and users in a child process that was forked during a fit."""
        cls._lock, cls._users = threading.RLock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_blas_thread._begin)
