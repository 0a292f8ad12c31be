"""The stress test: `DropoutSVC`, `LinearSVC` and `LogisticRegression` when features are deleted at prediction.

A deleted feature is treated in two ways, each with its own choice of parameters:

- ``"zero"``: its value is zero, and no method knows that it is missing. This is the paper's test; dropout in training
  sets features to zero as well.
- ``"missing"``: it is known to be missing, and every method predicts by the rule of ``missing="rescale"``
  (`dropmargin.estimators.missing`). The methods then differ in training only.

Noise and ``C`` are chosen by cross-validation on the training rows, by the accuracy on rows with deleted features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from dropmargin.data.matrix import from_arrays, is_dense_matrix, to_arrays
from dropmargin.data.missing_values import FeatureStatistics, feature_statistics, has_missing, nan_to_negative_zero
from dropmargin.estimators import DropoutSVC
from dropmargin.estimators.missing import anchored_scores
from dropmargin.evaluation.deletion import DeletionCurve, check_levels, deletion_curve
from dropmargin.model_selection import DropoutSVCCV
from dropmargin.model_selection.grid import HIGHEST_RATE, default_cs
from dropmargin.noise import DropoutNoise, as_noise
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

TREATMENTS = ("zero", "missing")
#: Names of the methods; the others are compared with the first.
METHODS = ("DropoutSVC", "LinearSVC", "LogisticRegression")


@dataclass(frozen=True)
class Plan:
    """The parameters of a stress test.

    Parameters
    ----------
    levels : sequence of float
        Shares of the features to delete.
    choose_at : sequence of float
        Noise and ``C`` are chosen by the mean accuracy at these levels.
    treatments : sequence of {"zero", "missing"}
        How deleted features are treated.
    strategy : {"entries", "columns", "worst"}
        What is deleted, as for `deletion_curve`.
    noises : int or sequence
        Noises of `DropoutSVC` to choose from, as for `DropoutSVCCV`.
    Cs : int, sequence of float or None
        Values of ``C`` to choose from, for all methods: as for `DropoutSVCCV`; ``None`` for five values, a factor of
        ten apart, in the range that suits the data.
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
    noises: Any = (0.05, 0.1, 0.3, 0.5, 0.7)
    Cs: Any = None
    own_c: float | None = None
    n_folds: int = 3
    n_repeats: int = 5
    random_state: int = 0
    n_jobs: int | None = None


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The parameters, the model and the scores of one method under one treatment.

    Parameters
    ----------
    method : {"DropoutSVC", "LinearSVC", "LogisticRegression"}
    treatment : {"zero", "missing"}
    noise : Noise or None
    C : float
    model : classifier
        Fitted to all training rows.
    curve : DeletionCurve
        Its accuracy on the test rows.
    search : DropoutSVCCV or None
        The search for noise and ``C`` of `DropoutSVC`; ``None`` for other methods, or if both were given.
    converged : bool
        Whether the fit reached its tolerance before its limit of iterations.
    """

    method: str
    treatment: str
    noise: Any
    C: float
    model: Any
    curve: DeletionCurve
    search: DropoutSVCCV | None
    converged: bool

    @property
    def error(self) -> Array:
        """Mean error at each level."""
        return 1.0 - self.curve.mean


def stress_test(
    train: tuple[Any, Any], test: tuple[Any, Any], plan: Plan, notify: Callable[[str], None] = lambda text: None
) -> list[MethodResult]:
    """Return the scores of every method, with its best parameters, when features of the test rows are deleted.

    Parameters
    ----------
    train, test : tuple of X and y
        Numeric rows, dense or sparse, and their labels; NaN is a missing value.
    plan : Plan
        The parameters of the test.
    notify : callable
        Is called with one line of text when the work on a method begins.

    Returns
    -------
    list of MethodResult
        Treatment by treatment, `DropoutSVC` first.
    """
    check_levels(plan.levels)
    check_levels(plan.choose_at)
    Cs = _values_of_c(train, plan)
    results = []
    for treatment in plan.treatments:
        (X, y), (X_test, y_test) = (_treated(part, treatment) for part in (train, test))
        folds = list(StratifiedKFold(plan.n_folds, shuffle=True, random_state=plan.random_state).split(X, y))
        for method in METHODS:
            notify(f"{method}, deleted = {treatment}: choosing parameters and measuring")
            fit = _fit_dropout_svc if method == "DropoutSVC" else _fit_other
            # The products of scikit-learn's solvers are small: several BLAS threads make them slower.
            with one_blas_thread():
                noise, C, model, search, converged = fit(method, X, y, treatment, plan, Cs, folds)
                curve = _curve(model, X_test, y_test, treatment, plan, plan.levels, plan.n_jobs)
            results.append(MethodResult(method, treatment, noise, C, model, curve, search, converged))
    return results


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
        n_repeats=plan.n_repeats,
        fill=0.0 if treatment == "zero" else np.nan,
        random_state=plan.random_state,
        n_jobs=n_jobs,
        verbose=0,
    )


class RescalingClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier of scikit-learn that predicts with missing features as ``missing="rescale"`` does.

    In training a missing value is replaced by the mean of its feature.

    Parameters
    ----------
    estimator : classifier
        A linear classifier: after ``fit`` it has ``coef_``, ``intercept_`` and ``classes_``.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    columns_ : FeatureStatistics
        Means and standard deviations of the features.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> RescalingClassifier:
        """Fit the classifier to ``X`` with its missing values replaced by means."""
        X = canonical(X)
        missing = has_missing(X)
        self.columns_ = feature_statistics(nan_to_negative_zero(X) if missing else X, np.ones(X.shape[0]), missing)
        if missing:
            X = _impute_means(X, self.columns_)
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_, self.n_features_in_ = self.estimator_.classes_, X.shape[1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of each row: one for two classes, else one per class."""
        check_is_fitted(self)
        X = check_rows(X, ensure_all_finite="allow-nan")
        scores = anchored_scores(X, self.estimator_.coef_, self.estimator_.intercept_, self.columns_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


#: Noise, C, fitted model, search, whether the fit converged.
_Fit = tuple[Any, float, Any, DropoutSVCCV | None, bool]


def _fit_dropout_svc(method: str, X: Any, y: Any, treatment: str, plan: Plan, Cs: Array, folds: list) -> _Fit:
    """Choose noise and ``C`` of `DropoutSVC`, and fit it to all rows."""
    missing = "rescale" if treatment == "missing" else "error"
    Cs = Cs if plan.own_c is None else np.array([plan.own_c])
    noises = _noises(plan, treatment)
    if len(Cs) == 1 and len(noises) == 1:
        model = DropoutSVC(noise=noises[0], C=float(Cs[0]), missing=missing, n_jobs=plan.n_jobs).fit(X, y)
        return noises[0], model.C, model, None, bool(model.converged_)
    search = DropoutSVCCV(
        noises=noises,
        Cs=Cs,
        cv=folds,
        scoring=partial(_mean_accuracy, treatment=treatment, plan=plan),
        missing=missing,
        n_jobs=plan.n_jobs,
        verbose=1,
    ).fit(X, y)
    best = search.best_estimator_
    return search.noise_, search.C_, best, search, bool(best.converged_)


def _noises(plan: Plan, treatment: str) -> list[Any]:
    """Return the noises to choose from; where deleted features are zero, dropout to the mean is dropout to zero."""
    given = plan.noises
    if isinstance(given, int):
        given = np.round(np.linspace(0.0, HIGHEST_RATE, given), 6).tolist()
    noises = [as_noise(noise) for noise in given]
    if treatment == "missing":
        return noises
    return [
        DropoutNoise(noise.rate, reference="zero", groups=noise.groups)
        if isinstance(noise, DropoutNoise) and noise.needs_means
        else noise
        for noise in noises
    ]


def _fit_other(method: str, X: Any, y: Any, treatment: str, plan: Plan, Cs: Array, folds: list) -> _Fit:
    """Choose ``C`` of a classifier of scikit-learn, and fit it to all rows."""
    plain: Any
    if method == "LinearSVC":
        plain = LinearSVC(loss="hinge", max_iter=5000, random_state=plan.random_state)
    else:
        plain = LogisticRegression(max_iter=1000)
    name, template = ("C", plain) if treatment == "zero" else ("estimator__C", RescalingClassifier(plain))
    scoring = partial(_mean_accuracy, treatment=treatment, plan=plan)
    with warnings.catch_warnings():
        # Candidates that reach their limit of iterations are scored as they are; the final fit reports it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = GridSearchCV(
            template, {name: Cs.tolist()}, scoring=scoring, cv=folds, error_score="raise", refit=False
        ).fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = clone(template).set_params(**chosen.best_params_).fit(X, y)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return None, float(chosen.best_params_[name]), model, None, converged


