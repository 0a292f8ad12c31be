"""Multinomial and one-vs-rest logistic regression beside each other: digits, 20 newsgroups and MNIST.

python -m benchmarks.multinomial [digits] [news20] [mnist]     errors with 0, 30 and 50 % of the features missing
python -m benchmarks.multinomial --time [--rows 10000]         process time on MNIST, the two fits in turn
python -m benchmarks.multinomial --plot FILE [--rows 10000]    reliability diagram of MNIST

Noise and C are chosen by the error of held-out training rows, for each share of missing features; the chosen models are
then fitted to all training rows. Missing features are scored by ``missing="rescale"``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.cases import mnist, news20
from dropmargin import DropoutLogisticRegression

SHARES = (0.0, 0.3, 0.5)
METHODS = ("ovr", "multinomial")
# Noises, and values of C of each method.
GRIDS: dict[str, tuple[tuple[float, ...], dict[str, tuple[float, ...]]]] = {
    "digits": ((0.0, 0.05, 0.1, 0.3, 0.5), dict.fromkeys(METHODS, (0.1, 0.3, 1.0, 3.0, 10.0, 30.0))),
    "news20": ((0.5,), dict.fromkeys(METHODS, (30.0, 100.0))),
    "mnist": ((0.02, 0.05, 0.1), {"ovr": (0.03, 0.1, 0.3), "multinomial": (0.03, 0.1, 0.3)}),
}
# C of --time and --plot, with the noise 0.05.
SETTINGS = {"ovr": 0.3, "multinomial": 0.1}
# MNIST: a part of the training rows is enough to choose.
CHOICE_ROWS = 20_000


def load(name: str) -> tuple[Any, Any, Any, Any]:
    """Return training rows and labels, and those of the test."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
        return X, y, X_test, y_test
    return news20() if name == "news20" else mnist()


def without(X: Any, share: float) -> Any:
    """Return rows without a share of their features; of sparse rows, whose zeros are known, of those that they have."""
    rng = np.random.default_rng(0)
    if not sparse.issparse(X):
        return np.where(rng.random(X.shape) < share, X.dtype.type(np.nan), X)
    gone = X.copy()
    gone.data[rng.random(len(gone.data)) < share] = 0.0
    return gone


def fit(multi_class: str, noise: float, C: float, X: Any, y: Any, tol: float = 1e-4, missing: str = "rescale") -> Any:
    """Return a fitted model."""
    missing = "error" if sparse.issparse(X) else missing
    model = DropoutLogisticRegression(noise=noise, C=C, multi_class=multi_class, missing=missing, tol=tol)
    return model.fit(X, y)


def errors(model: Any, X: Any, y: Any) -> list[float]:
    """Return the error at each share of missing features."""
    return [float(np.mean(model.predict(without(X, share) if share else X) != y)) for share in SHARES]


