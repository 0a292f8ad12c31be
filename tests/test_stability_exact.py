"""How sure a prediction is under dropout and other noise: against all patterns, and against draws from the noise."""

from __future__ import annotations

import doctest
import tracemalloc
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import laplace, poisson
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import scale

from datasets import N_FEATURES, blankout, make_binary, make_multiclass
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    LaplaceNoise,
    PoissonNoise,
)
from dropmargin.data import missing_values
from dropmargin.estimators import patterns

RATES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)
PER_FEATURE = np.linspace(0.0, 0.9, N_FEATURES)
MOST_ERROR = 5.0 * 0.5  # five standard errors of one draw


def by_all_patterns(model, rows, rate, reference=0.0):
    """Return the total probability of the patterns that leave each label as it is; NaN stays NaN."""
    rate = np.broadcast_to(rate, rows.shape[1])
    kept = np.array(list(product([0.0, 1.0], repeat=rows.shape[1])))
    probability = np.prod(np.where(kept == 1.0, 1.0 - rate, rate), axis=1)
    out = []
    for row in rows:
        corrupted = reference + (row - reference) * kept / (1 - rate)
        out.append(probability @ (model.predict(corrupted) == model.predict([row])[0]))
    return np.array(out)


def by_draws(model, rows, noise, n_draws=4000):
    drawn = noise.sample(np.repeat(rows, n_draws, axis=0), np.random.RandomState(0))
    return (model.predict(drawn).reshape(-1, n_draws) == model.predict(rows)[:, None]).mean(axis=1)


def many_features(n_features=20, n_samples=40, n_classes=3):
    X, y = make_multiclass(n_samples, n_features, n_classes)
    return DropoutSVC(noise=0.1).fit(X, y), X


def test_the_example_prints_what_it_says():
    (example,) = doctest.DocTestFinder(recurse=False).find(DropoutSVC.predict_stability, "predict_stability")
    result = doctest.DocTestRunner().run(example)
    assert result.attempted == 5
    assert result.failed == 0


# Few features: exact ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "make", "options"),
    deal(
        [0.1, 0.5, 0.95, PER_FEATURE],
        [make_binary, make_multiclass],
        [{}, {"fit_intercept": False}, {"multi_class": "ovo"}],
    ),
)
def test_few_features_are_exact(rate, make, options):
    X, y = make()
    model = DropoutSVC(noise=0.2, **options).fit(X, y)
    exact = by_all_patterns(model, X[:15], rate)
    np.testing.assert_allclose(model.predict_stability(X[:15], blankout(rate)), exact, rtol=0, atol=1e-12)
    assert np.ptp(exact) > 0.1  # there is something to find


@pytest.mark.parametrize("reference", [0.0, np.linspace(-1.0, 1.5, N_FEATURES)], ids=["zero", "reference"])
@pytest.mark.parametrize("make", [make_binary, make_multiclass])
def test_few_features_are_exact_where_others_are_missing(make, reference):
    X, y = make()
    model = DropoutLogisticRegression(noise=0.2, missing="rescale").fit(X, y)
    X[np.random.RandomState(3).uniform(size=X.shape) < 0.3] = np.nan
    got = model.predict_stability(X[:15], DropoutNoise(0.4, reference=reference))
    np.testing.assert_allclose(got, by_all_patterns(model, X[:15], 0.4, reference), rtol=0, atol=1e-12)


def test_features_without_coefficient_do_not_count():
    X, y = make_binary()
    model = DropoutSVC(noise=0.2).fit(np.hstack([X, np.zeros((len(X), 30))]), y)
    padded = np.hstack([X, np.ones((len(X), 30))])
    plain = DropoutSVC(noise=0.2).fit(X, y)
    np.testing.assert_allclose(
        model.predict_stability(padded, blankout(0.3), n_draws=64),
        plain.predict_stability(X, blankout(0.3), n_draws=64),
        atol=1e-9,
    )


