"""An exported ONNX model gives the same labels, scores and probabilities in onnxruntime, from raw rows."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC

from datasets import N_FEATURES, make_binary, make_multiclass
from dealing import deal, round_robin, together
from dropmargin import DropoutLogisticRegression, DropoutSVC, FDropSVC, MCFClassifier
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
    "worst case": FDropSVC(C=0.1),
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


@together(("step", "multi_class"), round_robin(_SCALERS, ["ovr", "ovo"]))
def test_steps_for_numbers(step, multi_class, tmp_path):
    X, y = make_multiclass(150)
    X = X * np.geomspace(0.01, 100.0, N_FEATURES)
    model = make_pipeline(step, DropoutSVC(multi_class=multi_class)).fit(X, y)
    assert_same(model, X, tmp_path, 1e-12)


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


# Models that cannot be exported -------------------------------------------------------------------------------------


@together(
    ("step", "message"),
    [
        (PowerTransformer(), r"'step' \(PowerTransformer\)"),
        (FunctionTransformer(np.abs), r"'step' \(FunctionTransformer\) cannot be exported"),
        (ColumnTransformer([("s", StandardScaler(), ["n"])]), r"'step' \(ColumnTransformer\) .*supported are FrameEnc"),
        (make_pipeline(StandardScaler(), TableEncoder()), r"'step' \(Pipeline\) cannot be exported"),
    ],
)
def test_steps_that_cannot_be_exported_are_refused_by_name(step, message, tmp_path):
    frame, y = _frame()
    model = Pipeline([("step", step), ("classifier", DropoutSVC(missing="rescale"))]).fit(frame[["n"]], y)
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_encoders_after_another_step_are_refused(tmp_path):
    frame, y = _frame()
    model = make_pipeline(StandardScaler(), TableEncoder(), DropoutSVC()).fit(frame[["n"]], y)
    with pytest.raises(ValueError, match=r"'tableencoder' .*a TableEncoder must be the first step"):
        export_onnx(model, tmp_path / "model.onnx")


def test_columns_with_the_names_of_outputs_are_refused(tmp_path):
    frame, y = _frame()
    frame = frame[["Größe", "n"]].rename(columns={"Größe": "label"})
    model = make_pipeline(TableEncoder(), DropoutSVC()).fit(frame, y)
    with pytest.raises(ValueError, match=r"named label, .*got columns \['label'\]"):
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
