"""Missing entries by any name: nulls of pandas, polars and pyarrow, and the mask of a masked array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dropmargin import (
    DropoutLogisticRegression,
    DropoutSVC,
    NoiseTransformer,
    deletion_curve,
    estimate_dropout_rates,
)
from dropmargin.streaming import fit

_NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def data():
    """Complete rows, the same rows with NaN, and labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    return X, np.where(rng.random(X.shape) < 0.2, np.nan, X), y


def _cells(X):
    return {name: [None if np.isnan(x) else float(x) for x in X[:, d]] for d, name in enumerate(_NAMES)}


_TABLES = {
    "pandas": lambda X: pd.DataFrame(X, columns=_NAMES),
    "pandas Float64": lambda X: pd.DataFrame({name: pd.array(x, dtype="Float64") for name, x in _cells(X).items()}),
    "pandas double[pyarrow]": lambda X: pd.DataFrame(
        {name: pd.array(x, dtype="double[pyarrow]") for name, x in _cells(X).items()}
    ),
    "polars": lambda X: pl.DataFrame(_cells(X)),
    "pyarrow": lambda X: pa.table(_cells(X)),
    "pyarrow in chunks": lambda X: pa.concat_tables([pa.table(_cells(X[:30])), pa.table(_cells(X[30:]))]),
}


def _select(table, names):
    return table[names] if isinstance(table, pd.DataFrame) else table.select(names)


@pytest.mark.parametrize("make", _TABLES.values(), ids=_TABLES)
def test_nulls_of_a_table_are_missing_features(make, data):
    X, blank, y = data
    expected = DropoutSVC(missing="rescale").fit(blank, y)
    model = DropoutSVC(missing="rescale").fit(make(blank), y)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-8)
    assert model.feature_names_in_.tolist() == _NAMES
    for rows in (X, blank):
        np.testing.assert_allclose(model.decision_function(make(rows)), expected.decision_function(rows), rtol=1e-7)
        assert (model.predict(make(rows)) == expected.predict(rows)).all()
    assert model.score(make(X), y) > 0.9


@pytest.mark.parametrize("make", _TABLES.values(), ids=_TABLES)
def test_a_column_that_a_table_lacks_is_missing(make, data):
    X, blank, y = data
    model = DropoutSVC(missing="rescale").fit(make(blank), y)
    without = X.copy()
    without[:, 1] = np.nan
    lacking = _select(make(X), ["a", "c", "d"])
    np.testing.assert_allclose(model.decision_function(lacking), model.decision_function(make(without)), rtol=1e-12)
    with pytest.raises(ValueError, match="order"):
        model.predict(_select(make(X), ["b", "a", "c", "d"]))
    with pytest.raises(ValueError, match="order"):
        model.predict(_select(make(X), ["c", "a"]))


@pytest.mark.parametrize("make", _TABLES.values(), ids=_TABLES)
def test_nulls_without_missing_are_an_error(make, data):
    X, blank, y = data
    with pytest.raises(ValueError, match="NaN"):
        DropoutSVC().fit(make(blank), y)
    with pytest.raises(ValueError, match="NaN"):
        DropoutSVC().fit(make(X), y).predict(make(blank))


@pytest.mark.parametrize("make", _TABLES.values(), ids=_TABLES)
@pytest.mark.filterwarnings("error:X has feature names", "error:X does not have valid feature names")
def test_evaluation_takes_every_table(make, data):
    X, blank, y = data
    options = {"levels": [0.0, 0.5], "n_repeats": 2, "random_state": 0, "verbose": 0}
    curve = deletion_curve(DropoutSVC().fit(make(X), y), make(X), y, **options)
    expected = deletion_curve(DropoutSVC().fit(X, y), X, y, **options)
    np.testing.assert_allclose(curve.mean, expected.mean)
    rates = estimate_dropout_rates(X, blank)
    np.testing.assert_array_equal(estimate_dropout_rates(make(X), make(blank)), rates)
    np.testing.assert_array_equal(estimate_dropout_rates(make(X), _select(make(blank), _NAMES[::-1])), rates)


