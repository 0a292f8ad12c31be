"""A model through LIBLINEAR's own predict, through onnxruntime, and as one of scikit-learn's classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from datasets import N_FEATURES, make_binary, make_multiclass
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, FDropSVC, MCFClassifier
from dropmargin.io.model import export_liblinear, export_onnx, to_sklearn

_MODELS = {
    "svc": DropoutSVC(noise=0.3),
    "logistic": DropoutLogisticRegression(noise=0.3),
    "no offset": DropoutSVC(fit_intercept=False),
    "logistic without offset": DropoutLogisticRegression(fit_intercept=False),
    "mcf": MCFClassifier("exponential"),
    "mcf-logistic": MCFClassifier("logistic"),
    "worst case": FDropSVC(C=0.1),
}
_INTEGERS = {"2 classes": [-1, 1], "reversed signs": [3, -7], "floats": [-1.0, 1.0], "3 classes": [5, -2, 9]}


def _data(n_classes):
    return make_binary(n_samples=120) if n_classes == 2 else make_multiclass(n_samples=150, n_classes=n_classes)


# LIBLINEAR ----------------------------------------------------------------------------------------------------------


def _liblinear_predict(path, X, options):
    from liblinear.liblinearutil import load_model, predict

    loaded = load_model(os.fspath(path))
    assert loaded is not None
    return predict([], X, loaded, options)


@pytest.mark.parametrize(
    ("name", "many", "layout", "binary"),
    deal(_MODELS, [False, True], ["dense", "sparse"], ["2 classes", "reversed signs", "floats"]),
)
def test_liblinear_predicts_the_same_labels(name, many, layout, binary, tmp_path):
    pytest.importorskip("liblinear")
    model, labels = _MODELS[name], "3 classes" if many else binary
    classes = np.array(_INTEGERS[labels])
    X, codes = _data(len(classes))
    model.fit(X, classes[codes])
    export_liblinear(model, tmp_path / "model")
    rows = sparse.csr_matrix(X) if layout == "sparse" else X
    probabilities = hasattr(model, "predict_proba")
    found, _, values = _liblinear_predict(tmp_path / "model", rows, "-q -b 1" if probabilities else "-q")
    assert found == model.predict(X).tolist()
    own = model.predict_proba(X) if probabilities else model.decision_function(X).reshape(len(X), -1)
    if probabilities and len(classes) == 2:
        own = own[:, ::-1]  # LIBLINEAR's first label is that of positive scores
    np.testing.assert_allclose(np.array(values)[:, : own.shape[1]], own, rtol=1e-12, atol=1e-13)


def test_liblinear_takes_single_precision(tmp_path):
    pytest.importorskip("liblinear")
    X, y = make_binary(n_samples=120)
    model = DropoutSVC().fit(X.astype(np.float32), y)
    export_liblinear(model, tmp_path / "model")
    assert _liblinear_predict(tmp_path / "model", X, "-q")[0] == model.predict(X).tolist()


def test_liblinear_text_is_as_documented(tmp_path):
    model = DropoutSVC().fit(*make_binary())
    export_liblinear(model, tmp_path / "model")
    lines = (tmp_path / "model").read_text().splitlines()
    head = ["solver_type L2R_L1LOSS_SVC_DUAL", "nr_class 2", "label 1 0", f"nr_feature {N_FEATURES}", "bias 1", "w"]
    assert lines[:6] == head
    assert [float(line) for line in lines[6:]] == [*model.coef_[0].tolist(), *model.intercept_.tolist()]


@pytest.mark.parametrize("labels", [["a", "b"], [False, True], [0.0, 2.0**31], [-(2**31) - 1, 0]])
def test_liblinear_needs_integers_for_labels(labels, tmp_path):
    X, y = make_binary()
    model = DropoutSVC().fit(X, np.array(labels)[y])
    with pytest.raises(ValueError, match=r"integers of 32 bits.*LabelEncoder"):
        export_liblinear(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_liblinear_has_no_one_vs_one(tmp_path):
    model = DropoutSVC(multi_class="ovo").fit(*make_multiclass())
    with pytest.raises(ValueError, match=r"'ovo'.*multi_class='ovr'"):
        export_liblinear(model, tmp_path / "model")


# ONNX ---------------------------------------------------------------------------------------------------------------


def _run_onnx(path, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True)), session


@pytest.mark.parametrize(("name", "n_classes", "dtype"), deal(_MODELS, [2, 3], [np.float32, np.float64]))
def test_onnx_gives_the_same(name, n_classes, dtype, tmp_path):
    pytest.importorskip("onnx")
    model = _MODELS[name]
    X, codes = _data(n_classes)
    X = X.astype(dtype)
    model.fit(X, np.array(["grün", "rot", "日本"])[codes])
    export_onnx(model, tmp_path / "model.onnx")
    found, _ = _run_onnx(tmp_path / "model.onnx", X)
    assert found["label"].tolist() == model.predict(X).tolist()
    assert found["decision"].dtype == dtype
    np.testing.assert_allclose(found["decision"], model.decision_function(X), rtol=1e-6, atol=1e-6)
    assert ("probability" in found) == hasattr(model, "predict_proba")
    if "probability" in found:
        np.testing.assert_allclose(found["probability"], model.predict_proba(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_onnx_votes_of_one_vs_one(n_classes, tmp_path):
    pytest.importorskip("onnx")
    X, y = make_multiclass(n_samples=150, n_classes=n_classes)
    model = DropoutSVC(multi_class="ovo").fit(X, y)
    export_onnx(model, tmp_path / "model.onnx")
    found, _ = _run_onnx(tmp_path / "model.onnx", X)
    assert found["label"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(found["decision"], model.decision_function(X), rtol=1e-12)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-5, 7], dtype=np.int8),
        np.array([False, True]),
        np.array([0.0, 3.0]),
        np.array(["", "ß"], dtype=object),
    ],
)
def test_onnx_labels_of_every_kind(labels, tmp_path):
    pytest.importorskip("onnx")
    X, y = make_binary()
    model = DropoutSVC().fit(X, labels[y])
    export_onnx(model, tmp_path / "model.onnx")
    assert _run_onnx(tmp_path / "model.onnx", X)[0]["label"].tolist() == model.predict(X).tolist()


def test_onnx_probabilities_far_out(tmp_path):
    """Where every class is all but impossible, probabilities still add up to one."""
    pytest.importorskip("onnx")
    X, y = make_multiclass()
    model = DropoutLogisticRegression().fit(X, y)
    model.intercept_ -= 1000.0
    export_onnx(model, tmp_path / "model.onnx")
    found = _run_onnx(tmp_path / "model.onnx", X)[0]["probability"]
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-9)


def test_onnx_knows_the_features(tmp_path):
    pytest.importorskip("onnx")
    X, y = make_binary()
    names = [f"Größe {d}" for d in range(N_FEATURES)]
    export_onnx(DropoutSVC().fit(pd.DataFrame(X, columns=names), y), tmp_path / "model.onnx")
    session = _run_onnx(tmp_path / "model.onnx", X)[1]
    assert json.loads(session.get_modelmeta().custom_metadata_map["feature_names"]) == names


def test_onnx_is_named_if_it_is_not_installed(tmp_path):
    script = """
