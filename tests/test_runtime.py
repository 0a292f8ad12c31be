"""Interrupts, determinism, threads and processes, progress lines and warm starts of a fit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

from datasets import (
    N_FEATURES,
    assert_bitwise_equal,
    assert_same_state,
    estimators,
    fitted_state,
    make_binary,
    make_multiclass,
    noises,
    relative_difference,
)
from dealing import deal, round_robin
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    MCFClassifier,
)
from dropmargin.data import matrix

_ESTIMATORS = estimators()
every_loss = pytest.mark.parametrize("estimator", _ESTIMATORS.values(), ids=_ESTIMATORS.keys())


# Interruption -----------------------------------------------------------------------------------------------------

# If nobody stops it, the long fit takes many times as long as its first iteration.
_INTERRUPTED = """
import pickle, signal, sys, time
from _thread import _count as count_threads
import numpy as np
from dropmargin import DropoutSVC, MCFClassifier

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
name, n_jobs = sys.argv[1], int(sys.argv[2])
rng = np.random.RandomState(0)
X, y = rng.randn(60, 40), np.arange(60) % 3
model = {
    "newton": DropoutSVC(noise=None),
    "irls": DropoutSVC(solver="irls"),
    "lbfgs": DropoutSVC(solver="lbfgs"),
    "l1": DropoutSVC(l1_ratio=1.0),
    "ovo": DropoutSVC(multi_class="ovo"),
    "mgf": MCFClassifier("exponential"),
}[name].set_params(n_jobs=n_jobs).fit(X, y)
model.verbose, model.tol, model.max_iter, model.C = 1, 0.0, 10**6, 1e4
before = pickle.dumps(vars(model))
n_threads = count_threads()
long = rng.randn(10000, 300)
codes = rng.randint(0, 6, size=10000)
print("begin", flush=True)
try:
    model.fit(long, codes)
except KeyboardInterrupt:
    model.predict(X)
    state = "intact" if pickle.dumps(vars(model)) == before else "changed"
    while count_threads() > n_threads:
        time.sleep(1e-3)
    print(state, flush=True)
else:
    print("finished", flush=True)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "n_jobs"),
    [
        ("newton", 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("mgf", 1), ("newton", 1), ("irls", 2), ("lbfgs", 1), ("l1", 2), ("ovo", 1), ("ovo", 2)]
        ),
    ],
)
def test_an_interrupt_stops_a_fit_and_leaves_the_last_one_with_no_thread_behind(name, n_jobs):
    child = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, name, str(n_jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "begin\n"
        assert "iteration" in child.stderr.readline()  # it is in the middle of the fit
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert out == "intact\n", err[-2000:]
    assert child.returncode == 0


@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupt_inside_an_iteration_leaves_the_last_fit(after):
    class Interrupting(GaussianNoise):
        """Raises what the interpreter raises on Ctrl-C, at a given evaluation."""

        calls = 0

        def log_mgf(self, t, x):
            Interrupting.calls += 1
            if Interrupting.calls > after:
                raise KeyboardInterrupt
            return super().log_mgf(t, x)

    X, y = make_binary()
    model = MCFClassifier("logistic", noise=GaussianNoise(scale=0.1)).fit(X, y)
    model.noise = Interrupting(scale=0.1)
    state = fitted_state(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :4], y)
    assert_same_state(model, state)


# Determinism and concurrency --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "make", "noise"), deal(_ESTIMATORS, [np.asarray, sparse.csr_array], noises()), ids=str
)
def test_the_same_fit_twice_is_the_same_to_the_last_bit(name, make, noise):
    X, y = make_multiclass()
    one, two = (clone(_ESTIMATORS[name]).set_params(noise=noises()[noise]).fit(make(X), y) for _ in range(2))
    assert_bitwise_equal(one, two)
    assert one.history_ == two.history_
    assert_bitwise_equal(one.fit(make(X), y), two)  # a third, on a fitted estimator


def _fit_by_seed(name, noise, seed, n_jobs=1):
    X, y = make_multiclass(seed=seed)
    return clone(_ESTIMATORS[name]).set_params(noise=noise, n_jobs=n_jobs).fit(X, y)