# Many features: draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_draws_are_within_their_standard_error(rate):
    model, X = many_features(14)
    exact = model.predict_stability(X, blankout(rate), n_draws=2**12)  # 2^14 patterns are enumerated
    np.testing.assert_allclose(exact[:3], by_all_patterns(model, X[:3], rate), rtol=0, atol=1e-12)
    drawn = model.predict_stability(X, blankout(rate), n_draws=256)
    assert 0.0 < np.abs(drawn - exact).max() < MOST_ERROR / np.sqrt(256)


def test_a_single_strong_feature_is_exact_in_draws():
    rng = np.random.RandomState(0)
    X = rng.uniform(0.5, 1.0, (60, 30))
    X[:, 0] = 1e4 * (np.arange(60) % 2)
    model = DropoutSVC(noise=None, C=1e-6).fit(X, np.arange(60) % 2)
    strong = X[X[:, 0] > 0.0]
    np.testing.assert_allclose(model.predict_stability(strong, blankout(0.25), n_draws=1000), 0.75, atol=1e-12)
    assert model.predict_stability(strong, blankout(0.2501), n_draws=1000).mean() == pytest.approx(0.7499, abs=0.001)


def test_draws_are_repeatable():
    model, X = many_features()
    first = model.predict_stability(X, blankout(0.5))
    np.testing.assert_array_equal(first, model.predict_stability(X, blankout(0.5)))
    np.testing.assert_array_equal(first, model.predict_stability(X, blankout(0.5), random_state=0))
    other = model.predict_stability(X, blankout(0.5), random_state=1)
    assert 0.0 < np.abs(first - other).max() < 0.1
    generator = np.random.RandomState(0)
    assert (model.predict_stability(X, blankout(0.5), random_state=generator) == first).all()
    assert (model.predict_stability(X, blankout(0.5), random_state=generator) != first).any()


