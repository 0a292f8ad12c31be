"""The binary cache of data files: forged content, and processes that share its folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dropmargin
from command_line import environment
from dropmargin import DropoutSVC
from dropmargin.streaming import fit_files
from stream_data import make_rows, set_age, write_parts

_FAR = 2**30


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder of npz files."""
    return write_parts(tmp_path_factory.mktemp("parts") / "data", *make_rows(), kind="npz")


_TRAIN = """
import contextlib, io, json, sys
from dropmargin.cli.main import main

for home in sys.argv[2:]:
    cache = ["--memory-limit", "2GB", "--cache", home + "/cache"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(["train", sys.argv[1], home + "/m.json", "--quiet", *cache])
    print(json.dumps([code, err.getvalue()]), flush=True)
"""


def _train(parts, *homes):
    """Train with the cache of each folder in turn, in another process; return each exit code and what was printed.

    If the process crashes, the list ends there.
    """
    command = [sys.executable, "-c", _TRAIN, parts, *homes]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def honest(parts, tmp_path_factory):
    """A cache as it was written, and the coefficients of the model."""
    home = tmp_path_factory.mktemp("honest")
    assert _train(parts, home) == [[0, ""]]
    return home / "cache", dropmargin.load(home / "m.json").coef_


# Forgery ------------------------------------------------------------------------------------------------------------


def _open(cache):
    """Return the folder of the cache, its manifest, and the bytes of its blocks."""
    (folder,) = cache.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text().rsplit("\n", 1)[0])
    return folder, manifest, np.fromfile(folder / "rows.bin", dtype=np.uint8)


def _sign(folder, manifest, rows):
    """Write a cache with checksums that fit."""
    for block in manifest["blocks"]:
        own = rows[block["offset"] : block["offset"] + block["n_bytes"]]
        if len(own) == block["n_bytes"]:
            block["checksum"] = zlib.crc32(own.tobytes())
    rows.tofile(folder / "rows.bin")
    content = json.dumps(manifest)
    (folder / "manifest.json").write_text(f"{content}\n{zlib.crc32(content.encode())}")