@pytest.mark.parametrize(("name", "n_jobs"), round_robin(["svc", "logistic", "mcf-quadratic", "mcf-logistic"], [1, 2]))
def test_fits_in_concurrent_threads_do_not_disturb_each_other(name, n_jobs, monkeypatch):
    monkeypatch.setattr(matrix, "_PARTITION_ENTRIES", 50)
    noise = DropoutNoise(rate=np.linspace(0.0, 0.8, N_FEATURES))  # one object, shared by all
    seeds = range(1, 7)
    alone = [_fit_by_seed(name, noise, seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: _fit_by_seed(name, noise, seed, n_jobs), seeds))
    for one, other in zip(alone, together, strict=True):
        assert_bitwise_equal(one, other)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fits_in_other_processes_give_the_same_bits(start):
    arguments = [("svc", 0.3, 1, 2), ("mcf-logistic", 0.3, 2, 1)]
    here = [_fit_by_seed(*args) for args in arguments]  # before the fork, so that the child inherits used state
    with multiprocessing.get_context(start).Pool(2) as pool:
        there = pool.starmap(_fit_by_seed, arguments)
    for one, other in zip(here, there, strict=True):
        assert_bitwise_equal(one, other)


def _blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_a_fit_leaves_the_number_of_blas_threads_as_it_was():
    X, y = make_multiclass()
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        DropoutSVC(n_jobs=2).fit(X, y)
        with pytest.raises(ValueError, match="rate"):
            DropoutSVC(noise=2.0).fit(X, y)
        assert _blas_threads() == before


# In a process of its own, so that the number of BLAS threads is two and belongs to nobody.
_OVERLAPPING = """
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from threadpoolctl import threadpool_info
from dropmargin import GaussianNoise, MCFClassifier

first_is_inside, second_is_inside, first_is_done = (threading.Event() for _ in range(3))

class First(GaussianNoise):
    def log_mgf(self, t, x):
        first_is_inside.set()
        second_is_inside.wait()
        return super().log_mgf(t, x)

class Second(GaussianNoise):
    def log_mgf(self, t, x):
        second_is_inside.set()
        first_is_done.wait()
        return super().log_mgf(t, x)

def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

X, y = np.random.RandomState(0).rand(20, 3), np.arange(20) % 2
print(blas_threads())
with ThreadPoolExecutor(2) as pool:
    first = pool.submit(MCFClassifier("logistic", noise=First()).fit, X, y)
    first_is_inside.wait()
    second = pool.submit(MCFClassifier("logistic", noise=Second()).fit, X, y)
    first.result()
    first_is_done.set()
    second.result()
print(blas_threads())
"""


@pytest.mark.timeout(60)
def test_overlapping_fits_leave_the_number_of_blas_threads_as_it_was():
    # the first to begin is the first to end: the second must not restore the one thread that it found
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "2")}
    done = subprocess.run(
        [sys.executable, "-c", _OVERLAPPING], env=environment, capture_output=True, text=True, check=True
    )
    before, after = done.stdout.splitlines()
    assert "2" in before
    assert after == before


# Progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise"), round_robin(_ESTIMATORS, [None, 0.3]))
def test_verbose_prints_a_line_per_iteration_to_stderr_and_nothing_to_stdout(name, noise, capfd):
    X, y = make_binary()
    model = clone(_ESTIMATORS[name]).set_params(noise=noise, verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == model.n_iter_ == len(model.history_)
    for number, line in enumerate(lines, start=1):
        assert type(model).__name__ in line
        assert f"iteration {number:4d}" in line
        assert "objective" in line


@pytest.mark.parametrize("solver", ["irls", "newton", "lbfgs"])
def test_every_solver_reports_its_progress(solver, capfd):
    X, y = make_binary()
    model = DropoutLogisticRegression(solver=solver, verbose=2).fit(X, y)
    assert len(capfd.readouterr().err.splitlines()) == model.n_iter_


@every_loss
def test_a_quiet_fit_prints_nothing(estimator, capfd):
    X, y = make_multiclass()
    clone(estimator).fit(X, y)
    assert capfd.readouterr() == ("", "")


# Warm starts ------------------------------------------------------------------------------------------------------

_WARM = {
    **_ESTIMATORS,
    "svc-l1": DropoutSVC(l1_ratio=1.0),
    "logistic-l1": DropoutLogisticRegression(l1_ratio=1.0),
    "svc-lbfgs": DropoutSVC(solver="lbfgs"),
    "logistic-irls": DropoutLogisticRegression(solver="irls"),
    "svc-ovo": DropoutSVC(multi_class="ovo"),
}


def _relative_gap(model, wanted):
    return abs(model.objective_ - wanted.objective_) / abs(wanted.objective_)


_IN_THE_DUAL = ("svc", "svc-gaussian", "svc-ovo")


@pytest.mark.parametrize(("name", "noise"), deal(_WARM, [None, 0.3], n=len(_WARM)))
def test_a_warm_start_at_the_solution_costs_less_and_stays_there(name, noise):
    X, y = make_multiclass(n_samples=200)
    cold = clone(_WARM[name]).set_params(noise=noise, tol=1e-6, warm_start=True).fit(X, y)
    warm = clone(cold).fit(X, y)
    passes, iterations = warm.n_passes_, warm.n_iter_
    warm.fit(X, y)
    if (noise == 0.3 and name in ("svc", "svc-l1", "svc-lbfgs")) or (noise is None and name in _IN_THE_DUAL):
        # One class has no coefficients there; and coordinate descent in the dual has no use for coefficients.
        assert warm.n_iter_ <= iterations
        assert warm.n_passes_ <= passes + 3.0  # one for the scores of each column
    else:
        if name != "mcf-quadratic":  # one step solves it, from anywhere
            assert warm.n_iter_ < iterations
        assert warm.n_passes_ < passes
    # L-BFGS does not know its gap, and at a kink it stops early
    assert _relative_gap(warm, cold) <= (1e-4 if (name, noise) == ("svc-lbfgs", None) else 2e-6)


@pytest.mark.parametrize("noise", [None, 0.3], ids=["none", "dropout"])
@pytest.mark.parametrize("name", ["svc", "svc-gaussian", "logistic", "mcf-exponential", "mcf-logistic", "logistic-l1"])
def test_a_warm_start_from_a_neighbour_saves_passes_and_reaches_the_same_optimum(name, noise):
    X, y = make_binary(n_samples=300)
    cold = clone(_WARM[name]).set_params(noise=noise, C=1.05, tol=1e-6).fit(X, y)
    warm = clone(_WARM[name]).set_params(noise=noise, C=1.0, tol=1e-6, warm_start=True).fit(X, y)
    warm.set_params(C=1.05).fit(X, y)
    if noise is None and name in _IN_THE_DUAL:
        assert warm.n_passes_ <= cold.n_passes_ + 1.0
    else:
        assert warm.n_passes_ < cold.n_passes_
    assert _relative_gap(warm, cold) <= 2e-6


@every_loss
def test_a_warm_start_far_away_reaches_the_same_optimum(estimator):
    X, y = make_binary()
    warm = clone(estimator).set_params(warm_start=True, tol=1e-20, noise=0.3).fit(X, y)
    warm.fit(X, 1 - y)
    cold = clone(estimator).set_params(tol=1e-20, noise=0.3).fit(X, 1 - y)
    assert relative_difference(warm, cold) <= 1e-8


@pytest.mark.parametrize(("name", "change"), round_robin(_ESTIMATORS, ["classes", "names", "features", "pairs"]))
def test_a_warm_start_with_other_classes_or_shape_starts_afresh(name, change):
    X, y = make_multiclass()
    estimator = _ESTIMATORS[name]
    warm = clone(estimator).set_params(warm_start=True).fit(X, y)
    if change == "classes":
        X, y = make_binary()
    elif change == "names":
        y = np.array(["a", "b", "c"])[y]
    elif change == "features":
        X = X[:, :5]
    else:
        X, y = make_multiclass(n_samples=200, n_classes=4)
        warm.set_params(multi_class="ovo")
    params = {"multi_class": warm.multi_class}
    assert_bitwise_equal(warm.fit(X, y), clone(estimator).set_params(**params).fit(X, y))


def test_a_warm_start_does_not_mistake_pairs_for_classes():
    # three classes have three pairs: the same shape, another meaning
    X, y = make_multiclass()
    warm = DropoutSVC(warm_start=True, tol=1e-20).fit(X, y)
    warm.set_params(multi_class="ovo").fit(X, y)
    cold = DropoutSVC(multi_class="ovo", tol=1e-20).fit(X, y)
    assert relative_difference(warm, cold) <= 1e-8


def test_without_warm_start_a_second_fit_forgets_the_first():
    X, y = make_binary()
    model = DropoutSVC().fit(X, 1 - y)
    assert_bitwise_equal(model.fit(X, y), DropoutSVC().fit(X, y))
