"""Deleted pixels: an SVM against Dropout-SVM on the digits that come with scikit-learn.

Both are trained on whole images, with their settings chosen by cross-validation on images that lose half of their
pixels, and tested on images that lose 0 to 90 % of theirs. What is left is divided by the share that is left.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import LinearSVC

from dropmargin import DropoutSVC

LEVELS = np.arange(0.0, 0.95, 0.1)
REPEATS = 10


def delete(X: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Return ``X`` without a random share ``level`` of its pixels, the others rescaled."""
    return X * (rng.uniform(size=X.shape) >= level) / (1.0 - level)


def error(model, X: np.ndarray, y: np.ndarray, level: float) -> float:
    """Return the mean test error over several random deletions; every model meets the same ones."""
    rng = np.random.default_rng(0)
    repeats = 1 if level == 0.0 else REPEATS
    return float(np.mean([1.0 - model.score(delete(X, level, rng), y) for _ in range(repeats)]))


def choose(candidates: list, X: np.ndarray, y: np.ndarray):
    """Return the candidate with the least cross-validated error at 50 % deletion."""
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    errors = [
        np.mean([error(model.fit(X[train], y[train]), X[test], y[test], 0.5) for train, test in folds])
        for model in candidates
    ]
    return candidates[int(np.argmin(errors))]


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
    print(f"digits: {len(X_train)} images to learn from, {len(X_test)} to test on, {X.shape[1]} pixels, 10 classes")
    grid = 10.0 ** np.arange(-3, 2)
    plain = choose([LinearSVC(C=C) for C in grid], X_train, y_train).fit(X_train, y_train)
    candidates = [DropoutSVC(noise=noise, C=C) for noise in (0.1, 0.2, 0.3, 0.5) for C in grid]
    ours = choose(candidates, X_train, y_train).fit(X_train, y_train)
    print(f"chosen at 50 % deletion: LinearSVC(C={plain.C:g}) and DropoutSVC(noise={ours.noise}, C={ours.C:g})\n")
    print("pixels deleted   LinearSVC error   DropoutSVC error")
    for level in LEVELS:
        left, right = error(plain, X_test, y_test, level), error(ours, X_test, y_test, level)
        print(f"{level:14.0%}   {left:15.3f}   {right:16.3f}")


if __name__ == "__main__":
    main()
