"""A fit to files, a block of rows at a time, against the same fit in memory.

python -m benchmarks.streaming [--gigabytes 6] [--rounds 2] [--n-jobs 1] [--folder FOLDER]

Synthetic documents like those of the case `tall` (50,000 words, 80 a row), as npz files of 50,000 rows each, in a
folder that is kept if it is named. Every fit is a process of its own, alternating: the first one converts the files to
the cache, the others find it warm. Time is that of the fit alone, without imports and, in memory, without reading the
files; memory is the most that was resident (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import results
from dropmargin import DropoutSVC
from dropmargin.streaming import fit
from dropmargin.streaming.cache import FOLDER

_ROWS, _FEATURES, _WORDS = 50_000, 50_000, 80


def write_files(folder: Path, n_bytes: float) -> int:
    """Write documents as files of about so many bytes of rows in all, unless they are there; return the bytes."""
    rng = np.random.default_rng(0)
    shares = 1.0 / (np.arange(_FEATURES) + 10.0)
    edges = np.cumsum(shares / shares.sum())
    order = rng.permutation(_FEATURES)
    weights = rng.standard_normal(_FEATURES) * (rng.uniform(size=_FEATURES) < 0.1)
    total, number = 0, 0
    while total < n_bytes:
        path = folder / f"part-{number:03d}.npz"
        own = np.random.default_rng([1, number])
        if path.exists():
            with np.load(path) as arrays:
                n_stored = len(arrays["data"])
        else:
            drawn = np.searchsorted(edges, own.uniform(size=_ROWS * _WORDS), side="right").clip(0, _FEATURES - 1)
            pointers = np.arange(0, _ROWS * _WORDS + 1, _WORDS)
            rows = sparse.csr_matrix((np.ones(_ROWS * _WORDS), order[drawn].astype(np.int32), pointers))
            rows.resize(_ROWS, _FEATURES)
            rows.sum_duplicates()
            score = rows @ weights
            y = np.where(score + np.std(score) * own.standard_normal(_ROWS) > np.median(score), 1, -1)
            n_stored = rows.nnz
            arrays = {"data": rows.data, "indices": rows.indices.astype(np.int32), "indptr": rows.indptr}
            np.savez(path, shape=np.array(rows.shape), y=y, **arrays)
        total += 12 * n_stored
        number += 1
    return total


def read_all(folder: Path) -> tuple[Any, Any]:
    """Return all rows in memory, put together without a second copy of them."""
    paths = sorted(folder.glob("*.npz"))
    sizes = []
    for path in paths:
        with np.load(path) as arrays:
            sizes.append(len(arrays["data"]))
    edges = np.cumsum([0, *sizes])
    data, indices = np.empty(edges[-1]), np.empty(edges[-1], dtype=np.int32)
    pointers, labels = [np.zeros(1, dtype=np.int64)], []
    for path, begin, end in zip(paths, edges[:-1], edges[1:], strict=True):
        with np.load(path) as arrays:
            data[begin:end], indices[begin:end] = arrays["data"], arrays["indices"]
            pointers.append(arrays["indptr"][1:].astype(np.int64) + begin)
            labels.append(arrays["y"])
    indptr = np.concatenate(pointers)
    X = sparse.csr_array((len(indptr) - 1, _FEATURES), dtype=np.float64)
    X.data, X.indices = data, indices
    X.indptr = indptr.astype(np.int32) if edges[-1] < 2**31 else indptr
    return X, np.concatenate(labels)


def job(kind: str, folder: Path, n_jobs: int) -> dict[str, Any]:
    """Run one fit in this process."""
    model = DropoutSVC(noise=0.5, C=0.01, n_jobs=n_jobs)
    X, y = read_all(folder) if kind == "memory" else (None, None)
    begin = time.perf_counter()
    if kind == "memory":
        model.fit(X, y)
    else:
        fit(model, folder, progress=False)
    seconds = time.perf_counter() - begin
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "seconds": seconds,
        "peak_bytes": int(status["VmHWM"].split()[0]) * 1024,
        "objective": model.objective_,
        "passes": model.n_passes_,
    }


def run(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Alternate fits from files and in memory, and return a row for each."""
    size = write_files(folder, 1e9 * options.gigabytes)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)  # of an earlier run
    found: dict[str, list[dict[str, Any]]] = {"files, no cache yet": [], "files": [], "memory": []}
    kinds = ["files, no cache yet", *["files", "memory"] * options.rounds]
    for kind in kinds:
        command = [sys.executable, "-m", "benchmarks.streaming", "--job", kind.split(",")[0], "--folder", str(folder)]
        command += ["--n-jobs", str(options.n_jobs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found[kind].append(json.loads(done.stdout.splitlines()[-1]))
        print(kind, found[kind][-1], file=sys.stderr, flush=True)
    facts = {"bytes": size, "n_features": _FEATURES, "n_jobs": options.n_jobs}
    return [facts | {"kind": kind, **own} for kind, runs in found.items() for own in runs]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--job", choices=["files", "memory"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(job(options.job, options.folder, options.n_jobs)))
        return
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results.write("streaming", run(folder, options))


if __name__ == "__main__":
    main()
