"""Damaged, invalid and malicious model files are refused, within little memory, and run nothing."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import ModelFormatError, describe
from dropmargin.io.model.container import FORMAT
from fuzz.models import MUTATIONS, base_files, check_mutation, entries_of, pack, unpack, with_entries


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
