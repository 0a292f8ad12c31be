"""Bombs and malice in model files: nothing is run, written or allocated."""

from __future__ import annotations

import io
import json
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import dropmargin
import reproduction
from dealing import round_robin
from dropmargin import DropoutSVC, load, save
from dropmargin.io.model import ModelFormatError
from dropmargin.io.model.strict_json import MAX_BYTES
from fuzz.models import (
    COMMENT,
    document_of,
    open_json,
    pack,
    seal_json,
    seal_zip,
    unpack,
    with_document,
)
from model_bytes import array_of, refused


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


# Bombs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_features", "ending"), round_robin([10**12, 2**62, 2**31], ["json", "zip"]))
def test_a_claim_of_very_many_features(n_features, small, ending, tmp_path):
    document = document_of(small[ending])
    array_of(document, "coef_")["shape"] = [1, n_features]
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
    array_of(document, "coef_")["shape"] = [1, 2**21]
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
        assert "levels" in refused(tmp_path / "deep", seal_json(start + opening * depth))


def test_very_many_empty_arrays(tmp_path):
    start = b'{\n "format": "dropmargin model",\n "version": 1,\n "x": ['
    data = seal_json(start + b"[]," * 10**6 + b"0]")
    assert _peak_of_refusal(tmp_path / "many", data, "100000 arrays") < 2 * len(data) + 2**20


@pytest.mark.parametrize("digits", [21, 5000, 10**6])
def test_huge_integers(digits, small, tmp_path):
    body = open_json(small["json"]).replace(b'"max_iter": 1000', b'"max_iter": ' + b"9" * digits)
    refused(tmp_path / "huge", seal_json(body), f"integer of {digits} digits")


def test_a_text_of_quotes_takes_linear_time(tmp_path):
    start = b'{\n "format": "dropmargin model",\n "version": 1,\n "x": "'
    refused(tmp_path / "quotes", seal_json(start + b'\\"' * 10**6), "JSON")
    refused(tmp_path / "quotes", seal_json(start + b"\\"), "JSON")


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
    array_of(document, "classes_").update(dtype="str", shape=[n], bytes=bytes_, values=labels)
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
    array_of(document, "classes_").update(dtype="object", bytes=11)
    members = unpack(with_document(small["zip"], document))
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (11,), }"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    right = npy + struct.pack("<2I", 1, 2) + "aä".encode()
    (tmp_path / "model.zip").write_bytes(pack(members | {"classes_.npy": right}))
    assert load(tmp_path / "model.zip").classes_.tolist() == ["a", "ä"]
    wrong = npy + struct.pack("<2I", *lengths) + "aä".encode()
    refused(tmp_path / "model.zip", pack(members | {"classes_.npy": wrong}), "do not add up|not UTF-8")
    split = npy + struct.pack("<2I", 2, 1) + "aä".encode()
    refused(tmp_path / "model.zip", pack(members | {"classes_.npy": split}), "not UTF-8")


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
    array_of(document, "coef_").update(dtype=claimed, shape=[1], **extra)
    members = unpack(with_document(small["zip"], document)) | {"coef_.npy": content}
    refused(nothing_happens / "model.zip", pack(members))


def test_an_npz_with_a_pickle_is_not_run(nothing_happens):
    members = {"coef_.npy": _pickled(nothing_happens / "ran")}
    refused(nothing_happens / "model.zip", pack(members))


def test_a_pickle_as_a_model_is_not_run(nothing_happens):
    import pickle

    refused(nothing_happens / "model.json", pickle.dumps(_Runs(nothing_happens / "ran")))


def test_reduce_in_json_is_a_key_like_any_other(small, nothing_happens):
    document = document_of(small["json"])
    document["model"]["__reduce__"] = ["os.system", ["touch ran"]]
    refused(nothing_happens / "model.json", with_document(small["json"], document), "has '__reduce__'")


@pytest.mark.parametrize("name", ["../ran", "/tmp/ran", "..\\ran", "a/../../ran", "coef_.npy/", "C:ran"])
def test_a_path_in_an_archive_is_refused(name, small, nothing_happens):
    members = unpack(small["zip"])
    refused(nothing_happens / "model.zip", pack(members | {name: b"ran"}), "packed by other means")
    renamed = {name if key == "coef_.npy" else key: value for key, value in members.items()}
    refused(nothing_happens / "model.zip", pack(renamed))


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
        refused(nothing_happens / "model.zip", seal_zip(out.getvalue()), "packed by other means")


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
        refused(nothing_happens / "model.zip", seal_zip(out.getvalue()), "packed by other means")


def test_members_in_another_order_or_with_more_fields_are_refused(small, nothing_happens):
    members = unpack(small["zip"])
    swapped = dict([*list(members.items())[:1], *reversed(list(members.items())[1:])])
    refused(nothing_happens / "model.zip", pack(swapped))
    refused(nothing_happens / "model.zip", pack(dict(reversed(list(members.items())))))
    data = small["zip"]
    for where in (4, 6, 8, 10, 14, 28):  # version, flags, method, time, checksum, extra field of the first member
        changed = bytearray(data)
        changed[where] ^= 1
        refused(nothing_happens / "model.zip", seal_zip(bytes(changed)), "packed by other means")


def test_no_line_of_the_package_could_run_what_a_file_says():
    forbidden = re.compile(
        r"import c?pickle|pickle\.|allow_pickle|joblib\.(load|dump)|joblib import .*(load|dump)|np\.load\(|"
        r"marshal|shelve|\b(eval|exec|__import__|literal_eval)\(|\.extract(all)?\(|os\.system|subprocess|yaml"
    )
    package, experiments = Path(dropmargin.__file__).parent, Path(reproduction.__file__).parent
    # CIFAR-10's pickles, read by an unpickler that knows four harmless names (tests/test_datasets_cifar10.py attacks
    # it), and the messages of a Dask cluster, which are no files.
    known = {experiments / "datasets" / "pickles.py", package / "dask" / "tasks.py"}
    sources = {*package.rglob("*.py"), *experiments.rglob("*.py")}
    assert len(sources) > 50
    assert known <= sources
    for path in sources - known:
        assert forbidden.search(path.read_text(encoding="utf-8")) is None, path
