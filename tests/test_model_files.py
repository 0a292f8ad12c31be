"""Model files: models come back to the last bit, also from earlier versions, and others are refused before writing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dropmargin
from datasets import N_FEATURES, estimators, make_binary, make_multiclass, noises
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutRidge,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    NoisyLinearClassifier,
    load,
    save,
)
from dropmargin.io.model import describe
from dropmargin.losses import Hinge
from dropmargin.noise import Noise, Variance

_LABELS = {
    "int": np.array([-3, 0, 7]),
    "int8": np.array([1, 2, 3], dtype=np.int8),
    "uint64": np.array([0, 5, 2**64 - 1], dtype=np.uint64),
    "float": np.array([-1.0, 0.0, 2.0]),
    "str": np.array(["grün", "rot", "日本"]),
    "object": np.array(["a\x00", "", "\U0001f600"], dtype=object),
}


GOLDEN = Path(__file__).parent / "golden"


def round_trip(model, tmp_path):
    """Return a model after saving and loading it."""
    path = tmp_path / "model.safetensors"
    save(model, path)
    return load(path)


def _assert_same(loaded, model, X):
    """Check that two models are of one class, and have the same attributes and predictions to the last bit."""
    assert type(loaded) is type(model)
    assert vars(loaded).keys() == vars(model).keys()
    for name, value in vars(model).items():
        _assert_equal(getattr(loaded, name), value, name)
    for method in ("decision_function", "predict", "predict_proba"):
        if hasattr(model, method):
            _assert_equal(getattr(loaded, method)(X), getattr(model, method)(X), method)
    clone(loaded)


def _assert_equal(got, wanted, name):
    if isinstance(wanted, np.ndarray):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
        same = got.tolist() == wanted.tolist() if wanted.dtype == object else got.tobytes() == wanted.tobytes()
        assert same, name
    elif name == "history_":
        assert got == []
    elif isinstance(wanted, Noise):
        assert type(got) is type(wanted)
        for key, value in wanted.get_params().items():
            _assert_equal(got.get_params()[key], value, key)
    elif name == "loss" and not isinstance(wanted, str):
        assert type(got) is type(wanted)
        assert getattr(got, "margin", None) == getattr(wanted, "margin", None)
    else:
        assert got == wanted or (got != got and wanted != wanted), name
        assert isinstance(got, type(wanted)) or isinstance(wanted, np.generic), name


@pytest.mark.parametrize("name", estimators())
def test_losses(name, tmp_path):
    X, y = make_multiclass()
    model = estimators(noise=0.2)[name].fit(X, y)
    _assert_same(round_trip(model, tmp_path), model, X)


_NOISES = noises() | {
    "to a reference": DropoutNoise([0.1, 0.2, 0.3], reference=np.arange(8.0), groups=[0, 1, 0, 2, 1, 0, 2, 2]),
    "groups by name": DropoutNoise({"left": 0.2}, groups={"left": "a*", "right": [1, 2], "back": "h"}),
}


@pytest.mark.parametrize("name", _NOISES)
def test_noises(name, tmp_path):
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=["a1", "b", "c", "a2", "e", "f", "g", "h"])
    model = DropoutSVC(noise=_NOISES[name]).fit(frame, y)
    loaded = round_trip(model, tmp_path)
    _assert_same(loaded, model, frame)
    np.testing.assert_array_equal(loaded.predict_stability(frame), model.predict_stability(frame))


@pytest.mark.parametrize(("labels", "multi_class"), deal(_LABELS, ["ovr", "ovo"]))
def test_labels(labels, multi_class, tmp_path):
    X, y = make_multiclass()
    model = DropoutSVC(multi_class=multi_class).fit(X, _LABELS[labels][y])
    _assert_same(round_trip(model, tmp_path), model, X)


def test_missing_features_and_feature_names(tmp_path):
    X, y = make_binary()
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.2] = np.nan
    frame = pd.DataFrame(X, columns=[f"Größe №{d} \U0001f600\x00" for d in range(N_FEATURES)])
    model = DropoutSVC(missing="rescale", noise=0.2).fit(frame, y)
    loaded = round_trip(model, tmp_path)
    _assert_same(loaded, model, frame)
    some = frame.iloc[:, ::2]
    assert loaded.decision_function(some).tobytes() == model.decision_function(some).tobytes()


def test_the_same_model_gives_the_same_bytes(tmp_path):
    X, y = make_binary()
    one, other = tmp_path / "one", tmp_path / "other"
    save(DropoutSVC().fit(X, y), one)
    save(load(one), other)
    assert one.read_bytes() == other.read_bytes()


def test_a_search_is_saved_as_its_refitted_model(tmp_path):
    X, y = make_binary()
    search = GridSearchCV(DropoutSVC(), {"C": [0.1, 1.0]}, cv=2).fit(X, y)
    _assert_same(round_trip(search, tmp_path), search.best_estimator_, X)


# describe -----------------------------------------------------------------------------------------------------------


def test_describe(tmp_path):
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=[f"x{d}" for d in range(N_FEATURES)])
    path = tmp_path / "model.safetensors"
    summary = {"rows": np.int64(60), "accuracy": np.float32(0.5), "gap": math.inf, "notes": ("a", None, True)}
    save(DropoutSVC(noise=GaussianNoise(0.5)).fit(frame, y), path, summary=summary, data_hash="sha256:00ff")
    found = describe(path)
    json.dumps(found)
    assert found["summary"] == {"rows": 60, "accuracy": 0.5, "gap": math.inf, "notes": ["a", None, True]}
    assert found["data_hash"] == "sha256:00ff"
    assert (found["format"], found["container"], found["bytes"]) == (2, "safetensors", path.stat().st_size)
    assert (found["model"], found["classes"], found["n_features"]) == ("DropoutSVC", [0, 1], N_FEATURES)
    assert found["feature_names"] == list(frame.columns)
    assert found["parameters"]["noise"] == {"class": "GaussianNoise", "parameters": {"scale": 0.5}, "fitted": {}}
    assert found["written_by"]["dropmargin"] == dropmargin.__version__
    assert found["fitted"]["converged_"] is True


# Models that cannot be saved ------------------------------------------------------------------------------------------


class _OwnNoise(Noise):
    def variance(self):
        return Variance(constant=1.0)


class _OwnLoss(Hinge):
    pass


class _OwnClassifier(DropoutSVC):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DropoutSVC(noise=_OwnNoise()), r"noise=_OwnNoise\(\) cannot be stored.*set_params"),
        (NoisyLinearClassifier(_OwnLoss()), "cannot be stored.*set_params"),
        (_OwnClassifier(), "got _OwnClassifier"),
        (StandardScaler(), "got StandardScaler"),
        (make_pipeline(StandardScaler(), DropoutSVC()), r"got Pipeline.*skops"),
    ],
)
def test_models_that_a_file_cannot_hold_are_refused_before_writing(model, message, tmp_path):
    model.fit(*make_binary())
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("coef_", np.full((1, N_FEATURES), np.nan), "coef_ has NaN or infinity"),
        ("coef_", np.zeros((1, N_FEATURES), dtype=np.float16), "float16"),
        ("intercept_", np.zeros(2), r"intercept_ must have shape \(1,\)"),
        ("classes_", np.array([object(), object()]), "classes_"),
        ("missing", "rescale", "feature_deviations_"),
        ("multi_class", "both", "multi_class"),
        ("solver", "\ud800", "not valid Unicode"),
        ("solver", {1}, "plain data"),
    ],
)
def test_inconsistent_models_are_refused_before_writing(attribute, value, message, tmp_path):
    model = DropoutSVC().fit(*make_binary())
    setattr(model, attribute, value)
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Earlier versions and skops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["svc", "logistic"])
def test_files_of_earlier_versions_load_and_predict_the_same(name):
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    model = load(GOLDEN / f"{name}.safetensors")
    assert [value.hex() for value in model.coef_.ravel().tolist()] == expected["coef"]
    rows = np.array(expected["rows"], dtype=float)  # null is NaN
    rows = pd.DataFrame(rows, columns=expected["names"]) if expected["names"] else rows
    assert model.predict(rows).tolist() == expected["labels"]
    np.testing.assert_allclose(model.decision_function(rows), np.array(expected["decision"]), rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        DropoutSVC(noise=DropoutNoise(0.3)),
        DropoutRidge(missing="conditional"),
        DropoutLogisticRegression(noise=DropoutNoise(0.1, groups=[0, 0, 0, 0, 1, 1, 1, 1]), missing="rescale"),
        DropoutSVCCV(noises=[0.1, 0.3], Cs=[0.1], cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::dropmargin.errors.ParameterWarning")
def test_skops_holds_pipelines_of_our_models(model):
    skops = pytest.importorskip("skops.io", reason="skops, for pipelines with steps of scikit-learn, is not installed")
    X, y = make_binary()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    content = skops.dumps(pipeline)
    unknown = skops.get_untrusted_types(data=content)
    assert all(name.startswith("dropmargin.") for name in unknown)
    again = skops.loads(content, trusted=unknown)
    assert again.predict(X).tolist() == pipeline.predict(X).tolist()
    assert again[-1].get_params()["missing"] == model.missing
