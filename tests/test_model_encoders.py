"""Pipelines of an encoder and a classifier in model files: the same predictions, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline

from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, MCFClassifier, load, save
from dropmargin.io.data import TableEncoder, TextEncoder
from dropmargin.io.model import ModelFormatError, describe

ENDINGS = ("json", "zip")
DOCUMENTS = ["ein guter Tag", "sehr schlecht", "gut und schön", "schlechtes Wetter", "so gut", "nicht schlecht, 色"] * 3
STARS = np.array([5, 1, 5, 1, 5, 3] * 3)


def frame(n_rows=40, n_names=3, missing=True, seed=0):
    """Return a table of numbers and names, some of them missing, and string labels."""
    rng = np.random.RandomState(seed)
    numbers = rng.randn(n_rows)
    names = np.array([f"näme {i}" for i in rng.randint(n_names, size=n_rows)], dtype=object)
    y = np.where(numbers + (names == "näme 1") > 0.3, "groß", "klein").astype(object)
    if missing:
        numbers[::7] = np.nan
        names[::5] = None
    return {"größe": numbers, "farbe, 色": names}, y


def assert_same(model, again, X):
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again[0].get_feature_names_out(), model[0].get_feature_names_out())
    assert [name for name, _ in again.steps] == [name for name, _ in model.steps]
    assert again[-1].get_params(deep=False).keys() == model[-1].get_params(deep=False).keys()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("missing", [False, True])
def test_tables(ending, missing, tmp_path):
    X, y = frame(missing=missing)
    classifier = DropoutLogisticRegression(noise=DropoutNoise(0.3), missing="rescale" if missing else "error")
    model = make_pipeline(TableEncoder(), classifier).fit(X, y)
    path = tmp_path / f"model.{ending}"
    save(model, path)
    again = load(path)
    assert_same(model, again, X)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again[0].column_kinds_ == {"größe": "number", "farbe, 色": "category"}
    # a table to come: another name, another order, a column too many
    other = {"more": ["x", "y"], "farbe, 色": ["näme 1", "never seen"], "größe": [0.5, -1.0]}
    assert_same(model, again, other)


@pytest.mark.parametrize("n_names", [200, 1500])
def test_wide_tables_and_categories_that_stand_outside_of_the_text(n_names, tmp_path):
    X, y = frame(3000, n_names, missing=False)
    encoder = TableEncoder(max_categories=2000)
    model = make_pipeline(encoder, DropoutSVC()).fit(X, y)
    assert model[0].sparse_output_
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again[0].sparse_output_
    assert_same(model, again, X)


def test_numbers_that_are_names(tmp_path):
    table = {"zip": [10115, 20095, 10115, 20095] * 5, "x": [1.0, 2.0, 0.5, 3.0] * 5}
    model = make_pipeline(TableEncoder(categorical=("zip",)), DropoutSVC()).fit(table, [0, 1, 0, 1] * 5)
    save(model, tmp_path / "model.json")
    assert_same(model, load(tmp_path / "model.json"), table)
    assert load(tmp_path / "model.json")[0].get_params() == model[0].get_params()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "encoder",
    [
        TextEncoder(),
        TextEncoder(weighting="counts", ngram_range=(1, 2), min_df=2, binary=True),
        TextEncoder(lowercase=False, max_features=5, min_df=0.1),
    ],
)
def test_text(encoder, ending, tmp_path):
    model = Pipeline([("words", encoder), ("linear", DropoutSVC(noise=0.5))]).fit(DOCUMENTS, STARS)
    save(model, tmp_path / f"model.{ending}")
    again = load(tmp_path / f"model.{ending}")
    assert_same(model, again, [*DOCUMENTS, "", "etwas ganz anderes", "gut GUT gut"])
    assert again[0].get_params() == model[0].get_params()


def test_text_of_a_column_with_a_large_vocabulary(tmp_path):
    rng = np.random.RandomState(0)
    documents = [" ".join(f"wort{i}" for i in rng.randint(5000, size=30)) for _ in range(300)]
    y = rng.randint(2, size=300)
    encoder = TextEncoder(column="text")
    model = make_pipeline(encoder, MCFClassifier(noise=0.2)).fit({"text": documents}, y)
    assert len(model[0].terms_) > 1000
    save(model, tmp_path / "model.json", summary={"rows": 300})
    again = load(tmp_path / "model.json")
    assert_same(model, again, {"text": documents, "other": list(range(300))})
    facts = describe(tmp_path / "model.json")
    assert facts["preprocessing"]["kind"] == "TextEncoder"
    assert facts["feature_names"] == model[0].terms_


def test_an_encoder_of_another_width_is_refused(tmp_path):
    X, y = frame()
    model = make_pipeline(TableEncoder(), DropoutSVC(missing="rescale")).fit(X, y)
    model.steps[0] = (model.steps[0][0], TableEncoder().fit({"größe": [1.0]}))
    with pytest.raises(ValueError, match="its preprocessing makes 1 features, its model takes 4"):
        save(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["tables", "text"])
def test_every_cut_of_a_file_is_noticed(kind, tmp_path):
    if kind == "tables":
        X, y = frame()
        model = make_pipeline(TableEncoder(), DropoutSVC(missing="rescale")).fit(X, y)
    else:
        model = make_pipeline(TextEncoder(), DropoutSVC()).fit(DOCUMENTS, STARS)
    path = tmp_path / "model.json"
    save(model, path)
    content = path.read_bytes()
    for length in range(0, len(content), max(1, len(content) // 50)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFormatError):
            load(path)
