"""How sure a prediction is: closed forms against plain formulas, draws and integrals done by others."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from datasets import N_FEATURES, blankout, make_binary, make_multiclass
from dealing import deal, together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutSVC,
    GaussianNoise,
    LaplaceNoise,
    MCFClassifier,
    PoissonNoise,
)
from dropmargin.estimators import stability
from dropmargin.estimators.conditional import NormalScores
from dropmargin.estimators.stability import (
    ScoreDifferences,
    guaranteed,
    label_probabilities,
    normal,
    normal_given_predicted,
)
from dropmargin.noise import Noise, Variance
from helpers import plain_variance

NOISES = [
    blankout(0.4),
    blankout(np.linspace(0.0, 0.8, N_FEATURES)),
    GaussianNoise(0.4),
    GaussianNoise(np.linspace(0.0, 0.9, N_FEATURES)),
    LaplaceNoise(0.3),
    PoissonNoise(),
]


def name(noise):
    return type(noise).__name__ + (" per feature" if any(map(np.ndim, vars(noise).values())) else "")


def with_nan(X, share=0.3):
    X = X.copy()
    X[np.random.RandomState(5).uniform(size=X.shape) < share] = np.nan
    return X


def realised(model, rows, noise, n_draws):
    """Return the share of draws from the noise that leave each label as it is; what is missing stays missing."""
    rng, missing, before = np.random.RandomState(0), np.isnan(rows), model.predict(rows)
    kept = np.zeros(len(rows))
    for _ in range(n_draws // 50):  # 50 copies of all rows together
        drawn = noise.sample(np.tile(np.nan_to_num(rows), (50, 1)), rng)
        drawn[np.tile(missing, (50, 1))] = np.nan
        kept += (model.predict(drawn).reshape(50, len(rows)) == before).sum(axis=0)
    return kept / n_draws


def wide(n_samples, n_classes, n_features=60, seed=0):
    """Return rows with so many features that their noisy scores are nearly normal."""
    return make_multiclass(n_samples, n_features, n_classes, seed)


# Two classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "layout"), deal(NOISES, [np.array, sparse.csr_array]), ids=str)
def test_two_classes_by_the_formulas(noise, layout):
    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    mean, variance = model.decision_function(X), plain_variance(noise, X) @ model.coef_[0] ** 2
    got = model.predict_stability(layout(X), noise, "normal")
    np.testing.assert_allclose(got, norm.cdf(np.abs(mean) / np.sqrt(variance)), rtol=1e-9)
    bound = model.predict_stability(layout(X), noise, "guaranteed")
    np.testing.assert_allclose(bound, mean**2 / (mean**2 + variance), rtol=1e-9)


def test_a_number_is_a_dropout_rate_and_none_the_own_noise():
    X, y = make_multiclass()
    model = DropoutLogisticRegression(noise=GaussianNoise(0.3)).fit(X, y)
    own = model.predict_stability(X)
    np.testing.assert_array_equal(own, model.predict_stability(X, GaussianNoise(0.3)))
    np.testing.assert_array_equal(model.predict_stability(X, blankout(0.2)), model.predict_stability(X, blankout(0.2)))
    assert np.abs(own - model.predict_stability(X, blankout(0.2))).max() > 0.01


@pytest.mark.parametrize("method", ["auto", "normal", "guaranteed"])
@pytest.mark.parametrize("make", [make_binary, make_multiclass])
def test_without_noise_every_label_survives(make, method):
    X, y = make()
    silent = DropoutSVC(noise=None).fit(X, y)
    np.testing.assert_array_equal(silent.predict_stability(X, method=method), 1.0)
    np.testing.assert_array_equal(silent.predict_stability(X, blankout(0.0), method, n_draws=3), 1.0)


# More classes -------------------------------------------------------------------------------------------------------


def normal_cdf(upper, covariance, **options):
    """Return the distribution function of SciPy, which is a random estimate; seeded where SciPy takes a generator."""
    if "rng" in inspect.signature(multivariate_normal.cdf).parameters:
        options["rng"] = np.random.default_rng(0)
    return multivariate_normal.cdf(upper, cov=covariance, **options)


def random_gaps(n_rivals, seed):
    """Return the differences of normal scores with random weights, and their covariance."""
    rng = np.random.RandomState(seed)
    weights, means = rng.randn(n_rivals + 1, 12), np.sort(rng.randn(n_rivals + 1) * 2.0)[::-1]
    ahead = weights[0] - weights[1:]
    covariance = (ahead @ ahead.T)[None]
    slope = ahead @ weights[0] / np.linalg.norm(weights[0])
    return ScoreDifferences((means[0] - means[1:])[None], np.diag(covariance[0])[None], slope[None]), covariance


@pytest.mark.parametrize(("n_rivals", "accuracy"), [(1, 1e-6), (2, 1e-3), (4, 3e-3), (9, 6e-3)])
def test_the_joint_probability_agrees_with_scipy(n_rivals, accuracy):
    for seed in range(8):
        differences, covariance = random_gaps(n_rivals, seed)
        exact = normal_cdf(differences.mean[0], covariance[0], maxpts=20_000, abseps=1e-4)
        assert normal(differences, covariance)[0] == pytest.approx(exact, abs=accuracy + 2e-4)
        assert guaranteed(differences)[0] <= exact
        # what is done for many classes, without the covariances
        assert normal_given_predicted(differences)[0] == pytest.approx(exact, abs=0.08)


def test_the_integral_over_the_winner_is_exact_if_the_rivals_are_independent():
    mean, own = np.array([0.5, 1.0, 0.2]), np.array([1.0, 0.5, 2.0])  # variances of the rivals; the winner's is 1
    covariance = np.diag(own) + 1.0
    exact = normal_cdf(mean, covariance, abseps=1e-5)
    differences = ScoreDifferences(mean[None], (own + 1.0)[None], np.ones((1, 3)))
    assert normal_given_predicted(differences)[0] == pytest.approx(exact, abs=1e-3)
    assert normal(differences, covariance[None])[0] == pytest.approx(exact, abs=1e-3)


def test_classes_without_noise_are_steps():
    differences = ScoreDifferences(np.array([[1.0, 3.0]]), np.ones((1, 2)), np.ones((1, 2)))  # all noise is in S_k
    assert normal_given_predicted(differences)[0] == pytest.approx(norm.cdf(1.0), abs=1.0 / 256.0)
    assert normal(differences, np.ones((1, 2, 2)))[0] == pytest.approx(norm.cdf(1.0), abs=1.0 / 256.0)


def test_a_gap_without_noise_takes_no_part():
    differences = ScoreDifferences(np.array([[0.0, 1.0, 2.0]]), np.array([[0.0, 1.0, 0.0]]), np.zeros((1, 3)))
    covariance = np.zeros((1, 3, 3))
    covariance[0, 1, 1] = 1.0
    assert normal(differences, covariance)[0] == pytest.approx(norm.cdf(1.0), abs=1e-6)


@pytest.mark.parametrize("deviation", [0.0, 0.05, 0.2, 0.5, 2.0])
def test_the_probability_of_a_label_whose_score_determines_the_others_more_or_less(deviation):
    """Of three classes one is out of reach, so that the probability has a closed form."""
    mean = np.linspace(-2.0, 2.0, 41)
    scores = np.column_stack([mean, np.zeros(41), np.full(41, -100.0)])
    covariance = np.broadcast_to(np.diag([1.0, deviation**2, 0.0]), (41, 3, 3))
    found = label_probabilities(NormalScores(np.arange(41), scores, covariance), np.zeros(41, dtype=int))
    np.testing.assert_allclose(found, norm.cdf(mean / np.hypot(1.0, deviation)), atol=0.01)


def test_equal_classes_tie_and_survive():
    nothing = np.zeros((1, 2))
    assert normal(ScoreDifferences(nothing, nothing, nothing), np.zeros((1, 2, 2)))[0] == 1.0
    assert normal_given_predicted(ScoreDifferences(nothing, nothing, nothing))[0] == 1.0
    assert guaranteed(ScoreDifferences(nothing, nothing, nothing))[0] == 1.0


@pytest.mark.parametrize("n_classes", [3, 6])
def test_the_bound_for_several_classes_by_the_formula(n_classes):
    X, y = make_multiclass(n_classes=n_classes)
    model = DropoutSVC().fit(X, y)
    scores, V = model.decision_function(X), plain_variance(blankout(0.3), X)
    for i, value in enumerate(model.predict_stability(X, blankout(0.3), "guaranteed")):
        k, fails = scores[i].argmax(), 0.0
        for j in set(range(n_classes)) - {k}:
            variance = V[i] @ (model.coef_[k] - model.coef_[j]) ** 2
            fails += variance / ((scores[i, k] - scores[i, j]) ** 2 + variance) if variance > 0.0 else 0.0
        assert value == pytest.approx(max(0.0, 1.0 - fails), abs=1e-9)


# Against draws ------------------------------------------------------------------------------------------------------

WIDE_NOISES = [
    blankout(0.3),
    blankout(np.linspace(0.0, 0.6, 60)),
    GaussianNoise(0.4),
    LaplaceNoise(0.3),
    PoissonNoise(),
]


@pytest.mark.parametrize(("noise", "n_classes", "missing"), deal(WIDE_NOISES, [2, 5], [0.0, 0.3]))
def test_closed_forms_agree_with_draws(noise, n_classes, missing):
    X, y = wide(150, n_classes)
    model = DropoutSVC(missing="rescale").fit(X, y)
    rows = with_nan(X, missing)
    share = realised(model, rows, noise, 300)
    predicted = model.predict_stability(rows, noise, "normal")
    sampling = np.sqrt(0.25 / 300)
    assert np.abs(predicted - share).mean() < 0.04  # of which sampling is half
    assert abs((predicted - share).mean()) < 0.025
    assert (model.predict_stability(rows, noise, "guaranteed") <= share + 4.0 * sampling).all()
    assert np.mean(share < 0.95) > 0.05  # there is something to predict


def test_many_classes_are_independent_given_the_predicted_score(monkeypatch):
    X, y = wide(200, 6)
    model = DropoutSVC().fit(X, y)
    few = model.predict_stability(X, blankout(0.2), "normal")
    monkeypatch.setattr(stability, "_MAX_CLASSES", 5)
    many = model.predict_stability(X, blankout(0.2), "normal")
    assert 1e-4 < np.abs(few - many).max() < 0.08


def test_calibrated_on_digits():
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, _ = train_test_split(X / 16.0, y, test_size=0.5, random_state=0)
    model = DropoutSVC(noise=0.1).fit(X_train, y_train)
    predicted = model.predict_stability(X_test, blankout(0.3), "normal")
    share = realised(model, X_test, blankout(0.3), 200)
    bins = np.minimum((10.0 * predicted).astype(int), 9)
    errors = [abs(predicted[bins == b].mean() - share[bins == b].mean()) for b in np.unique(bins)]
    assert np.mean(errors) < 0.03


# What is missing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES, ids=name)
def test_noise_strikes_what_is_observed_only(noise):
    X, y = make_binary()
    model = DropoutSVC(missing="rescale").fit(X, y)
    rows = with_nan(X)
    weights, seen = model.coef_[0], ~np.isnan(rows)
    moves = np.abs(weights) * model.feature_deviations_
    share = np.maximum(seen @ moves / moves.sum(), seen.mean(axis=1) / 2.0)
    variance = (seen * plain_variance(noise, np.nan_to_num(rows))) @ weights**2 / share**2
    with np.errstate(divide="ignore"):  # rows of which nothing but zeros is observed
        wanted = norm.cdf(np.abs(model.decision_function(rows)) / np.sqrt(variance))
    np.testing.assert_allclose(model.predict_stability(rows, noise, "normal"), wanted, rtol=1e-9)


@pytest.mark.parametrize("method", ["auto", "normal", "guaranteed"])
@pytest.mark.parametrize("make", [make_binary, make_multiclass])
def test_where_nothing_is_observed_nothing_changes(make, method):
    X, y = make()
    model = DropoutSVC(missing="rescale").fit(X, y)
    nothing = np.full((2, N_FEATURES), np.nan)
    for noise in (0.5, GaussianNoise(0.5)):
        np.testing.assert_array_equal(model.predict_stability(nothing, noise, method, n_draws=5), 1.0)


# Errors -------------------------------------------------------------------------------------------------------------


@together(
    ("arguments", "message"),
    [
        ({"method": "exact"}, r"method must be one of \['auto', 'normal', 'guaranteed'\], got 'exact'"),
        ({"noise": 1.0}, r"rate .*\[0, 1\), got 1.0"),
        ({"noise": -0.1}, "rate .*-0.1"),
        ({"noise": "dropout"}, "noise .*'dropout'"),
        ({"noise": blankout([0.1, 0.2])}, "X has 8 features, rate has shape"),
        ({"n_draws": 0}, "n_draws .*got 0"),
        ({"n_draws": 2.5}, "n_draws .*got 2.5"),
        ({"random_state": "seed"}, "cannot be used to seed"),
    ],
)
def test_bad_arguments(arguments, message):
    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict_stability(X, **arguments)


@pytest.mark.parametrize("method", ["normal", "guaranteed"])
def test_pair_votes_have_no_closed_form(method):
    X, y = make_multiclass()
    model = DropoutSVC(multi_class="ovo").fit(X, y)
    with pytest.raises(ValueError, match="Choose method='auto', or fit with multi_class='ovr'"):
        model.predict_stability(X, method=method)
    X, y = make_binary()  # one pair is one score
    assert DropoutSVC(multi_class="ovo").fit(X, y).predict_stability(X, method=method).shape == (len(y),)


def test_bad_data():
    X, y = make_binary()
    model = MCFClassifier().fit(X, y)
    with pytest.raises(ValueError, match="expecting 8 features"):
        model.predict_stability(X[:, :3])
    with pytest.raises(ValueError, match=r"Poisson.*X >= 0"):
        model.predict_stability(-X, PoissonNoise())
    with pytest.raises(ValueError, match="whose squares overflow"):
        model.predict_stability(X * 1e200)


def test_pair_votes_are_drawn_and_never_make_sparse_rows_dense():
    X, y = make_multiclass()
    model = DropoutSVC(multi_class="ovo").fit(X, y)
    assert model.predict_stability(X, GaussianNoise(0.1)).shape == (len(y),)
    with pytest.raises(ValueError, match=r"Pass X.toarray\(\)"):
        model.predict_stability(sparse.csr_array(X), GaussianNoise(0.1))


def test_a_noise_of_variance_alone_has_closed_forms_but_no_draws():
    class Vague(Noise):
        def variance(self):
            return Variance(entry=np.square, slope=0.5, floor=0.1)

    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    variance = (0.5 * X**2 + 0.1) @ model.coef_[0] ** 2
    wanted = norm.cdf(np.abs(model.decision_function(X)) / np.sqrt(variance))
    np.testing.assert_allclose(model.predict_stability(X, Vague()), wanted, rtol=1e-9)
    X, y = make_multiclass()
    with pytest.raises(NotImplementedError, match="Vague has no draw"):
        DropoutSVC(multi_class="ovo").fit(X, y).predict_stability(X, Vague())


def test_single_precision_agrees_with_double():
    X, y = make_multiclass()
    model = DropoutSVC().fit(X, y)
    single = DropoutSVC().fit(X.astype(np.float32), y)
    np.testing.assert_allclose(
        single.predict_stability(X.astype(np.float32), blankout(0.3)),
        model.predict_stability(X, blankout(0.3)),
        atol=2e-2,
    )


def test_numbers_of_rows_and_features_do_not_overflow_32_bits():
    n_rows, n_features = 4000, 2**20
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, n_features, (n_rows, 3)).astype(np.int32), axis=1).ravel()
    X = sparse.csr_array((np.ones(3 * n_rows), indices, np.arange(0, 3 * n_rows + 1, 3, dtype=np.int32)))
    X.resize((n_rows, n_features))
    y = rng.integers(0, 2, n_rows)
    model = DropoutSVC(noise=0.3, tol=1e-2).fit(X, y)
    found = model.predict_stability(X)
    np.testing.assert_array_equal(found[-5:], model.predict_stability(X[-5:]))
