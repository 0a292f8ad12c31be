"""What it costs to choose noise and C, and what it gains: ours against grid searches of scikit-learn, Amazon reviews.

python -m benchmarks.search [books] [kitchen] [--rounds 5] [--n-jobs 1] [--no-own-grid]

Ten noise levels times 13 values of C, five folds, refit: `DropoutSVCCV` and `DropoutLogisticRegressionCV`, against a
grid search over the same 13 values of C for each peer, and against `GridSearchCV(DropoutSVC())` over the same grid
(minutes, once). All in one process, alternating, best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from benchmarks import report
from benchmarks.cases import reviews
from benchmarks.measure import alternate, timed_fit
from dropmargin import DropoutLogisticRegressionCV, DropoutSVC, DropoutSVCCV

CS = np.logspace(-4, 2, 13)
NOISES = [round(0.1 * k, 1) for k in range(10)]
PEER = "LinearSVC, hinge"
OURS = ("DropoutSVCCV", "DropoutLogisticRegressionCV")


def searches(n_jobs: int) -> dict[str, Callable[[], Any]]:
    """Return how to make each search."""

    def grid(model: Any) -> Any:
        return GridSearchCV(model, {"C": CS}, cv=5, n_jobs=n_jobs)

    return {
        PEER: lambda: grid(LinearSVC(loss="hinge")),
        OURS[0]: lambda: DropoutSVCCV(noises=NOISES, Cs=CS, cv=5, n_jobs=n_jobs),
        OURS[1]: lambda: DropoutLogisticRegressionCV(noises=NOISES, Cs=CS, cv=5, n_jobs=n_jobs),
        "LinearSVC, squared hinge": lambda: grid(LinearSVC()),
        "LogisticRegression": lambda: grid(LogisticRegression(max_iter=2_000)),
    }


def chosen(model: Any) -> str:
    """Return what a search has chosen."""
    if hasattr(model, "noise_"):
        return f"noise {getattr(model.noise_, 'rate', 0.0):g}, C {model.C_:.2g}"
    noise = model.best_params_.get("noise")
    return ("" if noise is None else f"noise {noise:g}, ") + f"C {model.best_params_['C']:.2g}"


def run(domain: str, rounds: int, n_jobs: int, own_grid: bool) -> dict[str, Any]:
    """Return times, choices and test errors for one domain."""
    X, y, X_test, y_test = reviews(domain)
    makers = searches(n_jobs)
    fast = {name: makers[name] for name in (PEER, *OURS)}
    seconds, models = alternate(fast, X, y, rounds, np.inf)
    for name in makers.keys() - fast.keys():
        spent, models[name] = timed_fit(makers[name], X, y)
        seconds[name] = [spent]
    if own_grid:
        name = "GridSearchCV(DropoutSVC())"
        both = {"noise": NOISES, "C": CS}
        spent, models[name] = timed_fit(lambda: GridSearchCV(DropoutSVC(), both, cv=5, n_jobs=n_jobs), X, y)
        seconds[name] = [spent]
    rows = [
        {
            "model": name,
            "seconds": min(spent),
            "runs": len(spent),
            "ratio": min(spent) / min(seconds[PEER]),
            "chosen": chosen(models[name]),
            "cv_score": float(models[name].best_score_),
            "test_error": float(1.0 - models[name].score(X_test, y_test)),
        }
        for name, spent in seconds.items()
    ]
    return {"domain": domain, "n_jobs": n_jobs, "rows": rows}


def markdown(results: list[dict[str, Any]], info: dict[str, Any], command: str) -> str:
    """Return a table per domain."""
    versions = ", ".join(f"{name} {number}" for name, number in info["versions"].items())
    lines = [
        "# search",
        "",
        f"`{command}`, {info['cores']} cores of {info['cpu']}, Python {info['python']}, {versions}.",
    ]
    for result in results:
        lines += ["", f"## {result['domain']}, n_jobs={result['n_jobs']}", ""]
        lines += ["| search | s (best of) | to LinearSVC, hinge | chosen | score, 5 folds | test error |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [
            f"| {row['model']} | {row['seconds']:.2f} ({row['runs']}) | {row['ratio']:.2f} | {row['chosen']} | "
            f"{row['cv_score']:.4f} | {row['test_error']:.4f} |"
            for row in result["rows"]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("domains", nargs="*", default=["books", "kitchen"], help="books, kitchen")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument(
        "--no-own-grid", action="store_true", help="leave out GridSearchCV(DropoutSVC()), which is slow"
    )
    options = parser.parse_args()
    results = [run(domain, options.rounds, options.n_jobs, not options.no_own_grid) for domain in options.domains]
    info, command = report.machine(), "python -m benchmarks.search " + " ".join(sys.argv[1:])
    text = markdown(results, info, command)
    report.RESULTS.mkdir(exist_ok=True)
    (report.RESULTS / "search.json").write_text(
        json.dumps({"command": command, "machine": info, "results": results}, indent=1) + "\n"
    )
    (report.RESULTS / "search.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
