"""Dropout towards a reference value, and of groups of features."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score

from datasets import TIGHT, make_binary, make_multiclass, parameters
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    DropoutSVCCV,
    NoiseTransformer,
    deletion_curve,
    estimate_dropout_rates,
    noise_path,
)
from invariance import ESTIMATORS, assert_close, fit

GROUPS = [0, 1, 0, 2, 1, 0, 2, 2]
LAYOUTS = {"dense": np.asarray, "sparse": sparse.csr_array}


# The reference value ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layout", "noise"),
    deal(ESTIMATORS, LAYOUTS, [DropoutNoise(0.3), DropoutNoise(0.3, groups=GROUPS)]),
    ids=lambda value: str(value)[:12],
)
def test_a_constant_added_to_a_feature_does_not_change_the_fit(name, layout, noise):
    X, y = make_binary()
    shift = np.array([0.0, 3.0, -10.0, 0.0, 100.0, 0.5, 0.0, 1.0])
    plain, shifted = (fit(ESTIMATORS[name], LAYOUTS[layout](rows), y, noise=noise) for rows in (X, X + shift))
    assert_close(parameters(shifted)[:, :-1], parameters(plain)[:, :-1])
    np.testing.assert_allclose(shifted.intercept_, plain.intercept_ - plain.coef_ @ shift, rtol=0, atol=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("missing", ["error", "rescale"])
def test_the_reference_is_the_weighted_mean_of_the_training_data(layout, missing):
    X, y = make_binary()
    weights = np.linspace(0.0, 2.0, len(y))
    means = weights @ X / weights.sum()
    by_name = DropoutSVC(noise=DropoutNoise(0.3), missing=missing, tol=TIGHT).fit(LAYOUTS[layout](X), y, weights)
    given = DropoutSVC(noise=DropoutNoise(0.3, reference=means), tol=TIGHT).fit(LAYOUTS[layout](X), y, weights)
    assert_close(by_name, given)
    np.testing.assert_allclose(by_name.feature_means_, means, rtol=1e-13)


@pytest.mark.parametrize(
    ("load", "least"),
    [(load_iris, 0.89), (load_wine, 0.97), (load_breast_cancer, 0.95), (load_digits, 0.92)],
)
def test_defaults_on_raw_tables(load, least):
    X, y = load(return_X_y=True)
    assert cross_val_score(DropoutSVC(), X, y).mean() >= least


def test_missing_entries_take_the_reference_of_each_noise_of_a_search():
    X, y = make_binary()
    incomplete = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X + 1.0)
    noises = [DropoutNoise(0.3, reference="zero"), DropoutNoise(0.3), DropoutNoise(0.3, reference=np.arange(8.0))]
    path = noise_path(incomplete, y, noises, [0.1], estimator=DropoutSVC(missing="rescale", tol=1e-10), verbose=0)
    for i, noise in enumerate(noises):
        alone = DropoutSVC(noise=noise, C=0.1, missing="rescale", tol=1e-10).fit(incomplete, y)
        assert path.objectives[i, 0] == pytest.approx(alone.objective_, rel=1e-7)


# Groups -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "layout"), deal(ESTIMATORS, LAYOUTS))
def test_groups_of_one_feature_are_bitwise_the_independent_case(name, layout):
    X, y = make_multiclass()
    rows = LAYOUTS[layout](X)
    alone = fit(ESTIMATORS[name], rows, y, noise=DropoutNoise(0.3, groups=np.arange(X.shape[1])), tol=1e-6)
    independent = fit(ESTIMATORS[name], rows, y, noise=DropoutNoise(0.3), tol=1e-6)
    np.testing.assert_array_equal(alone.coef_, independent.coef_)
    np.testing.assert_array_equal(alone.intercept_, independent.intercept_)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sample_drops_whole_groups(layout):
    X = np.arange(1.0, 401.0).reshape(50, 8)
    noise = DropoutNoise([0.2, 0.5, 0.8], reference="zero", groups=GROUPS)
    sampled = noise.sample(LAYOUTS[layout](X), random_state=0)
    is_dropped = (sampled.toarray() if layout == "sparse" else sampled) == 0.0
    for group, rate in enumerate([0.2, 0.5, 0.8]):
        own = is_dropped[:, np.array(GROUPS) == group]
        assert (own == own[:, :1]).all()
        assert abs(own[:, 0].mean() - rate) < 0.2
    assert len(np.unique(is_dropped, axis=0)) > 4  # groups and rows are independent


def test_groups_by_name_by_pattern_and_by_number_are_the_same():
    X, y = make_binary()
    names = ["a_1", "b_1", "a_2", "c", "b_2", "a_3", "d", "e"]
    frame = pd.DataFrame(X, columns=names)
    numbers = DropoutNoise(0.3, groups=[0, 1, 0, 2, 1, 0, 3, 4])
    by_number = DropoutSVC(noise=numbers).fit(X, y)
    for groups in ({"a": "a_*", "b": ["b_1", "b_2"]}, {"a": [0, 2, 5], "b": "b_?"}):
        by_name = DropoutSVC(noise=DropoutNoise(0.3, groups=groups)).fit(frame, y)
        np.testing.assert_allclose(by_name.coef_, by_number.coef_, rtol=1e-12)
    rates = {"a": 0.1, "b": 0.6}
    by_mapping = DropoutSVC(noise=DropoutNoise(rates, groups={"a": "a_*", "b": "b_*"})).fit(frame, y)
    per_feature = [0.1, 0.6, 0.1, 0.0, 0.6, 0.1, 0.0, 0.0]
    by_array = DropoutSVC(noise=DropoutNoise(per_feature, groups=numbers.groups)).fit(X, y)
    np.testing.assert_allclose(by_mapping.coef_, by_array.coef_, rtol=1e-12)


@pytest.mark.parametrize(
    "noises",
    [
        [DropoutNoise(rate, groups={"left": "a*", "right": [1, 2]}) for rate in (0.1, 0.3)],
        [DropoutNoise({"left": 0.2}, groups={"left": "a*"}), DropoutNoise(0.2, groups={"left": "a*"}), 0.2],
        [DropoutNoise([0.1, 0.2, 0.3], groups=GROUPS), DropoutNoise(0.1, reference="zero")],
    ],
    ids=["mapping", "rates", "numbers"],
)
def test_a_search_over_noises_with_groups_scores_each_as_a_fit_does(noises):
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=["a1", "b", "c", "a2", "e", "f", "g", "h"])
    search = DropoutSVCCV(noises=noises, Cs=[0.1, 1.0], cv=2, prune=False, tol=1e-8).fit(frame, y)
    train, test = next(iter(StratifiedKFold(2).split(X, y)))
    for i, noise in enumerate(noises):
        model = DropoutSVC(noise=noise, C=1.0, tol=1e-9).fit(frame.iloc[train], y[train])
        assert search.scores_[0, i, 1] == model.score(frame.iloc[test], y[test])


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (DropoutNoise(0.3, groups={"a": [0, 1], "b": [1, 2]}), "overlap"),
        (DropoutNoise(0.3, groups={"a": ["x"]}), "no feature of that name"),
        (DropoutNoise(0.3, groups={"a": "x_*"}), "no feature of that name"),
        (DropoutNoise(0.3, groups={"a": [8]}), "8 features"),
        (DropoutNoise(0.3, groups={"a": [1.5]}), "names, patterns or indices"),
        (DropoutNoise(0.3, groups=[0, 1]), "2 values"),
        (DropoutNoise([0.1, 0.2], groups=GROUPS), "3 groups"),
        (DropoutNoise({"z": 0.1}, groups={"a": [0]}), "names the group 'z'"),
        (DropoutNoise({"a": 0.1}), "needs groups="),
        (DropoutNoise(0.3, reference="median"), "reference of DropoutNoise"),
        (DropoutNoise(0.3, reference=[np.nan] * 8), "reference of DropoutNoise"),
    ],
)
def test_errors(noise, text):
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    for estimator in (DropoutSVC(noise=noise), DropoutSVCCV(noises=[noise], Cs=[1.0], cv=2)):
        with pytest.raises(ValueError, match=text):
            estimator.fit(frame, y)
        assert not hasattr(estimator, "coef_")


def test_names_of_features_need_a_frame():
    X, y = make_binary()
    with pytest.raises(ValueError, match="no feature names"):
        DropoutSVC(noise=DropoutNoise(0.3, groups={"a": ["x"]})).fit(X, y)


# Stability ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "n_classes", "groups"), deal(LAYOUTS, [2, 3], [None, GROUPS, [0, 0, 0, 0, 1, 1, 1, 1]], n=3)
)
def test_stability_is_the_share_of_sampled_copies_with_the_same_label(layout, n_classes, groups):
    X, y = make_multiclass(n_classes=n_classes) if n_classes > 2 else make_binary()
    noise = DropoutNoise(0.3, groups=groups)
    model = DropoutSVC(noise=noise, C=0.3).fit(LAYOUTS[layout](X), y)
    few = X[:20]
    known, rng = noise.resolve(8).with_means(model.feature_means_), np.random.RandomState(0)
    labels = model.predict(known.draw(np.tile(few, (3000, 1)), rng)).reshape(3000, len(few))
    share = np.mean(labels == model.predict(few), axis=0)
    rows = LAYOUTS[layout](few)
    np.testing.assert_allclose(model.predict_stability(rows), share, atol=0.04)
    assert (model.predict_stability(rows, method="guaranteed") <= share + 0.04).all()


# Samplers -----------------------------------------------------------------------------------------------------------


def test_the_transformer_keeps_the_means_of_the_training_data():
    X, _ = make_binary()
    step = NoiseTransformer(DropoutNoise(0.5), when="always", random_state=0).fit(X)
    other = step.transform(X + 100.0)
    dropped = other < 50.0
    np.testing.assert_allclose(other[dropped], np.broadcast_to(X.mean(axis=0), X.shape)[dropped])
    assert 0.3 < dropped.mean() < 0.7


# The search for a target noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "n_classes"), [("dense", 2), ("sparse", 3)])
def test_the_expected_accuracy_is_the_mean_accuracy_of_sampled_copies(layout, n_classes):
    X, y = make_multiclass(n_classes=n_classes) if n_classes > 2 else make_binary()
    noise = DropoutNoise(0.3, groups=[0, 0, 1, 2, 3, 4, 5, 6])
    model = DropoutSVC(noise=0.1, C=0.3).fit(LAYOUTS[layout](X), y)
    known, rng = noise.resolve(8).with_means(model.feature_means_), np.random.RandomState(0)
    share = model.score(known.draw(np.tile(X, (500, 1)), rng), np.tile(y, 500))
    assert model.expected_accuracy(LAYOUTS[layout](X), y, noise) == pytest.approx(share, abs=0.03)
    none = DropoutNoise(0.0, reference="zero")
    assert model.expected_accuracy(LAYOUTS[layout](X), y, none) == pytest.approx(model.score(X, y), abs=1e-3)


def test_scores_that_are_equal_but_for_rounding_are_equally_probable():
    X, y = make_multiclass(n_classes=3)
    model = DropoutLogisticRegression(C=1e-3, l1_ratio=1.0, class_weight="balanced").fit(X, y)
    assert not model.coef_.any()
    model.intercept_[:] = np.nextafter(-0.7, 0.0), -0.7, np.nextafter(-0.7, -1.0)
    assert model.expected_accuracy(X, y, 0.1) == pytest.approx(1.0 / 3.0)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"target_noise": 0.5, "scoring": "accuracy"}, "pass one of them"),
        ({"target_noise": 0.5, "multi_class": "ovo"}, "multi_class='ovr'"),
        ({"target_noise": 1.5}, "rate of DropoutNoise"),
        ({"target_noise": "high"}, "noise must be"),
    ],
)
def test_errors_of_a_target_noise(params, text):
    X, y = make_multiclass()
    with pytest.raises(ValueError, match=text):
        DropoutSVCCV(noises=[0.1], Cs=[1.0], cv=2, **params).fit(X, y)


# Curves and rates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "strategy"), deal(LAYOUTS, ["entries", "columns", "worst"]))
def test_a_deletion_curve_deletes_whole_groups(layout, strategy):
    X, y = make_binary()
    groups = np.array(GROUPS)
    seen = []

    class Seen(DropoutSVC):
        def predict(self, rows):
            seen.append(np.isnan(rows.toarray() if sparse.issparse(rows) else rows))
            return super().predict(rows)

    model = Seen(noise=0.1, missing="rescale").fit(LAYOUTS[layout](X), y)
    deletion_curve(
        model, LAYOUTS[layout](X), y, levels=[1 / 3], strategy=strategy, groups=groups, fill=np.nan, n_repeats=3
    )
    assert len(seen) == (4 if strategy == "worst" else 3)  # three ranks and a score
    for missing in seen:
        by_group = np.stack([missing[:, groups == g].mean(axis=1) for g in range(3)], axis=1)
        assert np.isin(by_group, [0.0, 1.0]).all()
        if strategy == "entries":
            assert 0.1 < by_group.mean() < 0.6
        else:
            assert (by_group == by_group[0]).all()
            assert by_group[0].sum() == 1.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rates_of_groups_are_those_of_their_deletion(layout):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 1.0, (4000, 8)) * (rng.random((4000, 8)) < 0.8)
    rates = np.array([0.1, 0.4, 0.7])[GROUPS]
    target = DropoutNoise(rates, reference="zero", groups=GROUPS).sample(X[2000:], random_state=0)
    found = estimate_dropout_rates(LAYOUTS[layout](X[:2000]), LAYOUTS[layout](target), GROUPS)
    np.testing.assert_allclose(found, rates, atol=0.05)
    DropoutSVC(noise=DropoutNoise(found, groups=GROUPS)).fit(X, np.arange(4000) % 2)
