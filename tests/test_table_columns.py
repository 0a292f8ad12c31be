"""The kinds of columns: what is decided from a whole column, and the features of each kind."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from dropmargin.tables import DateEncoder, NumberEncoder, TableEncoder
from dropmargin.tables.cells import apply_rule, decide, read_cells
from dropmargin.tables.columns import date_parts


def _read(values, later=None):
    cells = read_cells("a", values)
    rule = decide("a", cells)
    return rule, apply_rule(rule, "a", read_cells("a", values if later is None else later))


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$1,200.50", "$3", None], [1200.5, 3.0, np.nan]),
        (["12%", "50 %", "?"], [0.12, 0.5, np.nan]),
        (["1,5", "2,25", "1.200,5"], [1.5, 2.25, 1200.5]),
        (["-1.5e3", "\u22122", ".5"], [-1500.0, -2.0, 0.5]),
        ([True, False, None], [1.0, 0.0, np.nan]),
    ],
)
def test_a_column_of_numbers_in_any_form(texts, numbers):
    rule, found = _read(texts)
    assert rule.kind == "number"
    np.testing.assert_allclose(found, numbers)


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["31/12/2024", "01/02/2024"], "2024-12-31"),
        (["12/31/2024", "01/02/2024"], "2024-12-31"),
        (["2024-03-04T12:30", "2023-01-01"], "2024-03-04T12:30"),
        (["4 Mar 2024", "5 Dec 2024"], "2024-03-04"),
    ],
)
def test_a_column_of_dates_in_one_form(texts, first):
    rule, found = _read(texts)
    assert rule.kind == "date"
    assert found[0] == np.datetime64(first, "s")


def test_day_and_month_are_decided_by_the_whole_column():
    _, found = _read(["31/12/2024", "01/02/2024"], later=["03/04/2024"])
    assert found[0] == np.datetime64("2024-04-03", "s")
    with pytest.raises(ValueError, match="day and month cannot be told apart"):
        _read(["01/02/2024", "03/04/2024"])


def test_numbers_with_leading_zeros_and_mixed_text_are_categories():
    assert _read(["01234", "99999"])[0].kind == "category"
    assert _read(["1", "two"])[0].kind == "category"


def test_several_units_are_an_error():
    with pytest.raises(ValueError, match="several units"):
        _read(["1 EUR", "2 USD"])


def test_another_kind_at_prediction_is_an_error_that_names_the_column():
    encoder = TableEncoder().fit({"city": ["Oslo", "Rome"] * 20, "size": [1.0, 2.0, 3.0, 4.0] * 10})
    with pytest.raises(ValueError, match="'city' has numbers, but it held text"):
        encoder.transform({"city": [1.0, 2.0], "size": [1.0, 2.0]})
    with pytest.raises(ValueError, match="'size' has 'large' in row 1"):
        encoder.transform({"city": ["Oslo", "Rome"], "size": ["2", "large"]})
    with pytest.raises(ValueError, match="'p' has plain numbers"):
        TableEncoder().fit({"p": ["1%", "2%", "3%"]}).transform({"p": [0.5]})


def test_missing_and_unseen_cells_are_nan_in_all_features_of_their_column():
    table = pd.DataFrame({"city": ["Oslo", "Rome", None] * 20, "size": np.arange(60.0) % 7})
    encoder = TableEncoder().fit(table)
    row = encoder.transform(pd.DataFrame({"city": ["Bern"], "size": [np.nan]}))
    assert np.isnan(row).all()
    assert not np.isnan(encoder.transform(table.iloc[:1])).any()


def test_columns_that_cannot_help_are_left_out_with_a_reason():
    n = 400
    table = {
        "id": np.arange(n),
        "one": np.ones(n),
        "none": [None] * n,
        "name": [f"person {i}" for i in range(n)],
        "many": [f"c{i % 100}" for i in range(n)],
        "customer_id": np.arange(n) * 7 % n,
        "x": np.arange(n) % 5,
    }
    encoder = TableEncoder(max_categories=50).fit(table)
    reasons = {column.name: column.reason for column in encoder.columns_}
    assert reasons["x"] == ""
    assert reasons["one"] == "constant"
    assert reasons["none"] == "no values"
    assert "identifies rows" in reasons["id"]
    assert "identifies rows" in reasons["customer_id"]
    assert "name it in text" in reasons["name"]
    assert "100 categories" in reasons["many"]
    with pytest.raises(ValueError, match="no column to learn from"):
        TableEncoder().fit({"one": np.ones(30)})


def test_a_spline_is_smooth_sums_to_one_and_is_constant_outside():
    x = np.linspace(0.0, 1.0, 200)
    encoder = NumberEncoder().fit(x)
    features = encoder.transform(np.array([-5.0, 0.0, 0.31, 1.0, 9.0, np.nan]))
    np.testing.assert_allclose(features[:5].sum(axis=1), 1.0)
    np.testing.assert_allclose(features[0], features[1])
    np.testing.assert_allclose(features[3], features[4])
    assert np.isnan(features[5]).all()


def test_frequent_zeros_leave_knots_for_the_other_numbers():
    x = np.concatenate([np.zeros(900), np.linspace(1.0, 5.0, 100)])
    assert len(NumberEncoder().fit(x).knots_) == 8


def test_quantile_scaling_makes_numbers_normal():
    x = np.exp(np.random.default_rng(0).normal(size=2000))
    scaled = NumberEncoder("linear", "quantile").fit(x).transform(x)[:, 0]
    assert abs(scaled.mean()) < 0.05
    assert abs(scaled.std() - 1.0) < 0.05
    assert abs(np.mean(scaled**3)) < 0.2


def test_parts_of_a_date_vary():
    when = np.datetime64("2024-01-01", "s") + np.arange(200).astype("m8[D]")
    encoder = DateEncoder("linear").fit(when)
    assert list(encoder.encoders_) == ["year", "weekday"]  # within one year, the year tells the month
    assert date_parts(when[:1]).tolist() == [[2024.0, 1.0, 0.0, 0.0]]  # a Monday


def test_words_of_text_are_groups_of_their_own_and_a_missing_text_has_none():
    table = {"note": ["good film", "bad film", None], "x": [1.0, 2.0, 3.0]}
    encoder = TableEncoder("linear", text=["note"]).fit(table)
    assert encoder.feature_groups_.tolist() == ["note: bad", "note: film", "note: good", "x"]
    made = encoder.transform({"note": [None, "good good"], "x": [2.0, None]}).toarray()
    np.testing.assert_allclose(made, [[0, 0, 0, 0], [0, 0, 1, np.nan]])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict])
def test_the_same_matrix_for_every_kind_of_table(make):
    columns = {"size": [1.0, 2.0, None, 4.0], "city": ["a", "b", None, "a"]}
    expected = TableEncoder().fit(columns).transform(columns)
    made = make(columns)
    np.testing.assert_allclose(TableEncoder().fit(made).transform(made), expected)


@pytest.mark.parametrize("basis", ["linear", "spline", "fourier"])
@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_one_fit_serves_every_basis_and_scaling(basis, scaling):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=50), "c": rng.choice(["a", "b"], 50)})
    table["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, 50), "D")
    encoder = TableEncoder(basis, scaling).fit(table)
    other = TableEncoder("fourier", "quantile").fit(table).with_basis(basis, scaling)
    np.testing.assert_array_equal(other.transform(table), encoder.transform(table))
    assert other.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    assert other.columns_ == encoder.columns_
    assert clone(encoder).get_params() == other.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(table), encoder.transform(table))


@pytest.mark.parametrize("basis", ["linear", "spline", "fourier"])
def test_a_weight_counts_as_so_many_rows(basis):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=60).round(1), rng.integers(0, 4, 60)
    weighted = NumberEncoder(basis, "quantile").fit(x, sample_weight=weight.astype(float))
    repeated = NumberEncoder(basis, "quantile").fit(np.repeat(x, weight))
    np.testing.assert_allclose(weighted.transform(x), repeated.transform(x))


@pytest.mark.parametrize(("trained", "later"), [(["1", "2", None], [2.0, 1.0]), ([1.0, 2.5, None], ["2.5", "1"])])
def test_categories_that_are_numbers_may_come_as_numbers_or_as_text(trained, later):
    encoder = TableEncoder(categorical=["c"]).fit({"c": trained})
    first, second = encoder.transform({"c": later})
    names = encoder.encoders_["c"].categories_
    assert [names[first.argmax()], names[second.argmax()]] == [str(v).removesuffix(".0") for v in later]
    with pytest.raises(ValueError, match="'z' has numbers, but it held text"):
        TableEncoder(categorical=["z"]).fit({"z": ["01", "02", "x"]}).transform({"z": [1.0]})


def test_a_categorical_column_of_numbers_has_categories():
    made = pd.DataFrame({"c": pd.Categorical([3, 1, 3, None])})
    encoder = TableEncoder().fit(made)
    assert encoder.encoders_["c"].categories_ == ["1", "3"]
    np.testing.assert_array_equal(encoder.transform({"c": [3]}), encoder.transform(made)[:1])
