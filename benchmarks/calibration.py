"""Calibration of the probabilities of classifiers on tables whose cells are missing at prediction.

python -m benchmarks.calibration [--plot] [TABLE ...]

Tables, rows and deleted cells are those of `benchmarks.missing_cells`, at 0, 30 and 60 % of missing cells, three draws.
The expected calibration error is the mean distance of the probability of the predicted label and of its accuracy in ten
bins of as many rows. Parameters are chosen by cross-validation on training rows. Prints Markdown tables of
it and of the log loss, and writes results/calibration.jsonl, in place of earlier lines of a table; ``--plot`` draws the
reliability diagrams of one table into docs/images/calibration.png.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from benchmarks import results as stored
from benchmarks.missing_cells import load, with_copies
from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV

TABLES = ("cancer", "digits", "segment", "phoneme", "magic", "spambase")
SHARES, N_DRAWS, N_BINS = (0.0, 0.3, 0.6), 3, 10
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "calibration.png"
PLOTTED = (
    "DropoutSVC sigmoid",
    "DropoutSVC, scikit-learn's sigmoid",
    "HistGradientBoosting",
    "LogisticRegression, means",
)


def methods(X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """Yield each fitted method with its name."""
    options = {"missing": "conditional", "target_noise": 0.3, "noises": 5, "Cs": 7, "verbose": 0}
    for method in ("sigmoid", "isotonic"):
        ours = DropoutSVCCV(probability=method, **options).fit(X, y)
        yield f"DropoutSVC {method}", ours
    # Calibrated on complete rows by the public tool, without the variance of the scores.
    plain = ours.best_estimator_.set_params(probability=None)
    yield "DropoutSVC, scikit-learn's sigmoid", CalibratedClassifierCV(plain, ensemble=False).fit(X, y)
    yield "DropoutLogisticRegression", DropoutLogisticRegressionCV(**options).fit(X, y)
    calibrated = DropoutLogisticRegressionCV(probability="sigmoid", **options)
    yield "DropoutLogisticRegression sigmoid", calibrated.fit(X, y)
    for name, imputer in (
        ("means", SimpleImputer()),
        ("iterative", IterativeImputer(max_iter=5, tol=0.0, random_state=0)),
    ):
        linear = LogisticRegressionCV(Cs=np.logspace(-3, 2, 6), cv=5, max_iter=2000, scoring="neg_log_loss")
        yield f"LogisticRegression, {name}", make_pipeline(imputer, linear).fit(X, y)
    rows, labels, folds = with_copies(X, y)
    for name, own, given in (("", 3, (X, y)), (", copies", folds[:3], (rows, labels))):
        trees = HistGradientBoostingClassifier(random_state=0)
        search = GridSearchCV(trees, {"max_leaf_nodes": [7, 31]}, cv=own, scoring="neg_log_loss")
        yield f"HistGradientBoosting{name}", search.fit(*given)


def calibration_error(probabilities: Any, index: Any) -> float:
    """Return the expected calibration error of the predicted label."""
    highest, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == index
    bins = np.array_split(np.argsort(highest, kind="stable"), N_BINS)
    return float(sum(len(own) * abs(highest[own].mean() - is_right[own].mean()) for own in bins) / len(index))


def deleted(X: Any, share: float, draw: int) -> Any:
    """Return a copy of the rows with missing cells."""
    return np.where(np.random.default_rng(draw).random(X.shape) < share, np.nan, X)


def measure(table: str) -> Iterator[dict[str, Any]]:
    """Yield the results of each method."""
    X, X_test, y, y_test = load(table)
    classes, index = np.unique(y), np.searchsorted(np.unique(y), y_test)
    for method, model in methods(X, y):
        found = []
        for share in SHARES:
            draws = [model.predict_proba(deleted(X_test, share, draw)) for draw in range(N_DRAWS if share else 1)]
            errors = [calibration_error(own, index) for own in draws]
            losses = [log_loss(y_test, np.clip(own, 1e-6, 1.0), labels=classes) for own in draws]
            accuracies = [np.mean(own.argmax(axis=1) == index) for own in draws]
            found.append([round(float(np.mean(own)), 4) for own in (errors, losses, accuracies)])
        names = ("calibration_error", "log_loss", "accuracy")
        result = {name: list(own) for name, own in zip(names, zip(*found, strict=True), strict=True)}
        yield {"table": table, "method": method, **result, "n_train": len(y)}


def markdown(results: list[dict[str, Any]], name: str) -> str:
    """Return a measure at the three shares, a row per method and a column per table."""
    found = {(one["table"], one["method"]): one[name] for one in results}
    tables, methods = (list(dict.fromkeys(part)) for part in zip(*found, strict=True))
    lines = [f"| {name} | " + " | ".join(tables) + " | mean |", "|---" * (len(tables) + 2) + "|"]
    for method in methods:
        rows = [found[table, method] for table in tables]
        cells = [" ".join(f"{one:.3f}".lstrip("0") for one in row) for row in [*rows, np.mean(rows, axis=0)]]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(table: str = "magic") -> None:
    """Draw the reliability diagrams of some methods, without missing cells and with 60 % of them missing."""
    import matplotlib.pyplot as plt

    X, X_test, y, y_test = load(table)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    for method, model in methods(X, y):
        for ax, share in zip(axes, (SHARES[0], SHARES[-1]), strict=True):
            if method in PLOTTED:
                positive = model.predict_proba(deleted(X_test, share, 0))[:, 1]
                is_positive = (y_test == model.classes_[1]).astype(int)
                CalibrationDisplay.from_predictions(
                    is_positive, positive, n_bins=N_BINS, strategy="quantile", name=method, ax=ax
                )
            ax.set_title(f"{table}, {share:.0%} of the cells missing")
    figure.savefig(FIGURE, dpi=90)


def main() -> None:
    """Measure tables, store the results, and print those of all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--plot", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.plot:
        plot()
        return
    for table in given.tables:
        for row in measure(table):
            print(json.dumps(row), flush=True)
            stored.write("calibration", [row], key=("table", "method"))
    for name in ("calibration_error", "log_loss"):
        print(markdown(stored.read("calibration"), name), end="\n\n")


if __name__ == "__main__":
    main()
