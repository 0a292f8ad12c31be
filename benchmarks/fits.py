"""Time, memory and error of one fit beside LinearSVC and other peers, in one process, alternating.

python -m benchmarks.fits [CASE ...] [--short] [--n-jobs 1] [--repeats N] [--budget 60] [--tune] [--only MODEL ...]

The best time of each model counts: no machine is idle enough for a mean. Times are compared by their ratio in the same
run. ``growth`` is the time of a fit against the number of rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.svm import LinearSVC

from benchmarks import results
from benchmarks.cases import CASES, Case, text
from benchmarks.measure import alternate, peak_extra_memory, prediction_seconds, timed_fit
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC

OURS = ("DropoutSVC", "DropoutLogisticRegression")
#: The models and the cases of ``--short``.
SHORT = (*OURS, "DropoutSVC, reference zero", "DropoutSVC, groups", "LinearSVC hinge", "LinearSVC squared hinge")
SHORT_CASES = ("books", "kitchen", "wide", "news20")
GRID = 10.0 ** np.arange(-3.0, 2.0)
# Features per group.
_GROUP_SIZE = 10


class ExplicitCopies:
    """LinearSVC on ten corrupted copies of the data, each of weight 1/10."""

    def __init__(self, noise: float, C: float, copies: int = 10) -> None:
        self.noise, self.copies = DropoutNoise(noise), copies
        self.model = LinearSVC(loss="hinge", C=C / copies)

    def fit(self, X: Any, y: Any) -> ExplicitCopies:
        samples = [self.noise.sample(X, random_state=seed) for seed in range(self.copies)]
        stacked = sparse.vstack(samples, format="csr") if sparse.issparse(X) else np.concatenate(samples)
        self.model.fit(stacked, np.tile(y, self.copies))
        return self

    def score(self, X: Any, y: Any) -> float:
        return self.model.score(X, y)


class Liblinear:
    """LIBLINEAR's own solver of the hinge loss (liblinear-official), without an intercept."""

    def __init__(self, C: float) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> Liblinear:
        from liblinear.liblinearutil import train

        labels = np.asarray(y, dtype=np.float64)
        self.model = train(labels, sparse.csr_matrix(X), f"-s 3 -c {self.C} -q")
        return self

    def score(self, X: Any, y: Any) -> float:
        from liblinear.liblinearutil import predict

        labels, _, _ = predict(np.asarray(y, dtype=np.float64), sparse.csr_matrix(X), self.model, "-q")
        return float(np.mean(np.asarray(labels) == y))


def models(case: Case, shape: tuple[int, int], n_jobs: int) -> dict[str, Callable[[float], Any]]:
    """Return the constructors of the models, by name; each takes ``C``."""
    noise, (n_rows, n_features) = case.noise, shape
    from_zero = DropoutNoise(noise, reference="zero")
    grouped = DropoutNoise(noise, groups=np.arange(n_features) // _GROUP_SIZE)
    found: dict[str, Callable[[float], Any]] = {
        "DropoutSVC": lambda C: DropoutSVC(noise=noise, C=C, n_jobs=n_jobs),
        "DropoutLogisticRegression": lambda C: DropoutLogisticRegression(noise=noise, C=C, n_jobs=n_jobs),
        "DropoutSVC, reference zero": lambda C: DropoutSVC(noise=from_zero, C=C, n_jobs=n_jobs),
        "DropoutSVC, groups": lambda C: DropoutSVC(noise=grouped, C=C, n_jobs=n_jobs),
        "LinearSVC hinge": lambda C: LinearSVC(loss="hinge", C=C),
        "LinearSVC squared hinge": lambda C: LinearSVC(C=C, dual="auto"),
        "LogisticRegression": lambda C: LogisticRegression(C=C, max_iter=1_000),
        "SGDClassifier": lambda C: SGDClassifier(alpha=1.0 / (C * n_rows), random_state=0),
    }
    if case.slow_peers:
        found["DropoutSVC lbfgs"] = lambda C: DropoutSVC(noise=noise, C=C, n_jobs=n_jobs, solver="lbfgs")
        found["DropoutLogisticRegression lbfgs"] = lambda C: DropoutLogisticRegression(
            noise=noise, C=C, n_jobs=n_jobs, solver="lbfgs"
        )
        found["LinearSVC, 10 copies"] = lambda C: ExplicitCopies(noise, C)
        if importlib.util.find_spec("liblinear") is not None:
            found["LIBLINEAR hinge"] = Liblinear
    return found


def best_c(make: Any, X: Any, y: Any) -> float:
    """Return the C with the least error on a held-out fifth."""
    train, test = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(X, y))
    errors = []
    for C in GRID:
        _, model = timed_fit(lambda C=C: make(C), X[train], y[train])
        errors.append(1.0 - model.score(X[test], y[test]))
    return float(GRID[int(np.argmin(errors))])


