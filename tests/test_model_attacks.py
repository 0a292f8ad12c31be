"""Damaged, invalid and malicious model files give a `ModelFormatError`; nothing is run, written or allocated."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import save as save_tensors
from scipy import sparse

import dropmargin
import reproduction
from dealing import together
from dropmargin import DropoutRidge, DropoutSVC, load, save
from dropmargin.io.model import ModelFormatError
from dropmargin.io.model.container import FORMAT, MAX_JSON
from fuzz.models import MUTATIONS, base_files, check_mutation, entries_of, pack, unpack, with_entries
from model_bytes import assert_refused


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The file of a small model with the classes False and True."""
    X = np.abs(np.random.RandomState(0).randn(20, 2))
    model = DropoutSVC().fit(X, X[:, 0] > X[:, 1])
    model.history_ = model.history_[:1]
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
    for index in range(len(data)):
        data[index] ^= 1 << index % 8
        path.write_bytes(data)
        with pytest.raises(ModelFormatError):
            load(path)
        data[index] ^= 1 << index % 8


def test_every_truncation_is_noticed(small, tmp_path):
    path = tmp_path / "truncated"
    for length in (*range(0, len(small), 7), len(small) - 1):
        path.write_bytes(small[:length])
        with pytest.raises(ModelFormatError):
            load(path)


def test_bytes_before_and_after_are_noticed(small, tmp_path):
    for data in (small + b"\n", b"\n" + small, small * 2, b"\xef\xbb\xbf" + small):
        assert_refused(tmp_path / "model", data)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.binary(), rest=st.binary(), shown=st.integers(0, 2**64 - 1) | st.none())
def test_random_bytes_are_refused(header, rest, shown, tmp_path):
    length = len(header) + 1 if shown is None else shown
    assert_refused(tmp_path / "random", length.to_bytes(8, "little") + b"{" + header + rest)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(MUTATIONS)), index=st.integers(0, 6), seed=st.integers(0, 2**32))
def test_mutated_files_are_refused_or_predict(kind, index, seed, files):
    bases, path = files
    assert check_mutation(kind, bases[index], random.Random(seed), path) in ("error", "model")


def test_other_files_are_refused(tmp_path):
    for data in (b"", b"{}", b"hello", b"\x80\x04\x95", b"\x93NUMPY\x01\x00", b"[1]", b"null"):
        assert "it is not a model file of dropmargin" in assert_refused(tmp_path / "other", data)
    tensors = save_tensors({"weight": np.zeros(3)}, {"format": "pt"})
    assert_refused(tmp_path / "other", tensors, "it is a safetensors file, but not a model file of dropmargin")


def test_files_of_dropmargin_0_1_are_refused_with_the_remedy(tmp_path):
    text = b'{\n "format": "dropmargin model",\n "version": 1,\n "written_by": {}}'
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("model.json", text)
    for data in (text, archive.getvalue()):
        assert_refused(tmp_path / "old", data, r"dropmargin 0\.1, which later.*train and save the model again")


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


_NO_GROUPS = {"reference": "zero", "groups": None}
_WRONG_ENTRIES = {
    "unknown entry": (lambda e: e.update(extra=1), "has the unknown entry 'extra'"),
    "attribute of an object": (lambda e: e["model"].update(__reduce__=["os.system", ["ls"]]), "entry '__reduce__'"),
    "private attribute": (lambda e: e["model"]["fitted"].update(__class__=1), "unknown entry '__class__'"),
    "unknown class": (lambda e: e["model"].update({"class": "SVC"}), "class must be one of"),
    "unknown parameter": (_parameter(penalty="l2"), "DropoutSVC has no parameter 'penalty'; its parameters are .*C"),
    "no parameter": (lambda e: e["model"]["parameters"].pop("C"), "parameters lacks 'C'"),
    "type of a parameter": (_parameter(C="1"), "parameter 'C' must be of type int or float, got '1'"),
    "class of a noise": (_parameter(noise={"class": "os.system", "parameters": {}}), "noise must be one of"),
    "rate of a noise": (_parameter(noise=1.0), "rate"),
    "array of a noise": (
        _parameter(noise={"class": "DropoutNoise", "parameters": {"rate": {"array": "list"}, **_NO_GROUPS}}),
        r"lacks the array 'noise\.rate'",
    ),
    "pairs of class_weight": (_parameter(class_weight={"mapping": [[1, 2, 3]]}), "pairs"),
    "approximation": (_parameter(approximation="magic"), "approximation"),
    "multi_class": (_parameter(multi_class="all"), "multi_class"),
    "no feature means": (_parameter(missing="rescale"), "feature_means_"),
    "versions": (lambda e: e["written_by"].update(numpy=2), "version of numpy"),
    "steps without preprocessing": (lambda e: e.update(steps=["a", "b"]), "steps of a pipeline"),
    "strings": (lambda e: e.update(strings={"coef_": "str"}), "lacks its text"),
    "type of strings": (lambda e: e.update(strings={"coef_": "float"}), "must be one of"),
}


