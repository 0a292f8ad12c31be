"""Dropout-SVM against its peers when features are deleted at prediction, every method with its best settings.

A deleted feature is treated in two ways, each with settings of its own:

- ``"zero"``: it reads as zero, and nobody knows that it is gone. That is the paper's test.
- ``"missing"``: it is known to be missing, and every method, the peers too, predicts by the rule of
  ``missing="rescale"`` (`dropmargin.estimators.missing`). What is left between the methods is the gain of the training.

Noise and ``C`` are chosen by cross-validation on the training rows alone, by the accuracy on rows that lose features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import canonical, map_entries
from dropmargin.data.inputs import check_rows
from dropmargin.data.missing_values import FeatureStatistics, feature_statistics, has_missing, nan_to_negative_zero
from dropmargin.estimators import DropoutSVC
from dropmargin.estimators.missing import anchored_scores
from dropmargin.evaluation.deletion import DeletionCurve, check_levels, deletion_curve
from dropmargin.model_selection import DropoutSVCCV
from dropmargin.model_selection.grid import default_cs
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

TREATMENTS = ("zero", "missing")
OURS = "Dropout-SVM"
PEERS = ("LinearSVC", "LogisticRegression")


@dataclass(frozen=True)
class Plan:
    """What is to be measured, and from what settings are chosen.

    Parameters
    ----------
    levels : sequence of float
        Shares of the features to delete.
    choose_at : sequence of float
        Settings are chosen by the mean accuracy at these levels.
    treatments : sequence of {"zero", "missing"}
    strategy : {"entries", "columns", "worst"}
        What is deleted, as for `deletion_curve`.
    noises : int or sequence
        For Dropout-SVM, as for `DropoutSVCCV`.
    Cs : int, sequence of float or None
        For Dropout-SVM and for the peers: as for `DropoutSVCCV`, or five values, a decade apart, that suit the data.
    own_c : float or None
        If given, ``C`` of Dropout-SVM is this, and not chosen.
    n_folds : int
    n_repeats : int
        Random deletions per level.
    random_state : int
    n_jobs : int or None
        Threads; they do not change the results.
    """

    levels: Sequence[float]
    choose_at: Sequence[float]
    treatments: Sequence[str] = TREATMENTS
    strategy: str = "entries"
    noises: Any = (0.05, 0.1, 0.3, 0.5, 0.7)
    Cs: Any = None
    own_c: float | None = None
    n_folds: int = 3
    n_repeats: int = 5
    random_state: int = 0
    n_jobs: int | None = None


@dataclass(frozen=True, eq=False)
class Search:
    """Mean scores of a search for noise and ``C``: one row per noise, one column per ``C``; and the chosen cell."""

    noises: tuple[Any, ...]
    Cs: Array
    scores: Array
    chosen: tuple[int, int]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method under one treatment: its settings, its model, and how it fared.

    Parameters
    ----------
    method : str
    treatment : {"zero", "missing"}
    noise : Noise or None
    C : float
    model : classifier
        Fitted to all training rows.
    curve : DeletionCurve
    search : Search or None
        Of Dropout-SVM, if there was a choice.
    converged : bool
        Whether the fit ended by its tolerance, and not by its limit of iterations.
    """

    method: str
    treatment: str
    noise: Any
    C: float
    model: Any
    curve: DeletionCurve
    search: Search | None
    converged: bool

    @property
    def error(self) -> Array:
        """Mean error at each level."""
        return 1.0 - self.curve.mean


def run_nightmare(
    train: tuple[Any, Any], test: tuple[Any, Any], plan: Plan, say: Callable[[str], None] = lambda text: None
) -> list[MethodResult]:
    """Train every method at its best, delete features of the test rows, and return how all fared.

    Parameters
    ----------
    train, test : tuple of X and y
        Numbers, dense or sparse; NaN is a missing entry.
    plan : Plan
    say : callable
        Is told what goes on, a line at a time.

    Returns
    -------
    list of MethodResult
        Treatment by treatment, Dropout-SVM first.
    """
    check_levels(plan.levels)
    check_levels(plan.choose_at)
    grid = _values_of_c(train, plan)
    contestants = []
    for treatment in plan.treatments:
        (X, y), (X_test, y_test) = (_treated(part, treatment) for part in (train, test))
        folds = list(StratifiedKFold(plan.n_folds, shuffle=True, random_state=plan.random_state).split(X, y))
        for method in (OURS, *PEERS):
            say(f"{method}, deleted = {treatment}: choosing settings and measuring")
            fit = _fit_ours if method == OURS else _fit_peer
            # Threads that spin for the small products of the peers' solvers cost more than they bring.
            with one_blas_thread():
                noise, C, model, search, converged = fit(method, X, y, treatment, plan, grid, folds)
                curve = measure(model, X_test, y_test, treatment, plan, plan.levels, plan.n_jobs)
            contestants.append(MethodResult(method, treatment, noise, C, model, curve, search, converged))
    return contestants


