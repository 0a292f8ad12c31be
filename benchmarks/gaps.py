"""Time to a relative gap of 1e-2, 1e-4 and 1e-6 on problems that all solvers can solve: no noise, no intercept.

``python -m benchmarks.gaps [CASE ...]`` minimises ``|w|^2 / 2 + C sum loss(y x.w)`` for the hinge and the logistic loss
by our estimators and by LIBLINEAR, scikit-learn's solvers, and, where they are installed (``pip install skglm cyanure
rehline``), skglm and ReHLine for the hinge and Cyanure for the logistic loss. Each solver runs from zero at tolerances
that decrease by factors of ten; its time to a gap is the least of the runs that reach it, the best of several each. The
optimum is the lowest value that any solver finds. The price of the noise is the time of our estimators with noise, to
the same gaps of their own optimum.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from benchmarks import results
from benchmarks.cases import CASES
from dropmargin import DropoutLogisticRegression, DropoutSVC

GAPS = (1e-2, 1e-4, 1e-6)
_TOLERANCES = 10.0 ** -np.arange(1.0, 11.0)
_MOST_ITERATIONS = 10_000
# The Hessian of newton-cholesky is a matrix; ReHLine takes dense rows.
_MOST_FEATURES, _MOST_DENSE = 2_000, 10**8

#: Rows, labels -1 and +1, C and a tolerance to coefficients.
Solve = Callable[[Any, np.ndarray, float, float], np.ndarray]


def of_estimator(make: Callable[..., Any], **given: Any) -> Solve:
    """Return the solver of an estimator of scikit-learn's interface, without an intercept."""

    def solve(X: Any, y: np.ndarray, C: float, tol: float) -> np.ndarray:
        return make(C=C, tol=tol, fit_intercept=False, max_iter=_MOST_ITERATIONS, **given).fit(X, y).coef_.ravel()

    return solve


def by_liblinear(kind: int) -> Solve:
    from liblinear.liblinearutil import train

    def solve(X: Any, y: np.ndarray, C: float, tol: float) -> np.ndarray:
        model = train(y, sparse.csr_matrix(X), f"-s {kind} -c {C} -e {tol} -q")
        return np.array(model.get_decfun()[0]) * (1.0 if model.get_labels()[0] == 1 else -1.0)

    return solve


def by_skglm(X: Any, y: np.ndarray, C: float, tol: float) -> np.ndarray:
    from skglm.estimators import LinearSVC as SkglmSVC

    return np.ravel(SkglmSVC(C=C, tol=tol, max_iter=_MOST_ITERATIONS).fit(X, y).coef_)


def by_cyanure(X: Any, y: np.ndarray, C: float, tol: float) -> np.ndarray:
    from cyanure.estimators import Classifier

    given = {"fit_intercept": False, "verbose": False, "max_iter": _MOST_ITERATIONS, "n_threads": 1}
    model = Classifier(loss="logistic", penalty="l2", lambda_1=1.0 / (C * len(y)), tol=tol, **given)
    return np.ravel(model.fit(X, y).coef_)


def by_rehline(X: Any, y: np.ndarray, C: float, tol: float) -> np.ndarray:
    from rehline import plqERM_Ridge

    model = plqERM_Ridge(loss={"name": "svm"}, C=C, tol=tol, max_iter=_MOST_ITERATIONS)
    return np.ravel(model.fit(X=X.toarray() if sparse.issparse(X) else X, y=y).coef_)


def solvers(loss: str, X: Any) -> dict[str, Solve]:
    """Return the solvers of a loss that are installed and suit the data."""

    def has(name: str) -> bool:
        return importlib.util.find_spec(name) is not None

    found: dict[str, Solve] = {}
    if loss == "hinge":
        found["DropoutSVC"] = of_estimator(DropoutSVC, noise=None)
        found["LinearSVC"] = of_estimator(LinearSVC, loss="hinge")
        if has("liblinear"):
            found["LIBLINEAR -s 3"] = by_liblinear(3)
        if has("skglm"):
            found["skglm"] = by_skglm
        if has("rehline") and X.shape[0] * X.shape[1] <= _MOST_DENSE:
            found["ReHLine"] = by_rehline
        return found
    found["DropoutLogisticRegression"] = of_estimator(DropoutLogisticRegression, noise=None)
    for name in ("lbfgs", "newton-cg", "liblinear", "newton-cholesky"):
        if name != "newton-cholesky" or X.shape[1] <= _MOST_FEATURES:
            found[f"LogisticRegression {name}"] = of_estimator(LogisticRegression, solver=name)
    if has("liblinear"):
        found["LIBLINEAR -s 0"] = by_liblinear(0)
    if has("cyanure"):
        found["Cyanure"] = by_cyanure
    return found


