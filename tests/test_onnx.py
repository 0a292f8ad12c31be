"""An exported ONNX model gives the same labels, scores and probabilities in onnxruntime, from raw rows."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC

from datasets import N_FEATURES, make_binary, make_multiclass
from dealing import deal, round_robin, together
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier
from dropmargin.io.data import FrameEncoder, TableEncoder, TextEncoder
from dropmargin.io.model import export_onnx

pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

_DTYPES = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(string)": object}


def run_onnx(path, X):
    """Return the outputs of a graph for rows: a matrix, documents, or a data frame with the inputs as columns."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    feeds = {}
    for given in session.get_inputs():
        values = X[given.name].fillna("") if given.type == "tensor(string)" and isinstance(X, pd.DataFrame) else X
        values = values[given.name] if isinstance(values, pd.DataFrame) else values
        feeds[given.name] = np.asarray(values, dtype=_DTYPES[given.type]).reshape(-1, given.shape[1])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True)), session


def assert_same(model, X, tmp_path, tolerance):
    """Check that the exported model gives the labels, scores and probabilities of a fitted one; return the session."""
    export_onnx(model, tmp_path / "model.onnx")
    found, session = run_onnx(tmp_path / "model.onnx", X)
    assert found["label"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(found["decision"], model.decision_function(X), rtol=tolerance, atol=tolerance)
    assert ("probability" in found) == hasattr(model, "predict_proba")
    if "probability" in found:
        np.testing.assert_allclose(found["probability"], model.predict_proba(X), rtol=tolerance, atol=tolerance)
    return session


# Classifiers --------------------------------------------------------------------------------------------------------

_MODELS = {
    "svc": DropoutSVC(noise=0.3),
    "logistic": DropoutLogisticRegression(noise=0.3),
    "no intercept": DropoutLogisticRegression(fit_intercept=False),
    "mcf": MCFClassifier("exponential"),
    "one-vs-one": DropoutLogisticRegression(multi_class="ovo"),
}


@pytest.mark.parametrize(("name", "n_classes", "dtype"), deal(_MODELS, [2, 4], [np.float32, np.float64]))
def test_classifiers(name, n_classes, dtype, tmp_path):
    X, y = make_binary(120) if n_classes == 2 else make_multiclass(150, n_classes=n_classes)
    X = X.astype(dtype)
    model = _MODELS[name].fit(X, np.array(["grün", "rot", "日本", "z"])[y])
    assert_same(model, X, tmp_path, 1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(("n_classes", "multi_class"), [(2, "ovr"), (4, "ovr"), (4, "ovo")])
def test_missing_values(n_classes, multi_class, tmp_path):
    X, y = make_binary(120) if n_classes == 2 else make_multiclass(150, n_classes=n_classes)
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.4] = np.nan
    X[0] = np.nan
    model = DropoutLogisticRegression(missing="rescale", multi_class=multi_class, l1_ratio=0.5, C=0.1).fit(X, y)
    assert_same(model, X, tmp_path, 1e-12)
    model.coef_[0] = 0.0  # the rows are scaled by the share of observed features
    assert_same(model, X, tmp_path, 1e-12)


def test_labels_of_every_type(tmp_path):
    X, y = make_binary()
    for labels in (
        np.array([-5, 7], dtype=np.int8),
        np.array([False, True]),
        np.array([-1.0, 3.0]),
        np.array(["", "ß"], dtype=object),
    ):
        assert_same(DropoutSVC().fit(X, labels[y]), X, tmp_path, 1e-12)
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        export_onnx(DropoutSVC().fit(X, np.array([0, 2**64 - 1], dtype=np.uint64)[y]), tmp_path / "model.onnx")


def test_probabilities_of_extreme_scores(tmp_path):
    X, y = make_multiclass()
    model = DropoutLogisticRegression().fit(X, y)
    model.intercept_ -= 1000.0
    assert_same(model, X, tmp_path, 1e-9)


def test_searches_and_feature_names(tmp_path):
    X, y = make_binary()
    names = [f"Größe {d}" for d in range(N_FEATURES)]
    search = GridSearchCV(DropoutSVC(), {"C": [0.1, 1.0]}, cv=2).fit(pd.DataFrame(X, columns=names), y)
    export_onnx(search, tmp_path / "model.onnx")
    session = run_onnx(tmp_path / "model.onnx", X)[1]
    assert json.loads(session.get_modelmeta().custom_metadata_map["feature_names"]) == names
    assert [given.name for given in session.get_inputs()] == ["X"]


# Numbers ------------------------------------------------------------------------------------------------------------

_SCALERS = [StandardScaler(), StandardScaler(with_mean=False), MinMaxScaler(clip=True), MaxAbsScaler(), RobustScaler()]
_SINGLE = [SimpleImputer(strategy="median"), Normalizer(), PolynomialFeatures(interaction_only=True)]


@together(("step", "multi_class"), round_robin([*_SCALERS, *_SINGLE], ["ovr", "ovo"]))
def test_steps_for_numbers(step, multi_class, tmp_path):
    X, y = make_multiclass(150)
    X = X * np.geomspace(0.01, 100.0, N_FEATURES)
    model = make_pipeline(step, DropoutSVC(multi_class=multi_class)).fit(X, y)
    assert_same(model, X, tmp_path, 1e-12 if step in _SCALERS else 1e-5)


# Text ---------------------------------------------------------------------------------------------------------------

_WORDS = ["the", "cat", "GRÜN", "good", "bad", "not", "a", "x2", "Straße", "don't", "ÉCOLE", "日本", "under_score"]
_UNKNOWN = ["", " ", "a", "unknown words", "good!good?GOOD", "not a good cat", "e\u0301e\u0301 ½½"]


def _documents(words=_WORDS):
    rng = np.random.RandomState(0)
    documents = [" ".join(rng.choice(words, rng.randint(1, 12))) for _ in range(120)]
    y = np.array([document.count("good") - document.count("bad") for document in documents])
    return documents, np.sign(y)


_ENCODERS = {
    "tf-idf": TextEncoder("tfidf", stop_words="english"),
    "n-grams": TextEncoder(ngram_range=(1, 2)),
    "case": TextEncoder("counts", lowercase=False, ngram_range=(2, 3), max_features=20),
    "TfidfVectorizer": TfidfVectorizer(norm="l1", ngram_range=(1, 2), max_df=0.3, stop_words=None),
    "stop words": TfidfVectorizer(stop_words="english", norm=None),
    "CountVectorizer": CountVectorizer(vocabulary=["good cat", "bad", "not"], ngram_range=(1, 2)),
    "TfidfTransformer": make_pipeline(CountVectorizer(binary=True), TfidfTransformer()),
    "union": FeatureUnion([("words", TfidfVectorizer()), ("pairs", CountVectorizer(ngram_range=(2, 2)))]),
}


@pytest.mark.parametrize("name", _ENCODERS)
def test_text(name, tmp_path):
    documents, y = _documents()
    model = make_pipeline(_ENCODERS[name], DropoutLogisticRegression()).fit(documents, y)
    assert_same(model, [*documents, *_UNKNOWN], tmp_path, 1e-6)


def test_ascii_text_needs_no_locale(tmp_path):
    documents, y = _documents(["the", "Cat", "good", "BAD", "not"])
    model = make_pipeline(TextEncoder(), DropoutSVC()).fit(documents, y)
    assert_same(model, [*documents, "GRÜN good"], tmp_path, 1e-6)
    assert b"UTF-8" not in (tmp_path / "model.onnx").read_bytes()


# Tables -------------------------------------------------------------------------------------------------------------


def _frame():
    rng = np.random.RandomState(0)
    documents, y = _documents()
    n = len(documents)
    columns = {
        "Größe": rng.randn(n) + y,
        "matmul": 1000.0 + rng.randn(n),
        "n": rng.randint(4, size=n),
        "col our": rng.choice(["red", "näme", "1.5"], n),
        "text": documents,
    }
    return pd.DataFrame(columns), np.array(["no", "?", "yes"])[y + 1]


@pytest.mark.parametrize("missing", [False, True])
def test_table_encoder(missing, tmp_path):
    frame, y = _frame()
    frame = frame[["col our", "Größe", "n", "matmul"]].assign(**{"more": frame["text"].str[:3]})
    if missing:
        frame["Größe"] = frame["Größe"].where(frame.index % 7 > 0)
        frame["col our"] = frame["col our"].where(frame.index % 5 > 0, None)
    model = make_pipeline(TableEncoder(), DropoutLogisticRegression(missing="rescale")).fit(frame[:100], y[:100])
    session = assert_same(model, frame, tmp_path, 1e-12)  # the last rows have unknown categories
    assert [given.name for given in session.get_inputs()] == list(frame.columns)


def test_table_encoder_of_one_kind_of_columns(tmp_path):
    frame, y = _frame()
    for columns in (["Größe", "n"], ["col our"]):
        model = make_pipeline(TableEncoder(), DropoutSVC()).fit(frame[columns], y)
        assert_same(model, frame[columns], tmp_path, 1e-12)


@pytest.mark.parametrize("text", [["text"], ["col our", "text"]])
def test_frame_encoder(text, tmp_path):
    frame, y = _frame()
    frame["Größe"] = frame["Größe"].where(frame.index % 7 > 0)
    encoder = FrameEncoder(text, TextEncoder("tfidf" if len(text) == 1 else "presence"))
    model = make_pipeline(encoder, DropoutLogisticRegression(missing="rescale")).fit(frame, y)
    session = assert_same(model, frame, tmp_path, 1e-6)
    assert sorted(given.name for given in session.get_inputs()) == sorted(frame.columns)


def test_frame_encoder_of_text_alone(tmp_path):
    frame, y = _frame()
    frame = frame[["text", "col our"]]
    model = make_pipeline(FrameEncoder(["col our", "text"]), DropoutSVC()).fit(frame, y)
    assert_same(model, frame, tmp_path, 1e-6)


@together(
    ("encoder", "message"),
    [
        (TextEncoder(analyzer="char", ngram_range=(2, 3)), "cannot express analyzer='char'"),
        (TextEncoder(ngram_range=(1, 2), stop_words=["the"]), "cannot express stop_words"),
        (FrameEncoder(["text"], TextEncoder(analyzer="char_wb")), "cannot express analyzer='char_wb'"),
    ],
)
def test_text_that_cannot_be_exported_is_refused_by_name(encoder, message, tmp_path):
    frame, y = _frame()
    model = make_pipeline(encoder, DropoutSVC()).fit(frame["text"] if isinstance(encoder, TextEncoder) else frame, y)
    with pytest.raises(ValueError, match=f"Step '(text|frame)encoder' cannot be exported to ONNX: .*{message}"):
        export_onnx(model, tmp_path / "model.onnx")


def test_dates_cannot_be_exported(tmp_path):
    frame = pd.DataFrame({"when": ["2024-01-01", "2024-05-05"] * 3, "n": [1.0, 2.0] * 3})
    model = make_pipeline(TableEncoder(), DropoutSVC()).fit(frame, [0, 1] * 3)
    with pytest.raises(ValueError, match="Column 'when' of the TableEncoder holds dates"):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


_TRANSFORMERS = {
    "all": ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["Größe", "matmul"]),
            ("categories", OneHotEncoder(handle_unknown="ignore"), ["col our", "n"]),
            ("text", TfidfVectorizer(), "text"),
        ]
    ),
    "positions": ColumnTransformer([("c", OneHotEncoder(drop="first"), [3])], remainder="drop"),
    "weights": ColumnTransformer(
        [("c", OneHotEncoder(), ["col our"]), ("t", TextEncoder(), "text")],
        transformer_weights={"c": 2.0},
    ),
    "passthrough": ColumnTransformer([("n", "passthrough", ["Größe"]), ("s", MinMaxScaler(), slice(1, 3))]),
    "nested": ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["Größe", "n"]),
            ("x", "drop", ["matmul"]),
            ("t", make_pipeline(CountVectorizer(ngram_range=(1, 2)), TfidfTransformer()), "text"),
        ]
    ),
}


