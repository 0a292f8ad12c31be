"""Pipelines of an encoder and a classifier in model files, and files of earlier versions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline

from datasets import N_FEATURES, make_binary
from dealing import together
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, MCFClassifier, load, save
from dropmargin.io.data import TableEncoder, TextEncoder
from dropmargin.io.model import ModelFormatError, describe, packing
from fuzz.models import entries_of, with_entries
from model_bytes import GOLDEN, assert_refused, round_trip

DOCUMENTS = ["ein guter Tag", "sehr schlecht", "gut und schön", "schlechtes Wetter", "so gut", "nicht schlecht, 色"] * 3
STARS = np.array([5, 1, 5, 1, 5, 3] * 3)


def make_table(n_rows=40, n_categories=3, missing=True):
    """Return a table of a numeric and a categorical column, some values missing, and string labels."""
    rng = np.random.RandomState(0)
    numbers = rng.randn(n_rows)
    categories = np.array([f"näme {i}" for i in rng.randint(n_categories, size=n_rows)], dtype=object)
    y = np.where(numbers + (categories == "näme 1") > 0.3, "groß", "klein").astype(object)
    if missing:
        numbers[::7] = np.nan
        categories[::5] = None
    return pd.DataFrame({"größe": numbers, "farbe, 色": categories}), y


def assert_same(model, loaded, X):
    """Check that two pipelines have the same steps, features and predictions."""
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded[0].get_feature_names_out(), model[0].get_feature_names_out())
    assert [name for name, _ in loaded.steps] == [name for name, _ in model.steps]
    assert loaded[0].get_params() == model[0].get_params()
    assert loaded[-1].get_params(deep=False).keys() == model[-1].get_params(deep=False).keys()


@pytest.mark.parametrize("missing", [False, True])
def test_tables(missing, tmp_path):
    X, y = make_table(missing=missing)
    classifier = DropoutLogisticRegression(noise=DropoutNoise(0.3), missing="rescale" if missing else "error")
    model = make_pipeline(TableEncoder(), classifier).fit(X, y)
    loaded = round_trip(model, tmp_path)
    assert_same(model, loaded, X)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded[0].column_kinds_ == {"größe": "number", "farbe, 色": "category"}
    # another table: an unknown category, another order, one column more
    other = {"more": ["x", "y"], "farbe, 色": ["näme 1", "unknown"], "größe": [0.5, -1.0]}
    assert_same(model, loaded, pd.DataFrame(other))


@pytest.mark.parametrize("n_categories", [200, 1500])
def test_tables_with_many_categories(n_categories, tmp_path):
    X, y = make_table(3000, n_categories, missing=False)
    model = make_pipeline(TableEncoder(max_categories=2000), DropoutSVC()).fit(X, y)
    assert_same(model, round_trip(model, tmp_path), X)


def test_numeric_columns_as_categories(tmp_path):
    table = pd.DataFrame({"zip": [10115, 20095, 10115, 20095] * 5, "x": [1.0, 2.0, 0.5, 3.0] * 5})
    model = make_pipeline(TableEncoder(categorical=("zip",)), DropoutSVC()).fit(table, [0, 1, 0, 1] * 5)
    assert_same(model, round_trip(model, tmp_path), table)


@pytest.mark.parametrize(
    "encoder",
    [
        TextEncoder(),
        TextEncoder("tfidf", stop_words=["the", "ein"]),
        TextEncoder(weighting="counts", ngram_range=(1, 2), min_df=2, stop_words="english"),
        TextEncoder("tfidf", lowercase=False, max_features=5, min_df=0.1, stop_words=[]),
        TextEncoder(analyzer="char_wb", ngram_range=(2, 3)),
    ],
)
def test_text(encoder, tmp_path):
    model = Pipeline([("words", encoder), ("linear", DropoutSVC(noise=0.5))]).fit(DOCUMENTS, STARS)
    assert_same(model, round_trip(model, tmp_path), [*DOCUMENTS, "", "etwas ganz anderes", "gut GUT gut"])


def test_text_of_a_column_with_a_large_vocabulary(tmp_path):
    rng = np.random.RandomState(0)
    documents = [" ".join(f"wort{i}" for i in rng.randint(5000, size=30)) for _ in range(300)]
    y = rng.randint(2, size=300)
    model = make_pipeline(TextEncoder(column="text"), MCFClassifier(noise=0.2)).fit({"text": documents}, y)
    assert len(model[0].terms_) > 1000
    loaded = round_trip(model, tmp_path)
    assert_same(model, loaded, {"text": documents, "other": list(range(300))})
    found = describe(tmp_path / "model.safetensors")
    assert found["preprocessing"]["kind"] == "TextEncoder"
    assert found["feature_names"] == list(model[0].terms_)


def test_an_encoder_with_another_number_of_features_is_refused(tmp_path):
    X, y = make_table()
    model = make_pipeline(TableEncoder(), DropoutSVC(missing="rescale")).fit(X, y)
    model.steps[0] = (model.steps[0][0], TableEncoder().fit({"größe": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="its preprocessing has 1 output features, and its model takes 4"):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["table", "text"])
def test_truncated_files_are_refused(kind, tmp_path):
    if kind == "table":
        X, y = make_table()
        model = make_pipeline(TableEncoder(), DropoutSVC(missing="rescale")).fit(X, y)
    else:
        model = make_pipeline(TextEncoder(), DropoutSVC()).fit(DOCUMENTS, STARS)
    path = tmp_path / "model"
    save(model, path)
    content = path.read_bytes()
    for length in range(0, len(content), len(content) // 50):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFormatError):
            load(path)


# The state of an encoder --------------------------------------------------------------------------------------------


_NESTED = {"array": "list"}
for _ in range(50):
    _NESTED = {"mapping": [["a", _NESTED]]}


class Shifter(TransformerMixin, BaseEstimator):
    """A transformer with the methods that model files need of an encoder."""

    def fit(self, X, y=None):
        self.shift_, self.names_ = X.mean(axis=0), ["ä", "b"]
        return self

    def transform(self, X):
        return X - self.shift_

    def get_feature_names_out(self):
        return np.array([f"x{d}" for d in range(len(self.shift_))], dtype=object)

    def get_state(self):
        return {"names": self.names_, "empty": [], "nested": {"a": {"b c": None}}, "shift": self.shift_}

    @classmethod
    def from_state(cls, state):
        if state.keys() != {"names", "empty", "nested", "shift"} or state["shift"].ndim != 1:
            raise ValueError("not a state of Shifter.")
        made = cls()
        made.shift_, made.names_, made.state_ = state["shift"], state["names"], state
        return made


@pytest.fixture
def pipeline(monkeypatch):
    """A pipeline with an encoder that is not one of the library."""
    monkeypatch.setitem(packing.KINDS, "Shifter", __name__)
    return Pipeline([("shift it", Shifter()), ("classify", DropoutSVC())]).fit(*make_binary())


def test_the_state_of_an_encoder(pipeline, tmp_path):
    X, _ = make_binary()
    pipeline[0].names_ = [f"wörd {index}" for index in range(2000)]
    loaded = round_trip(pipeline, tmp_path)
    assert [name for name, _ in loaded.steps] == ["shift it", "classify"]
    assert loaded.decision_function(X).tobytes() == pipeline.decision_function(X).tobytes()
    assert loaded[0].state_.pop("shift") is loaded[0].shift_
    assert loaded[0].state_ == {"names": pipeline[0].names_, "empty": [], "nested": {"a": {"b c": None}}}
    found = describe(tmp_path / "model.safetensors")
    assert found["feature_names"] == [f"x{d}" for d in range(N_FEATURES)]
    assert found["preprocessing"]["kind"] == "Shifter"


@together(
    ("path", "value", "message"),
    [
        (("preprocessing", "kind"), "StandardScaler", "kind of preprocessing must be one of"),
        (("preprocessing", "state"), {"mapping": []}, "Shifter: not a state of Shifter"),
        (("preprocessing", "state"), {"mapping": [["shift", {"array": "set"}]]}, "must be one of"),
        (("preprocessing", "state"), {"mapping": [["coef_", {"array": "list"}]]}, r"the array 'preprocessing\.coef_'"),
        (("preprocessing", "state"), {"mapping": [[None, 3]]}, "pairs of a key and a value"),
        (("preprocessing", "state"), {"mapping": [["a", 3], ["a", 4]]}, "has a key twice"),
        (("preprocessing", "state"), [3], "must be of type"),
        (("preprocessing", "state"), {"mapping": {"shift": {}}}, "must be of type list"),
        (("preprocessing", "state"), _NESTED, "must be an object|unknown entry|lacks"),
        (("preprocessing",), None, "steps of a pipeline"),
        (("steps",), ["a", "a"], "two different names"),
        (("steps",), ["a__b", "c"], "two different names"),
        (("steps",), ["memory", "c"], "two different names"),
    ],
)
def test_a_wrong_state_is_refused(path, value, message, pipeline, tmp_path):
    save(pipeline, tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    entries = entries_of(data)
    holder = entries
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert_refused(tmp_path / "model", with_entries(data, entries), message)


# Earlier versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["svc", "logistic"])
def test_files_of_earlier_versions_load_and_predict_the_same(name):
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    model = load(GOLDEN / f"{name}.safetensors")
    assert [value.hex() for value in model.coef_.ravel().tolist()] == expected["coef"]
    rows = np.array(expected["rows"], dtype=float)  # null is NaN
    rows = pd.DataFrame(rows, columns=expected["names"]) if expected["names"] else rows
    assert model.predict(rows).tolist() == expected["labels"]
    np.testing.assert_allclose(model.decision_function(rows), np.array(expected["decision"]), rtol=1e-12)