import sys
sys.modules["onnx"] = None
import numpy as np
from dropmargin import DropoutSVC
from dropmargin.io.model import export_onnx
model = DropoutSVC().fit(np.eye(4), [0, 1, 0, 1])
try:
    export_onnx(model, "model.onnx")
except ImportError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "pip install 'dropmargin[onnx]'" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


# scikit-learn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n_classes", "layout"), deal(_MODELS, [2, 3], ["dense", "sparse"]))
def test_scikit_learn_gives_the_same(name, n_classes, layout):
    model = _MODELS[name]
    X, codes = _data(n_classes)
    frame = pd.DataFrame(X, columns=[f"x{d}" for d in range(N_FEATURES)])
    model.fit(frame, np.array(["grün", "rot", "日本"])[codes])
    plain = to_sklearn(model)
    many = n_classes > 2
    kind = (OneVsRestClassifier if many else LogisticRegression) if hasattr(model, "predict_proba") else LinearSVC
    assert type(plain) is kind
    rows = sparse.csr_array(X) if layout == "sparse" else frame
    with pytest.MonkeyPatch.context() as patch:
        if layout == "sparse":
            patch.setattr("warnings.warn", lambda *args, **kwargs: None)  # of names that a matrix lacks
        assert plain.predict(rows).tolist() == model.predict(rows).tolist()
        np.testing.assert_allclose(plain.decision_function(rows), model.decision_function(rows), rtol=1e-12, atol=1e-13)
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(plain.predict_proba(rows), model.predict_proba(rows), rtol=1e-12)
    assert plain.classes_.tolist() == model.classes_.tolist()
    assert plain.feature_names_in_.tolist() == list(frame.columns)
    assert 0.0 <= plain.score(frame, model.predict(frame)) <= 1.0


@pytest.mark.parametrize("model", [DropoutSVC(multi_class="ovo"), DropoutLogisticRegression(multi_class="ovo")])
def test_scikit_learn_votes_of_one_vs_one(model):
    X, y = make_multiclass(n_samples=150, n_classes=4)
    plain = to_sklearn(model.fit(X, y))
    assert type(plain) is OneVsOneClassifier
    assert plain.predict(X).tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(plain.decision_function(X), model.decision_function(X), rtol=1e-12)


def test_scikit_learn_has_its_own_memory():
    model = DropoutSVC().fit(*make_binary())
    plain = to_sklearn(model)
    plain.coef_[:] = 0.0
    assert model.coef_.any()


# What no export takes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("export", [export_liblinear, export_onnx, lambda model, path: to_sklearn(model)])
def test_what_cannot_be_exported_is_refused_with_the_remedy(export, tmp_path):
    pytest.importorskip("onnx")
    X, y = make_binary()
    path = tmp_path / "model"
    with pytest.raises(ValueError, match=r"missing='rescale'.*set_params\(missing='error'\)"):
        export(DropoutSVC(missing="rescale").fit(X, y), path)
    with pytest.raises(ValueError, match=r"export pipeline\[-1\]"):
        export(make_pipeline(StandardScaler(), DropoutSVC()).fit(X, y), path)
    with pytest.raises(ValueError, match="got LinearSVC"):
        export(LinearSVC().fit(X, y), path)
    with pytest.raises(ValueError, match="not fitted"):
        export(DropoutSVC(), path)
    assert list(tmp_path.iterdir()) == []
    export(GridSearchCV(DropoutSVC(), {"C": [0.1, 1.0]}, cv=2).fit(X, y), path)
    export(DropoutSVC(missing="rescale").fit(X, y).set_params(missing="error"), path)
