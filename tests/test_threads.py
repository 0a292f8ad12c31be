"""Thread pools and the limit of BLAS threads: order of results, errors, and interrupts at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from _thread import _count as count_threads

import pytest

from datasets import make_sparse
from dropmargin import DropoutSVC, MCFClassifier

pytestmark = pytest.mark.timeout(300)


def wait_for_threads(n_threads):
    """Wait until only so many threads run; those that have finished their jobs end within microseconds."""
    while count_threads() > n_threads:
        time.sleep(1e-3)


def test_fits_leave_no_threads_behind():
    X, y = make_sparse(3_000, 200, 0.5)
    before = count_threads()
    for estimator in (DropoutSVC(n_jobs=2), MCFClassifier("exponential", n_jobs=2, C=0.01)):
        estimator.fit(X, y)
        wait_for_threads(before)
    with pytest.raises(ValueError, match="feature"):
        DropoutSVC(n_jobs=2).fit(X * 1e200, y)
    wait_for_threads(before)


# Interrupts -------------------------------------------------------------------------------------------------------

# Signals at random moments of the same work, again and again. A hang is a failure: all tracebacks are printed. With the
# pool of the standard library, one signal in some hundred leaves a lock behind (1,500 signals are a thorough test).
# Python does not raise an interrupt inside a destructor, so another one follows.
_INTERRUPTED = """
import faulthandler, random, signal, sys, time
from _thread import _count as count_threads
import numpy as np
from threadpoolctl import threadpool_info
from dropmargin import DropoutSVC
from dropmargin.data import training

def interrupt(*_):
    raise KeyboardInterrupt

def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

rng = np.random.RandomState(0)
X, y = rng.randn(400, 5), rng.randint(0, 3, size=400)
training._BLOCK_ENTRIES = 500  # several partitions

def fits(**parameters):
    while True:
        DropoutSVC(n_jobs=2, **parameters).fit(X, y)

work, longest = {
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
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, longest), 2.0)
            work()
        except (KeyboardInterrupt, RuntimeError):  # an interrupt within a lock of `threading` ends in a RuntimeError
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:  # on a busy machine the second one comes before that line
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert blas_threads() == before, k
    while count_threads() > n_threads:
        time.sleep(1e-3)
print("intact")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals at a given moment need setitimer (POSIX)")
@pytest.mark.parametrize(
    ("work", "times"),
    [("fits", 60), ("one against one", 60), pytest.param("fits", 1500, marks=pytest.mark.slow)],
)
def test_interrupts_leave_no_lock_and_no_limit_behind(work, times):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _INTERRUPTED, work, str(times)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.stdout == "intact\n", done.stderr[-4000:]