def _mean_accuracy(model: Any, X: Any, y: Any, *, treatment: str, plan: Plan) -> float:
    """Return the score of the cross-validation: the mean accuracy at the levels of ``choose_at``."""
    return float(_curve(model, X, y, treatment, plan, plan.choose_at).mean.mean())


def _values_of_c(train: tuple[Any, Any], plan: Plan) -> Array:
    if plan.Cs is not None and not isinstance(plan.Cs, int):
        return np.asarray(plan.Cs, dtype=np.float64)
    X, _ = _treated(train, "zero")
    if plan.Cs is not None:
        return default_cs(X, np.ones(X.shape[0]), plan.Cs)
    # The two largest of seven values would take most of the time.
    return default_cs(X, np.ones(X.shape[0]), 7)[:5]


def _treated(part: tuple[Any, Any], treatment: str) -> tuple[Any, Any]:
    """Return the rows with zeros for missing values if the treatment is ``"zero"``, else unchanged."""
    X, y = part
    X = _with_small_indices(canonical(X))
    if treatment == "missing" or not has_missing(X):
        return X, y
    return map_entries(X, lambda values, _: np.nan_to_num(values, nan=0.0), zeros_stay=True, what="X"), y


def _with_small_indices(X: Any) -> Any:
    """Return sparse rows with 32-bit indices where they fit: `LinearSVC` accepts no others."""
    if is_dense_matrix(X):
        return X
    values, indices, indptr = to_arrays(X)
    if max(X.shape[1], indptr[-1]) > np.iinfo(np.int32).max:
        return X
    return from_arrays([values, indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)], X.shape)


def _impute_means(X: Any, columns: FeatureStatistics) -> Any:
    """Return ``X`` with each missing value replaced by the mean of its feature."""

    def fill(values: Array, where: Any) -> Array:
        return np.where(np.isnan(values), columns.mean[where], values).astype(values.dtype)

    return map_entries(X, fill, zeros_stay=True, what="X without NaN")