def run(
    case: Case, n_jobs: int, repeats: int | None, budget: float, tune: bool, only: list[str], with_gap: bool = True
) -> list[dict[str, Any]]:
    """Return a row for each model of a case; ``with_gap`` fits our models once more, to the end."""
    X, y, X_test, y_test = case.load()
    makers = {k: v for k, v in models(case, X.shape, n_jobs).items() if not only or k in only}
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if hasattr(X, "indptr") else X.nbytes
    chosen = {name: best_c(make, X, y) if tune else case.C for name, make in makers.items()}
    fixed = {name: (lambda make=make, name=name: make(chosen[name])) for name, make in makers.items()}
    seconds, fitted = alternate(fixed, X, y, repeats or case.repeats, budget)
    predicted = prediction_seconds(fitted, X_test)
    facts = {"case": case.name, "tuned": tune, "n_jobs": n_jobs, "noise": case.noise, "n_classes": len(np.unique(y))}
    facts |= {"n_rows": X.shape[0], "n_features": X.shape[1]}
    rows = []
    for name in makers:
        row: dict[str, Any] = facts | {
            "model": name,
            "C": chosen[name],
            "seconds": min(seconds[name]),
            "all_seconds": seconds[name],
            "error": 1.0 - fitted[name].score(X_test, y_test),
            "prediction": predicted.get(name),
        }
        if hasattr(fitted[name], "n_passes_"):
            row["passes"] = fitted[name].n_passes_
        if with_gap and hasattr(fitted[name], "n_passes_"):
            tight = clone(fitted[name]).set_params(solver="auto", tol=1e-9).fit(X, y)
            row["gap"] = (fitted[name].objective_ - tight.objective_) / tight.objective_
        if name in OURS:
            extra = peak_extra_memory(fixed[name], X, y)
            row["memory"] = None if extra is None else extra / size
        rows.append(row)
        print(f"{case.name}, {name}: {row['seconds']:.3g} s, error {row['error']:.4f}", flush=True)
    return rows


def growth(n_jobs: int) -> list[dict[str, Any]]:
    """Return the time of a fit against the number of rows."""
    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]
    X, y, _, _ = text(sizes[-1], 50_000, 80)
    rows = []
    for n_rows in sizes:
        part, labels = X[:n_rows], y[:n_rows]
        make = lambda: DropoutSVC(noise=0.5, C=0.01, n_jobs=n_jobs)  # noqa: E731
        seconds = min(timed_fit(make, part, labels)[0] for _ in range(3))
        rows.append({"case": "growth", "n_jobs": n_jobs, "tuned": False, "n_rows": n_rows, "seconds": seconds})
    return rows


def main() -> None:
    """Measure the cases of the command line, and store their rows."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"of {[*CASES, 'growth']}; all if none is named")
    parser.add_argument("--n-jobs", type=int, default=1, help="threads of our estimators (default 1)")
    parser.add_argument("--repeats", type=int, help="rounds (default: by case, at least 5)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds after which a model drops out (default 60)")
    parser.add_argument("--tune", action="store_true", help="each model at its own best C instead of a common one")
    parser.add_argument("--only", nargs="*", default=[], help="only the models of these names")
    parser.add_argument(
        "--short",
        action="store_true",
        help="our models and LinearSVC, without the gap; on books, kitchen, wide and news20 if no case is named",
    )
    options = parser.parse_args()
    if options.short:
        options.only = options.only or list(SHORT)
        options.budget = min(options.budget, 15.0)
    options.cases = options.cases or (list(SHORT_CASES) if options.short else [*CASES, "growth"])
    if wrong := [name for name in options.cases if name not in CASES and name != "growth"]:
        parser.error(f"unknown case {wrong[0]!r}: choose from {[*CASES, 'growth']}")
    for name in options.cases:
        try:
            if name == "growth":
                rows = growth(options.n_jobs)
            else:
                chosen = options.repeats, options.budget, options.tune, options.only
                rows = run(CASES[name], options.n_jobs, *chosen, with_gap=not options.short)
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error.filename} is not there (set DROPMARGIN_DATA)", file=sys.stderr)
            continue
        results.write("fits", rows, key=("case", "n_jobs", "tuned"))


if __name__ == "__main__":
    main()
