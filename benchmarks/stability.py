"""How far `predict_stability` is from what happens in draws from the noise, and what it costs.

python -m benchmarks.stability [iris] [wine] [cancer] [digits] [text] [--draws 4000]

Every row of each data set, features raw and standardised, `DropoutSVC` and `DropoutLogisticRegression` with their
default parameters, six dropout rates. The reference is the share of independent draws from the noise in which `predict`
gives the label of the row without noise; its own standard error is at most .008 with 4,000 draws. ``text`` is 300 test
reviews of books (raw counts only, C=0.01), from the folder DROPMARGIN_DATA. Then other noise, raw and logistic.

The bound of ``method="guaranteed"`` is broken if it exceeds the reference by more than four standard errors (of a
probability that equals the bound). Times are wall time on the whole set, best of three.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from benchmarks import results
from benchmarks.cases import FOLDER
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, GaussianNoise, LaplaceNoise, PoissonNoise
from reproduction.datasets import DatasetError, load_amazon

RATES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)
LOADERS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}
MODELS = {"DropoutSVC": DropoutSVC, "DropoutLogisticRegression": DropoutLogisticRegression}
BEFORE, AFTER = "normal", "auto"


def fitted_models(name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield a label, a model and the rows to ask it about."""
    if name == "text":
        split = load_amazon("books", form="amazon5k", data_home=FOLDER, download=False)
        for label, make in MODELS.items():
            yield f"raw, {label}", make(C=0.01).fit(split.X_train, split.y_train), split.X_test[:300]
        return
    X, y = LOADERS[name](return_X_y=True)
    for scaling, rows in (("raw", X), ("standardised", StandardScaler().fit_transform(X))):
        for label, make in MODELS.items():
            yield f"{scaling}, {label}", make().fit(rows, y), rows


def by_draws(model: Any, X: Any, noise: Any, n_draws: int) -> np.ndarray:
    """Return the share of draws from the noise that leave each label as it is."""
    rng, before, kept = np.random.RandomState(0), model.predict(X), np.zeros(X.shape[0])
    for _ in range(n_draws):
        kept += model.predict(noise.sample(X, rng)) == before
    return kept / n_draws


def best_time(job: Callable[[], Any]) -> float:
    """Return the best wall time of three."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        job()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure(model: Any, X: Any, noise: Any, n_draws: int) -> dict[str, Any]:
    """Return the errors of both methods for each row, how often the bound is broken, and the time per row."""
    reference = by_draws(model, X, noise, n_draws)
    bound = model.predict_stability(X, noise, "guaranteed")
    result: dict[str, Any] = {
        "reference": float(reference.mean()),
        "broken": int(np.sum(bound > reference + 4.0 * np.sqrt(bound * (1.0 - bound) / n_draws))),
    }
    for method in (BEFORE, AFTER):
        found = model.predict_stability(X, noise, method)
        errors = np.abs(found - reference)
        seconds = best_time(lambda method=method: model.predict_stability(X, noise, method))  # type: ignore[misc]
        result[method] = {
            "stated": float(found.mean()),
            "mean": float(errors.mean()),
            "max": float(errors.max()),
            "milliseconds": 1e3 * seconds / len(reference),
        }
    return result


def run(name: str, n_draws: int) -> list[dict[str, Any]]:
    """Return the measurements of a data set."""
    rows: list[dict[str, Any]] = []
    try:
        models = list(fitted_models(name))
    except DatasetError as error:
        print(f"{name}: skipped, {error}", file=sys.stderr)
        return rows
    for label, model, X in models:
        for rate in RATES:
            about = {"data": name, "model": label, "rows": X.shape[0], "noise": f"dropout {rate:g}"}
            rows.append(about | measure(model, X, DropoutNoise(rate), n_draws))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def run_others(name: str, n_draws: int) -> list[dict[str, Any]]:
    """Return the measurements of noise other than dropout; scales are in standard deviations of each feature."""
    if name == "text":
        return []
    X, y = LOADERS[name](return_X_y=True)
    X, y = X[:: len(X) // 150], y[:: len(X) // 150]
    model, rows = DropoutLogisticRegression(noise=0.1).fit(X, y), []
    noises = {
        "Laplace, 0.7 sd": LaplaceNoise(0.7 * X.std(axis=0)),
        "Laplace, 2 sd": LaplaceNoise(2.0 * X.std(axis=0)),
        "Gaussian, 1 sd": GaussianNoise(X.std(axis=0)),
        "PoissonNoise": PoissonNoise(),
    }
    for label, noise in noises.items():
        rows.append({"data": name, "rows": len(X), "noise": label} | measure(model, X, noise, n_draws))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Measure the data sets of the command line, and store their rows."""
    names = (*LOADERS, "text")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stability", description=__doc__)
    parser.add_argument("data", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.data:
        rows = run(name, options.draws) + run_others(name, options.draws)
        results.write("stability", rows, key=("data",))


if __name__ == "__main__":
    main()