def measure(
    model: Any, X: Any, y: Any, treatment: str, plan: Plan, levels: Sequence[float], n_jobs: int | None = None
) -> DeletionCurve:
    """Return the deletion curve of a fitted model under a treatment."""
    return deletion_curve(
        model,
        X,
        y,
        levels=levels,
        strategy=plan.strategy,
        n_repeats=plan.n_repeats,
        fill=0.0 if treatment == "zero" else np.nan,
        random_state=plan.random_state,
        n_jobs=n_jobs,
        verbose=0,
    )


class AnchoredPeer(ClassifierMixin, BaseEstimator):
    """A linear classifier of scikit-learn that predicts with missing features as ``missing="rescale"`` does.

    In training, which it cannot do with NaN, a missing entry is the mean of its column.

    Parameters
    ----------
    estimator : classifier
        With ``coef_``, ``intercept_`` and ``classes_`` once it is fitted.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> AnchoredPeer:
        """Fit the classifier to ``X`` with means for what is missing."""
        X, blanked = canonical(X), has_missing(canonical(X))
        self.columns_ = feature_statistics(nan_to_negative_zero(X) if blanked else X, np.ones(X.shape[0]), blanked)
        if blanked:
            X = _fill(X, self.columns_)
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_, self.n_features_in_ = self.estimator_.classes_, X.shape[1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return scores, one per row for two classes, else one per class."""
        check_is_fitted(self)
        X = check_rows(X, ensure_all_finite="allow-nan")
        scores = anchored_scores(X, self.estimator_.coef_, self.estimator_.intercept_, self.columns_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


# One method ---------------------------------------------------------------------------------------------------------

_Fit = tuple[Any, float, Any, Search | None, bool]


def _fit_ours(method: str, X: Any, y: Any, treatment: str, plan: Plan, grid: Array, folds: list) -> _Fit:
    """Return the noise, ``C`` and model of Dropout-SVM, and the search for them."""
    missing = "rescale" if treatment == "missing" else "error"
    Cs = grid if plan.own_c is None else np.array([plan.own_c])
    noises = plan.noises if isinstance(plan.noises, int) else list(plan.noises)
    if len(Cs) == 1 and not isinstance(noises, int) and len(noises) == 1:
        model = DropoutSVC(noise=noises[0], C=float(Cs[0]), missing=missing, n_jobs=plan.n_jobs).fit(X, y)
        return noises[0], model.C, model, None, bool(model.converged_)
    search = DropoutSVCCV(
        noises=noises, Cs=Cs, cv=folds, scoring=_scorer(treatment, plan), missing=missing, n_jobs=plan.n_jobs, verbose=1
    ).fit(X, y)
    found = Search(search.noises_, search.Cs_, search.scores_.mean(axis=0), search.best_index_)
    best = search.best_estimator_
    return search.noise_, search.C_, best, found, bool(best.converged_)


def _fit_peer(method: str, X: Any, y: Any, treatment: str, plan: Plan, grid: Array, folds: list) -> _Fit:
    """Return ``C`` and the model of a classifier of scikit-learn."""
    plain: Any
    if method == "LinearSVC":
        plain = LinearSVC(loss="hinge", max_iter=5000, random_state=plan.random_state)
    else:
        plain = LogisticRegression(max_iter=1000)
    name, template = ("C", plain) if treatment == "zero" else ("estimator__C", AnchoredPeer(plain))
    scoring = _scorer(treatment, plan)
    with warnings.catch_warnings():
        # A peer at its limit of iterations is a peer as it is; the final fit says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = GridSearchCV(
            template, {name: grid.tolist()}, scoring=scoring, cv=folds, error_score="raise", refit=False
        ).fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = clone(template).set_params(**chosen.best_params_).fit(X, y)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return None, float(chosen.best_params_[name]), model, None, converged


def _scorer(treatment: str, plan: Plan) -> Callable[[Any, Any, Any], float]:
    """Return the score that settings are chosen by: the mean accuracy at the levels of ``choose_at``."""

    def score(model: Any, X: Any, y: Any) -> float:
        return float(measure(model, X, y, treatment, plan, plan.choose_at).mean.mean())

    return score


def _values_of_c(train: tuple[Any, Any], plan: Plan) -> Array:
    if plan.Cs is not None and not isinstance(plan.Cs, int):
        return np.asarray(plan.Cs, dtype=np.float64)
    X, _ = _treated(train, "zero")  # a missing entry has no size
    if plan.Cs is not None:
        return default_cs(X, np.ones(X.shape[0]), plan.Cs)
    # The last two of seven decades would take most of the time.
    return default_cs(X, np.ones(X.shape[0]), 7)[:5]


def _treated(part: tuple[Any, Any], treatment: str) -> tuple[Any, Any]:
    """Return rows whose missing entries are zero, if that is the treatment."""
    X, y = part
    X = canonical(X)
    if treatment == "missing" or not has_missing(X):
        return X, y
    return map_entries(X, lambda values, _: np.nan_to_num(values, nan=0.0), zeros_stay=True, what="X"), y


def _fill(X: Any, columns: FeatureStatistics) -> Any:
    """Return ``X`` with the mean of its column for each missing entry."""

    def fill(values: Array, where: Any) -> Array:
        return np.where(np.isnan(values), columns.mean[where], values).astype(values.dtype)

    return map_entries(X, fill, zeros_stay=True, what="X without NaN")
