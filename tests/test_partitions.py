"""Every backend of the seam has the optimum of the serial one, and errors name the partition; see `backends`."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from backends import BACKENDS, SLOW_BACKENDS, Elsewhere, reference
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.data import Rows
from dropmargin.estimators.fitting import fit_partitions
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


def for_each_backend(*names_and_factors):
    """Parametrise by backend and by factors that the backends share evenly; cases of slow backends are slow."""
    names, factors = names_and_factors[::2], names_and_factors[1::2]
    cases = deal(BACKENDS, *factors) if factors else [(backend,) for backend in BACKENDS]
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
    params = {"noise": NOISES[noise], "l1_ratio": l1_ratio, "C": 0.3, "tol": 1e-10}
    return type(LOSSES[loss])(**(LOSSES[loss].get_params() | params))


@cache
def serial_fit(loss, noise, l1_ratio, n_parts, layout):
    return fit_partitions(make_estimator(loss, noise, l1_ratio), reference(make_parts(n_parts, layout)))


def assert_same_model(model, expected, tol=1e-6):
    assert model.converged_
    if getattr(model, "multi_class", None) == "multinomial":  # coefficients within tol of the optimum, also in memory
        tol = 3e-5
    assert_allclose(model.coef_, expected.coef_, atol=tol)
    assert_allclose(model.intercept_, expected.intercept_, atol=tol)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.coef_.dtype == expected.coef_.dtype
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)


def _cases():
    """Return combinations; those with an l1 penalty that take seconds each are slow."""
    for case in deal(LOSSES, [name for name in BACKENDS if name != "serial"], NOISES, L1_RATIOS, LAYOUTS):
        is_slow = case[3] == 1.0 and (case[0] == "mcf-multinomial" or case[1] == "dask")
        yield pytest.param(*case, marks=pytest.mark.slow) if is_slow else case


@pytest.mark.parametrize(("loss", "backend", "noise", "l1_ratio", "layout"), list(_cases()))
def test_every_problem_is_solved_alike(loss, backend, noise, l1_ratio, layout):
    with BACKENDS[backend](make_parts(3, layout)) as data:
        model = fit_partitions(make_estimator(loss, noise, l1_ratio), data)
    assert_same_model(model, serial_fit(loss, noise, l1_ratio, 3, layout))


@for_each_backend("n_parts", [1, 2, 3, 8, 17], "loss", ["hinge", "logistic", "multinomial"], "layout", LAYOUTS)
def test_any_number_of_partitions(backend, n_parts, loss, layout):
    with BACKENDS[backend](make_parts(n_parts, layout)) as data:
        assert data.n_partitions == n_parts
        model = fit_partitions(make_estimator(loss, "dropout", 0.0), data)
    assert_same_model(model, serial_fit(loss, "dropout", 0.0, n_parts, layout))


@cache
def serial_fit_with(name, value):
    estimator = DropoutLogisticRegression(C=0.3, tol=1e-10, **{name: value})
    return fit_partitions(estimator, reference(make_parts(8, "sparse", np.float32)))


@for_each_backend("option", [("multi_class", "ovo"), ("solver", "lbfgs"), ("class_weight", "balanced")])
def test_other_parameters(backend, option):
    with BACKENDS[backend](make_parts(8, "sparse", np.float32)) as data:
        model = fit_partitions(DropoutLogisticRegression(C=0.3, tol=1e-10, **dict([option])), data)
    assert_same_model(model, serial_fit_with(*option), tol=1e-5)
    assert model.coef_.dtype == np.float32


# The contract of a backend ------------------------------------------------------------------------------------------


def _number(rows, factor):
    return factor * rows.number


def _n_rows(rows):
    return len(rows)


def _totals(rows, factor, power):
    weights = np.asarray(rows.sample_weight)
    return factor * weights**power @ np.ones((len(rows.y), 2)), None, len(rows.y), float(len(rows.y))


def _fewer(rows, step):
    return rows.take(np.arange(0, len(rows), step))


def _fail(rows, unlucky):
    if rows.number == unlucky:
        raise ValueError("not this one")
    return rows


@for_each_backend("n_parts", [1, 3, 17])
def test_map_is_in_the_order_of_the_partitions_which_know_their_numbers(backend, n_parts):
    parts = make_parts(n_parts, "dense")
    with BACKENDS[backend](parts) as data:
        assert data.single() is None
        assert data.map(_number, 10) == [10 * i for i in range(n_parts)]
        assert data.map(_n_rows) == [len(rows) for rows in parts]


@for_each_backend()
def test_sums(backend):
    for n_parts in (1, 2, 3, 8, 17):
        parts = make_parts(n_parts, "dense")
        with BACKENDS[backend](parts) as data:
            vector, nothing, count, number = data.map_sum(_totals, 0.1, 1.5)
        assert_allclose(vector, sum(_totals(rows, 0.1, 1.5)[0] for rows in parts), rtol=1e-13)
        assert nothing is None
        assert count == N_ROWS
        assert number == float(N_ROWS)


@for_each_backend("layout", LAYOUTS)
def test_transformed_partitions_are_partitions(backend, layout):
    parts = make_parts(3, layout)
    with BACKENDS[backend](parts) as data:
        fewer = data.transformed(_fewer, 2)
        assert fewer.n_partitions == 3
        assert fewer.single() is None
        assert fewer.map(_n_rows) == [len(rows.y[::2]) for rows in parts]
        assert fewer.transformed(_fewer, 2).map(_n_rows) == [len(rows.y[::4]) for rows in parts]
        sums = fewer.map_sum(_totals, 1.0, 1.0)
        assert data.map(_n_rows) == [len(rows.y) for rows in parts]
    expected = reference(parts).transformed(_fewer, 2).map_sum(_totals, 1.0, 1.0)
    assert_allclose(sums[0], expected[0], rtol=1e-13)


@for_each_backend()
def test_an_error_in_one_partition_is_the_callers_and_the_backend_lives_on(backend):
    parts = make_parts(3, "dense")
    with BACKENDS[backend](parts) as data:
        with pytest.raises(ValueError, match="not this one"):
            data.map(_fail, 1)
        with pytest.raises(ValueError, match="not this one"):
            data.transformed(_fail, 1).map(_n_rows)
        assert data.map(_n_rows) == [len(rows.y) for rows in parts]


_EDGES = (0, 30, 70, 71, 120)


def _data(seed=0, n_rows=120, n_features=8):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_rows, n_features)) * rng.uniform(0.3, 1.2, (n_rows, n_features))
    y = np.argmax((X - X.mean(axis=0)) @ rng.normal(size=(n_features, 3)) + rng.normal(size=(n_rows, 3)), axis=1)
    return X, np.array(["a", "b", "c"])[y], rng.uniform(0.5, 2.0, n_rows)


def _parts(X, y, weights=None, edges=_EDGES):
    own = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return [Rows(X[s], y[s], None if weights is None else weights[s]) for s in own]


def _fit(estimator, parts, **options):
    return fit_partitions(estimator, Elsewhere(parts), **options)


def _invalid(which, X=None, y=None, weights=None):
    parts = _parts(*_data()[:2])
    own = parts[which]
    parts[which] = Rows(own.X if X is None else X(own.X), own.y if y is None else y(own.y), weights)
    return parts


def _with(value):
    def change(X):
        X = X.copy()
        X[1, 2] = value
        return X

    return change


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (_invalid(1, X=_with(np.nan)), r"part B: X has NaN; .*missing='rescale'"),
        (_invalid(3, X=_with(np.inf)), r"part D: X has infinity in feature 2"),
        (_invalid(1, X=_with(1e200)), r"1.0e\+200 in feature 2 of part B, whose squares overflow"),
        (_invalid(1, X=lambda X: X[:, :5]), r"part B has 5 features, but part A has 8"),
        (_invalid(3, X=sparse.csr_array), r"part D is sparse, but part A is dense"),
        (_invalid(1, y=lambda y: y[:-2]), r"part B: X has 40 rows, but y has 38 labels"),
        (_invalid(1, y=lambda y: np.arange(len(y))), r"part B has numbers as labels, but part A has text"),
        (_invalid(3, y=lambda y: y[:, None].repeat(2, axis=1)), r"part D: y should be a 1d array"),
        (_invalid(1, weights=-np.ones(40)), r"part B: sample_weight must be finite and not negative"),
        (_invalid(1, weights=np.ones(39)), r"part B: sample_weight.shape"),
        ([Rows(np.empty((0, 8)), np.empty(0))] * 4, r"There are no rows"),
    ],
)
def test_errors_name_the_partition(parts, message):
    model = DropoutSVC().fit(*_data(seed=5)[:2])
    before = dict(model.__dict__)
    with pytest.raises(ValueError, match=message):
        _fit(model, parts, names=["part A", "part B", "part C", "part D"])
    assert model.__dict__ == before  # the very same arrays