def _array(block, rows, number):
    """Return one of the arrays of a block, to be changed in place: 0 values, 1 indices, 2 indptr."""
    begin = block["offset"]
    for dtype, length in block["arrays"][:number]:
        begin += -(-np.dtype(dtype).itemsize * length // 64) * 64
    dtype, length = block["arrays"][number]
    return rows[begin : begin + np.dtype(dtype).itemsize * length].view(dtype)


_FORGED_ROWS = {
    "an index far too large": (1, 3, _FAR),
    "an index one too large": (1, 3, 12),
    "an index far below zero": (1, 3, -_FAR),
    "indptr far too large": (2, 5, _FAR),
    "indptr below zero": (2, 5, -9),
    "indptr begins late": (2, 0, 1),
    "indptr ends far too late": (2, -1, _FAR),
    "indptr ends too early": (2, -1, None),
}


def test_forged_indices_are_an_error_and_not_a_crash(honest, parts, tmp_path):
    folders = {}
    for case, (number, where, value) in _FORGED_ROWS.items():
        cache = shutil.copytree(honest[0], tmp_path / case / "cache")
        folders[tmp_path / case], manifest, rows = _open(cache)
        array = _array(manifest["blocks"][-1], rows, number)
        array[where] = array[-2] if value is None else value
        _sign(folders[tmp_path / case], manifest, rows)
    done = _train(parts, *folders)
    assert len(done) == len(folders), f"a crash in the case after the first {len(done)}"
    for (home, folder), (code, err) in zip(folders.items(), done, strict=True):
        assert code == 1, (home.name, err)
        assert "Traceback" not in err
        assert str(folder / "rows.bin") in err
        assert f"Delete the folder '{folder}'" in err
        assert not (home / "m.json").exists()
        shutil.rmtree(folder)  # as the error says
    assert _train(parts, *folders) == [[0, ""]] * len(folders)
    for home in folders:
        assert_array_equal(dropmargin.load(home / "m.json").coef_, honest[1], home.name)


def _dense(manifest):
    for block in manifest["blocks"]:
        block["arrays"] = [["<f8", block["n_bytes"] // 8]]


_FORGED_MANIFESTS = {
    "offset below zero": lambda spec: spec["blocks"][1].update(offset=-64),
    "offset far too large": lambda spec: spec["blocks"][1].update(offset=2**40),
    "fewer features in a block": lambda spec: spec["blocks"][1]["shape"].__setitem__(1, 5),
    "values are integers": lambda spec: spec["blocks"][1]["arrays"][0].__setitem__(0, "<i8"),
    "indices are floats": lambda spec: spec["blocks"][1]["arrays"][1].__setitem__(0, "<f4"),
    "sparse blocks as dense ones": _dense,
    "no names of blocks": lambda spec: spec.update(names=[]),
    "one name of a feature": lambda spec: spec.update(feature_names=["a"]),
}


def test_a_manifest_that_makes_no_sense_is_made_again(honest, parts, tmp_path):
    homes = [tmp_path / case for case in _FORGED_MANIFESTS]
    for home, forge in zip(homes, _FORGED_MANIFESTS.values(), strict=True):
        folder, manifest, rows = _open(shutil.copytree(honest[0], home / "cache"))
        forge(manifest)
        _sign(folder, manifest, rows)
    done = _train(parts, *homes)
    assert [code for code, _ in done] == [0] * len(homes), done
    for home in homes:
        assert_array_equal(dropmargin.load(home / "m.json").coef_, honest[1], home.name)


# A folder that is shared --------------------------------------------------------------------------------------------


def _fit(folder, cache):
    return fit_files(DropoutSVC(), folder, block_bytes=8000, cache=cache, progress=False)


@pytest.mark.parametrize("name", ["partial-999999999-x", "partial-x", "sample-999999999-x", "sample-x"])
def test_leftovers_are_removed_by_age(name, parts, tmp_path):
    left = tmp_path / "cache" / name
    left.mkdir(parents=True)
    (left / "rows.bin").write_bytes(b"unfinished")
    _fit(parts, tmp_path / "cache")
    assert left.is_dir()  # of a process that may run in another container, where its number means nothing here
    set_age(left, hours=24)
    (left / "rows.bin").write_bytes(b"unfinished, but still written to")
    _fit(parts, tmp_path / "cache")
    assert left.is_dir()
    set_age(left, hours=24)
    _fit(parts, tmp_path / "cache")
    assert not left.exists()


_OTHER_CONTAINER = """
import os, sys, time
from pathlib import Path
from dropmargin import DropoutSVC
from dropmargin.streaming import fit_files, store

os.getpid = lambda: 999_999_999  # as in another container: here, no process has this number
data, cache, signals = map(Path, sys.argv[1:])
original = store.BlockWriter.add

def add(self, X):
    added = original(self, X)
    (signals / "converting").touch()
    while not (signals / "go on").exists():
        time.sleep(0.01)
    return added

store.BlockWriter.add = add
model = fit_files(DropoutSVC(), data, block_bytes=8000, cache=cache, progress=False)
print(model.coef_.tobytes().hex())
"""


@pytest.mark.parametrize("same_files", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_another_container_keeps_its_conversion(same_files, parts, tmp_path):
    other = parts if same_files else write_parts(tmp_path / "other", *make_rows(seed=1), kind="npz")
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", _OTHER_CONTAINER, other, cache, tmp_path]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "converting").exists():
            assert process.poll() is None
        own = _fit(parts, cache)  # while the other is in the midst of its conversion
        (tmp_path / "go on").touch()
        out, _ = process.communicate()
    assert process.returncode == 0
    expected = _fit(other, tmp_path / "own cache")
    assert bytes.fromhex(out) == expected.coef_.tobytes()
    assert_array_equal(own.coef_, _fit(parts, tmp_path / "own cache").coef_)
    assert not list(cache.glob("partial-*"))
    assert len(list(cache.iterdir())) == (1 if same_files else 2)
