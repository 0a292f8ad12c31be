"""The data of the benchmark cases. Real data are read from the folder DROPMARGIN_DATA, see README.md."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

FOLDER = Path(os.environ.get("DROPMARGIN_DATA", Path(__file__).parents[2] / "shared" / "data"))


@dataclass(frozen=True)
class Case:
    """A data set with the settings at which the models meet."""

    name: str
    load: Callable[[], tuple[Any, Any, Any, Any]]
    noise: float
    C: float
    repeats: int = 5
    slow_peers: bool = True  # whether the slow peers can be run in reasonable time


def reviews(domain: str) -> tuple[Any, Any, Any, Any]:
    """Return Amazon reviews: 2,000 documents to learn from, 20,000 words and pairs of words, as presence."""

    def part(name: str) -> tuple[Any, Any]:
        X = sparse.csr_matrix(sparse.load_npz(FOLDER / "amazon20k" / f"{domain}_{name}_X.npz"), dtype=np.float64)
        X.data[:] = 1.0
        return X, np.load(FOLDER / "amazon20k" / f"{domain}_{name}_y.npy")

    return (*part("train"), *part("test"))


def news20() -> tuple[Any, Any, Any, Any]:
    """Return 20 newsgroups as tf-idf."""
    arrays = np.load(FOLDER / "news20.npz")
    n_features = int(arrays["n_features"])
    counts = [
        sparse.csr_matrix(
            (arrays[f"{part}_data"].astype(np.float64), arrays[f"{part}_indices"], arrays[f"{part}_indptr"]),
            shape=(len(arrays[f"{part}_y"]), n_features),
        )
        for part in ("train", "test")
    ]
    transform = TfidfTransformer(sublinear_tf=True).fit(counts[0])
    return transform.transform(counts[0]), arrays["train_y"], transform.transform(counts[1]), arrays["test_y"]


def mnist() -> tuple[Any, Any, Any, Any]:
    """Return MNIST, float32 pixels in [0, 1]."""

    def part(name: str) -> tuple[Any, Any]:
        images = gzip.decompress((FOLDER / "mnist" / f"{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((FOLDER / "mnist" / f"{name}-labels-idx1-ubyte.gz").read_bytes())
        X = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255.0
        return X, np.frombuffer(labels, dtype=np.uint8, offset=8)

    return (*part("train"), *part("t10k"))


def text(n_rows: int, n_features: int, per_row: int, n_test: int = 5_000) -> tuple[Any, Any, Any, Any]:
    """Return synthetic documents: words by Zipf's law, labels by the sum of weights of the words, with noise."""
    rng = np.random.default_rng(0)
    shares = 1.0 / (np.arange(n_features) + 10.0)
    edges = np.cumsum(shares / shares.sum())
    order = rng.permutation(n_features)
    total = n_rows + n_test
    columns = order[np.searchsorted(edges, rng.uniform(size=total * per_row), side="right").clip(0, n_features - 1)]
    weights = rng.standard_normal(n_features) * (rng.uniform(size=n_features) < 0.1)
    X = sparse.csr_matrix(
        (
            np.ones(total * per_row),
            columns.astype(np.int32),
            np.arange(0, total * per_row + 1, per_row, dtype=np.int64),
        ),
        shape=(total, n_features),
    )
    X.sum_duplicates()
    X.indptr = X.indptr.astype(X.indices.dtype)
    score = X @ weights
    y = np.where(score + np.std(score) * rng.standard_normal(total) > np.median(score), 1, -1)
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


CASES = {
    case.name: case
    for case in (
        Case("small", lambda: text(2_000, 20_000, 130), noise=0.5, C=0.01, repeats=15),
        Case("books", lambda: reviews("books"), noise=0.5, C=0.1, repeats=15),
        Case("kitchen", lambda: reviews("kitchen"), noise=0.5, C=0.1, repeats=15),
        Case("news20", news20, noise=0.5, C=1.0),
        Case("mnist", mnist, noise=0.3, C=0.01),
        Case("wide", lambda: text(25_000, 150_000, 280), noise=0.5, C=0.01),
        Case("tall", lambda: text(1_000_000, 50_000, 80), noise=0.5, C=0.01, repeats=5, slow_peers=False),
    )
}
