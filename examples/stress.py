"""Stress test: six methods with their best parameters when 0 to 90 % of the features are deleted at prediction.

    python examples/stress.py [FOLDER] [--rows N]     # FOLDER contains mnist; without it: digits and breast cancer

Every method has a grid of parameters, and the methods without `missing="rescale"` also choose among three ways to fill
deleted entries (zeros, zeros with the rest scaled up, the training means). The choice is made for each level on a
validation part, and the error is that on a test part; on the small data sets it is the mean over --splits random
splits. In the second table all methods use anchored rescaling: the remaining difference is the effect of training.
Bold: the lowest error, and all errors that differ from it by less than one standard error of the difference over the
splits. Writes stress-*.png and stress.md to the folder of --output.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dropmargin import DeletionCurveDisplay, DropoutLogisticRegression, DropoutSVC, deletion_curve
from dropmargin.baselines import ExplicitCorruption, FDropSVC
from dropmargin.evaluation import DeletionCurve
from dropmargin.progress import Progress

LEVELS = np.arange(10) / 10
C_VALUES = (0.001, 0.01, 0.1, 1.0)
NOISES = (0.05, 0.1, 0.3, 0.5)
DELETED_SHARES = (0.02, 0.05, 0.1, 0.2)
FILLS = ("zeros", "scaled", "means", "anchored")
RESCALING = ("DropoutSVC", "DropoutLogisticRegression")


def grids(n_features: int, small: bool) -> dict[str, list]:
    """Return the models of each method; ``small`` leaves out the slowest parameters of the slowest methods."""
    some_c, some_noises = (C_VALUES[1:3], NOISES[1:]) if small else (C_VALUES, NOISES)
    # The coefficients of one-vs-rest FDROP are zero if it may delete too many features: on MNIST from about ten.
    deleted = (1, 3, 10) if small else [max(1, round(share * n_features)) for share in DELETED_SHARES]
    return {
        "LinearSVC": [LinearSVC(C=C, max_iter=5000) for C in C_VALUES],
        "LogisticRegression": [LogisticRegression(C=C, max_iter=500) for C in C_VALUES],
        "FDropSVC": [FDropSVC(k, C=C, tol=1e-3) for k, C in itertools.product(deleted, some_c)],
        "ExplicitCorruption": [
            ExplicitCorruption(LinearSVC(C=C), noise=noise, n_copies=10, random_state=0)
            for noise, C in itertools.product(some_noises, some_c)
        ],
        "DropoutSVC": [
            DropoutSVC(noise=noise, C=C, missing="rescale") for noise, C in itertools.product(NOISES, C_VALUES)
        ],
        "DropoutLogisticRegression": [
            DropoutLogisticRegression(noise=noise, C=C, missing="rescale")
            for noise, C in itertools.product(NOISES, C_VALUES)
        ],
    }


def curve(model, X, y, means, fill: str, seed: int, n_repeats: int) -> DeletionCurve:
    """Return the deletion curve of a model with one way to fill deleted entries."""
    options = {
        "nan": {"fill": np.nan},
        "zeros": {},
        "scaled": {"rescale": True},
        "means": {"fill": means},
        "anchored": {"fill": means, "rescale": True},
    }[fill]
    return deletion_curve(
        model, X, y, levels=LEVELS, n_repeats=n_repeats, random_state=seed, scoring="accuracy", verbose=0, **options
    )


def fit_all(models, fills, train, validation, test, progress, n_repeats) -> list:
    """Return the fill, the validation scores and the test curve of each model with each fill."""
    means = train[0].mean(axis=0)
    found = []
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # LinearSVC at its limit of iterations
            fitted = clone(model).fit(*train)
        for fill in fills:
            scores = curve(fitted, *validation, means, fill, 1, n_repeats).mean
            found.append((fill, scores, curve(fitted, *test, means, fill, 2, n_repeats)))
        progress.advance()
    return found


def choose(found, fills) -> DeletionCurve:
    """Return the test curve of the parameters that are best on the validation part, for each level."""
    allowed = [(scores, test) for fill, scores, test in found if fill in fills]
    choice = np.argmax([scores for scores, _ in allowed], axis=0)
    scores = np.stack([allowed[index][1].scores[level] for level, index in enumerate(choice)])
    return replace(allowed[0][1], scores=scores)


def small_set(name: str, split: int) -> list:
    """Return a data set of scikit-learn: half for training, a quarter for validation, a quarter for the test."""
    X, y = {"digits": load_digits, "breast cancer": load_breast_cancer}[name](return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.5, random_state=split, stratify=y)
    X_validation, X_test, y_validation, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=split, stratify=y_rest
    )
    scaler = StandardScaler().fit(X_train) if name == "breast cancer" else None
    parts = [(X_train, y_train), (X_validation, y_validation), (X_test, y_test)]
    return [(scaler.transform(a) if scaler else a / 16.0, b) for a, b in parts]


def mnist(folder: Path, n_rows: int) -> list:
    """Return MNIST: ``n_rows`` training rows, 2,000 validation rows, and the test rows."""

    def part(name):
        images = gzip.decompress((folder / "mnist" / f"{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / "mnist" / f"{name}-labels-idx1-ubyte.gz").read_bytes())
        X = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255.0
        return X, np.frombuffer(labels, dtype=np.uint8, offset=8)

    X, y = part("train")
    rows = np.random.default_rng(0).permutation(len(y))
    train, validation = rows[:n_rows], rows[n_rows : n_rows + 2000]
    return [(X[train], y[train]), (X[validation], y[validation]), part("t10k")]


def run(name: str, splits: list, small: bool) -> tuple[dict[str, DeletionCurve], dict[str, DeletionCurve]]:
    """Return the curves of all methods, and those with anchored rescaling for all; a column of scores per split."""
    usual, anchored = {}, {}
    methods = grids(splits[0][0][0].shape[1], small)
    with Progress(sum(map(len, methods.values())) * len(splits), name) as progress:
        for method, models in methods.items():
            fills = ("nan",) if method in RESCALING else FILLS
            found = [fit_all(models, fills, *parts, progress, 2 if small else 5) for parts in splits]
            usual[method] = over_splits([choose(own, {*fills} - {"anchored"}) for own in found])
            anchored[method] = over_splits([choose(own, {"anchored", "nan"}) for own in found])
            print(f"{name}: {method}: " + " ".join(f"{1.0 - s:.3f}" for s in usual[method].mean), flush=True)
    return usual, anchored


def over_splits(curves: list[DeletionCurve]) -> DeletionCurve:
    """Return one curve whose scores are the means of the splits, or the repeats of a single split."""
    if len(curves) == 1:
        return curves[0]
    return replace(curves[0], scores=np.stack([own.mean for own in curves], axis=1))


def table(curves: dict[str, DeletionCurve]) -> list[str]:
    """Return the errors as a Markdown table, in bold the lowest of a level and those within a standard error of it."""
    means = np.array([own.mean for own in curves.values()])
    scores = np.array([own.scores for own in curves.values()])
    behind = scores[means.argmax(axis=0), np.arange(len(LEVELS))] - scores
    error = behind.std(axis=2, ddof=1) / np.sqrt(behind.shape[2])
    best = behind.mean(axis=2) <= error
    lines = ["| deleted | " + " | ".join(f"{level:.0%}" for level in LEVELS) + " |", "|---" * 11 + "|"]
    for name, mean, bold in zip(curves, means, best, strict=True):
        cells = [f"**{1.0 - m:.3f}**" if b else f"{1.0 - m:.3f}" for m, b in zip(mean, bold, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="the folder that contains mnist; without it, no MNIST")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows of MNIST (default 10000)")
    parser.add_argument("--splits", type=int, default=10, help="random splits of the small data (default 10)")
    parser.add_argument("--only", nargs="*", help="only these data sets")
    parser.add_argument("--output", type=Path, default=Path(), help="where to write (default: here)")
    options = parser.parse_args()
    names = [name for name in ("digits", "breast cancer", "MNIST") if not options.only or name in options.only]
    options.output.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in names:
        if name == "MNIST" and options.folder is None:
            continue
        if name == "MNIST":
            splits = [mnist(options.folder, options.rows)]
        else:
            splits = [small_set(name, split) for split in range(options.splits)]
        usual, anchored = run(name, splits, small=name == "MNIST")
        lines += [f"## {name}, {len(splits[0][0][1]):,} training rows, error", "", *table(usual), ""]
        lines += ["The other methods with anchored rescaling:", "", *table(anchored), ""]
        figure = DeletionCurveDisplay(usual).plot().figure_
        figure.savefig(options.output / f"stress-{name.replace(' ', '-').lower()}.png", dpi=130, bbox_inches="tight")
    (options.output / "stress.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
