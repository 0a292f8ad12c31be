"""Small data files for the tests of streaming."""

from __future__ import annotations

import itertools
import os
import time
from functools import partial

import numpy as np
from scipy import sparse


def make_rows(n_rows=400, n_features=12, n_classes=3, seed=0, density=0.4):
    """Return rows with many zeros, in decimal fractions, and labels."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.uniform(0.2, 2.0, (n_rows, n_features)), 3) * (rng.uniform(size=(n_rows, n_features)) < density)
    X[:, -1] = 1.0  # every part has the last feature
    noise = 0.5 * rng.normal(size=(n_rows, n_classes))
    scores = (X - X.mean(axis=0)) @ rng.normal(size=(n_features, n_classes)) + noise
    return X, np.argmax(scores, axis=1)


def write_svmlight(path, X, y, first=1):
    """Write rows whose feature indices begin at ``first``."""
    with open(path, "w") as file:
        for row, label in zip(X, y, strict=True):
            entries = " ".join(f"{d + first}:{row[d]!r}" for d in np.flatnonzero(row))
            file.write(f"{label} {entries}\n".replace("np.float64(", "").replace(")", ""))


def write_parts(folder, X, y, edges=(0, 150, 151, 400), kind="svm"):
    """Write rows as several files and return the folder."""
    folder.mkdir(exist_ok=True)
    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        path = folder / f"part-{k}.{kind}"
        if kind == "svm":
            write_svmlight(path, X[a:b], y[a:b])
        elif kind == "npz":
            rows = sparse.csr_array(X[a:b])
            np.savez(path, data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=y[a:b])
        else:
            import pandas as pd

            table = pd.DataFrame(X[a:b], columns=[f"f{d}" for d in range(X.shape[1])])
            table["label"] = y[a:b]
            {"parquet": table.to_parquet, "arrow": table.to_feather, "csv": partial(table.to_csv, index=False)}[kind](
                path
            )
    return folder


def set_age(folder, hours):
    """Set the modification times of a folder and its files to some hours ago."""
    then = time.time() - 3600 * hours
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (then, then))
