"""The classifiers that choose noise and ``C``: scores, folds and the final fit. `test_cv_choice` has the choice."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import get_scorer, make_scorer, roc_auc_score
from sklearn.model_selection import GroupKFold, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.preprocessing import scale
from sklearn.utils.fixes import parse_version

from datasets import (
    N_FEATURES,
    assert_bitwise_equal,
    fitted_state,
    make_binary,
    make_multiclass,
    make_sparse,
    relative_difference,
)
from dealing import round_robin
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoisyLinearClassifier,
    NoisyLinearClassifierCV,
    PoissonNoise,
)

_DATA = Path(os.environ.get("DROPMARGIN_DATA", Path(__file__).parents[2] / "shared" / "data"))
_TOL = 1e-10
_NOISES = [0.5, None, GaussianNoise(scale=0.4), 0.2]
_NOISY = [0.5, GaussianNoise(scale=0.4)]
_CS = [0.3, 1.0, 10.0]
_SMALL = {"noises": [0.1, 0.5], "Cs": [0.1, 1.0], "cv": 3}
_PAIRS = [(DropoutSVC, DropoutSVCCV), (DropoutLogisticRegression, DropoutLogisticRegressionCV)]
both = pytest.mark.parametrize(("plain", "search"), _PAIRS, ids=["svc", "logistic"])
svc_if_slow = pytest.mark.parametrize(
    ("plain", "search"), [pytest.param(*_PAIRS[0], marks=pytest.mark.slow), _PAIRS[1]], ids=["svc", "logistic"]
)


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


@pytest.mark.parametrize(("options", "pair"), round_robin(_OPTIONS, _PAIRS))
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


@pytest.mark.parametrize(
    "scoring",
    [make_scorer(roc_auc_score, response_method="decision_function"), lambda model, X, y: np.array(model.score(X, y))],
)
def test_scorers_may_be_callables(scoring):
    X, y = make_binary()
    model = DropoutSVCCV(**_SMALL, scoring=scoring, tol=_TOL, prune=False).fit(X, y)
    wanted = _scores_of_fits(DropoutSVC(tol=_TOL), model, X, y, StratifiedKFold(3).split(X, y), scoring)
    np.testing.assert_allclose(model.scores_, wanted, rtol=1e-9)


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


def test_groups_stay_together():
    X, y = make_binary()
    groups = np.arange(60) // 5
    model = DropoutSVCCV(**{**_SMALL, "cv": GroupKFold(3)}).fit(X, y, groups=groups)
    given = list(GroupKFold(3).split(X, y, groups))
    np.testing.assert_array_equal(model.scores_, DropoutSVCCV(**{**_SMALL, "cv": given}).fit(X, y).scores_)


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


def test_a_scorer_may_ask_for_groups_in_any_thread():
    X, y = make_binary()

    def by_group(truth, predicted, groups):
        return float(np.mean([np.mean((truth == predicted)[groups == group]) for group in np.unique(groups)]))

    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(by_group).set_score_request(groups=True)
        one, two = (
            DropoutSVCCV(**{**_SMALL, "cv": GroupKFold(3)}, scoring=scorer, n_jobs=n_jobs)
            .fit(X, y, groups=np.arange(60) // 4)
            .scores_
            for n_jobs in (1, 2)
        )
    np.testing.assert_array_equal(one, two)


# The fit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pair", "make"), round_robin(_PAIRS, [make_binary, make_multiclass]))
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


@pytest.mark.parametrize(("make", "multi_class", "n_columns"), [(make_binary, "ovr", 1), (make_multiclass, "ovo", 3)])
def test_the_attributes_of_a_fit(make, multi_class, n_columns):
    X, y = make()
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


@svc_if_slow
def test_without_stored_coefficients_the_result_is_the_same(plain, search):
    X, y = make_binary()
    options = {"noises": [0.5, 0.2, GaussianNoise(0.4)], "Cs": _CS, "cv": 3, "tol": _TOL}
    stored, not_stored = (search(**options, store_coefs=store).fit(X, y) for store in (True, False))
    assert hasattr(stored, "coefs_paths_")
    assert not hasattr(not_stored, "coefs_paths_")
    assert not hasattr(stored.set_params(store_coefs=False).fit(X, y), "coefs_paths_")
    assert stored.best_index_ == not_stored.best_index_
    np.testing.assert_array_equal(stored.scores_, not_stored.scores_)
    assert relative_difference(not_stored, search(**options).fit(X, y)) < 1e-4
    assert hasattr(stored.set_params(store_coefs="auto").fit(X, y), "coefs_paths_")


@pytest.mark.slow
def test_coefficients_of_hashed_features_are_not_all_kept():
    X, y = make_sparse(40, 2**20, 1e-5)
    model = DropoutLogisticRegressionCV(noises=[0.1, 0.5], Cs=[0.1, 1.0], cv=9).fit(X, y)  # 36 times 8 MB
    assert not hasattr(model, "coefs_paths_")
    assert np.count_nonzero(model.coef_) <= X.nnz


def test_the_scale_of_the_data_does_not_matter():
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    usual, tiny, huge = (DropoutSVCCV(noises=[0.1, 0.5], Cs=7, cv=3).fit(s * X, y) for s in (1.0, 1e-3, 1e3))
    for other, factor in ((tiny, 1e-3), (huge, 1e3)):
        np.testing.assert_allclose(other.Cs_, usual.Cs_ / factor**2)
        assert other.best_score_ == pytest.approx(usual.best_score_, abs=0.004)
    assert usual.best_score_ > 0.97


def test_single_precision_stays_single():
    X, y = make_binary()
    for rows in (X, sparse.csr_array(X)):
        model = DropoutSVCCV(**_SMALL).fit(rows.astype(np.float32), y)
        assert model.coef_.dtype == model.decision_function(rows.astype(np.float32)).dtype == np.float32
        assert model.best_score_ == pytest.approx(DropoutSVCCV(**_SMALL).fit(rows, y).best_score_, abs=0.04)


@pytest.mark.parametrize(("pair", "layout"), round_robin(_PAIRS, [np.asarray, sparse.csr_array]))
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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_and_string_labels(library):
    frames = pytest.importorskip(library)
    X, y = make_multiclass()
    names = [f"word {d}" for d in range(N_FEATURES)]
    frame, labels = frames.DataFrame(dict(zip(names, X.T, strict=True))), frames.Series(np.array(["a", "b", "c"])[y])
    model = DropoutLogisticRegressionCV(**_SMALL).fit(frame, labels)
    wanted = DropoutLogisticRegressionCV(**_SMALL).fit(X, y)
    assert model.feature_names_in_.tolist() == names
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.scores_, wanted.scores_, atol=0.04)
    assert np.mean(model.predict(frame) == np.array(["a", "b", "c"])[y]) > 0.6
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])
    assert not hasattr(model.fit(X, y), "feature_names_in_")


@pytest.mark.parametrize("loss", ["hinge", "logistic", "quadratic", "exponential"])
def test_any_loss(loss):
    X, y = make_binary()
    model = NoisyLinearClassifierCV(loss, **_SMALL, tol=_TOL).fit(X, y)
    final = NoisyLinearClassifier(loss, noise=model.noise_, C=model.C_, tol=_TOL).fit(X, y)
    assert relative_difference(model, final) < 1e-4


def test_a_fit_changes_neither_parameters_nor_data():
    X, y = make_binary()
    noises, before = [DropoutNoise(rate=[0.3] * N_FEATURES), 0.1], X.copy()
    model = DropoutSVCCV(noises=noises, Cs=[1.0, 0.1], cv=3)
    state = fitted_state(model)
    model.fit(X, y)
    assert model.noises is noises
    assert {name: vars(model)[name] for name in state} == state
    np.testing.assert_array_equal(X, before)
