"""What is learnt from held-out rows: calibrated probabilities, sets of labels and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale

from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutRidge,
    DropoutRidgeCV,
    DropoutSVC,
    DropoutSVCCV,
    DropoutSVR,
    MCFClassifier,
    TableClassifier,
    TableRegressor,
)
from dropmargin.estimators import fitting
from dropmargin.io.model import ModelFormatError, load, save

_FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


def _cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def _delete(X, share, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def _skewed(n_rows, seed=0, is_class=False):
    """Return features with heavy tails that are correlated, and a target with skewed errors."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.normal(size=(n_rows, 8)) @ (0.4 * np.eye(8) + 0.1)) - 1.0
    score = X @ np.linspace(-1.0, 1.0, 8)
    if is_class:
        return X, np.digitize(score + rng.logistic(size=n_rows), [-0.7, 0.7])
    return X, score + rng.exponential(size=n_rows)


# Probabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_two_classes_of_complete_rows_are_calibrated_as_by_scikit_learn(method):
    X, y = _cancer()
    ours = DropoutSVC(probability=method).fit(X[::2], y[::2]).predict_proba(X[1::2])
    theirs = CalibratedClassifierCV(DropoutSVC(), method=method, ensemble=False, cv=_FOLDS).fit(X[::2], y[::2])
    # Ours are within a row of 0 and 1, and interpolate between probabilities, not between scores.
    wanted = theirs.predict_proba(X[1::2])
    tolerance = {"sigmoid": 2e-3, "isotonic": 2e-2}[method]
    assert np.quantile(np.abs(ours - wanted), 0.95) < tolerance
    np.testing.assert_allclose(ours.sum(axis=1), 1.0)
    assert ours.min() > 0.0


@pytest.mark.parametrize("missing", ["conditional", "rescale"])
def test_probabilities_of_incomplete_rows_are_as_sure_as_they_are_right(missing):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(3000, 2))
    X = hidden @ rng.normal(size=(2, 10)) + rng.normal(size=(3000, 10))
    y = (hidden @ [2.0, -1.0] + rng.logistic(size=3000) > 0.0).astype(int)
    model = DropoutSVC(missing=missing, probability="sigmoid").fit(X[:1000], y[:1000])
    rows = _delete(X[1000:], 0.8)
    plug_in = clone(model).fit(X[:1000], y[:1000])
    plug_in.calibration_variance_ = 0.0

    def gap(fitted):
        probability = fitted.predict_proba(rows)
        return probability.max(axis=1).mean() - (probability.argmax(axis=1) == y[1000:]).mean()

    assert abs(gap(model)) < 0.025
    assert gap(plug_in) > gap(model) + 0.02


@pytest.mark.parametrize(
    "model",
    [
        DropoutSVC(probability="isotonic", missing="rescale"),
        DropoutLogisticRegression(multi_class="multinomial", probability="sigmoid", missing="conditional"),
        MCFClassifier("exponential", noise=0.1, C=0.01, probability="sigmoid"),
    ],
    ids=str,
)
def test_several_classes_and_any_loss_have_probabilities(model):
    X, y = load_wine(return_X_y=True)
    X = scale(X)
    fitted = model.fit(X[::2], y[::2])
    rows = X[1::2] if model.missing == "error" else _delete(X[1::2], 0.3)
    probabilities = fitted.predict_proba(rows)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(fitted.classes_[probabilities.argmax(axis=1)] == y[1::2]) > 0.8
    np.testing.assert_allclose(np.log(probabilities), fitted.predict_log_proba(rows))


# Sets and intervals -----------------------------------------------------------------------------------------------


