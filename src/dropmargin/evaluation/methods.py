"""The methods of the stress test: each is a search for its best parameters by cross-validation.

Where deleted features are zero, the linear classifiers predict as they are. Where they are known to be missing, each
method has a way to predict without them: the rule of ``missing="rescale"``, imputation, or trees that accept NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from dropmargin.data.matrix import as_dense
from dropmargin.estimators.missing import CHOICES
from dropmargin.evaluation.rescaling import RescalingClassifier
from dropmargin.model_selection import DropoutSVCCV
from dropmargin.model_selection.grid import HIGHEST_RATE
from dropmargin.noise import DropoutNoise, as_noise
from dropmargin.typing import Array

TREATMENTS = ("zero", "missing")
#: Name of the method that the others are compared with.
OURS = "DropoutSVC"
# Rounds of regressions of the iterative imputer. On complete training rows its own rule would stop after one.
_ROUNDS = 5
# Largest problems of the slow methods: about a minute each.
_MAX_IMPUTED, _MAX_TREES = 10**9, 10**8


@dataclass(frozen=True)
class Plan:
    """The parameters of a stress test.

    Parameters
    ----------
    levels : sequence of float
        Shares of the features to delete.
    choose_at : sequence of float
        Parameters are chosen by the mean accuracy at these levels.
    treatments : sequence of {"zero", "missing"}
        How deleted features are treated.
    strategy : {"entries", "columns", "worst"}
        What is deleted, as for `deletion_curve`.
    groups : ndarray of int or None
        The group of each feature, as for `deletion_curve`: features that come from one column of a table, for example.
        Dropout in training then drops these groups.
    noises : int or sequence
        Noises of `DropoutSVC` to choose from, as for `DropoutSVCCV`.
    Cs : int, sequence of float or None
        Values of ``C`` to choose from, for all linear methods: as for `DropoutSVCCV`; ``None`` for five values, a
        factor of ten apart, in the range that suits the data.
    own_c : float or None
        A fixed ``C`` for `DropoutSVC`, in place of a choice.
    n_folds : int
        Number of folds of the cross-validation.
    n_repeats : int
        Number of random deletions per level.
    random_state : int
        Seed of the deletions and folds.
    n_jobs : int or None
        Number of threads; it does not change the results.
    """

    levels: Sequence[float]
    choose_at: Sequence[float]
    treatments: Sequence[str] = TREATMENTS
    strategy: str = "entries"
    groups: Any = None
    noises: Any = (0.05, 0.1, 0.3, 0.5, 0.7)
    Cs: Any = None
    own_c: float | None = None
    n_folds: int = 3
    n_repeats: int = 5
    random_state: int = 0
    n_jobs: int | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """A treatment of deleted features, and what the searches of all methods share.

    Parameters
    ----------
    treatment : {"zero", "missing"}
    plan : Plan
    Cs : ndarray
        Values of ``C`` to choose from.
    folds : list of (ndarray, ndarray)
    score : callable
        ``score(estimator, X, y)``: the accuracy with deleted features.
    """

    treatment: str
    plan: Plan
    Cs: Array
    folds: Sequence[Any]
    score: Callable[..., float]


@dataclass(frozen=True)
class Method:
    """A method of the stress test.

    Parameters
    ----------
    name : str
    make : callable
        ``make(task, X)`` returns the search for its parameters, with ``fit`` and ``best_estimator_``.
    treatments : sequence of str
        The treatments that it is for.
    refuse : callable
        ``refuse(X, n_classes)`` returns why it is left out, or an empty text.
    """

    name: str
    make: Callable[[Task, Any], Any]
    treatments: Sequence[str] = TREATMENTS
    refuse: Callable[[Any, int], str] = lambda X, n_classes: ""


def _dropout_svc(task: Task, X: Any, missing: str = "rescale") -> DropoutSVCCV:
    return DropoutSVCCV(
        noises=_noises(task),
        Cs=task.Cs if task.plan.own_c is None else [task.plan.own_c],
        cv=task.folds,
        scoring=task.score,
        missing=missing if task.treatment == "missing" else "error",
        n_jobs=task.plan.n_jobs,
        verbose=1,
    )


def _noises(task: Task) -> list[Any]:
    """Return the noises to choose from: dropout of the groups that are deleted, to zero if deleted features are."""
    given = task.plan.noises
    if isinstance(given, int):
        given = np.round(np.linspace(0.0, HIGHEST_RATE, given), 6).tolist()
    noises = []
    for noise in map(as_noise, given):
        if isinstance(noise, DropoutNoise):
            reference = "zero" if task.treatment == "zero" and noise.needs_means else noise.reference
            groups = task.plan.groups if noise.groups is None else noise.groups
            noise = DropoutNoise(noise.rate, reference=reference, groups=groups)
        noises.append(noise)
    return noises


def _grid(task: Task, model: Any, grid: dict[str, Any]) -> GridSearchCV:
    return GridSearchCV(model, grid, scoring=task.score, cv=task.folds, error_score="raise")


def _plain(task: Task, X: Any, make: Callable[[int], Any]) -> GridSearchCV:
    return _grid(task, make(task.plan.random_state), {"C": task.Cs})


def _rescaled(task: Task, X: Any, make: Callable[[int], Any]) -> GridSearchCV:
    return _grid(task, RescalingClassifier(make(task.plan.random_state)), {"estimator__C": task.Cs})


def _linear_svc(seed: int) -> LinearSVC:
    return LinearSVC(loss="hinge", max_iter=5000, random_state=seed)


def _logistic(seed: int) -> LogisticRegression:
    return LogisticRegression(max_iter=1000)


def _mean_imputation(task: Task, X: Any) -> GridSearchCV:
    model = make_pipeline(SimpleImputer(keep_empty_features=True), _logistic(0))
    return _grid(task, model, {"logisticregression__C": task.Cs})


def _iterative_imputation(task: Task, X: Any) -> GridSearchCV:
    # A tolerance of zero: all rounds are made. The imputer needs no labels, so it is fitted once for all folds.
    imputer = IterativeImputer(max_iter=_ROUNDS, tol=0.0, keep_empty_features=True, random_state=task.plan.random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer.fit(as_dense(X))
    model = make_pipeline(FunctionTransformer(as_dense), FrozenEstimator(imputer), _logistic(0))
    return _grid(task, model, {"logisticregression__C": task.Cs})


def _trees(task: Task, X: Any) -> GridSearchCV:
    trees = HistGradientBoostingClassifier(random_state=task.plan.random_state)
    model = make_pipeline(FunctionTransformer(as_dense), trees)
    return _grid(task, model, {"histgradientboostingclassifier__max_leaf_nodes": [7, 31]})


def _refuse_imputer(X: Any, n_classes: int) -> str:
    is_large = X.shape[0] * X.shape[1] ** 3 > _MAX_IMPUTED
    return f"a regression for each of {X.shape[1]} features would take too long" if is_large else ""


def _refuse_trees(X: Any, n_classes: int) -> str:
    is_large = math.prod(X.shape) * n_classes > _MAX_TREES
    return f"trees for {X.shape[0]} rows, {X.shape[1]} features and {n_classes} classes would take too long" * is_large


METHODS = (
    Method(OURS, _dropout_svc),
    Method(
        f"{OURS} (conditional)",
        partial(_dropout_svc, missing="conditional"),
        ("missing",) if "conditional" in CHOICES else (),
    ),
    Method("LinearSVC", partial(_plain, make=_linear_svc), ("zero",)),
    Method("LogisticRegression", partial(_plain, make=_logistic), ("zero",)),
    Method("LinearSVC (rescaled)", partial(_rescaled, make=_linear_svc), ("missing",)),
    Method("LogisticRegression (rescaled)", partial(_rescaled, make=_logistic), ("missing",)),
    Method("LogisticRegression (means)", _mean_imputation, ("missing",)),
    Method("LogisticRegression (iterative)", _iterative_imputation, ("missing",), _refuse_imputer),
    Method("HistGradientBoosting", _trees, ("missing",), _refuse_trees),
)
