"""Thread pools that do not deadlock after an interrupt, and a limit of BLAS to one thread.

Ctrl-C raises `KeyboardInterrupt` in the main thread between any two Python bytecodes. The pools of joblib and of the
standard library, and the start of a `threading.Thread`, use condition variables, which are Python code: about one
interrupt in some hundred leaves one locked, and other threads wait for it forever. Threads here are started by
`_thread`, and wait only for locks and queues that are implemented in C, whose operations are atomic.
"""

from __future__ import annotations

import os
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


class Job(Generic[T]):
    """A call to be run by some thread, with the NumPy error state of the thread that created the job."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._error_state = np.geterr()
        self._value: Any = None
        self._error: BaseException | None = None
        self._running = threading.Lock()
        self._running.acquire()

    def run(self) -> None:
        """Run the call, unless it was cancelled."""
        job, call = self, self._call
        del self  # avoids a reference cycle between an error and its job
        if call is None:
            job._error = CancelledError()
        else:
            try:
                with np.errstate(**job._error_state):
                    job._value = call()
            except BaseException as error:
                job._error = error
        job._call = call = None
        job._running.release()
        del job

    def cancel(self) -> None:
        """Cancel the job, if it has not started."""
        self._call = None

    def wait(self) -> None:
        """Wait until the job has finished."""
        with self._running:
            pass

    def result(self) -> T:
        """Wait until the job has finished, and return its result or raise its error."""
        self.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self
        value: T = self._value
        return value


class Threads:
    """A pool of threads that run jobs in the order of submission."""

    def __init__(self, n_threads: int) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        weakref.finalize(self, self._jobs.put, None)  # ends the threads if an interrupt prevents the call of close
        self._is_closed = False
        self._workers = [Job(partial(_work, self._jobs)) for _ in range(n_threads)]
        for worker in self._workers:
            start_new_thread(worker.run, ())

    def submit(self, function: Callable[..., T], *args: Any) -> Job[T]:
        """Return a job for ``function(*args)``; the next idle thread runs it."""
        if self._is_closed:
            raise RuntimeError("the thread pool is closed")
        job = Job(partial(function, *args))
        self._jobs.put(job)
        if self._is_closed:  # closed meanwhile by another thread, so that no thread may be left to run the job
            self._cancel_waiting()
        return job

    def run(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """Return the results of the calls, in their order; after an error or an interrupt no other call is started."""
        jobs: list[Job[T]] = []
        try:
            for call in calls:
                jobs.append(self.submit(call))
            jobs.reverse()
            # a failed job is removed from the list, because its error refers to this frame
            return [jobs.pop().result() for _ in range(len(jobs))]
        except BaseException:
            for job in jobs:
                job.cancel()
            raise

    def close(self) -> None:
        """Cancel the jobs that have not started, and wait for the others."""
        self._is_closed = True
        self._cancel_waiting()
        for worker in self._workers:
            worker.wait()

    def _cancel_waiting(self) -> None:
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

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # release the result while waiting for the next job
    jobs.put(None)  # ends the next thread


def in_threads(jobs: Sequence[Callable[[], T]], n_threads: int, stop: threading.Event) -> list[T]:
    """Return the results of independent jobs; after an error or an interrupt, ``stop`` is set and running jobs end.

    The error is that of the first failed job in the order of the jobs, so that it is reproducible.
    """
    if min(n_threads, len(jobs)) <= 1:
        return [job() for job in jobs]
    with Threads(min(n_threads, len(jobs))) as threads:
        try:
            return threads.run(jobs)
        except BaseException:  # running jobs check ``stop`` at their next step
            stop.set()
            raise


class _BlasLimit:
    """The limit of BLAS to one thread, for the whole process: the first user sets it, the last removes it.

    An interrupt at any point leaves the numbers of threads before the limit in ``_previous``, until they are restored.
    """

    def __init__(self) -> None:
        self._libraries: list[Any] | None = None
        self._previous: list[int] | None = None
        self.begin()

    def begin(self) -> None:
        """Reset lock and users; also called in a child process that was forked during a fit."""
        self._lock = threading.Lock()
        self._users: set[int] = set()

    def add_user(self, user: int) -> None:
        with self._lock:
            self._users.add(user)
            if self._libraries is None:  # finding the libraries takes milliseconds
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            numbers = [library.num_threads for library in self._libraries]
            if self._previous is None:
                self._previous = numbers
            self._set([1] * len(numbers))

    def remove_user(self, user: int) -> None:
        """Remove a user, and the limit after the last one."""
        with self._lock:  # not `acquire`, after which an interrupt would leave it locked
            self._users.discard(user)
            self._restore_if_unused()

    def discard_user(self, user: int) -> None:
        """Remove a user whose ``__exit__`` was interrupted, without waiting for the lock.

        The garbage collector may call this in any thread. The thread that has the lock is a user, or removes the limit.
        """
        self._users.discard(user)
        if not self._users and self._previous is not None and self._lock.acquire(blocking=False):
            try:
                self._restore_if_unused()
            finally:
                self._lock.release()

    def _restore_if_unused(self) -> None:
        if not self._users and self._previous is not None:
            self._set(self._previous)
            self._previous = None

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(self._libraries or (), numbers, strict=True):
            if library.num_threads != number:
                library.set_num_threads(number)
            # Since threadpoolctl 3.8, the thread that has set a limit is the only one that may change it.
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread()


class one_blas_thread:  # noqa: N801, a context like np.errstate
    """Context manager that limits BLAS to one thread during a fit, because partitions are processed in threads.

    Fits that overlap share the limit. If ``__exit__`` is interrupted, ``__del__`` removes the limit.
    """

    _limit = _BlasLimit()

    def __enter__(self) -> None:
        try:
            self._limit.add_user(id(self))
        except BaseException:
            self._limit.remove_user(id(self))
            raise

    def __exit__(self, *_: object) -> None:
        self._limit.remove_user(id(self))

    def __del__(self) -> None:
        self._limit.discard_user(id(self))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_blas_thread._limit.begin)