def test_intervals_cover_for_each_share_of_missing_features_where_features_are_not_normal():
    X, y = _skewed(6000)
    model = DropoutRidge(C=10.0, missing="conditional", conformal=True).fit(X[:2000], y[:2000])
    for share in (0.0, 0.25, 0.5, 0.75):
        low, high = model.predict_interval(_delete(X[2000:], share), 0.9).T
        assert np.mean((low <= y[2000:]) & (y[2000:] <= high)) == pytest.approx(0.9, abs=0.02)
    normal = model.predict_interval(X[2000:], 0.9, residual_deviation=model.residual_deviation_)
    assert np.diff(normal).mean() > np.diff(model.predict_interval(X[2000:], 0.9)).mean()


def test_sets_cover_for_each_share_of_missing_features_and_have_the_predicted_label():
    X, y = _skewed(6000, is_class=True)
    model = DropoutSVC(C=0.1, missing="conditional", conformal=True).fit(X[:2000], y[:2000])
    sizes = []
    for share in (0.0, 0.25, 0.5, 0.75):
        rows = _delete(X[2000:], share)
        sets = model.predict_set(rows, 0.9)
        assert sets[np.arange(4000), y[2000:]].mean() == pytest.approx(0.9, abs=0.02)
        assert sets[np.arange(4000), model.predict(rows)].all()
        sizes.append(sets.sum(axis=1).mean())
    assert sizes == sorted(sizes)
    assert not hasattr(model, "predict_proba")
    assert model.predict_set(rows[:5], 0.9999).all()


def test_sets_that_may_be_empty_cover_as_wanted_where_the_accuracy_is_higher():
    X, y = _skewed(6000, is_class=True)
    X[:, 0] += 3.0 * y  # most labels are certain
    model = DropoutSVC(C=0.1, missing="conditional", conformal=True).fit(X[:2000], y[:2000])
    of_test = np.arange(4000), y[2000:]
    for share in (0.0, 0.25):
        rows = _delete(X[2000:], share)
        full, maybe = (model.predict_set(rows, 0.7, allow_empty=allow_empty) for allow_empty in (False, True))
        assert full[of_test].mean() >= model.score(rows, y[2000:]) > 0.72
        assert maybe[of_test].mean() == pytest.approx(0.7, abs=0.02)
        np.testing.assert_array_equal(full, maybe | (model.classes_ == model.predict(rows)[:, None]))
        assert not maybe.any(axis=1).all()


def test_features_of_a_group_are_deleted_together():
    X, y = _skewed(500)
    groups = np.repeat([0, 1], 4)
    model = DropoutRidge(noise=DropoutNoise(0.1, groups=groups), missing="conditional", conformal=True).fit(X, y)
    assert model.conformal_shares_.tolist() == [0.0, 0.5, 1.0]


def test_intervals_of_few_rows_are_infinite_beyond_what_they_can_tell():
    X, y = _skewed(30)
    model = DropoutSVR(conformal=True).fit(X, y)
    assert np.isfinite(model.predict_interval(X, 30 / 31)).all()
    assert np.isinf(model.predict_interval(X, 0.97)).all()


# Where the held-out rows come from --------------------------------------------------------------------------------


def _learnt(model):
    return {name: getattr(model, name) for name in vars(model) if name.startswith(("calib", "iso", "conformal_"))}


@pytest.mark.parametrize("search", [DropoutSVCCV, DropoutRidgeCV])
def test_a_search_fits_no_more_models(search, monkeypatch):
    X, y = load_iris(return_X_y=True)
    n_fits, solve = [0], fitting.solve

    def counting(*args, **kwargs):
        n_fits[0] += 1
        return solve(*args, **kwargs)

    monkeypatch.setattr(fitting, "solve", counting)
    options = {"noises": [0.0, 0.3], "Cs": [0.01, 0.1, 1.0], "cv": _FOLDS, "verbose": 0, "missing": "conditional"}
    extra = {"conformal": True, "tol": 1e-8}
    stored = search(**options, **extra, store_coefs=True).fit(X, y)
    assert n_fits == [1]
    refitted = search(**options, **extra, store_coefs=False).fit(X, y)
    assert n_fits == [7]
    wanted = clone(stored.best_estimator_).fit(X, y)  # the same folds, but for a regression
    for model in (refitted.best_estimator_, *([wanted] if is_classifier(stored) else [])):
        for name, value in _learnt(model).items():
            np.testing.assert_allclose(value, _learnt(stored.best_estimator_)[name], rtol=5e-3, atol=5e-3)
    ask = stored.predict_set if is_classifier(stored) else stored.predict_interval
    np.testing.assert_array_equal(ask(_delete(X, 0.3)), getattr(stored.best_estimator_, ask.__name__)(_delete(X, 0.3)))


