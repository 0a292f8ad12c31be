"""Damaged, absurd and malicious model files give a `ModelFormatError` and nothing else (RELIABILITY 29, 30)."""

from __future__ import annotations

import io
import json
import os
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
from scipy import sparse

import dropmargin
from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import ModelFormatError, container, describe
from dropmargin.io.model.strict_json import MAX_BYTES
from fuzz.models import (
    COMMENT,
    MUTATIONS,
    base_files,
    document_of,
    open_json,
    outcome,
    pack,
    seal_json,
    seal_zip,
    unpack,
    with_document,
)

endings = pytest.mark.parametrize("ending", ["json", "zip"])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a small model's file by its ending."""
    folder = tmp_path_factory.mktemp("small")
    X = np.abs(np.random.RandomState(0).randn(20, 2))
    model = DropoutSVC().fit(X, X[:, 0] > X[:, 1])
    model.history_ = model.history_[:1]
    found = {}
    for ending in ("json", "zip"):
        save(model, folder / f"model.{ending}")
        found[ending] = (folder / f"model.{ending}").read_bytes()
    return found


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """Return the files of several models, and a folder for mutated ones."""
    folder = tmp_path_factory.mktemp("every")
    return base_files(folder), folder


def _refused(path, data, match=None):
    """Check that a file is refused by all that read it, with its name and a sentence; return the sentence."""
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")
    with pytest.raises(ModelFormatError):
        describe(path)
    return str(caught.value)


def _peak_of_refusal(path, data, match=None):
    """Return the bytes that Python and NumPy held at most while a file was refused."""
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


@endings
def test_every_flip_of_a_bit_is_noticed(small, ending):
    data = bytearray(small[ending])
    for index in range(len(data)):
        for bit in range(8):
            data[index] ^= 1 << bit
            with pytest.raises(ModelFormatError):
                container.read(bytes(data))
            data[index] ^= 1 << bit
    container.read(bytes(data))


@endings
def test_every_truncation_is_noticed(small, ending, tmp_path):
    path = tmp_path / "truncated"
    for length in range(len(small[ending])):
        path.write_bytes(small[ending][:length])
        with pytest.raises(ModelFormatError):
            load(path)


@endings
def test_bytes_before_and_after_are_noticed(small, ending, tmp_path):
    for data in (small[ending] + b"\n", b"\n" + small[ending], small[ending] * 2, b"\xef\xbb\xbf" + small[ending]):
        _refused(tmp_path / "model", data)
    _refused(tmp_path / "model", small[ending].replace(b"\n", b"\r\n"))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from([b"", b"{", b"PK\x03\x04", b'{\n "format": "dropmargin model",\n "version": 1,\n']),
    rest=st.binary(),
)
def test_random_bytes_are_refused(start, rest, tmp_path):
    for data in (start + rest, seal_json(start + rest), seal_zip(start + rest + COMMENT + b"0" * 64)):
        _refused(tmp_path / "random", data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(MUTATIONS)), index=st.integers(0, 9), seed=st.integers(0, 2**32))
def test_mutated_files_are_refused_or_predict(kind, index, seed, every):
    files, folder = every
    data = MUTATIONS[kind](files[index], random.Random(seed))
    possible = ("error", "model") if kind != "bytes" or data in files else ("error",)
    assert outcome(folder / "mutated", data) in possible


def test_other_files_are_refused(tmp_path):
    for data in (b"", b"{}", b"hello", b"\x80\x04\x95", b"\x93NUMPY\x01\x00", b"[1]", b"null"):
        assert "not a dropmargin model file" in _refused(tmp_path / "other", data)
    np.savez(tmp_path / "arrays.npz", coef=np.zeros(3))
    with pytest.raises(ModelFormatError, match="without the comment of a dropmargin model"):
        load(tmp_path / "arrays.npz")


def test_what_is_not_a_file_is_refused_at_once(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFormatError, match="not an ordinary file"):
            load(path)


