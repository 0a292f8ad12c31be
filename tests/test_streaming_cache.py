"""The cache of data files: processes that share its folder, and the memory of a fit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from command_line import environment
from dropmargin import DropoutSVC, streaming
from stream_data import make_rows, set_age, write_parts


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder of npz files."""
    return write_parts(tmp_path_factory.mktemp("parts") / "data", *make_rows(), kind="npz")


# A folder that is shared --------------------------------------------------------------------------------------------


def _fit(folder, cache):
    return streaming.fit(DropoutSVC(), folder, block_bytes=8000, cache=cache, progress=False)


@pytest.mark.parametrize("name", ["partial-999999999-x", "partial-x"])
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


# Memory -------------------------------------------------------------------------------------------------------------

_PEAK = """
import sys
import numpy as np
from dropmargin import DropoutSVC
from dropmargin.streaming import fit

def memory(name):
    with open("/proc/self/status") as file:
        return int(dict(line.split(":", 1) for line in file)[name].split()[0]) * 1024

kind, path = sys.argv[1:]
small = np.random.default_rng(0).normal(size=(100, 3))
fit(DropoutSVC(), small, small[:, 0] > 0)  # what is loaded at the first use
before = memory("VmRSS")
estimator = DropoutSVC(C=0.01, tol=0.05, max_iter=3)
arrays = (path + "/X.npy", np.load(path + "/y.npy")) if kind == "arrays" else (path,)
fit(estimator, *arrays, progress=False)
print(memory("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_the_memory_of_a_fit_is_that_of_some_blocks(kind, tmp_path):
    """300 MB of rows, in blocks of 8 MB."""
    rng = np.random.default_rng(0)
    if kind == "arrays":
        X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(150_000, 500))
        for begin in range(0, 150_000, 10_000):
            X[begin : begin + 10_000] = rng.normal(size=(10_000, 500))
        np.save(tmp_path / "y.npy", X[:, 0] > rng.normal(size=150_000))
        del X
    else:
        rows = sparse.random_array((1_000, 10_000), density=0.1, random_state=rng, format="csr")
        y = (rows @ rng.normal(size=10_000) > 0.0).astype(int)
        for k in range(25):
            arrays = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape}
            np.savez(tmp_path / f"{k}.npz", y=y, **arrays)
    command = [sys.executable, "-W", "ignore", "-c", _PEAK, kind, str(tmp_path)]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 120e6
