"""FDROP on MNIST and on review text: time, passes, proved gap, and the test error with and without deleted features.

Usage: python examples/baselines.py FOLDER [mnist] [books], where FOLDER has mnist/ (the four idx files, gzip) and
amazon20k/ (books_{train,test}_X.npz, _y.npy). One thread; about a quarter of an hour of CPU time for all of it.
"""

from __future__ import annotations

import gzip
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from dropmargin import DropoutNoise
from dropmargin.baselines import FDropSVC

SETTINGS = {
    "mnist": [(0, 0.001), (5, 0.001), (10, 0.001), (25, 0.001), (5, 0.01)],
    "books": [(0, 0.01), (5, 0.01), (10, 0.01), (25, 0.01), (5, 0.1), (10, 0.1)],
}


def mnist(folder: Path) -> tuple:
    """Return the digits, float32 pixels in [0, 1], and their labels: train and test."""

    def part(name: str) -> tuple[np.ndarray, np.ndarray]:
        images = gzip.decompress((folder / f"mnist/{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"mnist/{name}-labels-idx1-ubyte.gz").read_bytes())
        X = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / np.float32(255.0)
        return X, np.frombuffer(labels, dtype=np.uint8, offset=8)

    return (*part("train"), *part("t10k"))


def books(folder: Path) -> tuple:
    """Return reviews of books as sparse word presence, and their labels: train and test."""

    def part(name: str) -> tuple[sparse.csr_array, np.ndarray]:
        X = sparse.csr_array(sparse.load_npz(folder / f"amazon20k/books_{name}_X.npz"), dtype=np.float64)
        X.data[:] = 1.0
        return X, np.load(folder / f"amazon20k/books_{name}_y.npy")

    return (*part("train"), *part("test"))


def main(folder: Path, names: list[str]) -> None:
    print("| data | K | C | CPU seconds | passes (most of a class) | proved gap | error | error, half deleted |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        X, y, X_test, y_test = {"mnist": mnist, "books": books}[name](folder)
        halved = DropoutNoise(rate=0.5).sample(X_test, random_state=0)  # what survives is doubled
        for n_deleted, C in SETTINGS[name]:
            model = FDropSVC(n_deleted, C=C)
            begin = time.process_time()
            model.fit(X, y)
            seconds = time.process_time() - begin
            errors = [1.0 - model.score(rows, y_test) for rows in (X_test, halved)]
            print(
                f"| {name} | {n_deleted} | {C:g} | {seconds:.1f} | {len(model.history_)} ({model.n_iter_}) "
                f"| {model.gap_:.1e} | {errors[0]:.3f} | {errors[1]:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(SETTINGS))