@pytest.mark.parametrize("name", _TRANSFORMERS)
def test_column_transformers(name, tmp_path):
    frame, y = _frame()
    frame["label"] = y
    model = make_pipeline(_TRANSFORMERS[name], DropoutLogisticRegression()).fit(frame, y)
    session = assert_same(model, frame, tmp_path, 1e-5)
    names = [given.name for given in session.get_inputs()]
    assert set(names) <= set(frame.columns)
    assert ("text" in names) == (name in ("all", "weights", "nested"))  # unused columns are not inputs


# Models that cannot be exported -------------------------------------------------------------------------------------


@together(
    ("step", "message"),
    [
        (TfidfVectorizer(analyzer="char"), r"'step' .*analyzer='char'"),
        (TfidfVectorizer(token_pattern=r"\w+"), "'step' .*token_pattern="),
        (TfidfVectorizer(strip_accents="unicode"), "'step' .*strip_accents='unicode'"),
        (TfidfVectorizer(sublinear_tf=True), "'step' .*sublinear_tf=True"),
        (CountVectorizer(tokenizer=str.split, token_pattern=None), "'step' .*token_pattern|tokenizer"),
        (CountVectorizer(stop_words=["the"], ngram_range=(1, 2)), "'step' .*stop_words"),
        (
            make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True)),
            r"'step\.tfidftransformer' .*sublinear",
        ),
        (HashingVectorizer(n_features=64), r"'step' \(HashingVectorizer\) .*supported are CountVectorizer"),
    ],
)
def test_text_that_cannot_be_exported_is_refused_by_the_name_of_the_step(step, message, tmp_path):
    documents, y = _documents()
    model = Pipeline([("step", step), ("classifier", DropoutSVC())]).fit(documents, y)
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@together(
    ("step", "message"),
    [
        (PowerTransformer(), r"'step' \(PowerTransformer\)"),
        (FunctionTransformer(np.abs), "'step' cannot be exported"),
        (SimpleImputer(add_indicator=True), "'step' .*add_indicator=True"),
        (ColumnTransformer([("c", OneHotEncoder(min_frequency=50), ["col our"])]), r"'step\.c' cannot be exported"),
        (ColumnTransformer([("t", TableEncoder(), ["n"])]), r"'step\.t' .*must be the first step"),
        (ColumnTransformer([("s", StandardScaler(), ["label"])]), r"named label, .*got columns \['label'\]"),
    ],
)
def test_numbers_that_cannot_be_exported_are_refused_by_the_name_of_the_step(step, message, tmp_path):
    frame, y = _frame()
    frame = frame[["Größe", "n", "col our"]].rename(columns={"Größe": "label"})
    frame = frame if isinstance(step, ColumnTransformer) else frame[["n"]]
    model = Pipeline([("step", step), ("classifier", DropoutSVC(missing="rescale"))]).fit(frame, y)
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_other_models_are_refused(tmp_path):
    X, y = make_binary()
    for model in (LinearSVC().fit(X, y), make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)):
        with pytest.raises(ValueError, match="got LinearSVC"):
            export_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="not fitted"):
        export_onnx(DropoutSVC(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'dropmargin\[onnx\]'"):
        export_onnx(DropoutSVC().fit(*make_binary()), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
