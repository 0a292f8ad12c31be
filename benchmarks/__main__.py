"""Command line of the benchmarks.

Each case fits our estimators and their peers in one process, alternating, and reports the best time of each: no machine
is idle enough for a mean. Times are compared by their ratio in the same run.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks import report
from benchmarks.cases import CASES, Case, text
from benchmarks.measure import alternate, peak_extra_memory, prediction_seconds, timed_fit
from benchmarks.peers import OURS, SHORT, models
from dropmargin import DropoutSVC

_SHORT_CASES = ("books", "kitchen", "wide", "news20")
GRID = 10.0 ** np.arange(-3.0, 2.0)


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
) -> dict[str, Any]:
    """Run one case and return its result; ``with_gap`` fits our models once more, to the end."""
    X, y, X_test, y_test = case.load()
    makers = {k: v for k, v in models(case, X.shape, n_jobs).items() if not only or k in only}
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if hasattr(X, "indptr") else X.nbytes
    chosen = {name: best_c(make, X, y) if tune else case.C for name, make in makers.items()}
    fixed = {name: (lambda make=make, name=name: make(chosen[name])) for name, make in makers.items()}
    seconds, fitted = alternate(fixed, X, y, repeats or case.repeats, budget)
    best = {name: min(times) for name, times in seconds.items()}
    predicted = prediction_seconds(fitted, X_test)
    rows = []
    for name in makers:
        row: dict[str, Any] = {
            "model": name,
            "C": chosen[name],
            "seconds": best[name],
            "runs": len(seconds[name]),
            "all_seconds": seconds[name],
            "error": 1.0 - fitted[name].score(X_test, y_test),
            "prediction": predicted.get(name),
        }
        for key, ours in (("ratio_svc", OURS[0]), ("ratio_logistic", OURS[1])):
            if ours in best:
                row[key] = best[ours] / best[name]
        if hasattr(fitted[name], "n_passes_"):
            row["passes"] = fitted[name].n_passes_
        if with_gap and hasattr(fitted[name], "n_passes_"):
            tight = clone(fitted[name]).set_params(solver="auto", tol=1e-9).fit(X, y)
            row["gap"] = (fitted[name].objective_ - tight.objective_) / tight.objective_
        if name in OURS:
            extra = peak_extra_memory(fixed[name], X, y)
            row["memory"] = None if extra is None else extra / size
        rows.append(row)
    shape = f"{X.shape[0]:,} x {X.shape[1]:,}, {len(np.unique(y))} classes, noise {case.noise}, n_jobs {n_jobs}"
    return {
        "case": case.name + ("-tuned" if tune else "") + ("" if n_jobs == 1 else f"-{n_jobs}threads"),
        "data": shape,
        "rows": rows,
    }


def growth(n_jobs: int) -> dict[str, Any]:
    """Return the time of a fit against the number of rows."""
    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]
    X, y, _, _ = text(sizes[-1], 50_000, 80)
    rows = []
    for n_rows in sizes:
        part, labels = X[:n_rows], y[:n_rows]
        make = lambda: DropoutSVC(noise=0.5, C=0.01, n_jobs=n_jobs)  # noqa: E731
        rows.append({"n_rows": n_rows, "seconds": min(timed_fit(make, part, labels)[0] for _ in range(3))})
    slope = np.polyfit(np.log([r["n_rows"] for r in rows]), np.log([r["seconds"] for r in rows]), 1)[0]
    return {
        "case": "growth",
        "data": f"50,000 features, 80 words a row, n_jobs {n_jobs}",
        "rows": rows,
        "slope": float(slope),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
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
    options.cases = options.cases or (list(_SHORT_CASES) if options.short else [*CASES, "growth"])
    for name in options.cases:
        if name not in CASES and name != "growth":
            parser.error(f"unknown case {name!r}: choose from {[*CASES, 'growth']}")
    for name in options.cases:
        if name == "growth":
            result = growth(options.n_jobs)
        else:
            try:
                chosen = options.repeats, options.budget, options.tune, options.only
                result = run(CASES[name], options.n_jobs, *chosen, with_gap=not options.short)
            except FileNotFoundError as error:
                print(f"{name}: skipped, {error.filename} is not there (set DROPMARGIN_DATA)", file=sys.stderr)
                continue
        result["machine"] = report.machine()
        result["command"] = "python -m benchmarks " + " ".join(sys.argv[1:])
        path, table = report.save(result)
        print(table)
        print(f"saved {path.name} and {path.stem}.json in benchmarks/results\n", flush=True)


if __name__ == "__main__":
    main()