def objective(loss: str, X: Any, y: np.ndarray, C: float, w: np.ndarray) -> float:
    margins = y * np.asarray(X @ w, dtype=np.float64)
    losses = np.maximum(0.0, 1.0 - margins) if loss == "hinge" else np.logaddexp(0.0, -margins)
    return 0.5 * float(w @ w) + C * float(losses.sum())


def curve(run: Callable[[float], float], repeats: int, budget: float) -> list[tuple[float, float]]:
    """Return the best time and the objective at each tolerance, until the time is used up or nothing improves."""
    found: list[tuple[float, float]] = []
    begin = time.process_time()
    for tol in _TOLERANCES:
        times, value = [], np.inf
        for _ in range(repeats):
            start = time.process_time()
            value = min(value, run(tol))
            times.append(time.process_time() - start)
            if time.process_time() - begin > budget:
                break
        found.append((min(times), value))
        if time.process_time() - begin > budget:
            break
    return found


def times_to_gaps(found: list[tuple[float, float]], optimum: float) -> list[float | None]:
    """Return the least time of a run that reaches each gap."""
    out = []
    for gap in GAPS:
        reached = [seconds for seconds, value in found if value - optimum <= gap * abs(optimum)]
        out.append(min(reached, default=None))
    return out


def measure(name: str, repeats: int, budget: float) -> list[dict[str, Any]]:
    """Return the times of all solvers on a case; several classes are two halves."""
    case = CASES[name]
    X, y, _, _ = case.load()
    labels = np.unique(y)
    y = np.where(np.isin(y, labels[len(labels) // 2 :]), 1.0, -1.0)
    if name == "mnist":
        X, y = X[:10_000].astype(np.float64), y[:10_000]
    rows = []
    for loss, ours in (("hinge", DropoutSVC), ("logistic", DropoutLogisticRegression)):
        curves = {}
        for solver, solve in solvers(loss, X).items():
            print(f"{name}, {loss}: {solver}", file=sys.stderr, flush=True)
            run = lambda tol, solve=solve: objective(loss, X, y, case.C, solve(X, y, case.C, tol))  # noqa: E731, B023
            try:
                run(_TOLERANCES[0])  # compiles what is compiled at the first use
                curves[solver] = curve(run, repeats, budget)
            except Exception as error:
                print(f"  left out: {type(error).__name__}: {error}", file=sys.stderr)
        optimum = min(value for own in curves.values() for _, value in own)
        rows += [
            {"case": name, "loss": loss, "solver": solver, "seconds": times_to_gaps(own, optimum)}
            for solver, own in curves.items()
        ]

        def with_noise(tol: float, ours: Any = ours) -> float:
            model = ours(noise=case.noise, C=case.C, tol=tol, fit_intercept=False, max_iter=_MOST_ITERATIONS)
            return model.fit(X, y).objective_

        own = curve(with_noise, repeats, budget)
        seconds = times_to_gaps(own, min(value for _, value in own))
        solver = f"{ours.__name__}, noise {case.noise}"
        rows.append({"case": name, "loss": loss, "solver": solver, "seconds": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaps", description=__doc__)
    parser.add_argument("cases", nargs="*", default=["books", "kitchen", "news20", "mnist"], help=f"of {[*CASES]}")
    parser.add_argument("--repeats", type=int, default=5, help="runs at each tolerance, of which the best counts (5)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a solver on a case (60)")
    options = parser.parse_args()
    if wrong := [name for name in options.cases if name not in CASES]:
        parser.error(f"unknown case {wrong[0]!r}: choose from {[*CASES]}")
    warnings.simplefilter("ignore")
    for name in options.cases:
        rows = measure(name, options.repeats, options.budget)
        for row in rows:
            print(row["case"], row["loss"], row["solver"], row["seconds"], flush=True)
        results.write("gaps", rows, key=("case",), libraries=("liblinear-official", "skglm", "cyanure", "rehline"))


if __name__ == "__main__":
    main()
