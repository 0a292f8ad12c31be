"""Gap and cost of one pass over a stream, compared with a batch fit.

python -m benchmarks.online [news20] [tall] [--batch 8192] [--rows N]

Each case is shuffled once and passed to `partial_fit` in batches. The gap is that of the batch objective of all rows at
the coefficients of the stream, relative to the optimum by `fit`. Times are processor times on one thread: the best of
three, in turns. Slicing the batches is not included, validating them is. There are two units of time: a bare pass is
one product with X and one with its transpose for all classes, with the loss in between; a pass of `fit` is the time of
a fit to 1e-5, validation and vector operations included, divided by its number of passes. Products per row are counted
and do not depend on the machine; those that compute the means of the features are not included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.cases import CASES
from dropmargin import DropoutLogisticRegression, DropoutSVC
from dropmargin.data import Columns, TrainingData, canonical
from dropmargin.estimators.fitting import problem_of
from dropmargin.objective import Objective
from dropmargin.solvers import Features, make_objective, with_means

MODELS = {"DropoutSVC": DropoutSVC, "DropoutLogisticRegression": DropoutLogisticRegression}


def batch_objectives(model: Any, X: Any, y: Any) -> list[Objective]:
    """Return the objectives that `fit` minimises, one per output."""
    classes, index = np.unique(y, return_inverse=True)
    rows = TrainingData.of_matrix(canonical(X), index, np.ones(len(y)), len(classes))
    problem, rows = with_means(problem_of(model), rows)
    columns = Columns(np.arange(X.shape[1]), X.shape[1])
    features = Features(columns, None, problem.variance)
    return [make_objective(problem, rows, [output], features) for output in rows.outputs("ovr")]


def value(objectives: list[Objective], model: Any) -> float:
    """Return the objective at a model's coefficients, summed over the outputs."""
    coef = np.vstack([model.coef_.T, model.intercept_])
    return float(sum(own.at(coef[:, [k]]).value[0] for k, own in enumerate(objectives)))


def seconds(job: Callable[[], Any]) -> float:
    """Return the time of the processor that a job takes."""
    begin = time.process_time()
    job()
    return time.process_time() - begin


def one_pass(objectives: list[Objective], model: Any) -> None:
    """Make a product with X and one with its transpose, for all columns."""
    coef = np.vstack([model.coef_.T, model.intercept_])
    for k, own in enumerate(objectives):
        _ = own.at(coef[:, [k]]).gradient


def stream_seconds(model: Any, X: Any, y: Any, size: int) -> tuple[float, float]:
    """Return the time of a stream of all rows in batches, without slicing them, and its products per row and output."""
    classes, spent, products = np.unique(y), 0.0, 0.0
    n_outputs = len(classes) if len(classes) > 2 else 1
    for first in range(0, len(y), size):
        batch = X[first : first + size], y[first : first + size]
        spent += seconds(lambda batch=batch: model.partial_fit(*batch, classes=classes))  # type: ignore[misc]
        products += 2 * model.n_passes_ * len(batch[1]) / (len(y) * n_outputs)
    return spent, products


def run(name: str, n_rows: int | None, size: int) -> list[dict[str, Any]]:
    """Return gaps and times of the models on one case."""
    case = CASES[name]
    X, y, X_test, y_test = case.load()
    order = np.random.default_rng(0).permutation(len(y))[:n_rows]
    X, y = X[order], np.asarray(y)[order]
    rows = []
    for label, make in MODELS.items():
        whole = make(noise=case.noise, C=case.C, tol=1e-5)
        times: dict[str, list[float]] = {"fit": [], "pass": [], "stream": []}
        for _ in range(3):
            times["fit"].append(seconds(lambda: whole.fit(X, y)))  # noqa: B023
            objectives = batch_objectives(whole, X, y)
            times["pass"].append(seconds(lambda: one_pass(objectives, whole)))  # noqa: B023
            online = make(noise=case.noise, C=case.C)
            spent, products = stream_seconds(online, X, y, size)
            times["stream"].append(spent)
        fit, bare, stream = (min(times[kind]) for kind in ("fit", "pass", "stream"))
        fit_pass = fit * len(objectives) / whole.n_passes_
        rows.append(
            {
                "case": name,
                "n_rows": len(y),
                "n_features": X.shape[1],
                "batch": size,
                "model": label,
                "gap": value(objectives, online) / value(objectives, whole) - 1.0,
                "seconds": stream,
                "pass_seconds": bare,
                "fit_pass_seconds": fit_pass,
                "products": products,
                "passes": stream / bare,
                "passes_of_fit": stream / fit_pass,
                "fit_passes": fit / bare,
                "test_error": 1.0 - online.score(X_test, y_test),
                "fit_test_error": 1.0 - whole.score(X_test, y_test),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Run the cases that were named, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="{news20,tall}")  # with choices, no argument at all is an error
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=None)
    options = parser.parse_args()
    if set(options.cases) - {"news20", "tall"}:
        parser.error(f"the cases are news20 and tall, got {' '.join(options.cases)}")
    for name in options.cases or ["news20", "tall"]:
        try:
            results.write("online", run(name, options.rows, options.batch), key=("case",))
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error.filename} is not there (set DROPMARGIN_DATA)", file=sys.stderr)


if __name__ == "__main__":
    main()
