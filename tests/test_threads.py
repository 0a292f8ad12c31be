"""Thread pools and the limit of BLAS threads: order of results, errors, and interrupts at any moment."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from _thread import _count as count_threads
from concurrent.futures import CancelledError
from functools import partial

import numpy as np
import pytest

from datasets import make_sparse
from dropmargin import DropoutSVC, MCFClassifier
from dropmargin.data.partitions import LocalPartitions
from dropmargin.threads import Threads, in_threads

pytestmark = pytest.mark.timeout(120)


def wait_for_threads(n_threads):
    """Wait until only so many threads run; those that have finished their jobs end within microseconds."""
    while count_threads() > n_threads:
        time.sleep(1e-3)


def test_results_come_in_the_order_of_the_calls():
    late = threading.Event()
    with Threads(2) as threads:
        calls = [partial(late.wait, 60), late.set, *[partial(pow, k, 2) for k in range(50)]]
        assert threads.run(calls) == [True, None, *[k**2 for k in range(50)]]


def test_first_error_is_raised_and_other_calls_are_not_started():
    begun = []
    hold = threading.Event()
    with Threads(2) as threads:
        busy = threads.submit(hold.wait, 60)  # the other thread runs the call that fails, then one that waits
        late = [partial(hold.wait, 60), *[partial(begun.append, k) for k in range(9)]]
        with pytest.raises(ZeroDivisionError):
            threads.run([partial(divmod, 1, 0), *late])
        hold.set()
        assert busy.result() is True
    assert begun == []


def test_closed_pool_has_no_threads_and_refuses_jobs():
    before = count_threads()
    begun, hold = threading.Event(), threading.Event()

    def work():
        begun.set()
        return hold.wait(60)

    threads = Threads(1)
    busy = threads.submit(work)
    waiting = threads.submit(pow, 2, 2)
    assert begun.wait(60)
    timer = threading.Timer(0.05, hold.set)
    timer.start()
    threads.close()
    timer.join()
    assert busy.result() is True
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(pow, 2, 2)
    threads.close()  # twice is once
    wait_for_threads(before)


def test_threads_end_when_the_pool_is_deleted():
    before = count_threads()
    threads = Threads(2)
    while count_threads() < before + 2:
        time.sleep(1e-3)
    del threads
    gc.collect()
    wait_for_threads(before)
    assert count_threads() <= before


def test_the_error_state_of_numpy_is_that_of_the_caller():
    with Threads(2) as threads:
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            threads.run([partial(np.exp, np.float64(1e4))])
        with np.errstate(over="ignore"):
            assert threads.run([partial(np.exp, np.float64(1e4))]) == [np.inf]


class _Large:
    pass


def test_results_and_errors_are_released():
    def fail(large):
        raise ValueError("no")

    gc.disable()  # objects are freed with their last reference only
    try:
        with Threads(1) as threads:
            large = threads.submit(_Large).result()
            alive = weakref.ref(large)
            del large
            threads.submit(pow, 2, 2).result()
            assert alive() is None
            large = _Large()
            alive = weakref.ref(large)
            with pytest.raises(ValueError, match="no"):
                threads.submit(fail, large).result()
            del large
            threads.submit(pow, 2, 2).result()
            assert alive() is None
            large = _Large()
            alive = weakref.ref(large)
            with pytest.raises(ValueError, match="no"):
                threads.run([partial(pow, 2, 2), partial(fail, large), partial(pow, 2, 2)])
            del large
            threads.submit(pow, 2, 2).result()
            assert alive() is None
    finally:
        gc.enable()


def test_job_submitted_while_the_pool_closes_is_cancelled():
    threads = Threads(1)
    queue = threads._jobs

    class ClosedMeanwhile:
        """A queue whose pool another thread closes just before the first job is added."""

        get_nowait = queue.get_nowait

        def put(self, job):
            threads._jobs = queue
            threads.close()
            queue.put(job)

    threads._jobs = ClosedMeanwhile()
    with pytest.raises(CancelledError):
        threads.submit(pow, 2, 2).result()


def test_number_of_threads_is_at_most_the_number_of_jobs(monkeypatch):
    started = []

    class Counted(Threads):
        def __init__(self, n_threads):
            started.append(n_threads)
            super().__init__(n_threads)

    monkeypatch.setattr("dropmargin.threads.Threads", Counted)
    monkeypatch.setattr("dropmargin.data.partitions.Threads", Counted)
    assert in_threads([partial(pow, k, 2) for k in range(3)], 64, threading.Event()) == [0, 1, 4]
    with LocalPartitions(range(2), 64) as data:
        assert list(data.map(pow, 2)) == [0, 1]
    assert started == [3, 2]


def test_running_jobs_are_asked_to_stop_after_an_error():
    stop = threading.Event()
    begun = threading.Event()

    def work():
        begun.set()
        assert stop.wait(60)

    def fail():
        assert begun.wait(60)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_threads([fail, work], 2, stop)
    assert stop.is_set()


def test_fits_leave_no_threads_behind():
    X, y = make_sparse(3_000, 200, 0.5)
    before = count_threads()
    for estimator in (DropoutSVC(n_jobs=2), MCFClassifier("exponential", n_jobs=2, C=0.01)):
        estimator.fit(X, y)
        wait_for_threads(before)
    with pytest.raises(ValueError, match="feature"):
        DropoutSVC(n_jobs=2).fit(X * 1e200, y)
    wait_for_threads(before)


# The limit of BLAS -------------------------------------------------------------------------------------------------


# A separate process, in which BLAS has two threads.
_LOST = """
import threading
import numpy as np
from threadpoolctl import threadpool_info
from dropmargin.threads import one_blas_thread

