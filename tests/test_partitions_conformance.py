"""Every backend of the seam gives bitwise the result of the serial one; see `backends` for how to add one."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from backends import BACKENDS, SLOW_BACKENDS, reference
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.data import PerPartition, Rows, partitions
from dropmargin.estimators.partition_fit import fit_partitions
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise

pytestmark = pytest.mark.timeout(120)

N_ROWS, N_FEATURES = 140, 10
LOSSES = {
    "hinge": DropoutSVC(),
    "logistic": DropoutLogisticRegression(),
    "multinomial": DropoutLogisticRegression(multi_class="multinomial"),
    "mcf-multinomial": MCFClassifier("logistic", multi_class="multinomial"),
    "quadratic": MCFClassifier("quadratic"),
    "exponential": MCFClassifier("exponential"),
    "mcf-logistic": MCFClassifier("logistic"),
    "gaussian-hinge": NoisyLinearClassifier("hinge", approximation="gaussian"),
}
NOISES = {
    "none": None,
    "dropout": DropoutNoise(0.4),
    "groups": DropoutNoise(0.3, groups=np.arange(N_FEATURES) // 2),
    "gaussian": GaussianNoise(0.2),
    "laplace": LaplaceNoise(0.1),
    "poisson": PoissonNoise(),
}
L1_RATIOS = (0.0, 1.0, 0.5)
LAYOUTS = ("dense", "sparse")


def for_each_backend(*names_and_factors, n=None):
    """Parametrise by backend and by factors that the backends share evenly; cases of slow backends are slow."""
    names, factors = names_and_factors[::2], names_and_factors[1::2]
    cases = deal(BACKENDS, *factors, n=n) if factors else [(backend,) for backend in BACKENDS]
    marks = {True: [pytest.mark.slow], False: []}
    params = [pytest.param(*case, marks=marks[case[0] in SLOW_BACKENDS]) for case in cases]
    return pytest.mark.parametrize(("backend", *names), params)


def make_parts(n_parts, layout, dtype=np.float64):
    """Return rows of three classes in parts of unequal size, with weights; of seventeen parts one is empty."""
    rng = np.random.default_rng(3)
    X = rng.poisson(0.7, (N_ROWS, N_FEATURES)) * rng.uniform(0.3, 1.2, (N_ROWS, N_FEATURES))
    y = np.argmax((X - X.mean(axis=0)) @ rng.normal(size=(N_FEATURES, 3)) + rng.normal(size=(N_ROWS, 3)), axis=1)
    weights = rng.uniform(0.5, 2.0, N_ROWS)
    inner = np.sort(rng.choice(N_ROWS, n_parts - 1, replace=False))
    if n_parts > 10:
        inner[4] = inner[5]
    X = X.astype(dtype)
    X = sparse.csr_array(X) if layout == "sparse" else X
    names = np.array(["ant", "bee", "cat"])
    edges = [0, *inner, N_ROWS]
    return [Rows(X[a:b], names[y[a:b]], weights[a:b]) for a, b in itertools.pairwise(edges)]


def make_estimator(loss, noise, l1_ratio):
    """Return an estimator that takes every kind of step; the last digits of the optimum take only more of them."""
    params = {"noise": NOISES[noise], "l1_ratio": l1_ratio, "C": 0.3, "tol": 1e-2}
    return type(LOSSES[loss])(**(LOSSES[loss].get_params() | params))


@cache
def serial_fit(loss, noise, l1_ratio, n_parts, layout):
    return fit_partitions(make_estimator(loss, noise, l1_ratio), reference(make_parts(n_parts, layout)))


def assert_same_model(model, expected):
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(model.intercept_, expected.intercept_)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.coef_.dtype == expected.coef_.dtype
    assert (model.n_iter_, model.n_passes_, model.objective_) == (
        expected.n_iter_,
        expected.n_passes_,
        expected.objective_,
    )
    assert model.history_ == expected.history_


def _cases():
    """Return all combinations; the second half of them is slow, and those with an l1 penalty that take seconds each.

    A backend does not know the loss: by default each loss is fitted on about half of the backends.
    """
    others = [name for name in BACKENDS if name != "serial"]
    cases = deal(LOSSES, others, NOISES, L1_RATIOS, LAYOUTS)
    for number, case in enumerate(cases):
        has_many_steps = case[3] == 1.0 and (case[0] == "mcf-multinomial" or case[1] == "dask")
        is_slow = 2 * number >= len(cases) or has_many_steps
        yield pytest.param(*case, marks=pytest.mark.slow) if is_slow else case


@pytest.mark.parametrize(("loss", "backend", "noise", "l1_ratio", "layout"), list(_cases()))
def test_every_problem_is_solved_alike(loss, backend, noise, l1_ratio, layout, tmp_path):
    with BACKENDS[backend](make_parts(3, layout), tmp_path) as data:
        model = fit_partitions(make_estimator(loss, noise, l1_ratio), data)
    assert_same_model(model, serial_fit(loss, noise, l1_ratio, 3, layout))


@for_each_backend("n_parts", [1, 2, 3, 8, 17], "loss", ["hinge", "logistic", "multinomial"], "layout", LAYOUTS, n=20)
def test_any_number_of_partitions(backend, n_parts, loss, layout, tmp_path):
    with BACKENDS[backend](make_parts(n_parts, layout), tmp_path) as data:
        assert data.n_partitions == n_parts
        model = fit_partitions(make_estimator(loss, "dropout", 0.0), data)
    assert_same_model(model, serial_fit(loss, "dropout", 0.0, n_parts, layout))


@cache
def serial_fit_with(name, value):
    estimator = DropoutLogisticRegression(C=0.3, **{name: value})
    return fit_partitions(estimator, reference(make_parts(8, "sparse", np.float32)))


@for_each_backend("option", [("multi_class", "ovo"), ("solver", "lbfgs"), ("class_weight", "balanced")], n=9)
def test_other_parameters(backend, option, tmp_path):
    with BACKENDS[backend](make_parts(8, "sparse", np.float32), tmp_path) as data:
        model = fit_partitions(DropoutLogisticRegression(C=0.3, **dict([option])), data)
    assert_same_model(model, serial_fit_with(*option))
    assert model.coef_.dtype == np.float32


# The contract of a backend ------------------------------------------------------------------------------------------


def _n_rows(rows, factor, own):
    return factor * len(rows.y) + own


def _totals(rows, factor, power):
    return (
        factor * np.asarray(rows.sample_weight) ** power @ np.ones((len(rows.y), 2)),
        None,
        len(rows.y),
        float(len(rows.y)),
    )


def _fewer(rows, step):
    return Rows(rows.X[::step], np.asarray(rows.y)[::step], np.asarray(rows.sample_weight)[::step])


def _fail(rows, unlucky):
    if unlucky:
        raise ValueError("not this one")


def _scaled(rows, value, factor):
    return value * factor


@for_each_backend("n_parts", [1, 3, 17])
def test_map_passes_each_partition_its_own_arguments(backend, n_parts, tmp_path):
    parts = make_parts(n_parts, "dense")
    with BACKENDS[backend](parts, tmp_path) as data:
        assert data.rows_in_memory() is None
        own = PerPartition(range(n_parts))
        first = data.map(_n_rows, 10, own)
        expected = [10 * len(rows.y) + i for i, rows in enumerate(parts)]
        assert len(first) == n_parts
        assert data.gather(first) == expected
        assert data.gather(data.map(_scaled, first, 3)) == [3 * value for value in expected]


@for_each_backend()
def test_sums_are_in_the_order_of_the_tree(backend, tmp_path):
    for n_parts in (1, 2, 3, 8, 17):
        parts = make_parts(n_parts, "dense")
        with BACKENDS[backend](parts, tmp_path) as data:
            vector, nothing, count, number = data.map_sum(_totals, 0.1, 1.5)
        assert_array_equal(vector, _tree([_totals(rows, 0.1, 1.5)[0] for rows in parts]))
        assert nothing is None
        assert count == N_ROWS
        assert number == float(N_ROWS)


@for_each_backend("layout", LAYOUTS, "stored", [False, True])
def test_derived_partitions_are_partitions(backend, layout, stored, tmp_path):
    parts = make_parts(3, layout)
    with BACKENDS[backend](parts, tmp_path) as data:
        with data.map_partitions(_fewer, 2, stored=stored, shared_cache={"a": 1}) as fewer:
            assert fewer.n_partitions == 3
            assert fewer.rows_in_memory() is None
            assert fewer.shared_cache == {"a": 1}
            assert fewer.gather(fewer.map(_n_rows, 1, 0)) == [len(rows.y[::2]) for rows in parts]
            sums = fewer.map_sum(_totals, 1.0, 1.0)
        assert data.gather(data.map(_n_rows, 1, 0)) == [len(rows.y) for rows in parts]
    assert_array_equal(sums[0], reference([_fewer(rows, 2) for rows in parts]).map_sum(_totals, 1.0, 1.0)[0])


@for_each_backend()
def test_an_error_in_one_partition_is_the_callers_and_the_backend_lives_on(backend, tmp_path):
    parts = make_parts(3, "dense")
    with BACKENDS[backend](parts, tmp_path) as data:
        with pytest.raises(ValueError, match="not this one"):
            data.gather(data.map(_fail, PerPartition([False, True, False])))
        assert data.gather(data.map(_n_rows, 1, 0)) == [len(rows.y) for rows in parts]


# The sum itself -----------------------------------------------------------------------------------------------------


def _tree(values):
    while len(values) > 1:
        pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + ([values[-1]] if len(values) % 2 else [])
    return values[0]


def test_results_are_added_pair_by_pair():
    for n_parts in (*range(1, 40), 64, 100):
        values = list(np.random.default_rng(n_parts).normal(size=(n_parts, 50)) ** 7)
        before = [value.copy() for value in values]
        assert_array_equal(partitions.add_up([(value,) for value in values])[0], _tree(values))
        assert_array_equal(values, before)
