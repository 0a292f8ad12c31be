"""Which ranking of the columns finds the worst deletions? A table of several: python -m benchmarks.rankings.

Each entry is the accuracy on intact and deleted test rows, averaged over 0 to 90 % of the columns deleted (set to 0) in
the order of the ranking: the lower, the worse the case that it found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dropmargin import deletion_curve

LEVELS = np.arange(0.0, 0.95, 0.1)


def without(X: np.ndarray, columns: Any) -> np.ndarray:
    """Return ``X`` with these columns set to 0."""
    X = X.copy()
    X[:, columns] = 0.0
    return X


def responses(model: Any, X: np.ndarray) -> np.ndarray:
    """Return decision values, or else probabilities, centred over the classes."""
    found = model.decision_function(X) if hasattr(model, "decision_function") else model.predict_proba(X)
    found = np.stack([-found, found], axis=1) if found.ndim == 1 else found
    return found - found.mean(axis=1, keepdims=True)


def weight_by_spread(model: Any, X: np.ndarray) -> np.ndarray | None:
    """Return the spread of each column times its weight, which only a linear classifier has."""
    if not hasattr(model, "coef_"):
        return None
    coef = model.coef_ - (model.coef_.mean(axis=0) if len(model.coef_) > 1 else 0.0)
    return np.linalg.norm(coef, axis=0) * X.std(axis=0)


def accuracy_in_order(model: Any, X: np.ndarray, y: np.ndarray, order: np.ndarray) -> float:
    """Return the mean accuracy over the levels, columns deleted in this order."""
    counts = np.floor(LEVELS * X.shape[1] + 0.5).astype(int)
    return float(np.mean([model.score(without(X, order[:count]), y) for count in counts]))


def greedy_order(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the columns in the order in which each next one costs the most accuracy."""
    order: list[int] = []
    left = list(range(X.shape[1]))
    while left:
        scores = [model.score(without(X, [*order, column]), y) for column in left]
        order.append(left.pop(int(np.argmin(scores))))
    return np.array(order)


def compare(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the mean accuracy of each ranking."""
    columns = range(X.shape[1])
    intact, rng = responses(model, X), np.random.default_rng(0)
    moved = [np.mean((responses(model, without(X, column)) - intact) ** 2) for column in columns]
    lost = [model.score(X, y) - model.score(without(X, column), y) for column in columns]
    shuffled = permutation_importance(model, X, y, n_repeats=5, random_state=0).importances_mean
    orders = {
        "permutation": np.argsort(-shuffled, kind="stable"),
        "accuracy": np.argsort(-np.array(lost), kind="stable"),
        "movement": np.argsort(-np.array(moved), kind="stable"),
        "greedy": greedy_order(model, X, y),
    }
    weights = weight_by_spread(model, X)
    if weights is not None:
        orders["weight"] = np.argsort(-weights, kind="stable")
    random = [accuracy_in_order(model, X, y, rng.permutation(X.shape[1])) for _ in range(20)]
    found = {name: accuracy_in_order(model, X, y, order) for name, order in orders.items()}
    margin = deletion_curve(model, X, y, levels=LEVELS, strategy="worst", random_state=0).mean.mean()
    return {"random": float(np.mean(random)), **found, "margin": float(margin)}


def main() -> None:
    names = ("random", "permutation", "accuracy", "movement", "weight", "greedy", "margin")
    print("| |", " | ".join(names), "|\n|---|" + "---|" * len(names))
    for data, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        X = X / 16.0 if data == "digits" else StandardScaler().fit_transform(X)
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
        models = (LinearSVC(C=0.1), LogisticRegression(), KNeighborsClassifier(), GaussianNB(var_smoothing=0.01))
        for model in models:
            found = compare(model.fit(X_train, y_train), X_test, y_test)
            row = [f"{found[name]:.3f}"[1:] if name in found else "" for name in names]
            print(f"| {data}, {type(model).__name__} |", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