@pytest.mark.parametrize(
    "noise",
    [blankout(0.5), blankout(np.linspace(0.0, 0.9, 20)), PoissonNoise()],
)
def test_sparse_rows_give_what_dense_rows_give(noise):
    model, X = many_features()
    dense = model.predict_stability(X, noise)
    for layout in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array):
        np.testing.assert_allclose(model.predict_stability(layout(X), noise), dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "options"),
    deal([blankout(0.5), PoissonNoise(), LaplaceNoise(0.3)], [{}, {"multi_class": "ovo"}]),
)
def test_a_row_does_not_depend_on_others_or_on_chunks(monkeypatch, noise, options):
    X, y = make_multiclass(40, 20)
    X[::2, :12] = 0.0  # rows with few features and rows with many
    model = DropoutSVC(noise=0.1, **options).fit(X, y)
    whole = model.predict_stability(X, noise, n_draws=100)
    single = np.concatenate([model.predict_stability(X[[i]], noise, n_draws=100) for i in range(len(X))])
    np.testing.assert_allclose(single, whole, rtol=0, atol=1e-12)
    monkeypatch.setattr(missing_values, "_CHUNK_ENTRIES", 1)
    monkeypatch.setattr(patterns, "_BLOCK", 1)
    np.testing.assert_allclose(model.predict_stability(X, noise, n_draws=100), whole, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_wide_sparse_rows_are_not_made_dense():
    n_rows, n_features = 200, 500_000
    rng = np.random.RandomState(0)
    columns = rng.randint(0, n_features, n_rows * 40)
    X = sparse.csr_array((np.ones(len(columns)), (np.repeat(np.arange(n_rows), 40), columns)), (n_rows, n_features))
    model = DropoutSVC().fit(X, np.arange(n_rows) % 2)
    tracemalloc.start()
    found = model.predict_stability(X, blankout(0.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (n_rows,)
    assert peak < 200e6  # dense, X has 800 MB


# Accuracy -----------------------------------------------------------------------------------------------------------

DATA = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@pytest.mark.parametrize(
    ("data", "prepare", "model"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[0] == "digits" else ())
        for case in deal(DATA, [np.asarray, scale], [DropoutSVC(), DropoutLogisticRegression()])
    ],
)
def test_real_data_against_draws(data, prepare, model):
    X, y = DATA[data](return_X_y=True)
    X = prepare(X)
    model = model.fit(X, y)
    rows = X[:: len(X) // 20]
    for rate in RATES:
        found, reference = (
            model.predict_stability(rows, blankout(rate)),
            by_draws(model, rows, blankout(rate)),
        )
        assert np.abs(found - reference).mean() < 0.02
        assert np.abs(found - reference).max() < 0.06
        bound = model.predict_stability(rows, blankout(rate), "guaranteed")
        assert (bound <= found + MOST_ERROR / np.sqrt(2048)).all()


def test_the_bound_holds_exactly_where_probabilities_are_exact():
    for load in (load_iris, load_wine):
        X, y = load(return_X_y=True)
        model = DropoutSVC().fit(X, y)
        for rate in RATES:
            bound = model.predict_stability(X, blankout(rate), "guaranteed")
            assert (bound <= model.predict_stability(X, blankout(rate)) + 1e-12).all()


# Other noise --------------------------------------------------------------------------------------------------------


def one_feature(values):
    """Return a model whose label is 1 above a threshold of its only feature, and that threshold."""
    X = np.asarray(values, dtype=np.float64)[:, None]
    model = DropoutLogisticRegression(noise=None, C=100.0).fit(X, (X[:, 0] > X.mean()).astype(int))
    return model, X, -model.intercept_[0] / model.coef_[0, 0]


def test_poisson_noise_on_small_counts():
    model, X, threshold = one_feature([0, 1, 2, 3])
    above = poisson.sf(np.floor(threshold), X[:, 0])
    wanted = np.where(X[:, 0] > threshold, above, 1.0 - above)
    found = model.predict_stability(X, PoissonNoise(), n_draws=20_000)
    np.testing.assert_allclose(found, wanted, atol=MOST_ERROR / np.sqrt(20_000))


def test_laplace_noise_on_one_feature():
    model, X, threshold = one_feature([0.0, 1.0, 2.0, 3.0])
    above = laplace.sf(threshold, X[:, 0], 0.7)
    wanted = np.where(X[:, 0] > threshold, above, 1.0 - above)
    np.testing.assert_allclose(model.predict_stability(X, LaplaceNoise(0.7)), wanted, atol=MOST_ERROR / np.sqrt(2048))
    # draws on the zeros of sparse rows would make these dense: the normal approximation
    thin = model.predict_stability(sparse.csr_array(X), LaplaceNoise(0.7))
    np.testing.assert_array_equal(thin, model.predict_stability(X, LaplaceNoise(0.7), "normal"))


def test_gaussian_noise_is_normal():
    model, X = many_features()
    np.testing.assert_array_equal(
        model.predict_stability(X, GaussianNoise(0.4)), model.predict_stability(X, GaussianNoise(0.4), "normal")
    )


@pytest.mark.parametrize("noise", [PoissonNoise(), LaplaceNoise(0.5)])
def test_draws_spare_what_is_missing(noise):
    X, y = make_multiclass()
    model = DropoutSVC(noise=0.1, missing="rescale").fit(X, y)
    X[:, 2:] = np.nan
    missing_rows = model.predict_stability(X[:10], noise)
    drawn = np.repeat(X[:10], 4000, axis=0)
    drawn[:, :2] = noise.take([0, 1]).sample(drawn[:, :2], 0)
    reference = (model.predict(drawn).reshape(10, -1) == model.predict(X[:10])[:, None]).mean(axis=1)
    np.testing.assert_allclose(missing_rows, reference, atol=0.05)


def test_the_classifier_that_chooses_its_noise_gives_what_its_best_gives():
    X, y = make_binary()
    search = DropoutSVCCV(noises=[0.2], Cs=[1.0], cv=2).fit(X, y)
    plain = DropoutSVC(noise=0.2).fit(X, y)
    plain.coef_, plain.intercept_ = search.coef_, search.intercept_
    np.testing.assert_array_equal(search.predict_stability(X), plain.predict_stability(X))