@together("name", _WRONG_ENTRIES)
def test_wrong_entries_are_refused(name, small, tmp_path):
    change, message = _WRONG_ENTRIES[name]
    entries = entries_of(small)
    change(entries)
    assert_refused(tmp_path / "wrong", with_entries(small, entries), message)


@together(
    ("new", "message"),
    [
        ('"C": 1.0, "C": 2.0', "same key twice"),
        ('"C": 01', "not valid JSON"),
        ('"C": "\x00"', "not valid JSON"),
        ('"C": "\\ud800"', "surrogate"),
        ('"C": "x\\udc00\\ud800"', "surrogate"),
        ('"\\uDFFF": 1.0', "surrogate"),
        *((f'"C": {"9" * digits}', f"integer of {digits} digits") for digits in (21, 5000, 10**6)),
        *(('"C": ' + opening * depth, "not valid JSON") for opening in ("[", '{"a":') for depth in (100, 200_000)),
        (" " * MAX_JSON + '"C": 1.0', "more than the 8388608 allowed"),
    ],
)
def test_wrong_json_is_refused(new, message, small, tmp_path):
    text, tensors = unpack(small)
    assert '"C": 1.0' in text
    assert_refused(tmp_path / "wrong", pack(text.replace('"C": 1.0', new), tensors), message)


_WRONG_TENSORS = {
    "no classes": ("classes_", None, "lacks the array 'classes_'"),
    "NaN in coef_": ("coef_", np.array([[np.nan, 0.0]]), "coef_ has NaN or infinity"),
    "infinity in intercept_": ("intercept_", np.array([-np.inf]), "intercept_ has NaN or infinity"),
    "half precision": ("coef_", np.zeros((1, 2), dtype=np.float16), "coef_ must be of type float32 or float64"),
    "integers": ("coef_", np.zeros((1, 2), dtype=np.int64), "coef_ must be of type float32 or float64"),
    "vector": ("coef_", np.zeros(2), r"coef_ must be of type .* got float64 and \(2,\)"),
    "no features": ("coef_", np.zeros((1, 0)), "coef_ has no features"),
    "too many rows": ("coef_", np.zeros((2, 2)), "coef_ has 2 rows, which do not fit 2 classes"),
    "one class": ("classes_", np.array([True]), "at least two labels"),
    "three classes": ("classes_", np.array([0, 1, 2]), "do not fit 3 classes"),
    "order of classes": ("classes_", np.array([True, False]), "ascending order"),
    "equal classes": ("classes_", np.array([1, 1]), "ascending order"),
    "bytes of booleans": ("classes_", np.array([0, 2], dtype=np.uint8).view(bool), "neither true nor false"),
    "two intercepts": ("intercept_", np.zeros(2), r"intercept_ must be of type float64 and shape \(1,\)"),
    "history": ("history_", np.zeros((1, 3)), r"history_ must be of type float64 and shape \(None, 5\)"),
    "fractions in history": ("history_", np.full((1, 5), 0.5), "history_ must count"),
    "complex numbers": ("other", np.zeros(2, dtype=np.complex64), "has the type C64"),
    "unused array": ("other", np.zeros(2), "the array 'other', which its model does not use"),
    "unused name": ("../coef_", np.zeros(2), r"the array '\.\./coef_', which its model does not use"),
}


@together("name", _WRONG_TENSORS)
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


@pytest.mark.parametrize("deviation", [1e200, -1.0, np.inf, np.nan])
def test_a_wrong_deviation_of_the_residuals_is_refused(deviation, tmp_path):
    X = np.random.RandomState(0).randn(20, 2)
    path = tmp_path / "model.safetensors"
    save(DropoutRidge().fit(X, X[:, 0]), path)
    text, tensors = unpack(path.read_bytes())
    assert load(path).predict_interval(X).shape == (20, 2)
    assert_refused(path, pack(text, tensors | {"residual_deviation_": np.array([deviation])}), "residual_deviation_")


