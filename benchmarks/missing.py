"""Error of missing="conditional" and missing="rescale" on MNIST, with 0 to 90 % of the pixels missing.

python -m benchmarks.missing --choose     errors on 2,000 held-out training images, by noise and C
python -m benchmarks.missing              errors on all test images, of the settings that were chosen

Settings are chosen by the first command, which does not use the test images: a model is fitted to 50,000 training
images for each noise and C.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks import results
from benchmarks.cases import mnist
from dropmargin import DropoutSVC

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
CHOSEN = {"rescale": (0.3, 0.01), "conditional": (0.05, 0.1)}
GRID = [(0.1, 0.003), (0.05, 0.01), (0.1, 0.01), (0.2, 0.01), (0.3, 0.01)]
GRID += [(0.02, 0.1), (0.05, 0.1), (0.1, 0.1), (0.2, 0.1)]


def errors(model: DropoutSVC, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Return the error of complete rows, and at each share of missing pixels; every model has the same ones."""
    rng, found = np.random.default_rng(0), [round(1.0 - model.score(X, y), 4)]
    for share in SHARES:
        gone = np.where(rng.uniform(size=X.shape) < share, np.float32(np.nan), X)
        found.append(round(1.0 - model.score(gone, y), 4))
    return found


def choose(X: np.ndarray, y: np.ndarray) -> None:
    """Print the errors on held-out training images for each noise and C."""
    order = np.random.default_rng(0).permutation(len(X))
    train, held_out = order[:50_000], order[50_000:52_000]
    for noise, C in GRID:
        for rule in CHOSEN:
            model = DropoutSVC(noise=noise, C=C, missing=rule, tol=1e-3).fit(X[train], y[train])
            print(rule, noise, C, *errors(model, X[held_out], y[held_out]), flush=True)


def main() -> None:
    """Choose settings, or measure the chosen ones and store their errors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=__doc__)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    X, y, X_test, y_test = mnist()
    if options.choose:
        choose(X, y)
        return
    for rule, (noise, C) in CHOSEN.items():
        began = time.process_time()
        model = DropoutSVC(noise=noise, C=C, missing=rule, tol=1e-3).fit(X, y)
        row = {"rule": rule, "noise": noise, "C": C, "seconds": round(time.process_time() - began, 1)}
        row |= {"shares": (0.0, *SHARES), "errors": errors(model, X_test, y_test)}
        results.write("missing", [row], key=("rule",))
        print(row, flush=True)


if __name__ == "__main__":
    main()
