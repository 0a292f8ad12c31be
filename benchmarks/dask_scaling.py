"""A fit on a Dask cluster of this machine beside the same fit in threads, and the cost of a pass without products.

python -m benchmarks.dask_scaling [--rows 1000000] [--partitions 8] [--rounds 3] [--folder FOLDER]

The case `tall` (synthetic documents, 50,000 words, 80 a row), as npz files that the workers load. Fits alternate, to
rows that are in the memory of the workers or of the process, after small fits that load the code. The fixed cost of a
pass is that of the fastest of these.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, wait
from scipy import sparse

from benchmarks import results
from benchmarks.cases import text
from dropmargin import DropoutSVC
from dropmargin.dask import fit
from dropmargin.data import Rows

_MEMORY_SETTINGS = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**29,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}


def write_parts(folder: Path, X: Any, y: Any, n_parts: int) -> list[Path]:
    """Write the rows as files of nearly equal size, unless they are there."""
    paths = []
    for i, own in enumerate(np.array_split(np.arange(X.shape[0]), n_parts)):
        path = folder / f"{X.shape[0]}-{n_parts}-{i}.npz"
        if not path.exists():
            rows = X[own[0] : own[-1] + 1]
            np.savez(path, data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=y[own])
        paths.append(path)
    return paths


def load(path: Path) -> tuple[Any, Any]:
    """Return rows and labels of a file."""
    with np.load(path) as arrays:
        rows = sparse.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        return rows, arrays["y"]


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of a call, and its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        result = function()
        return time.perf_counter() - begin, result


def measure(X: Any, y: Any, folder: Path, n_parts: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each fit: in two threads and on clusters of one and of two workers, alternating."""
    paths = write_parts(folder, X, y, n_parts)
    options = {"noise": 0.5, "C": 0.01}
    facts = {"n_rows": X.shape[0], "partitions": n_parts}
    rows, coefs = [], []
    for _ in range(rounds):
        spent, model = seconds(lambda: DropoutSVC(**options, n_jobs=2).fit(X, y))
        rows.append(facts | {"kind": "2 threads", "seconds": spent, "passes": model.n_passes_})
        for n_workers in (1, 2):
            with cluster(n_workers) as local, Client(local) as client:
                pairs = client.persist([dask.delayed(load)(path) for path in paths])
                wait(pairs)
                tiny = fit_tiny(client, len(paths))
                spent, model = seconds(lambda pairs=pairs: fit(DropoutSVC(**options), pairs, progress=False))
            row = facts | {"kind": f"{n_workers} worker{'s' * (n_workers > 1)}", "seconds": spent}
            rows.append(row | {"passes": model.n_passes_, "seconds_per_pass_of_a_tiny_fit": tiny})
            coefs.append(model.coef_)
    assert all(np.array_equal(coef, coefs[0]) for coef in coefs)
    return rows


def cluster(n_workers: int) -> LocalCluster:
    """Return a cluster of processes of one thread, with the memory settings that docs/large_data.md recommends."""
    with dask.config.set(_MEMORY_SETTINGS):
        return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0")


def small_rows(number: int) -> Rows:
    """Return a hundred rows of ten features."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(100, 10))
    return Rows(X, np.where(X[:, 0] + rng.normal(size=100) > 0, 1, 0))


def fit_tiny(client: Client, n_parts: int) -> float:
    """Fit a model to very few rows in the memory of the workers, and return the seconds of a pass.

    The shortest of some fits counts: in the first, the workers load the code.
    """
    pairs = client.persist([dask.delayed((rows.X, rows.y)) for rows in map(small_rows, range(n_parts))])
    wait(pairs)
    model = DropoutSVC(noise=0.5, C=0.01)
    return min(seconds(lambda: fit(model, pairs, progress=False))[0] / model.n_passes_ for _ in range(4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files of the rows are kept")
    options = parser.parse_args()
    X, y, _, _ = text(options.rows, 50_000, 80, n_test=10)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        results.write("dask_scaling", measure(X, y, folder, options.partitions, options.rounds), libraries=["dask"])


if __name__ == "__main__":
    main()