# Masked arrays ------------------------------------------------------------------------------------------------------


def _masked(data):
    X, blank, _ = data
    return np.ma.array(X, mask=np.isnan(blank))


def test_masked_entries_are_missing_features(data):
    X, blank, y = data
    expected = DropoutSVC(missing="rescale").fit(blank, y)
    masked = _masked(data)
    for rows in (masked, list(masked)):
        model = DropoutSVC(missing="rescale").fit(rows, y)
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        np.testing.assert_array_equal(model.decision_function(rows), expected.decision_function(blank))
    np.testing.assert_array_equal(masked.data, X)  # the caller's array is as it was
    single = DropoutSVC(missing="rescale").fit(masked.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_array_equal(estimate_dropout_rates(X, masked), estimate_dropout_rates(X, blank))


_REFUSING = {
    "fit": lambda X, y, masked: DropoutSVC().fit(masked, y),
    "fit to a list": lambda X, y, masked: DropoutSVC().fit(list(masked), y),
    "partial_fit": lambda X, y, masked: DropoutSVC().partial_fit(masked, y, classes=[0, 1]),
    "predict": lambda X, y, masked: DropoutSVC().fit(X, y).predict(masked),
    "predict_proba": lambda X, y, masked: DropoutLogisticRegression().fit(X, y).predict_proba(masked),
    "stability": lambda X, y, masked: DropoutSVC().fit(X, y).predict_stability(masked),
    "transformer": lambda X, y, masked: NoiseTransformer().fit_transform(masked),
    "curve": lambda X, y, masked: deletion_curve(DropoutSVC().fit(X, y), masked, y, verbose=0),
}


@pytest.mark.parametrize("call", _REFUSING.values(), ids=_REFUSING)
def test_masked_entries_are_an_error_without_missing(call, data):
    X, _, y = data
    with pytest.raises(ValueError, match=r"X is a masked array with \d+ masked entries.*missing='rescale'"):
        call(X, y, _masked(data))


def test_masked_entries_of_arrays_that_are_streamed(data, tmp_path):
    X, blank, y = data
    options = {"cache": tmp_path, "progress": False}
    streamed = fit(DropoutSVC(missing="rescale"), _masked(data), y, **options)
    expected = fit(DropoutSVC(missing="rescale"), blank, y, **options)
    np.testing.assert_array_equal(streamed.coef_, expected.coef_)
    with pytest.raises(ValueError, match="missing='rescale'"):
        fit(DropoutSVC(), _masked(data), y, **options)
    with pytest.raises(ValueError, match="y is a masked array"):
        fit(DropoutSVC(), X, np.ma.array(y, mask=y == 1), **options)
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        fit(DropoutSVC(), X, y, np.ma.array(np.ones(80), mask=y == 1), **options)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_masked_labels_and_weights_are_an_error(method, data):
    X, _, y = data
    extra = {"classes": [0, 1]} if method == "partial_fit" else {}
    mask = np.arange(80) < 5
    with pytest.raises(ValueError, match="y is a masked array with 5 masked entries"):
        getattr(DropoutSVC(), method)(X, np.ma.array(y, mask=mask), **extra)
    with pytest.raises(ValueError, match="sample_weight is a masked array with 5 masked entries"):
        getattr(DropoutSVC(), method)(X, y, sample_weight=np.ma.array(np.ones(80), mask=mask), **extra)


def test_a_mask_that_hides_nothing_is_no_matter(data):
    X, _, y = data
    expected = DropoutSVC().fit(X, y)
    weights = np.ones(80)
    model = DropoutSVC().fit(np.ma.array(X), np.ma.array(y, mask=False), np.ma.array(weights, mask=np.zeros(80, bool)))
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.decision_function(np.ma.array(X)), expected.decision_function(X))
