"""The cache of data files: forged content, and processes that share its folder."""

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
from dropmargin import DropoutSVC, streaming
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
    """Return the folder of the cache, its manifest, and the arrays of the last block."""
    (folder,) = cache.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text().rsplit("\n", 1)[0])
    content, (n_rows, _, dtypes, n_stored, _) = _last(folder, manifest).read_bytes(), manifest["blocks"][-1][2:]
    arrays, offset = {}, 0
    for name, dtype, count in zip(("data", "indices", "indptr"), dtypes, (n_stored, n_stored, n_rows + 1), strict=True):
        arrays[name] = np.frombuffer(content, dtype, count, offset).copy()
        offset += arrays[name].nbytes
    assert offset == len(content)
    return folder, manifest, arrays


def _last(folder, manifest):
    return folder / f"{len(manifest['blocks']) - 1}.rows"


def _sign(folder, manifest, arrays):
    """Write a cache with valid checksums."""
    content = b"".join(array.tobytes() for array in arrays.values())
    _last(folder, manifest).write_bytes(content)
    manifest["blocks"][-1][-3:] = [
        [array.dtype.str for array in arrays.values()],
        manifest["blocks"][-1][-2],
        zlib.crc32(content),
    ]
    content = json.dumps(manifest)
    (folder / "manifest.json").write_text(f"{content}\n{zlib.crc32(content.encode())}")


# Array, position in the last block, value.
_FORGED_ROWS = {
    "an index far too large": ("indices", -200, _FAR),
    "an index one too large": ("indices", -200, 12),
    "an index far below zero": ("indices", -200, -_FAR),
    "indptr far too large": ("indptr", -40, _FAR),
    "indptr below zero": ("indptr", -40, -9),
    "indptr ends far too late": ("indptr", -1, _FAR),
    "indptr ends too early": ("indptr", -1, None),
    "values are integers": ("data", slice(None), np.int64),
    "indices are floats": ("indices", slice(None), np.float32),
}


@pytest.mark.slow
def test_forged_indices_are_an_error_and_no_crash(honest, parts, tmp_path):
    folders = {}
    for case, (name, where, value) in _FORGED_ROWS.items():
        cache = shutil.copytree(honest[0], tmp_path / case / "cache")
        folders[tmp_path / case], manifest, arrays = _open(cache)
        if isinstance(value, type):
            arrays[name] = arrays[name].astype(value)
        else:
            arrays[name][where] = arrays[name][-2] if value is None else value
        _sign(folders[tmp_path / case], manifest, arrays)
    done = _train(parts, *folders)
    assert len(done) == len(folders), f"a crash in the case after the first {len(done)}"
    for (home, folder), (code, err) in zip(folders.items(), done, strict=True):
        assert code == 1, (home.name, err)
        assert "Traceback" not in err
        assert str(folder) in err
        assert "Delete the folder" in err
        assert not (home / "m.json").exists()
        shutil.rmtree(folder)  # as the error says
    assert _train(parts, *folders) == [[0, ""]] * len(folders)
    for home in folders:
        assert_array_equal(dropmargin.load(home / "m.json").coef_, honest[1], home.name)


_INCONSISTENT = {
    "fewer rows in a block": lambda spec: spec["blocks"][-1].__setitem__(2, 5),
    "a negative number of rows": lambda spec: spec["blocks"][-1].__setitem__(2, -5),
    "more entries in a block": lambda spec: spec["blocks"][-1].__setitem__(5, 2**40),
    "another layout": lambda spec: spec["blocks"][0].__setitem__(4, ["<f8"]),
    "Python objects": lambda spec: spec["blocks"][0].__setitem__(4, ["|O", "<i4", "<i4"]),
    "a block without a name": lambda spec: spec["blocks"][0].pop(0),
    "one name of a feature": lambda spec: spec.update(feature_names=["a"]),
}


@pytest.mark.slow
def test_an_inconsistent_cache_is_written_again(honest, parts, tmp_path):
    homes = [tmp_path / case for case in _INCONSISTENT]
    for home, forge in zip(homes, _INCONSISTENT.values(), strict=True):
        folder, manifest, arrays = _open(shutil.copytree(honest[0], home / "cache"))
        forge(manifest)
        _sign(folder, manifest, arrays)
    done = _train(parts, *homes)
    assert [code for code, _ in done] == [0] * len(homes), done
    for home in homes:
        assert_array_equal(dropmargin.load(home / "m.json").coef_, honest[1], home.name)


# A folder that is shared --------------------------------------------------------------------------------------------


def _fit(folder, cache):
    return streaming.fit(DropoutSVC(), folder, block_bytes=8000, cache=cache, progress=False)


@pytest.mark.parametrize("name", ["partial-999999999-x", "partial-x", "sample-999999999-x", "sample-x"])
def test_leftovers_are_removed_by_age(name, parts, tmp_path):
    left = tmp_path / "cache" / name
    left.mkdir(parents=True)
    (left / "rows.bin").write_bytes(b"unfinished")
    _fit(parts, tmp_path / "cache")
    assert left.is_dir()  # it may belong to a running process
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
from dropmargin import DropoutSVC, streaming
from dropmargin.streaming.blocks import FileBlocks

os.getpid = lambda: 999_999_999  # as in another container: here, no process has this number
data, cache, signals = map(Path, sys.argv[1:])
original = FileBlocks.add

def add(self, X):
    added = original(self, X)
    (signals / "converting").touch()
    while not (signals / "go on").exists():
        time.sleep(0.01)
    return added

FileBlocks.add = add
model = streaming.fit(DropoutSVC(), data, block_bytes=8000, cache=cache, progress=False)
print(model.coef_.tobytes().hex())
"""


@pytest.mark.slow
@pytest.mark.parametrize("same_files", [True, False])
def test_concurrent_conversions_of_two_containers(same_files, parts, tmp_path):
    other = parts if same_files else write_parts(tmp_path / "other", *make_rows(seed=1), kind="npz")
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", _OTHER_CONTAINER, other, cache, tmp_path]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "converting").exists():
            assert process.poll() is None
        own = _fit(parts, cache)  # during the conversion of the other process
        (tmp_path / "go on").touch()
        out, _ = process.communicate()
    assert process.returncode == 0
    expected = _fit(other, tmp_path / "own cache")
    assert bytes.fromhex(out) == expected.coef_.tobytes()
    assert_array_equal(own.coef_, _fit(parts, tmp_path / "own cache").coef_)
    assert not list(cache.glob("partial-*"))
    assert len(list(cache.iterdir())) == (1 if same_files else 2)
