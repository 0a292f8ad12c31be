"""The stress test: the errors of our model and of other methods when features are deleted at prediction.

A deleted feature is treated in two ways, each with its own choice of parameters:

- ``"zero"``: its value is zero, and no method knows that it is missing. This is the paper's test; dropout in training
  sets features to zero as well.
- ``"missing"``: it is known to be missing (NaN), and each method predicts in its own way (`evaluation.methods`).

All parameters are chosen by cross-validation on the training rows, by the score on rows with deleted features: the
accuracy of classifiers, the root mean squared error (RMSE) of regressors.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.multiclass import type_of_target

from dropmargin.data import EncodedRows, canonical, is_dense_matrix
from dropmargin.data.missing_values import has_missing, zero_missing
from dropmargin.estimators.fitting import Fit
from dropmargin.estimators.validation import check_choice
from dropmargin.evaluation.curves import DeletionCurve, check_levels, deletion_curve
from dropmargin.evaluation.methods import SEARCHES, TREATMENTS, Method, Plan, Task, methods_for, predicts_numbers
from dropmargin.model_selection.base import MarginalisedModelCV, plain_model
from dropmargin.model_selection.grid import default_cs
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

__all__ = ["TREATMENTS", "MethodResult", "Plan", "methods_for", "stress_test"]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The parameters, the model and the scores of one method under one treatment.

    Parameters
    ----------
    method : str
        Its name.
    treatment : {"zero", "missing"}
    parameters : dict
        The chosen parameters by name; those of our model are ``noise`` and ``C``.
    model : classifier or regressor
        Fitted to all training rows.
    curve : DeletionCurve
        Its accuracy on the test rows, or minus its root mean squared error.
    standard_error : ndarray of shape (n_levels,)
        The standard error of the error of each level, for a sample of test rows.
    search : MarginalisedModelCV or GridSearchCV
        The search for the parameters.
    converged : bool
        Whether the fit reached its tolerance before its limit of iterations.
    seconds : tuple of float
        Processor time of the search, and of the predictions of the curve.
    target_deviation : float or None
        The standard deviation of the test targets of a regression; ``None`` for classes.
    """

    method: str
    treatment: str
    parameters: dict[str, Any]
    model: Any
    curve: DeletionCurve
    standard_error: Array
    search: Any
    converged: bool
    seconds: tuple[float, float]
    target_deviation: float | None = None

    @property
    def error(self) -> Array:
        """Mean error at each level: the share of wrong labels, or the root mean squared error."""
        return 1.0 - self.curve.mean if self.target_deviation is None else -self.curve.mean

    @property
    def r2(self) -> Array | None:
        """Mean coefficient of determination R^2 at each level; ``None`` for classes, or if all targets are equal."""
        if not self.target_deviation:
            return None
        return 1.0 - np.mean(np.square(self.curve.scores / self.target_deviation), axis=1)

    @property
    def is_ours(self) -> bool:
        """Whether the method is one of this package, which the others are compared with."""
        return self.method.startswith("Dropout")


def stress_test(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    plan: Plan,
    notify: Callable[[str], None] = lambda text: None,
    methods: Sequence[Method] | None = None,
) -> list[MethodResult]:
    """Return the scores of every method, with its best parameters, when features of the test rows are deleted.

    Parameters
    ----------
    train, test : tuple of X and y
        Numeric rows, dense or sparse, and their labels or numbers; NaN is a missing value.
    plan : Plan
        The parameters of the test.
    notify : callable
        Is called with one line of text when the work on a method begins, and for a method that is left out.
    methods : sequence of Method, default=None
        The methods to compare; ``None`` for all of `methods_for`.

    Returns
    -------
    list of MethodResult
        Treatment by treatment, our model first.
    """
    check_levels(plan.levels)
    check_levels(plan.choose_at)
    loss = plan.loss or ("ridge" if type_of_target(train[1]) == "continuous" else "hinge")
    check_choice("loss", loss, tuple(SEARCHES))
    plan = replace(plan, loss=loss)
    size = *train[0].shape, 1 if predicts_numbers(loss) else len(np.unique(train[1]))
    jobs: list[tuple[str, Method]] = []
    for treatment in plan.treatments:
        for method in methods_for(loss) if methods is None else methods:
            if treatment not in method.treatments:
                continue
            if method.cost(*size) <= 1.0:
                jobs.append((treatment, method))
            else:
                what = "{} rows, {} features and {} classes" if size[2] > 1 else "{} rows and {} features"
                notify(f"{method.name} is left out: {what.format(*size)} would take too long")
    results = []
    for number, (treatment, method) in enumerate(jobs, 1):
        notify(f"{number} of {len(jobs)}: {method.name}, deleted = {treatment}: choosing parameters and measuring")
        # The products of scikit-learn's solvers are small: several BLAS threads make them slower.
        with one_blas_thread():
            results.append(_run(method, _treated(train, treatment), _treated(test, treatment), treatment, plan))
    return results