# Files and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        DropoutSVC(probability="isotonic", conformal=True, missing="conditional"),
        DropoutRidge(conformal=True, missing="rescale"),
    ],
    ids=str,
)
def test_files_hold_what_was_learnt(model, tmp_path):
    X, y = load_iris(return_X_y=True)
    model.fit(X, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    for name, value in _learnt(model).items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
    for method in ("predict_proba", "predict_set", "predict_interval"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    del model.conformal_scores_
    if is_classifier(model):
        with pytest.raises((ValueError, ModelFormatError), match="conformal"):
            save(model, tmp_path / "other")


def test_a_fit_forgets_what_an_earlier_one_learnt():
    X, y = load_iris(return_X_y=True)
    model = DropoutSVC(probability="sigmoid", conformal=True).fit(X, y)
    model.set_params(probability=None, conformal=False).fit(X, y)
    assert not _learnt(model)


def test_errors_say_what_to_do():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"probability must be None, 'sigmoid' or 'isotonic', got 'platt'"):
        DropoutSVC(probability="platt").fit(X, y)
    with pytest.raises(ValueError, match="multi_class='ovr' or 'multinomial', got 'ovo'"):
        DropoutSVC(probability="sigmoid", multi_class="ovo").fit(X, y)
    with pytest.raises(AttributeError) as caught:
        DropoutSVC(conformal=True).partial_fit(X, y, classes=[0, 1, 2])
    assert "no partial_fit with conformal=True, which needs all rows" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="at least two rows of each class"):
        DropoutSVC(conformal=True).fit(X[:51], y[:51])
    with pytest.raises(ValueError, match="conformal=True is needed before fit"):
        DropoutSVC().fit(X, y).predict_set(X)
    with pytest.raises(ValueError, match="coverage must be a number"):
        DropoutSVC(conformal=True).fit(X, y).predict_set(X, 90)
    with pytest.raises(ValueError, match="fitted without it"):
        DropoutSVC().fit(X, y).set_params(probability="sigmoid").predict_proba(X)


# Tables -----------------------------------------------------------------------------------------------------------


def test_tables_forward_probabilities_sets_and_intervals(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = _skewed(1500, is_class=True)
    table = pd.DataFrame(X, columns=list("abcdefgh")).assign(kind=np.where(X[:, 7] > 0.0, "high", "low"))
    options = {"basis": "spline", "noise": 0.1, "C": 1.0, "random_state": 0, "verbose": 0, "conformal": True}
    model = TableClassifier("hinge", probability="sigmoid", **options).fit(table[:700], y[:700])
    rows = table[700:].mask(np.random.default_rng(0).random((800, 9)) < 0.3)
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0)
    sets = model.predict_set(rows)
    assert sets[np.arange(800), y[700:]].mean() == pytest.approx(0.9, abs=0.03)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_set(rows), sets)
    assert (sets.any(axis=1) & ~model.predict_set(rows, 0.3, allow_empty=True).any(axis=1)).any()
    target = _skewed(1500)[1]
    low, high = TableRegressor(**options).fit(table[:700], target[:700]).predict_interval(rows).T
    assert np.mean((low <= target[700:]) & (target[700:] <= high)) == pytest.approx(0.9, abs=0.03)
    with pytest.raises(ValueError, match="conformal=True needs basis='linear', 'spline' or 'auto', got 'fourier'"):
        TableRegressor(**{**options, "basis": "fourier"}).fit(table, target)