@together(
    ("text", "message"),
    [
        (b"a\xff\xc3\xa4\xff", None),
        (b"a\xff\xc3\xa4", "lacks its text"),
        (b"", "at least two labels"),
        (b"a\xff", "at least two labels"),
        (b"a\xff\xc3\xff\xa4\xff", "not UTF-8"),
        (b"a\xff\xfe\xff", "not UTF-8"),
        (b"b\xffa\xff", "ascending order"),
        (b"\xff\xffa\xff", "ascending order"),
    ],
)
def test_bytes_of_strings(text, message, small, tmp_path):
    entries, tensors = entries_of(small) | {"strings": {"classes_": "str"}}, unpack(small)[1]
    tensors["classes_"] = np.frombuffer(text, dtype=np.uint8)
    data = pack(json.dumps(entries), tensors)
    if message is None:
        (tmp_path / "model").write_bytes(data)
        assert load(tmp_path / "model").classes_.tolist() == ["a", "ä"]
    else:
        assert_refused(tmp_path / "model", data, message)


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


@pytest.mark.parametrize("start", [b"{", b"other", struct.pack("<Q", 2**30) + b"{", struct.pack("<Q", 2) + b"{}"])
def test_a_very_long_file_is_not_read(start, tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(2**40)  # a sparse file
    with pytest.raises(ModelFormatError):
        load(path)


def test_many_empty_arrays_in_json(small, tmp_path):
    data = with_entries(small, entries_of(small) | {"summary": [[]] * 200_000})
    assert _peak_of_refusal(tmp_path / "many", data, "summary must be of type dict") < 30 * len(data)


def test_one_long_label_among_many_does_not_make_all_wide(small, tmp_path):
    n = 50_000
    labels = [*(f"{index:05d}" for index in range(n - 1)), "x" * 100_000]
    entries, tensors = entries_of(small) | {"strings": {"classes_": "str"}}, unpack(small)[1]
    tensors["classes_"] = np.frombuffer(b"".join(label.encode() + b"\xff" for label in labels), dtype=np.uint8)
    data = pack(json.dumps(entries), tensors)
    assert _peak_of_refusal(tmp_path / "labels", data, "too long for type str") < 10 * len(data) + 2**20


def test_a_wide_model_takes_about_twice_its_file(tmp_path):
    X = sparse.random(10, 400_000, density=1e-3, format="csr", random_state=0)
    model = DropoutSVC().fit(X, np.arange(10) % 2)
    path = tmp_path / "wide"
    save(model, path)
    size = path.stat().st_size
    assert size > 3_000_000
    tracemalloc.start()
    try:
        load(path)
        assert tracemalloc.get_traced_memory()[1] < 2.1 * size + 2**18
    finally:
        tracemalloc.stop()


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


def test_no_line_of_the_package_could_run_code_from_a_file():
    forbidden = re.compile(
        r"import c?pickle|pickle\.|allow_pickle=True|joblib\.(load|dump)|joblib import .*(load|dump)|"
        r"marshal|shelve|\b(eval|exec|__import__|literal_eval)\(|\.extract(all)?\(|os\.system|subprocess|yaml"
    )
    package, experiments = Path(dropmargin.__file__).parent, Path(reproduction.__file__).parent
    # CIFAR-10's pickles, read by an unpickler that knows four harmless names (tests/test_datasets_cifar10.py attacks
    # it), and the messages of a Dask cluster, which are not files.
    known = {experiments / "datasets" / "pickles.py", package / "dask" / "tasks.py"}
    sources = {*package.rglob("*.py"), *experiments.rglob("*.py")}
    assert len(sources) > 50
    for path in sources - known:
        assert forbidden.search(path.read_text(encoding="utf-8")) is None, path


# The command line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["info m", "predict d.csv m", "export m m.onnx"])
def test_a_bad_file_on_the_command_line_is_one_sentence(command, small, run, tmp_path):
    text, tensors = unpack(small)
    (tmp_path / "m").write_bytes(pack(text.replace('"C": 1.0', '"C": "\\ud800"'), tensors))
    (tmp_path / "d.csv").write_text("a,b\n1.0,2.0\n")
    error = run(*command.split(), code=1).error
    assert error.startswith("m: ")
    assert "surrogate" in error
