"""The classifiers that choose noise and ``C``: scores, folds and the final fit. `test_cv_choice` has the choice."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.utils.fixes import parse_version

from datasets import N_FEATURES, assert_bitwise_equal, make_binary, make_multiclass, relative_difference
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    PoissonNoise,
)

_TOL = 1e-10
_NOISES = [0.5, None, GaussianNoise(scale=0.4), 0.2]
_NOISY = [0.5, GaussianNoise(scale=0.4)]
_CS = [0.3, 1.0, 10.0]
_SMALL = {"noises": [0.1, 0.5], "Cs": [0.1, 1.0], "cv": 3}
_PAIRS = [(DropoutSVC, DropoutSVCCV), (DropoutLogisticRegression, DropoutLogisticRegressionCV)]
both = pytest.mark.parametrize(("plain", "search"), _PAIRS, ids=["svc", "logistic"])


def _scores_of_fits(estimator, model, X, y, cv, scoring=None, weights=None, score_weights=None):
    """Return the scores that fits with every noise and ``C`` of a fitted search have on the folds."""
    score, out = get_scorer(scoring or "accuracy") if not callable(scoring) else scoring, np.zeros(model.scores_.shape)
    for fold, (train, test) in enumerate(cv):
        own = {} if weights is None else {"sample_weight": (weights if score_weights is None else score_weights)[test]}
        for row, noise in enumerate(model.noises_):
            for column, C in enumerate(model.Cs_):
                fit = clone(estimator).set_params(noise=noise, C=C)
                fit.fit(X[train], y[train], None if weights is None else weights[train])
                out[fold, row, column] = score(fit, X[test], y[test], **own)
    return out


# The scores ---------------------------------------------------------------------------------------------------------

_OPTIONS = {
    "plain": {},
    "one-vs-one": {"multi_class": "ovo"},
    "balanced": {"class_weight": "balanced"},
    "no offset": {"fit_intercept": False},
    "gaussian": {"approximation": "gaussian"},
}


@pytest.mark.parametrize(("options", "pair"), deal(_OPTIONS, _PAIRS))
def test_scores_are_those_of_plain_fits(options, pair):
    X, y = make_multiclass()
    options, (plain, search) = _OPTIONS[options], pair
    noises = _NOISES[1:3] if plain is DropoutLogisticRegression else _NOISY
    model = search(noises=noises, Cs=_CS[1:], cv=2, prune=False, tol=_TOL, **options).fit(X, y)
    for row, noise in enumerate(noises):
        for column, C in enumerate(_CS[1:]):
            wanted = cross_val_score(plain(noise=noise, C=C, tol=_TOL, **options), X, y, cv=2)
            np.testing.assert_allclose(model.scores_[:, row, column], wanted, rtol=1e-12)
    assert model.refined_.all()


@both
def test_weights_count_in_fits_and_scores(plain, search):
    X, y = make_binary()
    weights = np.random.RandomState(0).randint(0, 4, len(y)).astype(float)
    model = search(**_SMALL, tol=_TOL, prune=False).fit(X, y, sample_weight=weights)
    wanted = _scores_of_fits(plain(tol=_TOL), model, X, y, StratifiedKFold(3).split(X, y), weights=weights)
    np.testing.assert_allclose(model.scores_, wanted, rtol=1e-12)
    final = plain(noise=model.noise_, C=model.C_, tol=_TOL).fit(X, y, weights)
    assert relative_difference(model, final) < 1e-4
    scalar = search(**_SMALL).fit(X, y, sample_weight=2.0)
    np.testing.assert_array_equal(scalar.scores_, search(**_SMALL).fit(X, y, sample_weight=np.full(60, 2.0)).scores_)


# The folds ----------------------------------------------------------------------------------------------------------


def test_folds_may_be_given_in_every_way_of_scikit_learn():
    X, y = make_binary()
    splits = list(StratifiedKFold(3).split(X, y))
    masks = [tuple(np.isin(np.arange(60), part) for part in split) for split in splits]
    wanted = DropoutSVCCV(**_SMALL).fit(X, y)
    lists = [(list(train), list(test)) for train, test in splits]
    for cv in (StratifiedKFold(3), lists, masks, iter(splits)):
        got = DropoutSVCCV(**{**_SMALL, "cv": cv}).fit(X, y)
        np.testing.assert_array_equal(got.scores_, wanted.scores_)
        assert_bitwise_equal(got, wanted)
    assert DropoutSVCCV(noises=[0.5], Cs=[0.1], cv=None).fit(X, y).scores_.shape == (5, 1, 1)
    shuffled = ShuffleSplit(2, test_size=0.3, random_state=0)
    model = DropoutSVCCV(**{**_SMALL, "cv": shuffled}, tol=_TOL).fit(X, y)
    wanted = _scores_of_fits(DropoutSVC(tol=_TOL), model, X, y, shuffled.split(X))
    np.testing.assert_allclose(model.scores_[:, model.refined_], wanted[:, model.refined_], rtol=1e-12)


def test_metadata_routing():
    X, y = make_binary()
    weights, groups = np.random.RandomState(1).uniform(0.0, 2.0, 60), np.arange(60) // 5
    folds = list(GroupKFold(3).split(X, y, groups))
    options = {**_SMALL, "tol": _TOL, "prune": False}
    requests = [{"sample_weight": False}, {"sample_weight": True}]
    with sklearn.config_context(enable_metadata_routing=True):
        for n_jobs, request in zip((1, 2), requests, strict=True):
            scorer = get_scorer("accuracy").set_score_request(**request)
            model = DropoutSVCCV(**{**options, "cv": GroupKFold(3), "scoring": scorer}, n_jobs=n_jobs)
            model.fit(X, y, sample_weight=weights, groups=groups)
            own = weights if request["sample_weight"] else np.ones(60)
            wanted = _scores_of_fits(DropoutSVC(tol=_TOL), model, X, y, folds, weights=weights, score_weights=own)
            np.testing.assert_allclose(model.scores_, wanted, rtol=1e-12)
        # the estimator in a search of scikit-learn, which routes to it what it asks for
        inner = DropoutSVCCV(**_SMALL, scoring=get_scorer("accuracy").set_score_request(sample_weight=True))
        inner.set_fit_request(sample_weight=True, groups=False).set_score_request(sample_weight=True)
        scores = cross_val_score(inner, X, y, cv=GroupKFold(3), params={"sample_weight": weights, "groups": groups})
        by_hand = [
            clone(inner).fit(X[a], y[a], sample_weight=weights[a]).score(X[b], y[b], sample_weight=weights[b])
            for a, b in folds
        ]
        np.testing.assert_allclose(scores, by_hand)
        if parse_version(sklearn.__version__) >= parse_version("1.9"):  # earlier ones accept weights without a request
            with pytest.raises(ValueError, match="sample_weight"):
                DropoutSVCCV(**_SMALL).fit(X, y, sample_weight=weights)


# The fit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pair", "make"), deal(_PAIRS, [make_binary, make_multiclass]))
def test_the_final_model_is_a_plain_fit_to_all_rows(pair, make):
    plain, search = pair
    X, y = make()
    model = search(noises=[0.5, PoissonNoise(), 0.2], Cs=_CS, cv=3, tol=1e-16).fit(X, y)
    final = plain(noise=model.noise_, C=model.C_, tol=1e-16).fit(X, y)
    assert relative_difference(model, final) < 1e-6
    assert isinstance(model.best_estimator_, plain)
    for method in ("predict", "decision_function", "score", "predict_stability"):
        given = (X, y) if method == "score" else (X,)
        np.testing.assert_allclose(getattr(model, method)(*given), getattr(final, method)(*given), atol=1e-5)


def test_the_attributes_of_a_fit():
    (X, y), multi_class, n_columns = make_binary(), "ovr", 1
    model = DropoutSVCCV(noises=_NOISES, Cs=[10.0, 0.3, 1.0], cv=3, multi_class=multi_class).fit(X, y)
    assert model.scores_.shape == model.n_iter_.shape == (3, 4, 3)
    assert model.coefs_paths_.shape == (3, 4, 3, n_columns, N_FEATURES + 1)
    assert model.refined_.shape == (4, 3)
    assert model.refined_.dtype == bool
    np.testing.assert_array_equal(model.Cs_, _CS)
    assert [repr(noise) for noise in model.noises_] == [
        "DropoutNoise(rate=0.5)",
        "None",
        "GaussianNoise(scale=0.4)",
        "DropoutNoise(rate=0.2)",
    ]
    row, column = model.best_index_
    assert repr(model.noise_) == repr(model.noises_[row])
    assert isinstance(model.C_, float)
    assert model.Cs_[column] == model.C_
    assert model.best_score_ == pytest.approx(model.scores_[:, row, column].mean())
    assert model.best_score_ == pytest.approx(model.scores_.mean(axis=0).max())
    assert model.n_iter_.min() >= 1
    assert model.n_features_in_ == N_FEATURES
    train, test = next(StratifiedKFold(3).split(X, y))
    fold = DropoutSVC(noise=model.noise_, C=model.C_, multi_class=multi_class).fit(X[train], y[train])
    fold.coef_, fold.intercept_ = (model.coefs_paths_[(0, *model.best_index_)][:, part] for part in (slice(-1), -1))
    assert fold.score(X[test], y[test]) == model.scores_[(0, *model.best_index_)]


@both
def test_threads_change_nothing(plain, search):
    X, y = make_multiclass()
    one, two = (
        search(noises=[0.5, GaussianNoise(0.4), 0.2], Cs=_CS, cv=3, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)
    )
    for other in (two, clone(two).fit(X, y)):
        assert_bitwise_equal(one, other)
        for name in ("scores_", "coefs_paths_", "n_iter_", "refined_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(("pair", "layout"), deal(_PAIRS, [np.asarray, sparse.csr_array]))
def test_missing_entries_in_training_and_test_rows(pair, layout):
    plain, search = pair
    X, y = make_binary(90)
    X[np.random.RandomState(0).rand(*X.shape) < 0.15] = np.nan
    X = layout(X)
    model = search(noises=[0.1, PoissonNoise(), 0.5], Cs=[1.0, 3.0], cv=3, missing="rescale", tol=_TOL, prune=False)
    wanted = _scores_of_fits(plain(missing="rescale", tol=_TOL), model.fit(X, y), X, y, StratifiedKFold(3).split(X, y))
    np.testing.assert_allclose(model.scores_, wanted, rtol=1e-12)
    final = plain(noise=model.noise_, C=model.C_, missing="rescale", tol=_TOL).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), final.predict(X))
