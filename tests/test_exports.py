"""Exported models predict the same in LIBLINEAR and in scikit-learn. The export to ONNX is in test_onnx.py."""

from __future__ import annotations

import os
import warnings

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
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier
from dropmargin.io.model import export_liblinear, to_sklearn

_MODELS = {
    "svc": DropoutSVC(noise=0.3),
    "logistic": DropoutLogisticRegression(noise=0.3),
    "no intercept": DropoutSVC(fit_intercept=False),
    "logistic without intercept": DropoutLogisticRegression(fit_intercept=False),
    "mcf": MCFClassifier("exponential"),
    "mcf-logistic": MCFClassifier("logistic"),
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
        own = own[:, ::-1]  # the first label of LIBLINEAR is that of positive scores
    np.testing.assert_allclose(np.array(values)[:, : own.shape[1]], own, rtol=1e-12, atol=1e-13)


def test_liblinear_with_single_precision(tmp_path):
    pytest.importorskip("liblinear")
    X, y = make_binary(n_samples=120)
    model = DropoutSVC().fit(X.astype(np.float32), y)
    export_liblinear(model, tmp_path / "model")
    assert _liblinear_predict(tmp_path / "model", X, "-q")[0] == model.predict(X).tolist()


def test_liblinear_file(tmp_path):
    model = DropoutSVC().fit(*make_binary())
    export_liblinear(model, tmp_path / "model")
    lines = (tmp_path / "model").read_text().splitlines()
    head = ["solver_type L2R_L1LOSS_SVC_DUAL", "nr_class 2", "label 1 0", f"nr_feature {N_FEATURES}", "bias 1", "w"]
    assert lines[:6] == head
    assert [float(line) for line in lines[6:]] == [*model.coef_[0].tolist(), *model.intercept_.tolist()]


@pytest.mark.parametrize("labels", [["a", "b"], [False, True], [0.0, 2.0**31], [-(2**31) - 1, 0]])
def test_liblinear_needs_integer_labels(labels, tmp_path):
    X, y = make_binary()
    model = DropoutSVC().fit(X, np.array(labels)[y])
    with pytest.raises(ValueError, match=r"integers of 32 bits.*LabelEncoder"):
        export_liblinear(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_liblinear_has_no_one_vs_one(tmp_path):
    model = DropoutSVC(multi_class="ovo").fit(*make_multiclass())
    with pytest.raises(ValueError, match=r"'ovo'.*multi_class='ovr'"):
        export_liblinear(model, tmp_path / "model")


# scikit-learn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n_classes", "layout"), deal(_MODELS, [2, 3], ["dense", "sparse"]))
def test_scikit_learn_gives_the_same(name, n_classes, layout):
    model = _MODELS[name]
    X, codes = _data(n_classes)
    frame = pd.DataFrame(X, columns=[f"x{d}" for d in range(N_FEATURES)])
    model.fit(frame, np.array(["grün", "rot", "日本"])[codes])
    plain = to_sklearn(model)
    logistic = OneVsRestClassifier if n_classes > 2 else LogisticRegression
    assert type(plain) is (logistic if hasattr(model, "predict_proba") else LinearSVC)
    rows = sparse.csr_array(X) if layout == "sparse" else frame
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
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


# Models that cannot be exported --------------------------------------------------------------------------------------


@pytest.mark.parametrize("export", [export_liblinear, lambda model, path: to_sklearn(model)])
def test_models_that_cannot_be_exported_are_refused_with_the_remedy(export, tmp_path):
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
