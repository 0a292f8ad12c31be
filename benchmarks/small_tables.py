"""What the default search costs on the small dense tables of scikit-learn.

python -m benchmarks.small_tables [iris] [wine] [cancer] [digits] [--rounds 5] [--peer]

`DropoutSVCCV()` and `DropoutLogisticRegressionCV()`, one thread, processor time, alternating, best of the rounds, with
the choice and its cross-validated score; with ``--peer`` also `GridSearchCV(LinearSVC(loss="hinge"))` over 13 values of
``C``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV

TABLES = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


def searches(peer: bool) -> dict[str, Any]:
    """Return a search by name."""
    ours = {"SVC": DropoutSVCCV(verbose=0, n_jobs=1), "logistic": DropoutLogisticRegressionCV(verbose=0, n_jobs=1)}
    grid = GridSearchCV(LinearSVC(loss="hinge"), {"C": np.logspace(-4, 2, 13)}, cv=5, n_jobs=1)
    return {**ours, "LinearSVC, hinge": grid} if peer else ours


def main() -> None:
    """Measure, and print one line per table and search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="tables, by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for table in arguments.tables or TABLES:
        X, y = TABLES[table](return_X_y=True)
        models, seconds = searches(arguments.peer), {}
        for _ in range(arguments.rounds):
            for name, model in models.items():
                begin = time.process_time()
                model.fit(X, y)
                seconds.setdefault(name, []).append(time.process_time() - begin)
        for name, model in models.items():
            chosen = model.best_params_ if hasattr(model, "best_params_") else (model.noise_, model.C_)
            print(f"{table:8} {name:18} {min(seconds[name]):7.2f} s   score {model.best_score_:.4f}   {chosen}")


if __name__ == "__main__":
    main()
