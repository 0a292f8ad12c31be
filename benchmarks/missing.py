"""Missing features: error, time and memory of missing="conditional" and missing="rescale".

Usage: python -m benchmarks.missing                     training rows with NaN: digits and breast cancer, two imputers
       python -m benchmarks.missing FOLDER --choose     MNIST, errors on 2,000 held-out training images, by noise and C
       python -m benchmarks.missing FOLDER              MNIST, errors on all test images, time and memory

FOLDER has the four files of MNIST in a folder `mnist`. Settings are chosen by the first command, which does not use the
test images: a model is fitted to 50,000 training images for each noise and C.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dropmargin import DropoutSVC
from examples.missing import mnist

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
CHOSEN = {"rescale": (0.3, 0.01), "conditional": (0.05, 0.1)}
GRID = [(0.1, 0.003), (0.05, 0.01), (0.1, 0.01), (0.2, 0.01), (0.3, 0.01)]
GRID += [(0.02, 0.1), (0.05, 0.1), (0.1, 0.1), (0.2, 0.1)]


def errors(model: DropoutSVC, X: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the error of complete rows, and at each share of missing pixels; every model has the same ones."""
    rng, found = np.random.default_rng(0), [f"{1.0 - model.score(X, y):.4f}"]
    for share in SHARES:
        gone = np.where(rng.uniform(size=X.shape) < share, np.float32(np.nan), X)
        found.append(f"{1.0 - model.score(gone, y):.4f}")
        print("   ", share, found[-1], flush=True)
    return found


def choose(X: np.ndarray, y: np.ndarray) -> None:
    """Print the errors on held-out training images for each noise and C."""
    order = np.random.default_rng(0).permutation(len(X))
    train, held_out = order[:50_000], order[50_000:52_000]
    for noise, C in GRID:
        for rule in CHOSEN:
            model = DropoutSVC(noise=noise, C=C, missing=rule, tol=1e-3).fit(X[train], y[train])
            print(rule, noise, C, *errors(model, X[held_out], y[held_out]), flush=True)


def train_with_nan(name: str, X: np.ndarray, y: np.ndarray, share: float, n_splits: int) -> None:
    """Print the error on complete rows of models that are trained on rows with NaN, and the time of a fit."""
    methods = {
        "no NaN": DropoutSVC(),
        "rescale": DropoutSVC(missing="rescale"),
        "conditional": DropoutSVC(missing="conditional"),
        "SimpleImputer": make_pipeline(SimpleImputer(), DropoutSVC()),
        "IterativeImputer": make_pipeline(IterativeImputer(random_state=0), DropoutSVC()),
    }
    found, seconds = dict.fromkeys(methods, 0.0), dict.fromkeys(methods, 0.0)
    for seed in range(n_splits):
        parts = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
        scaler = StandardScaler().fit(parts[0])
        train, test = scaler.transform(parts[0]), scaler.transform(parts[1])
        gone = np.where(np.random.default_rng(seed).uniform(size=train.shape) < share, np.nan, train)
        for method, model in methods.items():
            begin = time.process_time()
            model.fit(train if method == "no NaN" else gone, parts[2])
            seconds[method] += (time.process_time() - begin) / n_splits
            found[method] += (1.0 - model.score(test, parts[3])) / n_splits
    print(f"{name}, {share:.0%} of the training entries missing, mean of {n_splits} splits")
    for method in methods:
        print(f"  {method}: error {found[method]:.4f}, fit {seconds[method]:.2f} s", flush=True)


def cost(model: DropoutSVC, X: np.ndarray) -> None:
    """Print rows per second of processor time, and the largest memory of a prediction."""
    rng = np.random.default_rng(0)
    masks = rng.uniform(size=(10, X.shape[1])) < 0.5
    for name, own in (("10 patterns", masks[rng.integers(10, size=len(X))]), ("random", None)):
        rows = X if own is not None else X[:1000]
        gone = np.where(rng.uniform(size=rows.shape) < 0.5 if own is None else own, np.float32(np.nan), rows)
        begin = time.process_time()
        model.decision_function(gone)
        seconds = time.process_time() - begin
        tracemalloc.start()
        model.decision_function(gone[:1000])
        print(
            f"  {name}: {len(gone) / seconds:.0f} rows/s, {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MB",
            flush=True,
        )
        tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    if options.folder is None:
        for name, data, n_splits in (("breast cancer", load_breast_cancer, 10), ("digits", load_digits, 5)):
            for share in (0.3, 0.5):
                train_with_nan(name, *data(return_X_y=True), share, n_splits)
        return
    X, y, X_test, y_test = mnist(options.folder)
    if options.choose:
        choose(X, y)
        return
    for rule, (noise, C) in CHOSEN.items():
        begin = time.process_time()
        model = DropoutSVC(noise=noise, C=C, missing=rule, tol=1e-3).fit(X, y)
        rank = model.feature_factors_.shape[1] if rule == "conditional" else 0
        print(f"{rule}, noise {noise}, C {C}, rank {rank}, fit {time.process_time() - begin:.1f} s", flush=True)
        cost(model, X_test)
        print(rule, *errors(model, X_test, y_test), flush=True)


if __name__ == "__main__":
    main()