def reliability(model: Any, X: Any, y: Any, n_bins: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of rows, their mean highest probability and their accuracy, in bins of that probability."""
    probabilities = model.predict_proba(X)
    highest, hit = probabilities.max(axis=1), model.classes_[probabilities.argmax(axis=1)] == y
    bins = np.minimum((highest * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    means = [np.bincount(bins, values, minlength=n_bins) / np.maximum(counts, 1) for values in (highest, hit)]
    return counts, means[0], means[1]


def calibration_error(model: Any, X: Any, y: Any) -> float:
    """Return the mean distance of the highest probability to the accuracy."""
    counts, probability, accuracy = reliability(model, X, y)
    return float(counts @ np.abs(probability - accuracy) / len(y))


def run(name: str) -> None:
    """Print the errors of a grid on held-out rows, and those of the chosen models on the test rows."""
    X, y, X_test, y_test = load(name)
    n_train = min(CHOICE_ROWS, 4 * X.shape[0] // 5)
    own, held_out = train_test_split(
        np.arange(X.shape[0]), train_size=n_train, test_size=n_train // 4, random_state=0, stratify=y
    )
    noises, Cs = GRIDS[name]
    print(f"\n{name}: {X.shape[0]} training rows, {n_train} to choose; test rows {X_test.shape[0]}", flush=True)
    for method in METHODS:
        points = [(noise, C) for noise in noises for C in Cs[method]]
        found = []
        for noise, C in points:
            model = fit(method, noise, C, X[own], y[own], 1e-3)
            found.append(errors(model, X[held_out], y[held_out]))
            print(f"  {method} noise {noise} C {C}: held out", *(f"{e:.4f}" for e in found[-1]), flush=True)
        chosen = [points[k] for k in np.argmin(found, axis=0)]
        models = {point: fit(method, *point, X, y) for point in dict.fromkeys(chosen)}
        for k, point in enumerate(chosen):
            rows = without(X_test, SHARES[k]) if SHARES[k] else X_test
            error = 1.0 - models[point].score(rows, y_test)
            gap = calibration_error(models[point], rows, y_test)
            print(
                f"{method} {SHARES[k]:.0%} missing: noise {point[0]} C {point[1]}: error {error:.4f}, "
                f"calibration error {gap:.3f}",
                flush=True,
            )


def measure_time(n_rows: int, rounds: int) -> None:
    """Print the process time of both methods, fitted in turn."""
    X, y, *_ = mnist()
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(rounds):
        for method, C in SETTINGS.items():
            began = time.process_time()
            model = fit(method, 0.05, C, X[:n_rows], y[:n_rows])
            seconds[method].append(time.process_time() - began)
            print(f"  {method} {seconds[method][-1]:.2f} s, {model.n_passes_:.1f} passes", flush=True)
    first, second = (min(spent) for spent in seconds.values())
    print(f"{n_rows} rows: one-vs-rest {first:.2f} s, multinomial {second:.2f} s, ratio {second / first:.2f}")


def plot(path: str, n_rows: int) -> None:
    """Write a reliability diagram, and print the calibration errors: missing="conditional", 2,000 test images."""
    import matplotlib.pyplot as plt

    X, y, X_test, y_test = mnist()
    X_test, y_test = X_test[:2000], y_test[:2000]
    figure, axes = plt.subplots(1, len(SHARES), figsize=(9, 3.2), sharey=True, layout="constrained")
    for method, C in SETTINGS.items():
        model = fit(method, 0.05, C, X[:n_rows], y[:n_rows], missing="conditional")
        for ax, share in zip(axes, SHARES, strict=True):
            counts, probability, accuracy = reliability(model, without(X_test, share) if share else X_test, y_test)
            gap = counts @ np.abs(probability - accuracy) / len(y_test)
            print(f"{method} {share:.0%} missing: calibration error {gap:.3f}", flush=True)
            used = counts >= 20
            ax.plot(probability[used], accuracy[used], marker="o", markersize=4, label=method)
    for ax, share in zip(axes, SHARES, strict=True):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
        ax.set(title=f"{share:.0%} of the pixels missing", xlabel="highest probability", xlim=(0, 1), ylim=(0, 1))
    axes[0].set_ylabel("accuracy")
    axes[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multinomial", description=__doc__)
    parser.add_argument("names", nargs="*", help="digits, news20, mnist")
    parser.add_argument("--time", action="store_true", help="measure the process time on MNIST")
    parser.add_argument("--plot", metavar="FILE", help="write a reliability diagram of MNIST")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows of MNIST for --time and --plot")
    parser.add_argument("--rounds", type=int, default=3, help="times each fit is run; the shortest counts")
    options = parser.parse_args()
    if options.time:
        measure_time(options.rows, options.rounds)
    if options.plot:
        plot(options.plot, options.rows)
    for name in options.names or ([] if options.time or options.plot else list(GRIDS)):
        run(name)


if __name__ == "__main__":
    main()
