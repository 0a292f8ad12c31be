"""`TableClassifier` and `TableRegressor`: rows with lost columns, groups by name, explanations, scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from dropmargin import (
    FourierFeatures,
    TableClassifier,
    TableRegressor,
    explain,
    load,
    save,
    top_features,
)

_FIXED = {"noise": 0.1, "C": 10.0, "random_state": 0, "verbose": 0}


def _table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 70, n),
            "twin": 0.0,
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
            "id": np.arange(n),
        }
    )
    table["twin"] = table.age + rng.normal(size=n)
    return table, np.where((np.abs(table.age - 45) < 12) | (table.city == "Rome"), "yes", "no")


@pytest.fixture(scope="module", params=["linear", "spline", "fourier"])
def fitted(request):
    table, y = _table()
    return TableClassifier(basis=request.param, **_FIXED).fit(table, y), table, y


def test_rows_of_any_kind_and_without_columns(fitted):
    model, table, y = fitted
    labels = model.predict(table)
    assert set(labels) <= {"yes", "no"}
    np.testing.assert_array_equal(model.predict(pl.from_pandas(table)), labels)
    np.testing.assert_array_equal(model.predict(table.iloc[:1]), labels[:1])
    with pytest.warns(UserWarning, match="lacks column 'age'") as warned:
        without = model.predict_proba(table.drop(columns="age"))
    assert [one.filename for one in warned] == [__file__]
    np.testing.assert_allclose(without, model.predict_proba(table.assign(age=np.nan)))
    with pytest.warns(UserWarning, match="'more'.*ignored"):
        np.testing.assert_array_equal(model.predict(table.assign(more=1)), labels)
    empty = table.assign(age=np.nan, twin=np.nan, city=None)
    probabilities = model.predict_proba(empty)
    assert np.allclose(probabilities, probabilities[0])
    assert abs(probabilities[0, 1] - np.mean(y == "yes")) < 0.15
    with pytest.warns(UserWarning, match="lacks columns"):
        np.testing.assert_allclose(model.predict_proba(table[["id"]]), probabilities)


def test_no_warning_for_an_unseen_category_which_is_missing(fitted):
    model, table, _ = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unseen = model.predict_proba(table.assign(city="Paris"))
    np.testing.assert_allclose(unseen, model.predict_proba(table.assign(city=None)))


@pytest.mark.parametrize("text", [[], ["note"]])
def test_a_raw_frame_with_every_kind_of_column(text, tmp_path):
    rng, n = np.random.default_rng(0), 200
    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, n)
    table = pd.DataFrame(
        {
            "age": np.where(np.arange(n) % 7, rng.integers(20, 70, n), np.nan),
            "price": [f"${price:,.2f}" for price in rng.gamma(2.0, 1000.0, n)],
            "share": [f"{share:.0f}%" for share in rng.uniform(0.0, 100.0, n)],
            "when": days.astype("M8[ns]"),
            "day": pd.Series(days.astype("M8[ns]")).dt.strftime("%d/%m/%Y"),
            "note": rng.choice(["a good film", "a bad film", "dull"], n),
            "flag": rng.choice([True, False], n),
            "grade": pd.Categorical(rng.choice(list("xyz"), n)),
            "empty": None,
            "one": 1,
        }
    )
    y = np.where(table.age.fillna(45) > 45, "old", "young")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TableClassifier(basis="spline", text=text, **_FIXED).fit(table, y)
        assert model.score(table, y) > 0.9
        save(model, tmp_path / "model")
        lost = table.iloc[:1].assign(**dict.fromkeys(table))
        assert np.isfinite(model.predict_proba(lost)).all()
        polars = pl.from_pandas(table.drop(columns="grade")).with_columns(grade=pl.Series(table.grade.astype(str)))
        np.testing.assert_array_equal(model.predict(polars), model.predict(table))
        with pytest.raises(ValueError, match=r"LazyFrame .* pass X\.collect\(\)"):
            model.predict(polars.lazy())
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(table), model.predict_proba(table))
    kinds = {column.name: column.kind for column in model.columns_ if not column.reason}
    numbers, dates = ["age", "price", "share", "flag"], ["when", "day"]
    assert kinds == dict.fromkeys(numbers, "number") | dict.fromkeys(dates, "date") | {
        "note": "text" if text else "category",
        "grade": "category",
    }
    for shown in (repr(model), model._repr_html_(), model._repr_mimebundle_()["text/html"]):  # the last in a notebook
        assert "constant" in shown
        assert "no values" in shown


def test_explanations_name_columns(fitted):
    model, table, _ = fitted
    for row in explain(model, table.iloc[:3]):
        assert set(row.features) <= {"age", "twin", "city"}
        assert row.n_present == 3
    top = top_features(model)
    assert set(top.names[0]) == {"age", "twin", "city"}
    assert top.names[0][0] == "city" or model.basis_ != "linear"


def test_contributions_are_decreases_of_the_margin(fitted):
    model, table, _ = fitted
    row = table.iloc[[5]]
    explained = explain(model, row)[0]
    found = dict(zip(explained.features, explained.contributions, strict=True))
    sign = 1.0 if explained.label == "yes" else -1.0
    for name, own in found.items():
        lost = model.decision_function(row.assign(**{name: None if name == "city" else np.nan}))
        assert own == pytest.approx(sign * (model.decision_function(row) - lost)[0], abs=1e-8)


def test_stability_is_one_without_loss_and_lower_with_it(fitted):
    model, table, _ = fitted
    np.testing.assert_array_equal(model.predict_stability(table.iloc[:20], 0.0, n_draws=3), 1.0)
    lossy = model.predict_stability(table.iloc[:40], 0.6, n_draws=20)
    assert 0.4 < lossy.mean() < 1.0
    np.testing.assert_array_equal(lossy, model.predict_stability(table.iloc[:40], 0.6, n_draws=20))


def test_effects_are_those_of_the_model(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    model, table, _ = fitted
    axes = model.plot_effects(["age", "city"])
    assert "%" in axes[0].get_title()
    bars = dict(zip((text.get_text() for text in axes[1].get_yticklabels()), axes[1].patches, strict=True))
    if model.basis_ != "fourier":  # changes from the average row
        assert table.city.map({name: bar.get_width() for name, bar in bars.items()}).mean() == pytest.approx(0.0)
    if model.basis_ == "fourier":
        return
    x, effect = axes[0].lines[0].get_data()
    rows = pd.DataFrame({"age": x[[0, -1]], "twin": 45.0, "city": "Oslo", "id": 0})
    difference = np.diff(model.decision_function(rows))[0]
    assert effect[-1] - effect[0] == pytest.approx(difference, abs=1e-8)


def test_the_features_of_a_column_are_one_group():
    table, y = _table()
    model = TableClassifier(basis="spline", **_FIXED).fit(table, y)
    groups = model.model_.noise.groups
    assert set(groups) == {"age", "twin", "city"}
    assert sum(groups == "age") == 9
    assert sum(groups == "city") == 3


def test_rates_by_column():
    table, y = _table()
    model = TableClassifier(basis="spline", C=10.0, noise={"age": 0.8}, random_state=0).fit(table, y)
    plain = TableClassifier(basis="spline", C=10.0, noise=0.0, random_state=0).fit(table, y)

    def strength(fitted):
        return dict(zip(*(top_features(fitted).names[0], top_features(fitted).strengths[0]), strict=True))["age"]

    assert strength(model) < 0.7 * strength(plain)


def test_search_chooses_a_basis_reproducibly():
    table, y = _table(200)
    options = {"random_state": 3, "verbose": 0, "target_noise": None, "cv": 2}
    first, second = (TableClassifier(**options).fit(table, y) for _ in range(2))
    assert set(first.cv_scores_) == {"linear", "spline", "fourier"}
    assert first.basis_ != "linear"
    assert first.cv_scores_ == second.cv_scores_
    np.testing.assert_array_equal(first.predict_proba(table), second.predict_proba(table))


def test_three_classes_hinge_and_weights():
    table, _ = _table()
    y = np.digitize(table.age, [35, 55])
    model = TableClassifier("hinge", basis="spline", **_FIXED).fit(table, y, sample_weight=np.ones(len(y)))
    assert model.decision_function(table).shape == (len(y), 3)
    assert model.score(table, y) > 0.9
    assert not hasattr(model, "predict_proba")
    doubled = TableClassifier(basis="linear", **_FIXED).fit(table, y, sample_weight=np.where(y == 1, 50.0, 1.0))
    assert np.mean(doubled.predict(table) == 1) > np.mean(y == 1)


def test_arrays_have_places_for_names():
    table, y = _table()
    X = table[["age", "twin"]].to_numpy()
    model = TableClassifier(basis="spline", **_FIXED).fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="X has 1 features, but"):
        model.predict(X[:, :1])


def test_an_encoder_of_another_package():
    table, y = _table()
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), ("passthrough", ["age"]))
    model = TableClassifier(encoder=encoder, basis="linear", **_FIXED).fit(table, y)
    assert set(model.model_.noise.groups) == {"city", "age"}
    lost = model.predict_proba(table.assign(city=None))
    assert not np.allclose(lost, model.predict_proba(table))
    with pytest.warns(UserWarning, match="lacks column 'city'"):
        np.testing.assert_allclose(model.predict_proba(table.drop(columns="city")), lost)
    one = TableClassifier(encoder=encoder, groups=lambda name: "all", basis="linear", **_FIXED).fit(table, y)
    assert set(one.model_.noise.groups) == {"all"}


@pytest.mark.parametrize(
    ("loss", "basis"), [("squared", "spline"), ("squared", "fourier"), ("epsilon_insensitive", "spline")]
)
def test_regression_and_intervals(loss, basis):
    table, _ = _table()
    rng = np.random.default_rng(1)
    y = 100.0 * np.sqrt(table.age) + 50.0 * (table.city == "Rome") + rng.normal(size=len(table))
    C = 10.0 if loss == "squared" else 1000.0
    model = TableRegressor(loss, basis=basis, noise=0.05, C=C, random_state=0).fit(table, y)
    assert model.score(table, y) > 0.9
    low, high = model.predict_interval(table).T
    assert np.mean((low <= y) & (y <= high)) > 0.8
    wide = model.predict_interval(table.assign(age=np.nan, twin=np.nan))
    assert (np.diff(wide)[:, 0] > high - low).all()


def test_errors_name_the_parameter():
    table, y = _table(60)
    for parameters, text in (
        ({"basis": "cubic"}, "basis"),
        ({"noise": 1.5}, "noise must be"),
        ({"C": 0.0}, "C must be"),
        ({"target_noise": 2.0}, "target_noise must be"),
        ({"loss": "squared"}, "loss"),
        ({"text": ["other"]}, "text must be a list of columns"),
    ):
        with pytest.raises(ValueError, match=text):
            TableClassifier(**parameters).fit(table, y)
    with pytest.raises(ValueError, match="basis='fourier' has no features of text"):
        TableClassifier(basis="fourier", text=["city"]).fit(table, y)
    with pytest.raises(ValueError, match="inconsistent"):
        TableClassifier(**_FIXED).fit(table, y[:-1])


def test_fourier_features_are_gaussian_expectations():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    X = rng.normal(size=(800, 4)) @ mixing
    features = FourierFeatures(0.05, 20, linear=True, random_state=0).fit(X)
    row = X[:1].copy()
    row[0, [1, 3]] = np.nan
    # Brute force: draws of the missing entries from the Gaussian of all entries, given the observed ones.
    covariance = features.feature_factors_ @ features.feature_factors_.T + np.diag(features.residual_variances_)
    o, m = [0, 2], [1, 3]
    gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    mean = features.feature_means_[m] + gain @ (row[0, o] - features.feature_means_[o])
    left = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
    drawn = np.repeat(row, 200_000, axis=0)
    drawn[:, m] = rng.multivariate_normal(mean, left, len(drawn))
    expected = features.transform(drawn).mean(axis=0)
    np.testing.assert_allclose(features.transform(row)[0], expected, atol=0.01)
    assert np.abs(features.transform(row)[0, :20]).max() < np.abs(features.transform(X[:1])[0, :20]).max()
    sampled = features.sample(np.repeat(row, 50_000, axis=0), rng)
    np.testing.assert_allclose(sampled[:, m].mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(sampled[:, m].T), left, atol=0.1)


def test_a_fourier_basis_is_saved_with_its_least_squares(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] * X[:, 1] > 0.0).astype(int)
    model = TableClassifier(basis="fourier", random_state=0, verbose=0).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.8  # no linear or additive model is better than chance
    assert model.fourier_.transform(model.encoder_.transform(X)).shape == (300, 1)
    X[200:, 3] = np.nan
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X[200:]), model.predict_proba(X[200:]))


def test_the_search_prefers_the_basis_that_the_target_needs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    targets = {"linear": X @ [1.0, 2.0, 3.0], "spline": np.cos(2.0 * X[:, 0]), "fourier": X[:, 0] * X[:, 1]}
    found = {
        basis: TableRegressor(target_noise=0.0, random_state=0, verbose=0).fit(X, y) for basis, y in targets.items()
    }
    assert [found[basis].cv_scores_[basis] > 0.8 for basis in targets] == [True] * 3
    assert found["spline"].cv_scores_["linear"] < 0.2
    assert found["fourier"].cv_scores_["spline"] < 0.2
    assert (found["linear"].basis_, found["fourier"].basis_) == ("linear", "fourier")


def test_a_fit_that_fails_leaves_the_model_as_it_was(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    model = TableClassifier(basis="linear", noise=0.1, C=1.0, verbose=0).fit(X, X[:, 0] > 0.0)
    before = dict(vars(model))

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dropmargin.tables.search.fit_setting", fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 1] > 0.0)
    assert vars(model) == before
