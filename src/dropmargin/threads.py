"""Threads that an interrupt cannot lock up: jobs side by side, and one thread for BLAS in each.

Ctrl-C raises `KeyboardInterrupt` in the main thread between any two steps of Python code. The pools of the standard
library, and the start of a thread, are guarded by conditions, which are Python code: interrupted inside one, the main
thread leaves it locked, and the other threads wait for it for ever. So here all that a thread waits for are locks and
queues that are written in C, each step of which happens or does not.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


class Job(Generic[T]):
    """A call that some thread makes, under the NumPy error state of the thread that made the job."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._error_state = np.geterr()
        self._value: Any = None
        self._error: BaseException | None = None
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Make the call, unless it was cancelled."""
        job, call = self, self._call
        del self  # or an error would hold its job, which holds it
        if call is None:
            job._error = CancelledError()
        else:
            try:
                with np.errstate(**job._error_state):
                    job._value = call()
            except BaseException as error:
                job._error = error
        job._call = call = None
        job._under_way.release()
        del job

    def cancel(self) -> None:
        """Do not begin it, if it has not begun."""
        self._call = None

    def wait(self) -> None:
        """Return when it has ended."""
        with self._under_way:
            pass

    def result(self) -> T:
        """Return what the call has returned, or raise what it has raised, once it has ended."""
        self.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self
        value: T = self._value
        return value


class Threads:
    """A few threads that take jobs in the order in which they were submitted, until they are closed."""

    def __init__(self, n_threads: int, name: str = "dropmargin") -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        weakref.finalize(self, self._jobs.put, None)  # should an interrupt keep its owner from closing it
        self._is_closed = False
        self._threads = [_Thread(partial(_work, self._jobs), f"{name}-{i}") for i in range(n_threads)]
        _elsewhere(partial(_start, self._threads))

    def submit(self, function: Callable[..., T], *args: Any) -> Job[T]:
        """Have a call made by the next thread that has nothing to do."""
        if self._is_closed:
            raise RuntimeError("these threads are closed")
        job = Job(partial(function, *args))
        self._jobs.put(job)
        if self._is_closed:  # meanwhile, by another thread: nobody may be left to take it
            self._drop_waiting()
        return job

    def run(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """Return what calls return, in their order; if one fails, or at an interrupt, no other is begun."""
        jobs: list[Job[T]] = []
        try:
            for call in calls:
                jobs.append(self.submit(call))
            jobs.reverse()
            # a job that has failed is forgotten: its error holds this frame
            return [jobs.pop().result() for _ in range(len(jobs))]
        except BaseException:
            for job in jobs:
                job.cancel()
            raise

    def close(self) -> None:
        """Drop the jobs that wait, and return when those under way have ended."""
        self._is_closed = True
        self._drop_waiting()
        for thread in self._threads:
            thread.join()

    def _drop_waiting(self) -> None:
        try:
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    job.cancel()
                    job.run()
        except Empty:
            self._jobs.put(None)

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _work(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # a result is not kept while there is nothing to do
    jobs.put(None)  # for the next thread


class _Thread(threading.Thread):
    """A thread that makes one call."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.job = Job(call)

    def run(self) -> None:
        self.job.run()

    def join(self, timeout: float | None = None) -> None:
        if timeout is None and self.ident is not None:
            self.job.wait()  # in Python 3.11, a `join` that is interrupted takes the thread for ended
        super().join(timeout)


def _start(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.start()


def _elsewhere(function: Callable[[], T]) -> T:
    """Return what a function returns; it is not called by the main thread, so that nothing interrupts it."""
    if threading.get_ident() != threading.main_thread().ident:
        return function()
    job = Job(function)
    try:
        start_new_thread(job.run, ())
        return job.result()
    except RuntimeError:  # no more threads to be had, or the function's own
        raise
    except BaseException:
        job.wait()
        raise
    finally:
        del job  # its error holds this frame


def in_threads(jobs: Sequence[Callable[[], T]], n_threads: int, stop: threading.Event) -> list[T]:
    """Return the results of independent jobs; if one fails, ``stop`` tells those after it to end; an interrupt, all.

    The error is that of the first job that fails, in their order, so that it is the same every time.
    """
    if min(n_threads, len(jobs)) <= 1:
        return [job() for job in jobs]
    with Threads(min(n_threads, len(jobs))) as threads:
        try:
            return threads.run(jobs)
        except BaseException:  # jobs at work look at ``stop`` at their next step
            stop.set()
            raise


class _BlasLimit:
    """The limit of BLAS to one thread. It belongs to the process: the first user sets it, the last takes it back."""

    def __init__(self) -> None:
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None
        self.begin()

    def begin(self) -> None:
        """Have no users, and nobody at work: so it is in a process that was forked from another in mid fit, too."""
        self._lock = threading.Lock()
        self._users: set[int] = set()

    def add_user(self, user: int) -> None:
        with self._lock:
            self._users.add(user)
            if self._controller is None:  # finding the libraries takes milliseconds
                self._controller = ThreadpoolController().select(user_api="blas")
            if self._limit is None and any(library["num_threads"] > 1 for library in self._controller.info()):
                _in_passing(self._set)

    def remove_user(self, user: int) -> None:
        """Forget a user, who may have been forgotten before."""
        with self._lock:
            self._users.discard(user)
            self._tidy()

    def lose_user(self, user: int) -> None:
        """Forget a user whom an interrupt has kept from leaving: the garbage collector calls, in any thread, any time.

        So it does not wait. Whoever has the lock is a user, or the last one, who leaves.
        """
        self._users.discard(user)
        is_left_behind = not self._users and self._limit is not None and not sys.is_finalizing()
        if is_left_behind and self._lock.acquire(blocking=False):
            try:
                self._tidy()
            finally:
                self._lock.release()

    def _tidy(self) -> None:
        if not self._users and self._limit is not None:
            _in_passing(self._take_back)

    def _set(self) -> None:
        assert self._controller is not None
        self._limit = self._controller.limit(limits=1)

    def _take_back(self) -> None:
        self._limit.restore_original_limits()
        self._limit = None


_blas_limit = _BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blas_limit.begin)


class one_blas_thread:  # noqa: N801, a context like np.errstate
    """Limits BLAS to one thread while any fit is under way: partitions have threads of their own, and both would fight.

    Fits that overlap share the limit. What an interrupt keeps ``__exit__`` from doing is done by ``__del__``.
    """

    def __enter__(self) -> None:
        try:
            _blas_limit.add_user(id(self))
        except BaseException:
            _blas_limit.remove_user(id(self))
            raise

    def __exit__(self, *_: object) -> None:
        _blas_limit.remove_user(id(self))

    def __del__(self) -> None:
        _blas_limit.lose_user(id(self))


def _in_passing(function: Callable[[], None]) -> None:
    """Call a function in a thread of its own: a limit may be taken back by others only once its thread has ended."""
    thread = _Thread(function, "dropmargin-blas")
    try:
        _elsewhere(thread.start)
        thread.join()
    except BaseException:  # an interrupt: it has not begun, or is over in a moment
        if thread.ident is not None:
            thread.join()
        raise
    thread.job.result()
