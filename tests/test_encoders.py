"""TableEncoder and TextEncoder: their output, their use in pipelines, and their fitted states."""

from __future__ import annotations

import copy
from datetime import datetime

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dealing import together
from dropmargin import DropoutSVC
from dropmargin.io.data import ReadOptions, TableEncoder, read_chunks, read_data

NAN = np.nan
TABLE = {
    "age": [1.0, None, 3.0, 4.0],
    "größe": ["klein", "groß", None, "klein"],
    "flag": [True, False, True, False],
}
ENCODED = [[1, 0, 1, 1], [NAN, 1, 0, 0], [3, NAN, NAN, 1], [4, 0, 1, 0]]


def tables():
    """Return the same table in the types of several libraries."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    names = np.array(TABLE["größe"], dtype=object)
    arrays = {"age": np.array([1.0, NAN, 3.0, 4.0]), "größe": names, "flag": np.array([1.0, 0.0, 1.0, 0.0])}
    categorical = pd.DataFrame(TABLE).astype({"größe": "category", "age": "Float64", "flag": "boolean"})
    return {
        "arrays": arrays,
        "dict": TABLE,
        "pandas": pd.DataFrame(TABLE),
        "pandas-nullable": categorical,
        "polars": pl.DataFrame(TABLE),
        "pyarrow": pa.table(TABLE),
        "objects": np.array(list(zip(*TABLE.values(), strict=True)), dtype=object),
    }


# Tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["arrays", "dict", "pandas", "pandas-nullable", "polars", "pyarrow", "objects"])
def test_tables_of_every_library(library):
    table = tables()[library]
    encoder = TableEncoder(scale=False).fit(table)
    X = encoder.transform(table)
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, ENCODED)
    if library != "objects":
        assert encoder.get_feature_names_out().tolist() == ["age", "größe=groß", "größe=klein", "flag"]
        assert encoder.column_kinds_ == {"age": "number", "größe": "category", "flag": "number"}
        # Fitted on a dict.
        np.testing.assert_array_equal(TableEncoder(scale=False).fit(TABLE).transform(table), ENCODED)


def test_unseen_categories_and_absent_columns():
    encoder = TableEncoder(scale=False).fit(TABLE)
    new = {"flag": [1, 0], "größe": ["riesig", None], "extra": ["x", "y"]}
    np.testing.assert_array_equal(encoder.transform(new), [[NAN, 0, 0, 1], [NAN, NAN, NAN, 0]])
    dates = np.array(["2020-01-01"] * 2, dtype="datetime64[D]")
    np.testing.assert_array_equal(encoder.transform({**new, "when": dates}), encoder.transform(new))
    with pytest.raises(ValueError, match=r"X has none of the columns \['age', 'größe', 'flag'\], but \['x'\]"):
        encoder.transform({"x": [1]})


def test_pandas_categories_that_do_not_occur_are_ignored():
    pd = pytest.importorskip("pandas")
    column = pd.Series(pd.Categorical(["b", None, "a"], categories=["c", "b", "a"]))
    encoder = TableEncoder().fit(pd.DataFrame({"x": column}))
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=b"]
    other = pd.DataFrame({"x": pd.Categorical(["c", "a", "b", None])})
    np.testing.assert_array_equal(encoder.transform(other), [[0, 0], [1, 0], [0, 1], [NAN, NAN]])
    # A number is expected; text that does not occur is not an error.
    numbers = TableEncoder(scale=False).fit({"x": [1.0, 2.0]})
    unused = pd.DataFrame({"x": pd.Categorical(["1", "2"], categories=["1", "2", "many"])})
    np.testing.assert_array_equal(numbers.transform(unused), [[1], [2]])


def test_columns_have_the_kind_of_the_training_data():
    encoder = TableEncoder(categorical=("code",), scale=False).fit({"code": [1, 2, 2], "size": [1.0, 2.0, 3.0]})
    assert encoder.get_feature_names_out().tolist() == ["code=1", "code=2", "size"]
    as_text = {"code": ["2", "1", "NA"], "size": ["1.5", " 2 ", None]}
    np.testing.assert_array_equal(encoder.transform(as_text)[:2], [[0, 1, 1.5], [1, 0, 2]])
    assert np.isnan(encoder.transform(as_text)[2, 2])
    np.testing.assert_array_equal(encoder.transform({"code": [2.0, NAN], "size": [1, 2]}), [[0, 1, 1], [NAN, NAN, 2]])
    with pytest.raises(ValueError, match="Row 2: 'big' in column 'size' is not a finite number, but the column held"):
        encoder.transform({"code": ["1", "1"], "size": ["1", "big"]})


def test_wide_tables_are_sparse():
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(300)], dtype=object)
    table = {"name": [*names, None], "x": rng.normal(size=301)}
    encoder = TableEncoder(keep=("name",)).fit(table)
    X = encoder.transform(table)
    assert encoder.sparse_output_
    assert X.format == "csr"
    assert X.has_sorted_indices
    assert X.shape == (301, 301)
    assert X.nnz == 300 + 300 + 301
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert np.isnan(X[[300]].toarray()[0, :300]).all()
    assert not TableEncoder().fit(TABLE).sparse_output_


def test_numbers_are_standardised():
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(100.0, 5.0, 300), NAN)
    encoder = TableEncoder().fit({"x": x, "big": 1e300 * x, "c": ["a", "b", "c"] * 100 + ["a"]})
    X = encoder.transform({"x": x, "big": 1e300 * x, "c": ["a"] * 301})
    np.testing.assert_allclose(np.nanmean(X[:, :2], axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(X[:, :2], axis=0), 1.0)
    assert X[0, 2:].tolist() == [1.0, 0.0, 0.0]
    assert encoder.feature_columns_.tolist() == ["x", "big", "c", "c", "c"]
    # A sparse matrix is not centred: a zero stays a zero.
    names = [f"n{i % 150}" for i in range(301)]
    sparse_counts = np.where(np.arange(301) % 10 == 0, 3.0, 0.0)
    wide = TableEncoder().fit({"n": sparse_counts, "name": names})
    assert wide.sparse_output_
    column = wide.transform({"n": sparse_counts, "name": names})[:, [0]]
    assert column.nnz == 31
    np.testing.assert_allclose(column.max(), 3.0 / sparse_counts.std())
    # A constant column that is kept is not divided by zero.
    kept = TableEncoder(keep=("x", "y")).fit({"x": [2.0, 2.0], "y": [None, None]})
    np.testing.assert_array_equal(kept.transform({"x": [3.0], "y": [1.0]}), [[1.0, 1.0]])


def test_dates():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    texts = ["2024-01-01 06:30", "2023-07-02 12:00", None, "2024-12-31 18:00"]
    stamps = pd.to_datetime(pd.Series(texts))
    expected = [[2024 + 6.5 / 24 / 366, 1, 0, 6.5], [2023 + 182.5 / 365, 7, 6, 12.0], [NAN] * 4]
    encoder = TableEncoder(scale=False).fit({"t": texts})
    assert encoder.get_feature_names_out().tolist() == ["t:year", "t:month", "t:weekday", "t:hour"]
    local = [None if text is None else datetime.fromisoformat(text) for text in texts]
    columns = [texts, stamps, stamps.dt.tz_localize("Asia/Tokyo"), stamps.to_list(), local]
    for table in (*({"t": column} for column in columns), pl.DataFrame({"t": local})):
        np.testing.assert_allclose(encoder.transform(table)[:3], expected)
        np.testing.assert_allclose(TableEncoder(scale=False).fit(table).transform(table)[:3], expected)
    for forms in (
        ["2024-03-04", "2023-12-25"],
        ["2024/3/4", "2023/12/25"],
        ["04.03.2024", "25.12.2023"],
        ["04/03/2024", "25/12/2023"],
        ["3/4/2024", "12/25/2023"],
        ["4 March 2024", "25 Dec 2023"],
        ["Mar 4, 2024", "December 25, 2023"],
        ["04-Mar-2024", "25-Dec-2023"],
        ["2024-03-04T00:00:00Z", "2023-12-25T00:00:00+02:00"],
    ):
        encoder = TableEncoder(scale=False).fit({"t": forms})
        np.testing.assert_allclose(encoder.transform({"t": forms})[:, 1:], [[3.0], [12.0]])  # both are Mondays
    # The order of day and month is that of the training data, also after a round trip.
    encoder = TableEncoder.from_state(TableEncoder(scale=False).fit({"t": ["04/03/2024", "25/12/2023"]}).get_state())
    assert encoder.transform({"t": ["05/06/2024"]})[0, 1] == 6.0
    with pytest.raises(ValueError, match="'12/25/2023' in column 't' is not a date with the day first"):
        encoder.transform({"t": ["12/25/2023"]})
    with pytest.raises(ValueError, match="Column 't' has dates such as '03/04/2024', in which day and month cannot"):
        TableEncoder().fit({"t": ["03/04/2024", "05/06/2024"]})
    assert TableEncoder(categorical=("t",)).fit({"t": ["03/04/2024", "05/06/2024"]}).column_kinds_["t"] == "category"


def test_columns_that_are_left_out():
    n = 30
    table = {
        "id": [f"u{i}" for i in range(n)],
        "row": list(range(n)),
        "user_id": [(7 * i) % n for i in range(n)],
        "constant": [1.0, None] * (n // 2),
        "empty": [None] * n,
        "town": [f"t{i % 12}" for i in range(n)],
        "size": [0.5 + i for i in range(n)],  # not integers
        "score": [(7 * i) % n for i in range(n)],  # different, but neither in order nor named like an id
        "class": [i % 3 for i in range(n)],
    }
    with pytest.warns(UserWarning, match="'id': it identifies rows: 30 different values in 30 rows; 'row'"):
        encoder = TableEncoder(max_categories=10).fit(table)
    assert list(encoder.left_out_) == ["id", "row", "user_id", "constant", "empty", "town"]
    assert encoder.left_out_["town"] == "it has 12 categories, more than 10"
    assert list(encoder.column_kinds_) == ["size", "score", "class"]
    assert encoder.n_features_in_ == 9
    everything = TableEncoder(keep=tuple(table), max_categories=10).fit(table)
    assert everything.left_out_ == {}
    assert everything.transform(table).shape == (n, 30 + 4 + 12 + 3)


def test_errors_of_tables():
    for table, match in (
        ({"id": [f"u{i}" for i in range(1001)]}, "no column to learn from in 1001 samples .'id': it identifies rows"),
        ({"when": np.array([1], dtype="timedelta64[D]")}, r"Column 'when' is of type timedelta64\[D\]"),
        ({"x": [[1], [2, 3]]}, "Column 'x' has .* of type list"),
        ({1: [1, 2]}, "Column names must be strings, got 1"),
        ({"a": [1, 2], "b": [1]}, "must have the same length"),
        ({"a": []}, "X must have rows and columns"),
        (np.ones(3), "Expected 2D array, got 1D array"),
    ):
        with pytest.raises(ValueError, match=match):
            TableEncoder().fit(table)
    with pytest.raises(ValueError, match=r"categorical has \['z'\], but the columns are"):
        TableEncoder(categorical=["z"]).fit(TABLE)
    with pytest.raises(ValueError, match="a sequence of names, got the string 'age'"):
        TableEncoder(categorical="age").fit(TABLE)
    with pytest.raises(NotFittedError):
        TableEncoder().transform(TABLE)


# scikit-learn and pipelines ------------------------------------------------------------------------------------------


@parametrize_with_checks([TableEncoder()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_a_table_encoder_can_be_cloned():
    encoder = TableEncoder(("größe",), 7, ("age",), False).fit(TABLE)
    assert clone(encoder).get_params() == encoder.get_params()


def test_a_pipeline_on_tables(tmp_path):
    rng = np.random.default_rng(0)
    colours, size = rng.choice(["red", "green", "blue"], size=80), rng.normal(size=80)
    y = np.where((colours == "red") ^ (size > 1), "yes", "no")
    rows = [
        f"{'' if i % 9 == 0 else s},{'NA' if i % 7 == 0 else c},{label}"
        for i, (s, c, label) in enumerate(zip(size, colours, y, strict=True))
    ]
    path = tmp_path / "train.csv"
    path.write_text("\n".join(["size,colour,label", *rows]))
    data = read_data(path, ReadOptions(target="label"))
    model = make_pipeline(TableEncoder(), DropoutSVC(noise=0.2, missing="rescale")).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.75
    wanted = model.decision_function(data.X)
    for library in (
        pytest.importorskip("pandas").DataFrame,
        pytest.importorskip("polars").DataFrame,
        pytest.importorskip("pyarrow").table,
    ):
        table = {name: [None if v is None or v != v else v for v in data.X[name].tolist()] for name in data.X}
        np.testing.assert_array_equal(model.decision_function(library(table)), wanted)
    options = ReadOptions(target="label", columns=model[0].column_kinds_)
    scores = [model.decision_function(part.X) for part in read_chunks(path, options, chunk_bytes=100)]
    assert len(scores) > 5
    np.testing.assert_allclose(np.concatenate(scores), wanted, rtol=1e-12)
    # Chunks without given kinds hold text, which is converted to numbers.
    scores = [model.decision_function(part.X) for part in read_chunks(path, chunk_bytes=100)]
    np.testing.assert_allclose(np.concatenate(scores), wanted, rtol=1e-12)


# States ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [TableEncoder(), TableEncoder(("flag",), 5, ("age",), False)])
def test_state_of_a_table_encoder(encoder):
    encoder.fit(TABLE)
    state = encoder.get_state()
    again = TableEncoder.from_state(state)
    assert again.get_params() == encoder.get_params()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    np.testing.assert_array_equal(again.transform(TABLE), encoder.transform(TABLE))
    np.testing.assert_equal(again.get_state(), state)


def _changed(facts, path, value):
    out = copy.deepcopy(facts)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return out


@together(
    ("path", "value"),
    [
        (("names",), []),
        (("names",), {"a": 1}),
        (("names",), ["age"]),
        (("names", 0), 3),
        (("names", 0), "flag"),
        (("parts",), "ab"),
        (("parts",), ["a"]),
        (("parts", 0), "zz"),
        (("parts", 0), 1),
        (("kinds", 0), "category"),
        (("kinds", 0), "date"),
        (("kinds",), ["number"]),
        (("orders", 0), "day"),
        (("columns",), ["age"]),
        (("keep",), ["gone"]),
        (("scale",), 1),
        (("max_categories",), 0),
        (("max_categories",), True),
        (("max_categories",), "5"),
        (("categorical",), ["age"]),
        (("categorical",), [["age"]]),
        (("__class__",), "os.system"),
    ],
)
def test_wrong_states_of_a_table_encoder(path, value):
    state = TableEncoder().fit(TABLE).get_state()
    with pytest.raises(ValueError, match="must"):
        TableEncoder.from_state(_changed(state, path, value))


def test_wrong_arrays_of_a_table_encoder():
    state = TableEncoder().fit(TABLE).get_state()
    widths, mean, scale = state["widths"], state["mean"], state["deviation"]
    huge = np.full(len(widths), 2**62)  # the sum overflows
    for wrong in (
        {"widths": widths[:-1]},
        {"widths": widths - 1},
        {"widths": widths + 1},
        {"widths": huge},
        {"widths": widths.astype("f8")},
        {"widths": widths.tolist()},
        {"mean": mean[:-1]},
        {"mean": mean * NAN},
        {"deviation": 0.0 * scale},
        {"x": widths},
    ):
        with pytest.raises(ValueError, match="must"):
            TableEncoder.from_state(state | wrong)
    for wrong in (None, [], {"names": ["a"]}):
        with pytest.raises(ValueError, match="must"):
            TableEncoder.from_state(wrong)


def test_infinite_numbers_are_refused_by_column():
    with pytest.raises(ValueError, match="Column 'x' has infinite numbers"):
        TableEncoder().fit({"x": [1.0, np.inf, 2.0], "y": [1.0, 2.0, 3.0]})
