"""Linear classifiers on features of a frozen network or of text, from few labelled rows.

python -m benchmarks.embeddings [digits mnist books kitchen text news20 cifar10] [--short] [--draws 10]

===============  ==================================================================================================
digits           hidden activations (200 rectified units) of an ``MLPClassifier`` that was trained on the images of 0
                 to 4; the labels are 5 to 9, half of whose images are for the test
mnist            the same, 128 units trained on 10,000 images of 0 to 4; the test are the test images of 5 to 9
books, kitchen,  latent semantic analysis of Amazon reviews, of the five groups comp.* of 20 newsgroups, and of all 20:
text, news20     100 components of tf-idf (of reviews: 200), fitted to the training documents without their labels; rows
                 of norm 1
cifar10          the patch features of `reproduction` (quick): 256 centroids of whitened patches, learnt without labels
                 from 4,000 images, and the counts of the nearest ones in each quadrant of an image; mean norm 1
===============  ==================================================================================================

A draw has 10, 30 or 100 labelled rows per class (digits: 10 and 30). Every method chooses its settings by three-fold
cross-validation on these rows: ``C`` from the same six values, and the searches of this package also a dropout rate;
those without noise show what the rate gains.
The test rows, at most 4,000, are the same for all draws and methods.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from benchmarks import results
from benchmarks.cases import FOLDER, mnist
from benchmarks.text import load as counts
from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV
from reproduction.datasets import load_cifar10
from reproduction.features import PatchFeatures

NAME, KEY = "embeddings", ("features", "per_class", "method", "draw")
CS, RATES = 10.0 ** np.arange(-3, 3), (0.0, 0.1, 0.3, 0.5, 0.7)
SIZES, MOST_TEST_ROWS = (10, 30, 100), 4000


def hidden(network: MLPClassifier, X: Any) -> Any:
    """Return the activations of the hidden layer."""
    return np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0.0)


def of_network(X: Any, y: Any, X_test: Any, y_test: Any, n_units: int, n_rows: int) -> tuple[Any, Any, Any, Any]:
    """Return the features of 5 to 9 from a network that was trained on 0 to 4, with a mean norm of 1."""
    known = np.flatnonzero(y < 5)[:n_rows]
    network = MLPClassifier((n_units,), early_stopping=True, random_state=0).fit(X[known], y[known])
    new, new_test = y >= 5, y_test >= 5
    F, F_test = hidden(network, X[new]), hidden(network, X_test[new_test])
    norm = np.linalg.norm(F, axis=1).mean()
    return F / norm, y[new], F_test / norm, y_test[new_test]


def digits() -> tuple[Any, Any, Any, Any]:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
    return of_network(X, y, X_test, y_test, 200, len(y))


def images() -> tuple[Any, Any, Any, Any]:
    return of_network(*mnist(), 128, 10_000)


def documents(corpus: str, n_components: int) -> tuple[Any, Any, Any, Any]:
    X, y, X_test, y_test = counts(corpus)
    weights = TfidfTransformer(sublinear_tf=True).fit(X)
    reducer = TruncatedSVD(n_components, random_state=0)
    F = reducer.fit_transform(weights.transform(X))
    return normalize(F), y, normalize(reducer.transform(weights.transform(X_test))), y_test


def patches() -> tuple[Any, Any, Any, Any]:
    data = load_cifar10(data_home=FOLDER, download=False)
    codebook = PatchFeatures(n_centroids=256, n_patches=40_000, random_state=0, verbose=0).fit(data.X_train[:4000])
    F, F_test = (codebook.transform(X) for X in (data.X_train[:4000], data.X_test[:MOST_TEST_ROWS]))
    norm = sparse.linalg.norm(F, axis=1).mean()
    return F / norm, data.y_train[:4000], F_test / norm, data.y_test[:MOST_TEST_ROWS]


FEATURES: dict[str, Callable[[], tuple[Any, Any, Any, Any]]] = {
    "digits": digits,
    "mnist": images,
    "books": partial(documents, "books", 200),
    "kitchen": partial(documents, "kitchen", 200),
    "text": partial(documents, "computers", 100),
    "news20": partial(documents, "news20", 100),
    "cifar10": patches,
}


def searches(seed: int) -> dict[str, Any]:
    """Return the methods by name, with the same folds and values of C."""
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    ours = {"Cs": CS, "cv": folds, "verbose": 0}
    return {
        "DropoutSVC": DropoutSVCCV(noises=RATES, **ours),
        "DropoutSVC, no noise": DropoutSVCCV(noises=[None], **ours),
        "DropoutLogisticRegression": DropoutLogisticRegressionCV(noises=RATES, **ours),
        "DropoutLogisticRegression, no noise": DropoutLogisticRegressionCV(noises=[None], **ours),
        "LinearSVC": GridSearchCV(LinearSVC(), {"C": CS}, cv=folds),
        "LogisticRegression": LogisticRegressionCV(Cs=CS, cv=folds, max_iter=1000),
    }


def draw_rows(y: Any, per_class: int, seed: int) -> Any:
    """Return the indices of so many rows of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(np.flatnonzero(y == label))[:per_class] for label in np.unique(y)])


def measure(name: str, n_draws: int, sizes: tuple[int, ...]) -> None:
    """Store the errors of all draws and methods, a size at a time."""
    X, y, X_test, y_test = FEATURES[name]()
    test = np.random.default_rng(0).permutation(len(y_test))[:MOST_TEST_ROWS]
    X_test, y_test = X_test[test], y_test[test]
    smallest = np.unique(y, return_counts=True)[1].min()
    for per_class in (size for size in sizes if size <= smallest):
        rows = []
        for draw in range(n_draws):
            chosen = draw_rows(y, per_class, draw)
            for method, search in searches(draw).items():
                began = time.process_time()
                search.fit(X[chosen], y[chosen])
                seconds = time.process_time() - began
                error = 1.0 - float(np.mean(search.predict(X_test) == y_test))
                row = {"features": name, "per_class": per_class, "method": method, "draw": draw}
                row |= {"error": round(error, 5), "seconds": round(seconds, 2), "n_features": X.shape[1]}
                rows.append(row | ({"noise": getattr(search.noise_, "rate", 0.0)} if hasattr(search, "noise_") else {}))
        results.write(NAME, rows, key=KEY)
        means = {method: np.mean([row["error"] for row in rows if row["method"] == method]) for method in searches(0)}
        print(name, per_class, {method: f"{mean:.4f}" for method, mean in means.items()}, flush=True)


def main() -> None:
    """Measure the features of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embeddings", description=__doc__)
    parser.add_argument("features", nargs="*", help=f"of {[*FEATURES]}; all if none is named")
    parser.add_argument("--short", action="store_true", help="digits alone, three draws")
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    if wrong := [name for name in options.features if name not in FEATURES]:
        parser.error(f"unknown features {wrong[0]!r}: choose from {[*FEATURES]}")
    warnings.simplefilter("ignore")  # of grids whose end was chosen, and of LIBLINEAR's number of iterations
    for name in options.features or (["digits"] if options.short else FEATURES):
        try:
            measure(name, 3 if options.short else options.draws, SIZES)
        except OSError as error:
            print(f"{name}: left out, {error} (set DROPMARGIN_DATA)", file=sys.stderr)


if __name__ == "__main__":
    main()
