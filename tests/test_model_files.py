"""Models come back from files as they were: predictions to the last bit, parameters, attributes."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dropmargin
from datasets import N_FEATURES, estimators, make_binary, make_multiclass, noises
from dealing import deal, round_robin, together
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    FDropSVC,
    GaussianNoise,
    NoisyLinearClassifier,
)
from dropmargin.io.model import describe, load, save
from dropmargin.io.model.estimators import CLASSES
from dropmargin.losses import Exponential, GaussianHinge, GaussianLogistic, Hinge, Logistic, MCFLogistic, Quadratic
from dropmargin.noise import Noise, Variance
from fuzz.models import pack, unpack
from model_bytes import endings, round_trip

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


@pytest.mark.parametrize(("name", "ending"), round_robin(estimators(), ["json", "zip"]))
def test_every_loss_comes_back(name, ending, tmp_path):
    X, y = make_multiclass()
    model = estimators(noise=0.2)[name].fit(X, y)
    _assert_same(round_trip(model, tmp_path, ending), model, X)


@pytest.mark.parametrize(("name", "ending"), deal(noises(), ["json", "zip"]))
def test_every_noise_comes_back(name, ending, tmp_path):
    X, y = make_binary()
    model = DropoutSVC(noise=noises()[name]).fit(X, y)
    loaded = round_trip(model, tmp_path, ending)
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
def test_parameters_of_a_noise_keep_their_kind(rates, tmp_path):
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


@pytest.mark.parametrize(("loss", "ending"), round_robin(_LOSSES, ["json", "zip"]))
def test_loss_objects_come_back(loss, ending, tmp_path):
    X, y = make_binary()
    model = NoisyLinearClassifier(loss, noise=0.2).fit(X, y)
    _assert_same(round_trip(model, tmp_path, ending), model, X)


@pytest.mark.parametrize(("labels", "ending", "multi_class"), deal(_LABELS, ["json", "zip"], ["ovr", "ovo"]))
def test_labels_come_back(labels, ending, multi_class, tmp_path):
    X, y = make_multiclass()
    model = DropoutSVC(multi_class=multi_class).fit(X, _LABELS[labels][y])
    _assert_same(round_trip(model, tmp_path, ending), model, X)


@endings
def test_boolean_labels_and_single_precision(ending, tmp_path):
    X, y = make_binary()
    X = X.astype(np.float32)
    model = DropoutLogisticRegression().fit(X, y.astype(bool))
    loaded = round_trip(model, tmp_path, ending)
    assert loaded.coef_.dtype == np.float32
    _assert_same(loaded, model, X)
    _assert_same(loaded, model, sparse.csr_array(X))


@endings
def test_four_classes_one_vs_one(ending, tmp_path):
    X, y = make_multiclass(n_classes=4)
    model = DropoutSVC(multi_class="ovo").fit(X, y)
    _assert_same(round_trip(model, tmp_path, ending), model, X)


@endings
def test_missing_features_and_feature_names(ending, tmp_path):
    X, y = make_binary()
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.2] = np.nan
    frame = pd.DataFrame(X, columns=[f"Größe №{d} \U0001f600\x00" for d in range(N_FEATURES)])
    model = DropoutSVC(missing="rescale", noise=0.2).fit(frame, y)
    loaded = round_trip(model, tmp_path, ending)
    _assert_same(loaded, model, frame)
    some = frame.iloc[:, ::2]
    assert loaded.decision_function(some).tobytes() == model.decision_function(some).tobytes()


@pytest.mark.parametrize(
    ("class_weight", "ending"),
    round_robin([None, "balanced", {0: 1.0, 1: 2, 2: 0.5}, {np.int64(1): np.float32(0.1)}], ["json", "zip"]),
)
def test_class_weights_come_back(class_weight, ending, tmp_path):
    X, y = make_multiclass()
    model = DropoutSVC(class_weight=class_weight).fit(X, y)
    _assert_same(round_trip(model, tmp_path, ending), model, X)


@pytest.mark.parametrize("weights", [{"a": 1, "ß": 2.0}, {True: 3.0, False: 1.0}, {0.0: 1.0, 1.0: 2.0}])
def test_class_weights_of_other_labels_come_back(weights, tmp_path):
    X, y = make_binary()
    model = DropoutSVC(class_weight=weights).fit(X, np.array(sorted(weights))[y])
    _assert_same(round_trip(model, tmp_path), model, X)


@endings
def test_worst_case_baseline_comes_back(ending, tmp_path):
    X, y = make_multiclass()
    for n_deleted in (1, N_FEATURES):  # the latter without any history
        model = FDropSVC(n_deleted=n_deleted, C=0.1).fit(X, y)
        _assert_same(round_trip(model, tmp_path, ending), model, X)


def test_unusual_parameters_come_back(tmp_path):
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
    loaded = round_trip(model, tmp_path, "zip")
    loaded.coef_ += 0.0  # own, writeable memory
    assert loaded.fit(X, y).coef_.tobytes() == model.fit(X, y).coef_.tobytes()


def test_every_parameter_of_every_classifier_can_be_stored():
    from dropmargin.io.model.parameters import decode_parameters, encode_parameters

    for cls in CLASSES.values():
        given = cls().get_params(deep=False)
        facts, arrays = encode_parameters(given)
        assert decode_parameters(facts, cls, arrays) == given


def test_wide_models_are_archives_whatever_the_name(tmp_path):
    X = sparse.random(20, 150_000, density=1e-3, format="csr", random_state=0)
    model = DropoutSVC().fit(X, np.arange(20) % 2)
    path = tmp_path / "model.json"
    save(model, path)
    assert path.read_bytes().startswith(b"PK")
    assert load(path).decision_function(X).tobytes() == model.decision_function(X).tobytes()
    small = DropoutSVC().fit(*make_binary())
    for name in ("model.zip", "model.dropmargin", "MODEL.ZIP"):
        save(small, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"PK")
    save(small, str(tmp_path / "model"))
    assert (tmp_path / "model").read_bytes().startswith(b"{")


@endings
def test_the_same_model_gives_the_same_bytes(ending, tmp_path):
    X, y = make_binary()
    one, other = tmp_path / f"one.{ending}", tmp_path / f"other.{ending}"
    save(DropoutSVC().fit(X, y), one)
    save(load(one), other)
    assert one.read_bytes() == other.read_bytes()


def test_archive_is_an_ordinary_one(tmp_path):
    model = DropoutSVC().fit(*make_binary())
    path = tmp_path / "model.zip"
    save(model, path)
    data = path.read_bytes()
    members = unpack(data)
    assert pack(members) == data  # Python's own module writes the same bytes
    coef = np.lib.format.read_array(io.BytesIO(members["coef_.npy"]), allow_pickle=False)
    assert coef.tobytes() == model.coef_.tobytes()
    assert json.loads(members["model.json"])["model"]["class"] == "DropoutSVC"


def test_search_is_saved_as_what_it_refitted(tmp_path):
    X, y = make_binary()
    search = GridSearchCV(DropoutSVC(), {"C": [0.1, 1.0]}, cv=2).fit(X, y)
    _assert_same(round_trip(search, tmp_path), search.best_estimator_, X)


# describe -----------------------------------------------------------------------------------------------------------


@endings
def test_describe_tells_what_is_in_the_file(ending, tmp_path):
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=[f"x{d}" for d in range(N_FEATURES)])
    path = tmp_path / f"model.{ending}"
    summary = {"rows": np.int64(60), "accuracy": np.float32(0.5), "gap": math.inf, "notes": ("a", None, True)}
    save(DropoutSVC(noise=GaussianNoise(0.5)).fit(frame, y), path, summary=summary, data_hash="sha256:00ff")
    told = describe(path)
    json.dumps(told)
    assert told["summary"] == {"rows": 60, "accuracy": 0.5, "gap": math.inf, "notes": ["a", None, True]}
    assert told["data_hash"] == "sha256:00ff"
    assert (told["format"], told["container"], told["bytes"]) == (1, ending, path.stat().st_size)
    assert (told["model"], told["classes"], told["n_features"]) == ("DropoutSVC", [0, 1], N_FEATURES)
    assert told["feature_names"] == list(frame.columns)
    assert told["parameters"]["noise"] == {"noise": "GaussianNoise", "parameters": {"scale": 0.5}}
    assert told["written_by"]["dropmargin"] == dropmargin.__version__
    assert told["fitted"]["converged_"] is True


# What cannot be saved -----------------------------------------------------------------------------------------------


class _OwnNoise(Noise):
    def variance(self):
        return Variance(floor=1.0)


class _OwnLoss(Hinge):
    pass


class _OwnClassifier(DropoutSVC):
    pass


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (DropoutSVC(noise=_OwnNoise()), r"noise=_OwnNoise\(\) cannot be stored.*set_params"),
        (NoisyLinearClassifier(_OwnLoss()), "cannot be stored.*set_params"),
        (_OwnClassifier(), "got _OwnClassifier"),
        (StandardScaler(), "got StandardScaler"),
        (make_pipeline(StandardScaler(), DropoutSVC()), r"StandardScaler.*pipeline\[-1\]"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_writing(model, complaint, tmp_path):
    model.fit(*make_binary())
    with pytest.raises(ValueError, match=complaint):
        save(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


@together(
    ("attribute", "value", "complaint"),
    [
        ("coef_", np.full((1, N_FEATURES), np.nan), "coef_ has NaN or infinity"),
        ("coef_", np.zeros((1, N_FEATURES), dtype=np.float16), "float16"),
        ("intercept_", np.zeros(2), "intercept_ must hold 1 numbers"),
        ("classes_", np.array([object(), object()]), "classes_"),
        ("missing", "rescale", "feature_means_"),
        ("C", "a lot", "'C'"),
        ("C", 10**30, "C must be below 2"),
        ("noise", 7, "rate"),
        ("multi_class", "both", "multi_class"),
        ("solver", "\ud800", "no valid Unicode"),
        ("solver", [np.eye(2)], "plain data"),
    ],
)
def test_a_model_that_was_tampered_with_is_refused_before_writing(attribute, value, complaint, tmp_path):
    model = DropoutSVC().fit(*make_binary())
    setattr(model, attribute, value)
    with pytest.raises(ValueError, match=complaint):
        save(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_unfitted_models_and_odd_summaries_are_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(DropoutSVC(), tmp_path / "model.json")
    model = DropoutSVC().fit(*make_binary())
    for summary, complaint in [
        ([1], "summary must be a dict"),
        ({1: 2}, "strings as keys"),
        ({"a": {1}}, "plain data"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            save(model, tmp_path / "model.json", summary=summary)
    with pytest.raises(ValueError, match="data_hash must be a string"):
        save(model, tmp_path / "model.json", data_hash=b"00")
    with pytest.raises(ValueError, match="bytes of JSON, more than"):
        save(model, tmp_path / "model.json", summary={"note": "x" * 2**23})
    assert list(tmp_path.iterdir()) == []