def _run(method: Method, train: tuple[Any, Any], test: tuple[Any, Any], treatment: str, plan: Plan) -> MethodResult:
    """Return the result of one method under one treatment."""
    is_regression = predicts_numbers(str(plan.loss))
    splitter = KFold if is_regression else StratifiedKFold
    folds = list(splitter(plan.n_folds, shuffle=True, random_state=plan.random_state).split(*train))
    curve_of = partial(_curve, fill=0.0 if treatment == "zero" else np.nan, plan=plan)
    score = partial(_mean_score, curve_of=curve_of, levels=plan.choose_at)
    task = Task(treatment, plan, *train, _values_of_c(*train, plan), folds, score)
    began = time.process_time()
    with warnings.catch_warnings():
        # Candidates that reach their limit of iterations are scored as they are; the chosen one is reported.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = method.make(task).fit(*train)
    fitted = time.process_time()
    model = search.best_estimator_
    curve = curve_of(model, *test, plan.levels, n_jobs=plan.n_jobs)
    seconds = (fitted - began, time.process_time() - fitted)
    n_rows = len(test[1])
    if is_regression:
        # Of a mean of squares by their deviation, in the first deletion; of its root by the derivative.
        spread = curve_of(model, *test, plan.levels, n_jobs=plan.n_jobs, n_repeats=1, scoring=_deviation_of_squares)
        rmse = np.maximum(-curve.mean, np.finfo(float).tiny)
        standard_error = spread.mean / (2.0 * rmse * np.sqrt(n_rows))
    else:
        standard_error = np.sqrt(curve.mean * (1.0 - curve.mean) / n_rows)
    found = (_parameters(search), model, curve, standard_error, search, _has_converged(model), seconds)
    return MethodResult(method.name, treatment, *found, float(np.std(test[1])) if is_regression else None)


def _parameters(search: Any) -> dict[str, Any]:
    if isinstance(search, MarginalisedModelCV):
        return {"noise": search.noise_, "C": search.C_}
    return {name.rpartition("__")[2]: value for name, value in search.best_params_.items()}


def _has_converged(model: Any) -> bool:
    model = model[-1] if isinstance(model, Pipeline) else getattr(model, "estimator_", model)
    if hasattr(model, "C"):
        return bool(getattr(model, "converged_", np.max(model.n_iter_) < model.max_iter))
    return True  # the iterations of boosted trees are their number


def _curve(model: Any, X: Any, y: Any, levels: Sequence[float], *, fill: float, plan: Plan, **own: Any) -> Any:
    """Return the deletion curve of a fitted model; ``own`` are other parameters of `deletion_curve`."""
    shared = {"strategy": plan.strategy, "groups": plan.groups, "n_repeats": plan.n_repeats}
    given = {**shared, "random_state": plan.random_state, "verbose": 0, **own}
    return deletion_curve(model, X, y, levels=levels, fill=fill, **given)


def _mean_score(model: Any, X: Any, y: Any, *, curve_of: Callable[..., Any], levels: Sequence[float]) -> float:
    """Return the score of the cross-validation: the mean over the levels of ``choose_at``."""
    return float(curve_of(model, X, y, levels).mean.mean())


def _deviation_of_squares(model: Any, X: Any, y: Any) -> float:
    """Return the standard deviation of the squared errors."""
    return float(np.std(np.square(y - model.predict(X))))


def _values_of_c(X: Any, y: Any, plan: Plan) -> Array:
    if plan.Cs is not None and not isinstance(plan.Cs, int):
        return np.asarray(plan.Cs, dtype=np.float64)
    X, ones = zero_missing(X) if has_missing(X) else X, np.ones(X.shape[0])
    values = default_cs(EncodedRows.of_matrix(X, ones, ones, n_classes=1).mean_square(), plan.Cs or 7)
    if plan.Cs is None and not predicts_numbers(str(plan.loss)):
        values = values[:5]  # the two largest of seven values would take most of the time
    return values * Fit(plain_model(SEARCHES[str(plan.loss)]())).scale_of_C(y, ones)


def _treated(part: tuple[Any, Any], treatment: str) -> tuple[Any, Any]:
    """Return the rows with zeros for missing values if the treatment is ``"zero"``, else unchanged."""
    X, y = canonical(part[0]), part[1]
    if not is_dense_matrix(X) and max(X.shape[1], X.nnz) < 2**31:  # `LinearSVC` accepts no other indices
        X.indices, X.indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
    return (zero_missing(X) if treatment == "zero" and has_missing(X) else X), y
