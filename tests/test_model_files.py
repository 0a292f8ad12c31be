"""Model files: models come back to the last bit; damaged, invalid and malicious ones are refused, and run nothing."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
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
from dropmargin.io.model import ModelFormatError, describe
from dropmargin.io.model.container import FORMAT
from dropmargin.losses import Hinge
from dropmargin.noise import Noise, Variance
from fuzz.models import MUTATIONS, base_files, check_mutation, entries_of, pack, unpack, with_entries

_LABELS = {
    "int": np.array([-3, 0, 7]),
    "int8": np.array([1, 2, 3], dtype=np.int8),
    "uint64": np.array([0, 5, 2**64 - 1], dtype=np.uint64),
    "float": np.array([-1.0, 0.0, 2.0]),
    "str": np.array(["grün", "rot", "日本"]),
    "object": np.array(["a\x00", "", "\U0001f600"], dtype=object),
}


GOLDEN = Path(__file__).parent / "golden"


def assert_refused(path, data, match=None):
    """Check that `load` and `describe` refuse a file, and name it; return the message."""
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")
    with pytest.raises(ModelFormatError):
        describe(path)
    return str(caught.value)


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


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The file of a small model with the classes False and True."""
    X = np.abs(np.random.RandomState(0).randn(20, 2))
    model = DropoutSVC().fit(X, X[:, 0] > X[:, 1])
    path = tmp_path_factory.mktemp("small") / "model.safetensors"
    save(model, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of several models, and a path for mutated ones."""
    folder = tmp_path_factory.mktemp("files")
    return base_files(folder), folder / "mutated"


def _peak_of_refusal(path, data, match=None):
    """Return the peak memory in bytes while a file is refused."""
    path.write_bytes(data)
    del data
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError, match=match):
            load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Damage -------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_noticed(small, tmp_path):
    path = tmp_path / "flipped"
    data = bytearray(small)
    for index in range(0, len(data), 7):
        data[index] ^= 1 << index % 8
        path.write_bytes(data)
        with pytest.raises(ModelFormatError):
            load(path)
        data[index] ^= 1 << index % 8


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(sorted(MUTATIONS)), index=st.integers(0, 6), seed=st.integers(0, 2**32))
def test_mutated_files_are_refused_or_predict(kind, index, seed, files):
    bases, path = files
    assert check_mutation(kind, bases[index], random.Random(seed), path) in ("error", "model")


def test_newer_formats_are_refused_with_the_remedy(small, tmp_path):
    entries = entries_of(small) | {"format": FORMAT + 1}
    message = f"has format {FORMAT + 1}.*install a newer dropmargin"
    assert_refused(tmp_path / "new", with_entries(small, entries), message)
    for wrong in (0, 1, "2", 2.0, None, True):
        assert_refused(tmp_path / "new", with_entries(small, entries | {"format": wrong}), "its format must be")


def test_paths_that_are_not_files_are_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFormatError, match="not a regular file"):
            load(path)


# Invalid content with the right digest --------------------------------------------------------------------------------


def _parameter(**changed):
    return lambda entries: entries["model"]["parameters"].update(changed)


def _noise(kind, **parameters):
    return _parameter(noise={"class": kind, "parameters": parameters, "fitted": {}})


_WRONG_ENTRIES = {
    "unknown entry": (lambda e: e.update(extra=1), "has the unknown entry 'extra'"),
    "attribute of an object": (lambda e: e["model"].update(__reduce__=["os.system", ["ls"]]), "entry '__reduce__'"),
    "private attribute": (lambda e: e["model"]["fitted"].update(__class__=1), "unknown entry '__class__'"),
    "method": (lambda e: e["model"]["fitted"].update(predict=1), "unknown entry 'predict'"),
    "unknown class": (lambda e: e["model"].update({"class": "SVC"}), "class of the model must be one of"),
    "not a model": (lambda e: e.update(model={"class": "Hinge", "parameters": {"margin": 1.0}, "fitted": {}}), "Hinge"),
    "class of a noise": (_noise("os.system"), "class of noise must be one of"),
    "array of a noise": (
        _noise("DropoutNoise", rate={"array": "list"}, reference="zero", groups=None),
        r"lacks the array 'noise\.rate'",
    ),
    "pairs of class_weight": (_parameter(class_weight={"mapping": [[1, 2, 3]]}), "pairs"),
    "multi_class": (_parameter(multi_class="all"), "multi_class must be one of"),
    "no feature means": (_parameter(missing="rescale"), "feature_"),
    "rule of missing values": (_parameter(missing="all"), "it does not predict"),
    "versions": (lambda e: e["written_by"].update(numpy=2), "version of numpy"),
    "strings": (lambda e: e.update(strings={"coef_": "str"}), "lacks its text"),
}


@pytest.mark.parametrize("name", _WRONG_ENTRIES)
def test_wrong_entries_are_refused(name, small, tmp_path):
    change, message = _WRONG_ENTRIES[name]
    entries = entries_of(small)
    change(entries)
    assert_refused(tmp_path / "wrong", with_entries(small, entries), message)


_WRONG_TENSORS = {
    "no classes": ("classes_", None, "lacks 'classes_'"),
    "NaN in coef_": ("coef_", np.array([[np.nan, 0.0]]), "coef_ has NaN or infinity"),
    "infinity in intercept_": ("intercept_", np.array([-np.inf]), "intercept_ has NaN or infinity"),
    "half precision": ("coef_", np.zeros((1, 2), dtype=np.float16), "coef_ must have .* type float32 or float64"),
    "integers": ("coef_", np.zeros((1, 2), dtype=np.int64), "coef_ must have .* type float32 or float64"),
    "no features": ("coef_", np.zeros((1, 0)), r"must have shape \(0,\)"),
    "one class": ("classes_", np.array([True]), "two labels or more"),
    "order of classes": ("classes_", np.array([True, False]), "ascending order"),
    "equal classes": ("classes_", np.array([1, 1]), "ascending order"),
    "bytes of booleans": ("classes_", np.array([0, 2], dtype=np.uint8).view(bool), "neither true nor false"),
    "complex numbers": ("other", np.zeros(2, dtype=np.complex64), "has the type C64"),
    "unused array": ("other", np.zeros(2), "the array 'other', which its model does not use"),
    "unused name": ("../coef_", np.zeros(2), r"the array '\.\./coef_', which its model does not use"),
}


@pytest.mark.parametrize("name", _WRONG_TENSORS)
def test_wrong_tensors_are_refused(name, small, tmp_path):
    array, value, message = _WRONG_TENSORS[name]
    text, tensors = unpack(small)
    tensors = {key: kept for key, kept in (tensors | {array: value}).items() if kept is not None}
    try:
        data = pack(text, tensors)
    except SafetensorError:
        assert name == "complex numbers"  # earlier versions of safetensors have no such type
        return
    assert_refused(tmp_path / "wrong", data, message)


# Sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[1, 10**12], [2**31, 2**31], [2**62, 2**62], [-1, 2], [1.0, 2.0], [1] * 1000])
def test_a_declared_shape_that_does_not_fit_is_refused(shape, small, tmp_path):
    size = int.from_bytes(small[:8], "little")
    header = json.loads(small[8 : 8 + size])
    header["coef_"]["shape"] = shape
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + small[8 + size :]
    assert _peak_of_refusal(tmp_path / "model", data) < 2**20
    header["coef_"]["data_offsets"] = [0, 2**60]
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + small[8 + size :]
    assert _peak_of_refusal(tmp_path / "model", data) < 2**20


# Code in files ------------------------------------------------------------------------------------------------------


class _Runs:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_not_run(small, tmp_path):
    content = pickle.dumps(_Runs(tmp_path / "ran"))
    array = io.BytesIO()
    np.save(array, np.array([_Runs(tmp_path / "ran")], dtype=object), allow_pickle=True)
    text, tensors = unpack(small)
    for pickled in (content, array.getvalue()):
        assert_refused(tmp_path / "model", pickled)
        stored = {"coef_": np.frombuffer(pickled, dtype=np.uint8)}
        assert_refused(tmp_path / "model", pack(text, tensors | stored))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