def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

print(blas_threads())
lost = [one_blas_thread()]
lost[0].__enter__()
print(blas_threads())
collector = threading.Thread(target=lost.clear, daemon=True)  # the garbage collector runs in any thread
with one_blas_thread._limit._lock:  # another fit begins
    collector.start()
    collector.join(20)
    print(collector.is_alive())
with one_blas_thread():
    pass
print(blas_threads())
"""


def test_deleted_context_removes_its_limit_without_waiting_for_the_lock():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _LOST], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["{2}", "{1}", "False", "{2}"], done.stderr


_FORKED = """
import os
from dropmargin.threads import one_blas_thread

one_blas_thread._limit._lock.acquire()  # another thread begins a fit
child = os.fork()
if not child:
    with one_blas_thread():
        os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_does_not_wait_for_threads_of_its_parent():
    done = subprocess.run([sys.executable, "-c", _FORKED], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


# Interrupts -------------------------------------------------------------------------------------------------------

# Signals at random moments of the same work, again and again. A hang is a failure: all tracebacks are printed. With the
# pool of the standard library, one signal in some hundred leaves a lock behind. Python does not raise an interrupt
# inside a destructor, so another one follows.
_INTERRUPTED = """
import faulthandler, random, signal, sys, time
from _thread import _count as count_threads
import numpy as np
from threadpoolctl import threadpool_info
from dropmargin import DropoutSVC
from dropmargin.data import matrix
from dropmargin.data.partitions import LocalPartitions
from dropmargin.threads import one_blas_thread

def interrupt(*_):
    raise KeyboardInterrupt

def small(part, n):
    return (np.arange(n).sum(),)

def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

def partitions():
    with LocalPartitions(range(8), 2) as data:
        while True:
            data.map_sum(small, 200)

def contexts():
    while True:
        with LocalPartitions(range(4), 2) as data, one_blas_thread():
            data.map_sum(small, 200)

rng = np.random.RandomState(0)
X, y = rng.randn(400, 5), rng.randint(0, 3, size=400)
matrix._PARTITION_ENTRIES = 500  # several partitions

def fits(**parameters):
    while True:
        DropoutSVC(n_jobs=2, **parameters).fit(X, y)

work, longest = {
    "partitions": (partitions, 2e-3),
    "contexts": (contexts, 6e-3),
    "fits": (fits, 2e-2),
    "one against one": (lambda: fits(multi_class="ovo"), 2e-2),
}[sys.argv[1]]
moments = random.Random(0)
signal.signal(signal.SIGALRM, interrupt)
sys.unraisablehook = lambda _: None
DropoutSVC().fit(X, y)  # everything is imported
before, n_threads = blas_threads(), count_threads()
assert max(before) == 2
for k in range(int(sys.argv[2])):
    faulthandler.dump_traceback_later(30, exit=True)
    try:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, longest), 0.5)
        work()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert blas_threads() == before, k
    while count_threads() > n_threads:
        time.sleep(1e-3)
print("intact")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals at a given moment need setitimer (POSIX)")
@pytest.mark.parametrize(
    ("work", "times"),
    [
        ("partitions", 60),
        ("fits", 20),
        pytest.param("partitions", 500, marks=pytest.mark.slow),
        pytest.param("contexts", 300, marks=pytest.mark.slow),
        pytest.param("one against one", 100, marks=pytest.mark.slow),
    ],
)
def test_interrupts_leave_no_lock_and_no_limit_behind(work, times):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _INTERRUPTED, work, str(times)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout == "intact\n", done.stderr[-4000:]


# The traceback of an uncaught interrupt refers to the context until the interpreter ends.
_ENDED = """
import random, signal, sys
from dropmargin.threads import one_blas_thread

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
# Python does not raise an interrupt inside a destructor, so others follow.
signal.setitimer(signal.ITIMER_REAL, random.Random(int(sys.argv[1])).uniform(1e-3, 2e-2), 0.1)
while True:
    with one_blas_thread():
        pass
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals at a given moment need setitimer (POSIX)")
@pytest.mark.parametrize("seed", range(3))
def test_uncaught_interrupt_ends_the_process(seed):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _ENDED, str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode
    assert "KeyboardInterrupt" in done.stderr