# Right checksums, wrong content -------------------------------------------------------------------------------------


def _array(document, name):
    return next(entry for entry in document["arrays"] if entry["name"] == name)


_LIES = {
    "unknown key": (lambda d: d.update(extra=1), "has 'extra'"),
    "no classes": (lambda d: d["arrays"].remove(_array(d, "classes_")), "lacks the array 'classes_'|does not begin"),
    "an array twice": (lambda d: d["arrays"].append(_array(d, "coef_")), "same name"),
    "unknown array": (
        lambda d: _array(d, "intercept_").update(name="other"),
        "lacks the array 'intercept_'|does not begin",
    ),
    "unknown class": (lambda d: d["model"].update({"class": "SVC"}), "class must be one of"),
    "unknown parameter": (lambda d: d["model"]["parameters"].update(gamma=1), "has 'gamma'"),
    "no parameter": (lambda d: d["model"]["parameters"].pop("C"), "lacks 'C'"),
    "parameter of a wrong type": (lambda d: d["model"]["parameters"].update(C="1"), "wrong type"),
    "private attribute": (lambda d: d["model"]["fitted"].update(__class__=1), "has '__class__'"),
    "noise of no kind": (
        lambda d: d["model"]["parameters"].update(noise={"noise": "os.system", "parameters": {}}),
        "noise",
    ),
    "noise out of range": (lambda d: d["model"]["parameters"].update(noise=1.0), "rate of Dropout"),
    "loss approximated": (lambda d: d["model"]["parameters"].update(approximation="magic"), "approximation"),
    "votes of one column": (lambda d: d["model"]["parameters"].update(multi_class="all"), "multi_class"),
    "means are missing": (lambda d: d["model"]["parameters"].update(missing="drop"), "feature_means_"),
    "wrong dtype": (lambda d: _array(d, "coef_").update(dtype="complex128"), "dtype of array 'coef_'"),
    "objects": (lambda d: _array(d, "coef_").update(dtype="O"), "dtype of array 'coef_'"),
    "negative shape": (lambda d: _array(d, "coef_").update(shape=[-1, -2]), "shape of array 'coef_'"),
    "shape of floats": (lambda d: _array(d, "coef_").update(shape=[1.0, 2.0]), "shape of array 'coef_'"),
    "many dimensions": (lambda d: _array(d, "coef_").update(shape=[1] * 30), "30 dimensions"),
    "transposed": (lambda d: _array(d, "coef_").update(shape=[2, 1]), "coef_"),
    "a path as a name": (lambda d: _array(d, "coef_").update(name="../coef_"), "no name of an array"),
    "a number beyond floats": (lambda d: d.update(summary={"x": 1e400}), "beyond|JSON"),
    "versions of the wrong type": (lambda d: d["written_by"].update(numpy=2), "version of numpy"),
    "steps of nothing": (lambda d: d.update(steps=["a", "b"]), "steps of a pipeline"),
}


