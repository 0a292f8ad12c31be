"""A loaded model has the parameters, attributes and, to the last bit, the predictions of the saved one."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import dropmargin
from datasets import N_FEATURES, estimators, make_binary, make_multiclass, noises
from dealing import round_robin, together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    NoisyLinearClassifier,
)
from dropmargin.io.data import TableEncoder
from dropmargin.io.model import describe, load, save
from dropmargin.losses import Exponential, GaussianHinge, GaussianLogistic, Hinge, Logistic, MCFLogistic, Quadratic
from dropmargin.noise import Noise, Variance
from model_bytes import round_trip

_LABELS = {
    "int": np.array([-3, 0, 7]),
    "int8": np.array([1, 2, 3], dtype=np.int8),
    "uint64": np.array([0, 5, 2**64 - 1], dtype=np.uint64),
    "float": np.array([-1.0, 0.0, 2.0]),
    "str": np.array(["grün", "rot", "日本"]),
    "object": np.array(["a\x00", "", "\U0001f600"], dtype=object),
}


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
        np.testing.assert_array_equal(np.array(got, dtype=float), np.array(wanted, dtype=float))
        assert [entry._fields for entry in got] == [entry._fields for entry in wanted]
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


@pytest.mark.parametrize("name", noises())
def test_noises(name, tmp_path):
    X, y = make_binary()
    model = DropoutSVC(noise=noises()[name]).fit(X, y)
    loaded = round_trip(model, tmp_path)
    _assert_same(loaded, model, X)
    np.testing.assert_array_equal(loaded.predict_stability(X), model.predict_stability(X))


@pytest.mark.parametrize(
    "rates",
    [
        [0.0, 0.5] * 4,
        [0, 0.25] * 4,
        (0.1,) * 8,
        np.full(8, 0.3, dtype=np.float32),
        np.zeros(8, dtype=int),
        np.float32(0.1),
        np.float64(0.2),
        0,
    ],
    ids=repr,
)
def test_parameters_of_a_noise_keep_their_types(rates, tmp_path):
    X, y = make_binary()
    model = DropoutSVC(noise=DropoutNoise(rates)).fit(X, y)
    _assert_same(round_trip(model, tmp_path), model, X)


_LOSSES = [
    Hinge(2.5),
    Logistic(),
    Quadratic(),
    GaussianHinge(0.5),
    GaussianLogistic(),
    Exponential(),
    MCFLogistic(),
    "hinge",
]


@pytest.mark.parametrize("loss", _LOSSES, ids=lambda loss: loss if isinstance(loss, str) else type(loss).__name__)
def test_loss_objects(loss, tmp_path):
    X, y = make_binary()
    model = NoisyLinearClassifier(loss, noise=0.2).fit(X, y)
    _assert_same(round_trip(model, tmp_path), model, X)


@pytest.mark.parametrize(("labels", "multi_class"), round_robin(_LABELS, ["ovr", "ovo"]))
def test_labels(labels, multi_class, tmp_path):
    X, y = make_multiclass()
    model = DropoutSVC(multi_class=multi_class).fit(X, _LABELS[labels][y])
    _assert_same(round_trip(model, tmp_path), model, X)


def test_boolean_labels_and_single_precision(tmp_path):
    X, y = make_binary()
    X = X.astype(np.float32)
    model = DropoutLogisticRegression().fit(X, y.astype(bool))
    loaded = round_trip(model, tmp_path)
    assert loaded.coef_.dtype == np.float32
    _assert_same(loaded, model, X)
    _assert_same(loaded, model, sparse.csr_array(X))


def test_four_classes_one_vs_one(tmp_path):
    X, y = make_multiclass(n_classes=4)
    model = DropoutSVC(multi_class="ovo").fit(X, y)
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


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 2, 2: 0.5}, {np.int64(1): np.float32(0.1)}])
def test_class_weights(class_weight, tmp_path):
    X, y = make_multiclass()
    model = DropoutSVC(class_weight=class_weight).fit(X, y)
    _assert_same(round_trip(model, tmp_path), model, X)


def test_groups_of_names_and_numbers_are_refused(tmp_path):
    X, y = make_binary()
    model = DropoutSVC(noise=0.5).fit(X, y).set_params(noise=DropoutNoise(0.5, groups={"a": ["x", 1], "b": [2]}))
    with pytest.raises(ValueError, match=r"noise\.groups\.a must hold numbers or strings, not both"):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weights", [{"a": 1, "ß": 2.0}, {True: 3.0, False: 1.0}, {0.0: 1.0, 1.0: 2.0}])
def test_class_weights_of_other_labels(weights, tmp_path):
    X, y = make_binary()
    model = DropoutSVC(class_weight=weights).fit(X, np.array(sorted(weights))[y])
    _assert_same(round_trip(model, tmp_path), model, X)


def test_unusual_parameters(tmp_path):
    X, y = make_binary()
    model = DropoutSVC(
        C=np.float32(0.1),
        tol=1,
        max_iter=np.int64(500),
        l1_ratio=np.float64(0.0),
        fit_intercept=0,
        n_jobs=-1,
        warm_start=True,
    ).fit(X, y)
    _assert_same(round_trip(model, tmp_path), model, X)


def test_loaded_model_can_be_fitted_again(tmp_path):
    X, y = make_binary()
    model = DropoutSVC(noise=DropoutNoise(np.full(N_FEATURES, 0.3)), warm_start=True).fit(X, y)
    loaded = round_trip(model, tmp_path)
    loaded.coef_ += 0.0  # the array is writeable
    assert loaded.fit(X, y).coef_.tobytes() == model.fit(X, y).coef_.tobytes()


def test_the_same_model_gives_the_same_bytes(tmp_path):
    X, y = make_binary()
    one, other = tmp_path / "one", tmp_path / "other"
    save(DropoutSVC().fit(X, y), one)
    save(load(one), other)
    assert one.read_bytes() == other.read_bytes()


def test_other_programs_can_read_the_tensors(tmp_path):
    model = DropoutSVC().fit(*make_binary())
    path = tmp_path / "model"
    save(model, path)
    tensors = load_file(path)
    assert tensors["coef_"].tobytes() == model.coef_.tobytes()
    with safe_open(path, framework="numpy") as file:
        assert json.loads(file.metadata()["dropmargin"])["model"]["class"] == "DropoutSVC"


def test_a_million_feature_names(tmp_path):
    model = DropoutSVC(noise=None).fit(*make_binary())
    names = np.array([f"wörd {index}" for index in range(10**6)], dtype=object)
    model.coef_, model.n_features_in_, model.feature_names_in_ = np.ones((1, len(names))), len(names), names
    model.feature_means_ = np.zeros(len(names))
    assert round_trip(model, tmp_path).feature_names_in_.tolist() == names.tolist()


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
    assert found["parameters"]["noise"] == {"class": "GaussianNoise", "parameters": {"scale": 0.5}}
    assert found["written_by"]["dropmargin"] == dropmargin.__version__
    assert found["fitted"]["converged_"] is True


# Models that cannot be saved ------------------------------------------------------------------------------------------


class _OwnNoise(Noise):
    def variance(self):
        return Variance(floor=1.0)


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
        (make_pipeline(StandardScaler(), DropoutSVC()), r"StandardScaler.*pipeline\[-1\]"),
    ],
)
def test_models_that_a_file_cannot_hold_are_refused_before_writing(model, message, tmp_path):
    model.fit(*make_binary())
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@together(
    ("attribute", "value", "message"),
    [
        ("coef_", np.full((1, N_FEATURES), np.nan), "coef_ has NaN or infinity"),
        ("coef_", np.zeros((1, N_FEATURES), dtype=np.float16), "float16"),
        ("intercept_", np.zeros(2), r"intercept_ must be of type float64 and shape \(1,\)"),
        ("classes_", np.array([object(), object()]), "classes_"),
        ("missing", "rescale", "feature_means_"),
        ("C", "large", "'C'"),
        ("noise", 7, "rate"),
        ("multi_class", "both", "multi_class"),
        ("solver", "\ud800", "not valid Unicode"),
        ("solver", [np.eye(2)], "plain data"),
    ],
)
def test_inconsistent_models_are_refused_before_writing(attribute, value, message, tmp_path):
    model = DropoutSVC().fit(*make_binary())
    setattr(model, attribute, value)
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_unfitted_models_and_wrong_summaries_are_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(DropoutSVC(), tmp_path / "model")
    model = DropoutSVC().fit(*make_binary())
    for summary, message in [
        ([1], "summary must be of type dict"),
        ({1: 2}, "strings as keys"),
        ({"a": {1}}, "plain data"),
    ]:
        with pytest.raises(ValueError, match=message):
            save(model, tmp_path / "model", summary=summary)
    with pytest.raises(ValueError, match="data_hash must be plain data"):
        save(model, tmp_path / "model", data_hash=b"00")
    with pytest.raises(ValueError, match="characters of JSON besides its arrays, more than"):
        save(model, tmp_path / "model", summary={"note": "x" * 2**23})
    assert list(tmp_path.iterdir()) == []


_HALF = "\ud800"  # half of a surrogate pair, which UTF-8 cannot encode


def _with_label(label, **parameters):
    X, y = make_binary()
    return DropoutSVC(**parameters).fit(X, label[y])


def _with_names():
    model = DropoutSVC().fit(*make_binary())
    model.feature_names_in_ = np.array([*"abcdefg", _HALF], dtype=object)
    return model


def _pipeline(column="word", category="x", step="encode"):
    X, y = make_binary()
    table = {"number": X[:, 0], column: np.array(["green", category], dtype=object)[y]}
    return Pipeline([(step, TableEncoder()), ("classify", DropoutSVC())]).fit(table, y)


@together(
    ("make", "options"),
    [
        (lambda: _with_label(np.array(["a", _HALF])), {}),
        (lambda: _with_label(np.array(["a", _HALF], dtype=object)), {}),
        (lambda: _with_label(np.array(["a", _HALF]), class_weight={"a": 1.0, _HALF: 2.0}), {}),
        (_with_names, {}),
        (lambda: _pipeline(column=_HALF), {}),
        (lambda: _pipeline(category=_HALF), {}),
        (lambda: _pipeline(step=_HALF), {}),
        (lambda: _pipeline(), {"summary": {"remark": _HALF}}),
        (lambda: _pipeline(), {"data_hash": _HALF}),
    ],
)
def test_text_that_is_not_unicode_is_refused_and_an_existing_file_is_unchanged(make, options, tmp_path):
    path = tmp_path / "model"
    save(_pipeline(), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"\\ud800.* not valid Unicode") as caught:
        save(make(), path, **options)
    assert type(caught.value) is ValueError
    assert path.read_bytes() == before
