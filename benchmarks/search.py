"""What it costs to choose noise and C, and what it gains, beside grid searches of scikit-learn.

python -m benchmarks.search [books kitchen iris wine cancer digits] [--rounds 5] [--n-jobs 1] [--no-own-grid]

Reviews (books, kitchen): ten noises, 13 values of C and five folds; ``DropoutSVCCV`` and
``DropoutLogisticRegressionCV`` beside a search over the same values of C for each peer, and beside
``GridSearchCV(DropoutSVC())`` over the same grid (minutes, once). Tables of scikit-learn: the default searches, 130
points. Processor time, alternating, best of the rounds: run it with ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from benchmarks import results
from benchmarks.cases import reviews
from dropmargin import DropoutLogisticRegressionCV, DropoutSVC, DropoutSVCCV

REVIEWS = ("books", "kitchen")
TABLES = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
CS = np.logspace(-4, 2, 13)
NOISES = [round(0.1 * k, 1) for k in range(10)]
PEER = "LinearSVC, hinge"
OURS = ("DropoutSVCCV", "DropoutLogisticRegressionCV")


def searches(case: str, n_jobs: int) -> dict[str, Callable[[], Any]]:
    """Return how to make each search that is run in every round; on the tables, ours have the default grid."""
    grid = {"noises": NOISES, "Cs": CS, "cv": 5} if case in REVIEWS else {}
    return {
        PEER: lambda: of_c(LinearSVC(loss="hinge"), n_jobs),
        OURS[0]: lambda: DropoutSVCCV(**grid, n_jobs=n_jobs, verbose=0),
        OURS[1]: lambda: DropoutLogisticRegressionCV(**grid, n_jobs=n_jobs, verbose=0),
    }


def slow_searches(n_jobs: int, own_grid: bool) -> dict[str, Callable[[], Any]]:
    """Return the searches that are run once, on reviews."""
    found: dict[str, Callable[[], Any]] = {
        "LinearSVC, squared hinge": lambda: of_c(LinearSVC(), n_jobs),
        "LogisticRegression": lambda: of_c(LogisticRegression(max_iter=2_000), n_jobs),
    }
    if own_grid:
        both = {"noise": NOISES, "C": CS}
        found["GridSearchCV(DropoutSVC())"] = lambda: GridSearchCV(DropoutSVC(), both, cv=5, n_jobs=n_jobs)
    return found


def of_c(model: Any, n_jobs: int) -> Any:
    """Return a search over the values of C."""
    return GridSearchCV(model, {"C": CS}, cv=5, n_jobs=n_jobs)


def chosen(model: Any) -> dict[str, float]:
    """Return what a search has chosen."""
    if hasattr(model, "noise_"):
        return {"noise": float(getattr(model.noise_, "rate", 0.0)), "C": float(model.C_)}
    return {name: float(value) for name, value in model.best_params_.items()}


def run(case: str, rounds: int, n_jobs: int, own_grid: bool) -> list[dict[str, Any]]:
    """Return times, choices and test errors of one case; a table has no test rows."""
    if case in REVIEWS:
        X, y, *test = reviews(case)
    else:
        (X, y), test = TABLES[case](return_X_y=True), []
    seconds: dict[str, list[float]] = {}
    fitted = {}
    every = dict.fromkeys(searches(case, n_jobs).items(), rounds)
    every |= dict.fromkeys(slow_searches(n_jobs, own_grid).items(), 1) if case in REVIEWS else {}
    for turn in range(rounds):
        for (name, make), turns in every.items():
            if turn < turns:
                began = time.process_time()
                fitted[name] = make().fit(X, y)
                seconds.setdefault(name, []).append(time.process_time() - began)
    rows = []
    for name, model in fitted.items():
        row = {"case": case, "n_jobs": n_jobs, "search": name, "seconds": min(seconds[name])}
        row |= {"runs": len(seconds[name]), "chosen": chosen(model), "cv_score": float(model.best_score_)}
        rows.append(row | ({"test_error": float(1.0 - model.score(*test))} if test else {}))
        print(case, name, f"{row['seconds']:.2f} s", row["chosen"], flush=True)
    return rows


def main() -> None:
    """Measure the cases of the command line, and store their rows."""
    every = [*REVIEWS, *TABLES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {every}; all if none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument(
        "--no-own-grid", action="store_true", help="leave out GridSearchCV(DropoutSVC()), which is slow"
    )
    options = parser.parse_args()
    if wrong := [name for name in options.cases if name not in every]:
        parser.error(f"unknown case {wrong[0]!r}: choose from {every}")
    warnings.simplefilter("ignore")
    for case in options.cases or every:
        try:
            rows = run(case, options.rounds, options.n_jobs, not options.no_own_grid)
        except FileNotFoundError as error:
            print(f"{case}: skipped, {error.filename} is not there (set DROPMARGIN_DATA)", file=sys.stderr)
            continue
        results.write("search", rows, key=("case", "n_jobs"))


if __name__ == "__main__":
    main()
