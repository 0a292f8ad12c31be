"""The stress test: the accuracy of `DropoutSVC` and of other methods when features are deleted at prediction.

A deleted feature is treated in two ways, each with its own choice of parameters:

- ``"zero"``: its value is zero, and no method knows that it is missing. This is the paper's test; dropout in training
  sets features to zero as well.
- ``"missing"``: it is known to be missing (NaN), and each method predicts in its own way (`evaluation.methods`).

All parameters are chosen by cross-validation on the training rows, by the accuracy on rows with deleted features.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline

from dropmargin.data import canonical, map_entries
from dropmargin.data.matrix import from_arrays, is_dense_matrix, to_arrays
from dropmargin.data.missing_values import has_missing
from dropmargin.evaluation.deletion import DeletionCurve, check_levels, deletion_curve
from dropmargin.evaluation.methods import METHODS, TREATMENTS, Method, Plan, Task
from dropmargin.model_selection import DropoutSVCCV
from dropmargin.model_selection.grid import default_cs
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

__all__ = ["METHODS", "TREATMENTS", "MethodResult", "Plan", "stress_test"]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The parameters, the model and the scores of one method under one treatment.

    Parameters
    ----------
    method : str
        Its name.
    treatment : {"zero", "missing"}
    parameters : dict
        The chosen parameters by name; those of `DropoutSVC` are ``noise`` and ``C``.
    model : classifier
        Fitted to all training rows.
    curve : DeletionCurve
        Its accuracy on the test rows.
    search : DropoutSVCCV or GridSearchCV
        The search for the parameters.
    converged : bool
        Whether the fit reached its tolerance before its limit of iterations.
    seconds : tuple of float
        Processor time of the search, and of the predictions of the curve.
    """

    method: str
    treatment: str
    parameters: dict[str, Any]
    model: Any
    curve: DeletionCurve
    search: Any
    converged: bool
    seconds: tuple[float, float]

    @property
    def error(self) -> Array:
        """Mean error at each level."""
        return 1.0 - self.curve.mean


def stress_test(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    plan: Plan,
    notify: Callable[[str], None] = lambda text: None,
    methods: Sequence[Method] = METHODS,
) -> list[MethodResult]:
    """Return the scores of every method, with its best parameters, when features of the test rows are deleted.

    Parameters
    ----------
    train, test : tuple of X and y
        Numeric rows, dense or sparse, and their labels; NaN is a missing value.
    plan : Plan
        The parameters of the test.
    notify : callable
        Is called with one line of text when the work on a method begins, and for a method that is left out.
    methods : sequence of Method
        The methods to compare.

    Returns
    -------
    list of MethodResult
        Treatment by treatment, `DropoutSVC` first.
    """
    check_levels(plan.levels)
    check_levels(plan.choose_at)
    n_classes = len(np.unique(train[1]))
    jobs: list[tuple[str, Method]] = []
    for treatment in plan.treatments:
        for method in methods:
            if treatment in method.treatments:
                reason = method.refuse(train[0], n_classes)
                if reason:
                    notify(f"{method.name} is left out: {reason}")
                else:
                    jobs.append((treatment, method))
    results = []
    for number, (treatment, method) in enumerate(jobs, 1):
        notify(f"{number} of {len(jobs)}: {method.name}, deleted = {treatment}: choosing parameters and measuring")
        # The products of scikit-learn's solvers are small: several BLAS threads make them slower.
        with one_blas_thread():
            results.append(_run(method, train, test, treatment, plan))
    return results


def _run(method: Method, train: tuple[Any, Any], test: tuple[Any, Any], treatment: str, plan: Plan) -> MethodResult:
    """Return the result of one method under one treatment."""
    (X, y), (X_test, y_test) = (_treated(part, treatment) for part in (train, test))
    folds = list(StratifiedKFold(plan.n_folds, shuffle=True, random_state=plan.random_state).split(X, y))
    score = partial(_mean_accuracy, treatment=treatment, plan=plan)
    task = Task(treatment, plan, _values_of_c(X, plan), folds, score)
    began = time.process_time()
    with warnings.catch_warnings():
        # Candidates that reach their limit of iterations are scored as they are; the chosen one is reported.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = method.make(task, X).fit(X, y)
    fitted = time.process_time()
    model = search.best_estimator_
    curve = _curve(model, X_test, y_test, treatment, plan, plan.levels, plan.n_jobs)
    seconds = (fitted - began, time.process_time() - fitted)
    return MethodResult(
        method.name, treatment, _parameters(search), model, curve, search, _has_converged(model), seconds
    )


def _parameters(search: Any) -> dict[str, Any]:
    if isinstance(search, DropoutSVCCV):
        return {"noise": search.noise_, "C": search.C_}
    return {name.rpartition("__")[2]: value for name, value in search.best_params_.items()}


def _has_converged(model: Any) -> bool:
    model = model[-1] if isinstance(model, Pipeline) else getattr(model, "estimator_", model)
    if hasattr(model, "C"):
        return bool(getattr(model, "converged_", np.max(model.n_iter_) < model.max_iter))
    return True  # the iterations of boosted trees are their number


def _curve(
    model: Any, X: Any, y: Any, treatment: str, plan: Plan, levels: Sequence[float], n_jobs: int | None = None
) -> DeletionCurve:
    """Return the deletion curve of a fitted model under a treatment."""
    return deletion_curve(
        model,
        X,
        y,
        levels=levels,
        strategy=plan.strategy,
        groups=plan.groups,
        n_repeats=plan.n_repeats,
        fill=0.0 if treatment == "zero" else np.nan,
        random_state=plan.random_state,
        n_jobs=n_jobs,
        verbose=0,
    )


def _mean_accuracy(model: Any, X: Any, y: Any, *, treatment: str, plan: Plan) -> float:
    """Return the score of the cross-validation: the mean accuracy at the levels of ``choose_at``."""
    return float(_curve(model, X, y, treatment, plan, plan.choose_at).mean.mean())


def _values_of_c(X: Any, plan: Plan) -> Array:
    if plan.Cs is not None and not isinstance(plan.Cs, int):
        return np.asarray(plan.Cs, dtype=np.float64)
    X = _without_missing(X)
    if plan.Cs is not None:
        return default_cs(X, np.ones(X.shape[0]), plan.Cs)
    # The two largest of seven values would take most of the time.
    return default_cs(X, np.ones(X.shape[0]), 7)[:5]


def _treated(part: tuple[Any, Any], treatment: str) -> tuple[Any, Any]:
    """Return the rows with zeros for missing values if the treatment is ``"zero"``, else unchanged."""
    X, y = part
    X = _with_small_indices(canonical(X))
    return (X if treatment == "missing" else _without_missing(X)), y


def _with_small_indices(X: Any) -> Any:
    """Return sparse rows with 32-bit indices where they fit: `LinearSVC` accepts no others."""
    if is_dense_matrix(X):
        return X
    values, indices, indptr = to_arrays(X)
    if max(X.shape[1], indptr[-1]) > np.iinfo(np.int32).max:
        return X
    return from_arrays([values, indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)], X.shape)


def _without_missing(X: Any) -> Any:
    if not has_missing(X):
        return X
    return map_entries(X, lambda values, _: np.nan_to_num(values, nan=0.0), zeros_stay=True, what="X")