@endings
@pytest.mark.parametrize("lie", _LIES)
def test_lies_are_told_from_the_truth(lie, small, ending, tmp_path):
    change, complaint = _LIES[lie]
    document = document_of(small[ending])
    change(document)
    _refused(tmp_path / "lie", with_document(small[ending], document), complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (rb'"C": 1.0', b'"C": 1.0, "C": 2.0', "same key twice"),
        (rb'"C": 1.0', b'"C": NaN', "NaN"),
        (rb'"C": 1.0', b'"C": -Infinity', "Infinity"),
        (rb'"C": 1.0', b'"C": 1e999', "beyond the range"),
        (rb'"C": 1.0', b'"C": 01', "not valid JSON"),
        (rb'"C": 1.0', b'"C": "\xff"', "not valid JSON"),
        (rb'"C": 1.0', b'"C": "\x00"', "not valid JSON"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": [1e999,', "leave the range"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": ["nan",', "coef_ has NaN or infinity"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": ["-inf",', "coef_ has NaN or infinity"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": [1,', "must be of type float"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": [true,', "must be of type float"),
        (rb'"values": \[-?[0-9.e-]+,', b'"values": [[],', "must be of type float"),
        (rb'"values": \[false, true\]', b'"values": [true, false]', "ascending order"),
        (rb'"values": \[false, true\]', b'"values": [0, 1]', "must be of type bool"),
    ],
)
def test_wrong_numbers_in_the_text_are_refused(old, new, complaint, small, tmp_path):
    body, count = re.subn(old, lambda match: new, open_json(small["json"]), count=1)
    assert count == 1
    _refused(tmp_path / "model.json", seal_json(body), complaint)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_in_an_archive_are_refused(value, small, tmp_path):
    for name in ("coef_", "intercept_"):
        members = unpack(small["zip"])
        members[f"{name}.npy"] = members[f"{name}.npy"][:-8] + struct.pack("<d", value)
        _refused(tmp_path / "model.zip", pack(members), f"{name} has NaN or infinity")


def test_booleans_that_are_neither_are_refused(small, tmp_path):
    members = unpack(small["zip"])
    members["classes_.npy"] = members["classes_.npy"][:-1] + b"\x02"
    _refused(tmp_path / "model.zip", pack(members), "neither true nor false")


# Bombs --------------------------------------------------------------------------------------------------------------


@endings
@pytest.mark.parametrize("n_features", [10**12, 2**62, 2**31])
def test_a_claim_of_very_many_features(n_features, small, ending, tmp_path):
    document = document_of(small[ending])
    _array(document, "coef_")["shape"] = [1, n_features]
    data = with_document(small[ending], document)
    match = "do not fill the shape" if ending == "json" else "more than the file has"
    assert _peak_of_refusal(tmp_path / "model", data, match) < 2**20


def test_a_claim_in_the_header_of_an_array_alone(small, tmp_path):
    members = unpack(small["zip"])
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    members["coef_.npy"] = header.getvalue() + b"\x00" * 16
    assert _peak_of_refusal(tmp_path / "model.zip", pack(members), "as its type and shape demand") < 2**20


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_is_never_unpacked(method, small, tmp_path):
    members = unpack(small["zip"])
    document = json.loads(members["model.json"])
    _array(document, "coef_")["shape"] = [1, 2**21]
    members = unpack(with_document(small["zip"], document))
    members["coef_.npy"] = bytes(2**24)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            archive.writestr(entry, content, zipfile.ZIP_STORED if name == "model.json" else method)
        archive.comment = COMMENT + b"0" * 64
    data = seal_zip(out.getvalue())
    assert len(data) < 2**16
    assert _peak_of_refusal(tmp_path / "bomb.zip", data) < 2**20


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_nested_json(opening, tmp_path):
    start = b'{\n "format": "dropmargin model",\n "version": 1,\n "x": '
    for depth in (100, 100_000):
        assert "levels" in _refused(tmp_path / "deep", seal_json(start + opening * depth))


def test_very_many_empty_arrays(tmp_path):
    start = b'{\n "format": "dropmargin model",\n "version": 1,\n "x": ['
    data = seal_json(start + b"[]," * 10**6 + b"0]")
    assert _peak_of_refusal(tmp_path / "many", data, "100000 arrays") < 2 * len(data) + 2**20


@pytest.mark.parametrize("digits", [21, 5000, 10**6])
def test_huge_integers(digits, small, tmp_path):
    body = open_json(small["json"]).replace(b'"max_iter": 1000', b'"max_iter": ' + b"9" * digits)
    _refused(tmp_path / "huge", seal_json(body), f"integer of {digits} digits")


def test_a_text_of_quotes_takes_linear_time(tmp_path):
    start = b'{\n "format": "dropmargin model",\n "version": 1,\n "x": "'
    _refused(tmp_path / "quotes", seal_json(start + b'\\"' * 10**6), "JSON")
    _refused(tmp_path / "quotes", seal_json(start + b"\\"), "JSON")


def test_a_long_text_is_not_parsed(small, tmp_path):
    data = seal_json(open_json(small["json"]) + b" " * MAX_BYTES)
    assert _peak_of_refusal(tmp_path / "long", data, "more than the 8388608") < 2**18


@pytest.mark.parametrize("start", [b"{", b"PK\x03\x04", b"other"])
def test_a_very_long_file_is_not_read(start, tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(2**40)  # on paper only
    with pytest.raises(ModelFormatError, match=r"1099511627776 bytes, more than|not a dropmargin model"):
        load(path)


def test_a_million_members(tmp_path):
    n_members = 10**6
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 788, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 65535, 65535, len(entry) * n_members, len(local) * n_members, 90)
    data = seal_zip(local * n_members + entry * n_members + end + COMMENT + b"0" * 64)
    assert _peak_of_refusal(tmp_path / "members.zip", data) < 1.1 * len(data)


def test_one_long_label_among_many_is_not_made_wide(small, tmp_path):
    n = 50_000
    document = document_of(small["json"])
    labels = [*(f"{index:05d}" for index in range(n - 1)), "x" * 100_000]
    bytes_ = sum(4 + len(label) for label in labels)
    _array(document, "classes_").update(dtype="str", shape=[n], bytes=bytes_, values=labels)
    data = with_document(small["json"], document)
    assert _peak_of_refusal(tmp_path / "labels", data, "too long for one of fixed width") < 10 * len(data) + 2**20


def test_very_many_strings_are_not_made(small, tmp_path):
    n = 2**21
    document = document_of(small["zip"])
    document["arrays"].append({"name": "feature_names_in_", "dtype": "object", "shape": [n], "bytes": 6 * n})
    members = unpack(with_document(small["zip"], document))
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({6 * n},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    members["feature_names_in_.npy"] = npy + struct.pack("<I", 2) * n + b"ab" * n
    data = pack(members)
    assert _peak_of_refusal(tmp_path / "strings.zip", data, "more strings than fit its size") < 1.1 * len(data)


@pytest.mark.parametrize("lengths", [(2, 2), (0, 0), (2**32 - 1, 1)])
def test_lengths_of_strings_must_add_up(lengths, small, tmp_path):
    document = document_of(small["zip"])
    _array(document, "classes_").update(dtype="object", bytes=11)
    members = unpack(with_document(small["zip"], document))
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (11,), }"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    right = npy + struct.pack("<2I", 1, 2) + "aä".encode()
    (tmp_path / "model.zip").write_bytes(pack(members | {"classes_.npy": right}))
    assert load(tmp_path / "model.zip").classes_.tolist() == ["a", "ä"]
    wrong = npy + struct.pack("<2I", *lengths) + "aä".encode()
    _refused(tmp_path / "model.zip", pack(members | {"classes_.npy": wrong}), "do not add up|not UTF-8")
    split = npy + struct.pack("<2I", 2, 1) + "aä".encode()
    _refused(tmp_path / "model.zip", pack(members | {"classes_.npy": split}), "not UTF-8")


def test_a_wide_model_takes_less_than_twice_its_file(tmp_path):
    X = sparse.random(10, 400_000, density=1e-3, format="csr", random_state=0)
    model = DropoutSVC().fit(X, np.arange(10) % 2)
    path = tmp_path / "wide.zip"
    save(model, path)
    size = path.stat().st_size
    assert size > 3_000_000
    tracemalloc.start()
    try:
        load(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * size + 2**18
    finally:
        tracemalloc.stop()


# Malice -------------------------------------------------------------------------------------------------------------


class _Runs:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def nothing_happens(tmp_path):
    """Return a folder, and check that nothing but the model file ends up in it or around it."""
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    yield folder
    assert {path.name for path in tmp_path.rglob("*")} <= {"deep", "folder", "model.zip", "model.json"}


def _pickled(path):
    """Return an ``.npy`` file of objects, whose pickle runs code."""
    out = io.BytesIO()
    np.save(out, np.array([_Runs(path)], dtype=object), allow_pickle=True)
    return out.getvalue()


@pytest.mark.parametrize("claimed", ["float64", "object", "O"])
def test_a_pickle_in_an_array_is_not_run(claimed, small, nothing_happens):
    document = document_of(small["zip"])
    content = _pickled(nothing_happens / "ran")
    extra = {"bytes": len(content)} if claimed == "object" else {}
    _array(document, "coef_").update(dtype=claimed, shape=[1], **extra)
    members = unpack(with_document(small["zip"], document)) | {"coef_.npy": content}
    _refused(nothing_happens / "model.zip", pack(members))


def test_an_npz_with_a_pickle_is_not_run(nothing_happens):
    members = {"coef_.npy": _pickled(nothing_happens / "ran")}
    _refused(nothing_happens / "model.zip", pack(members))


def test_a_pickle_as_a_model_is_not_run(nothing_happens):
    import pickle

    _refused(nothing_happens / "model.json", pickle.dumps(_Runs(nothing_happens / "ran")))


def test_reduce_in_json_is_a_key_like_any_other(small, nothing_happens):
    document = document_of(small["json"])
    document["model"]["__reduce__"] = ["os.system", ["touch ran"]]
    _refused(nothing_happens / "model.json", with_document(small["json"], document), "has '__reduce__'")


@pytest.mark.parametrize("name", ["../ran", "/tmp/ran", "..\\ran", "a/../../ran", "coef_.npy/", "C:ran"])
def test_a_path_in_an_archive_is_refused(name, small, nothing_happens):
    members = unpack(small["zip"])
    _refused(nothing_happens / "model.zip", pack(members | {name: b"ran"}), "packed by other means")
    renamed = {name if key == "coef_.npy" else key: value for key, value in members.items()}
    _refused(nothing_happens / "model.zip", pack(renamed))


def test_a_link_in_an_archive_is_refused(small, nothing_happens):
    members = unpack(small["zip"])
    for linked in members:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in members.items():
                entry = zipfile.ZipInfo(name)
                entry.create_system, entry.external_attr = 3, (0o120777 if name == linked else 0o100644) << 16
                archive.writestr(entry, content)
            archive.comment = COMMENT + b"0" * 64
        _refused(nothing_happens / "model.zip", seal_zip(out.getvalue()), "packed by other means")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_is_refused(small, nothing_happens):
    members = unpack(small["zip"])
    for twice in members:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in [*members.items(), (twice, members[twice])]:
                entry = zipfile.ZipInfo(name)
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, content)
            archive.comment = COMMENT + b"0" * 64
        _refused(nothing_happens / "model.zip", seal_zip(out.getvalue()), "packed by other means")


def test_members_in_another_order_or_with_more_fields_are_refused(small, nothing_happens):
    members = unpack(small["zip"])
    swapped = dict([*list(members.items())[:1], *reversed(list(members.items())[1:])])
    _refused(nothing_happens / "model.zip", pack(swapped))
    _refused(nothing_happens / "model.zip", pack(dict(reversed(list(members.items())))))
    data = small["zip"]
    for where in (4, 6, 8, 10, 14, 28):  # version, flags, method, time, checksum, extra field of the first member
        changed = bytearray(data)
        changed[where] ^= 1
        _refused(nothing_happens / "model.zip", seal_zip(bytes(changed)), "packed by other means")


def test_no_line_of_the_package_could_run_what_a_file_says():
    forbidden = re.compile(
        r"import c?pickle|pickle\.|allow_pickle|joblib\.(load|dump)|joblib import .*(load|dump)|np\.load\(|"
        r"marshal|shelve|\b(eval|exec|__import__|literal_eval)\(|\.extract(all)?\(|os\.system|subprocess|yaml"
    )
    sources = list(Path(dropmargin.__file__).parent.rglob("*.py"))
    assert len(sources) > 50
    for path in sources:
        assert forbidden.search(path.read_text(encoding="utf-8")) is None, path
