"""Damaged, absurd and malicious model files give a `ModelFormatError` and nothing else."""

from __future__ import annotations

import os
import random
import re
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealing import round_robin, together
from dropmargin import load
from dropmargin.io.model import ModelFormatError, container
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
from model_bytes import array_of, endings, refused


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """Return the files of several models, and a folder for mutated ones."""
    folder = tmp_path_factory.mktemp("every")
    return base_files(folder), folder


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
        refused(tmp_path / "model", data)
    refused(tmp_path / "model", small[ending].replace(b"\n", b"\r\n"))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from([b"", b"{", b"PK\x03\x04", b'{\n "format": "dropmargin model",\n "version": 1,\n']),
    rest=st.binary(),
)
def test_random_bytes_are_refused(start, rest, tmp_path):
    for data in (start + rest, seal_json(start + rest), seal_zip(start + rest + COMMENT + b"0" * 64)):
        refused(tmp_path / "random", data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(MUTATIONS)), index=st.integers(0, 9), seed=st.integers(0, 2**32))
def test_mutated_files_are_refused_or_predict(kind, index, seed, every):
    files, folder = every
    data = MUTATIONS[kind](files[index], random.Random(seed))
    possible = ("error", "model") if kind != "bytes" or data in files else ("error",)
    assert outcome(folder / "mutated", data) in possible


def test_other_files_are_refused(tmp_path):
    for data in (b"", b"{}", b"hello", b"\x80\x04\x95", b"\x93NUMPY\x01\x00", b"[1]", b"null"):
        assert "not a dropmargin model file" in refused(tmp_path / "other", data)
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


_LIES = {
    "unknown key": (lambda d: d.update(extra=1), "has 'extra'"),
    "no classes": (lambda d: d["arrays"].remove(array_of(d, "classes_")), "lacks the array 'classes_'|does not begin"),
    "an array twice": (lambda d: d["arrays"].append(array_of(d, "coef_")), "same name"),
    "unknown array": (
        lambda d: array_of(d, "intercept_").update(name="other"),
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
    "noise out of range": (lambda d: d["model"]["parameters"].update(noise=1.0), "rate"),
    "loss approximated": (lambda d: d["model"]["parameters"].update(approximation="magic"), "approximation"),
    "votes of one column": (lambda d: d["model"]["parameters"].update(multi_class="all"), "multi_class"),
    "means are missing": (lambda d: d["model"]["parameters"].update(missing="rescale"), "feature_means_"),
    "wrong dtype": (lambda d: array_of(d, "coef_").update(dtype="complex128"), "dtype of array 'coef_'"),
    "objects": (lambda d: array_of(d, "coef_").update(dtype="O"), "dtype of array 'coef_'"),
    "negative shape": (lambda d: array_of(d, "coef_").update(shape=[-1, -2]), "shape of array 'coef_'"),
    "shape of floats": (lambda d: array_of(d, "coef_").update(shape=[1.0, 2.0]), "shape of array 'coef_'"),
    "many dimensions": (lambda d: array_of(d, "coef_").update(shape=[1] * 30), "30 dimensions"),
    "transposed": (lambda d: array_of(d, "coef_").update(shape=[2, 1]), "coef_"),
    "a path as a name": (lambda d: array_of(d, "coef_").update(name="../coef_"), "no name of an array"),
    "a number beyond floats": (lambda d: d.update(summary={"x": 1e400}), "beyond|JSON"),
    "versions of the wrong type": (lambda d: d["written_by"].update(numpy=2), "version of numpy"),
    "steps of nothing": (lambda d: d.update(steps=["a", "b"]), "steps of a pipeline"),
}


@together(("lie", "ending"), round_robin(_LIES, ["json", "zip"]))
def test_lies_are_told_from_the_truth(lie, small, ending, tmp_path):
    change, complaint = _LIES[lie]
    document = document_of(small[ending])
    change(document)
    refused(tmp_path / "lie", with_document(small[ending], document), complaint)


@together(
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
    refused(tmp_path / "model.json", seal_json(body), complaint)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_in_an_archive_are_refused(value, small, tmp_path):
    for name in ("coef_", "intercept_"):
        members = unpack(small["zip"])
        members[f"{name}.npy"] = members[f"{name}.npy"][:-8] + struct.pack("<d", value)
        refused(tmp_path / "model.zip", pack(members), f"{name} has NaN or infinity")


def test_booleans_that_are_neither_are_refused(small, tmp_path):
    members = unpack(small["zip"])
    members["classes_.npy"] = members["classes_.npy"][:-1] + b"\x02"
    refused(tmp_path / "model.zip", pack(members), "neither true nor false")
