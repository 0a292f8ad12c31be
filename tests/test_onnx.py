"""An exported ONNX model gives the same labels, scores and probabilities in onnxruntime, from raw rows."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from datasets import N_FEATURES, make_binary, make_multiclass
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutRidge,
    DropoutSVC,
    DropoutSVR,
    MCFClassifier,
    TableClassifier,
    TableRegressor,
)
from dropmargin.io.onnx import export_onnx, register_onnx_converters
from dropmargin.tables import TableEncoder

skl2onnx = pytest.importorskip("skl2onnx")
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


def _incomplete_table(n_rows=200):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(20.0, 70.0, n_rows), "city": rng.choice(["Bern", "Oslo", "Rome"], n_rows)})
    table["twin"] = table.age + rng.normal(size=n_rows)
    y = np.where((np.abs(table.age - 45.0) < 12.0) | (table.city == "Rome"), "yes", "no")
    lost = rng.uniform(size=table.shape) < 0.3
    return table, y, table.mask(lost)


@pytest.mark.parametrize("basis", ["linear", "spline", "fourier"])
def test_tables_with_missing_cells_and_categories_never_seen(basis, tmp_path):
    table, y, lost = _incomplete_table()
    model = TableClassifier(basis=basis, noise=0.1, C=10.0, random_state=0).fit(table, y)
    rows = pd.concat([table.assign(age=table.age * 2.0 - 40.0), lost, lost.assign(city="Paris")], ignore_index=True)
    export_onnx(model, tmp_path / "model.onnx")
    found, _ = run_onnx(tmp_path / "model.onnx", rows)
    assert found["label"].tolist() == model.predict(rows).tolist()
    tolerance = 1e-5 if basis == "fourier" else 1e-8  # its exponents are those of single precision
    np.testing.assert_allclose(found["decision"], model.decision_function(rows), rtol=tolerance, atol=tolerance)
    assert ("probability" in found) == (basis == "fourier")
    target = table.twin.to_numpy()
    regressor = TableRegressor(basis="spline", noise=0.1, C=10.0).fit(table[["age", "city"]], target)
    export_onnx(regressor, tmp_path / "model.onnx")
    found, _ = run_onnx(tmp_path / "model.onnx", lost)
    np.testing.assert_allclose(found["prediction"], regressor.predict(lost[["age", "city"]]), rtol=1e-9)


def test_columns_without_operators_are_named(tmp_path):
    table, y, _ = _incomplete_table(60)
    dates = table.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60) % 9, "D"))
    texts = table.assign(note=["good day", "bad day"] * 30)
    given = {"basis": "linear", "noise": 0.1, "C": 1.0}
    for model, rows, name in (
        (TableClassifier(**given), dates, "'day' is of kind date"),
        (TableClassifier(text=["note"], **given), texts, "'note' is of kind text"),
    ):
        with pytest.raises(ValueError, match=f"Column {name}, for which ONNX has no operators"):
            export_onnx(model.fit(rows, y), tmp_path / "model.onnx")
    model = TableClassifier(**given).fit(table, y)
    model.encoder_ = TableEncoder("linear", "quantile").fit(table)
    with pytest.raises(ValueError, match="Column 'age' is scaled by its quantiles"):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_classes", [2, 4])
def test_expected_scores_of_rows_with_missing_features(n_classes, tmp_path):
    X, y = make_binary(120) if n_classes == 2 else make_multiclass(150, n_classes=n_classes)
    model = DropoutLogisticRegression(missing="conditional").fit(X, y)
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.4] = np.nan
    X[0] = np.nan
    export_onnx(model, tmp_path / "model.onnx")
    found, _ = run_onnx(tmp_path / "model.onnx", X)
    np.testing.assert_allclose(found["decision"], model.decision_function(X), rtol=1e-9, atol=1e-9)
    assert "probability" not in found
    assert_same(model.set_params(missing="error"), X[~np.isnan(X).any(axis=1)], tmp_path, 1e-12)


def test_searches_and_feature_names(tmp_path):
    X, y = make_binary()
    names = [f"Größe {d}" for d in range(N_FEATURES)]
    search = GridSearchCV(DropoutSVC(), {"C": [0.1, 1.0]}, cv=2).fit(pd.DataFrame(X, columns=names), y)
    export_onnx(search, tmp_path / "model.onnx")
    session = run_onnx(tmp_path / "model.onnx", X)[1]
    assert json.loads(session.get_modelmeta().custom_metadata_map["feature_names"]) == names
    assert [given.name for given in session.get_inputs()] == ["X"]


def test_regressors(tmp_path):
    X, y = make_binary()
    X[0, 0] = np.nan
    for model in (DropoutRidge(missing="rescale"), DropoutSVR(missing="rescale")):
        export_onnx(model.fit(X, y), tmp_path / "model.onnx")
        found, _ = run_onnx(tmp_path / "model.onnx", X)
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-12, atol=1e-12)


def test_pipelines_through_skl2onnx(tmp_path):
    register_onnx_converters()
    X, y = make_multiclass()
    pipeline = make_pipeline(StandardScaler(), DropoutLogisticRegression(multi_class="multinomial")).fit(X, y)
    graph = skl2onnx.to_onnx(pipeline, X[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    found, _ = run_onnx(tmp_path / "model.onnx", X)
    assert found["label"].tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose(found["probability"], pipeline.predict_proba(X), rtol=1e-12, atol=1e-12)


def test_other_models_are_refused(tmp_path):
    X, y = make_binary()
    with pytest.raises(ValueError, match="got LinearSVC"):
        export_onnx(LinearSVC().fit(X, y), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="not fitted"):
        export_onnx(DropoutSVC(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'dropmargin\[onnx\]'"):
        export_onnx(DropoutSVC().fit(*make_binary()), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
