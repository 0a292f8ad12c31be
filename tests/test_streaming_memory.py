"""The memory of a fit to data larger than its limit stays within the limit, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

pytestmark = [
    pytest.mark.timeout(280),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc"),
]

_SCRIPT = """
import sys
from dropmargin import DropoutSVC
from dropmargin.streaming import fit
import numpy as np
kind, path, limit = sys.argv[1:]
estimator = DropoutSVC(C=0.01, tol=0.05, max_iter=3)
if kind == "arrays":
    fit(estimator, path + "/X.npy", np.load(path + "/y.npy"), memory_limit=limit)
else:
    fit(estimator, path, memory_limit=limit)
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
print(int(status["VmHWM"].split()[0]) * 1024)
"""


def _peak(kind, path, limit):
    command = [sys.executable, "-W", "ignore", "-c", _SCRIPT, kind, str(path), str(limit)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


@pytest.mark.slow
def test_a_memory_mapped_array(tmp_path):
    """300 MB of rows, in a process of 320 MB of which the libraries take about 200."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(150_000, 500))
    w = rng.normal(size=500).astype(np.float32)
    y = np.empty(150_000, dtype=np.int8)
    block = rng.normal(size=(10_000, 500)).astype(np.float32)
    for begin in range(0, 150_000, 10_000):
        X[begin : begin + 10_000] = np.roll(block, begin // 10_000, axis=1)
        y[begin : begin + 10_000] = X[begin : begin + 10_000] @ w > 9.0 * rng.normal(size=10_000)
    np.save(tmp_path / "y.npy", y)
    del X
    limit = 320_000_000
    assert _peak("arrays", tmp_path, limit) <= limit


@pytest.mark.slow
def test_files(tmp_path):
    """300 MB of sparse rows."""
    rng = np.random.default_rng(0)
    rows = sparse.random_array((1_000, 10_000), density=0.1, random_state=rng, format="csr")
    y = (rows @ rng.normal(size=10_000) > 0.0).astype(int)
    for k in range(25):
        arrays = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": rows.shape}
        np.savez(tmp_path / f"{k}.npz", y=np.roll(y, k) if k == 3 else y, **arrays)
    limit = 320_000_000
    assert _peak("files", tmp_path, limit) <= limit
