"""FDROP: a linear support vector machine for the worst case over deleted features (Globerson and Roweis 2006)."""

from __future__ import annotations

import sys
import threading
import warnings
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from dropmargin.baselines.cutting_planes import minimise_by_planes
from dropmargin.baselines.stored_rows import group_rows
from dropmargin.baselines.worst_case import WorstCaseRisk
from dropmargin.data import canonical, linear_scores
from dropmargin.data.inputs import validate_rows
from dropmargin.estimators import validation
from dropmargin.solvers import Iteration, Result, combine
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array


class FDropSVC(ClassifierMixin, BaseEstimator):
    """A linear SVM that minimises the hinge loss under the worst deletion of ``n_deleted`` features of each row.

    Minimises ``1/2 |w|^2 + C sum_i s_i max(0, 1 - y_i (w.x_i + b) + t_i)``, where ``t_i`` is the sum of the ``K``
    largest of ``max(0, y_i w_d x_id)``: the at most ``K`` features whose deletion (to zero) hurts row ``i`` most.
    Several classes are one-vs-rest. The fit is deterministic, and its distance from the optimum is proved.

    A large ``K`` is a harsh adversary. If every row has at most ``K`` non-zero entries (certainly if ``K`` is the
    number of features), nothing can be learnt: all weights are exactly zero and the heaviest class is predicted. Where
    the classes have much in common that is the optimum for far smaller ``K``, too.

    Parameters
    ----------
    n_deleted : int, default=1
        ``K``, from 0 (the ordinary SVM) to the number of features.
    C : float, default=1.0
        Inverse strength of the penalty: it multiplies the loss, as in `sklearn.svm.LinearSVC`.
    tol : float, default=1e-4
        The relative gap ``(J - J*) / J`` to stop at, proved by a lower bound on ``J*``.
    max_iter : int, default=5000
        Most passes over the data for each class.
    fit_intercept : bool, default=True
        Whether to fit an offset, neither deleted nor penalised.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights; ``"balanced"`` counts rows by their weight.
    n_jobs : int or None, default=None
        Threads that share the classes; it never changes the result.
    verbose : int, default=0
        Whether to print a line per iteration to the standard error stream.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_iter_ : int
        Passes over the data, the most of any class.
    objective_ : float
        The objective at the solution, summed over the classes.
    gap_ : float
        The largest proved relative gap of any class.
    converged_ : bool
    history_ : list of named tuples (iteration, objective, gap, passes, n_active)
        All iterations, class by class.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had string column names.

    References
    ----------
    A. Globerson, S. Roweis. Nightmare at Test Time: Robust Learning by Feature Deletion. ICML 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import FDropSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FDropSVC(n_deleted=2, C=0.1).fit(scale(X), y).score(scale(X), y) > 0.9
    True
    """

    def __init__(
        self,
        n_deleted: int = 1,
        *,
        C: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 5000,
        fit_intercept: bool = True,
        class_weight: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_deleted = n_deleted
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FDropSVC:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, never changed; float32 is kept.
        y : array-like of shape (n_samples,)
            Labels: numbers, strings, booleans.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a row of weight 2 counts as the row twice, one of weight 0 not at all.

        Returns
        -------
        self : the fitted estimator. If the fit fails or is interrupted, the estimator is as it was before.
        """
        with validation.unchanged_on_failure(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> FDropSVC:
        C = validation.check_number("C", self.C, 0.0, low_open=True)
        tol = validation.check_number("tol", self.tol, 0.0)
        max_iter = validation.check_integer("max_iter", self.max_iter, 1)
        validation.check_integer("n_deleted", self.n_deleted, 0)
        if self.n_jobs is not None:
            validation.check_n_jobs(self.n_jobs)
        X, y = validate_rows(self, X, y)
        n_deleted = self._check_n_deleted(X.shape[1])
        X = validation.check_entries(canonical(X), None, getattr(self, "feature_names_in_", None))
        weights = validation.check_weights(sample_weight, X.shape[0])
        classes, codes, weights = validation.encode_labels(y, self.class_weight, weights, type(self).__name__)
        counted = weights > 0.0
        dtype = X.dtype
        if not counted.all():
            X, codes, weights = X[counted], codes[counted], weights[counted]
        groups = group_rows(X)

        def fit_class(label: int) -> Result:
            labels = np.where(codes == label, 1.0, -1.0)
            risk = WorstCaseRisk(groups, labels, C * weights, n_deleted, X.shape[1], bool(self.fit_intercept))
            if risk.is_hopeless:
                return _constant(risk)
            monitor = _Monitor(type(self).__name__, classes[label], bool(self.verbose), stop)
            return minimise_by_planes(risk, X.shape[1], tol=tol, max_iter=max_iter, monitor=monitor)

        stop = threading.Event()
        labels = list(range(len(classes))) if len(classes) > 2 else [1]
        with one_blas_thread():
            jobs = [partial(fit_class, label) for label in labels]
            results = in_threads(jobs, min(effective_n_jobs(self.n_jobs), len(jobs)), stop)
        self._store(combine(results), results, classes, dtype)
        return self

    def _check_n_deleted(self, n_features: int) -> int:
        if self.n_deleted > n_features:
            raise ValueError(
                f"n_deleted must be at most the number of features: X has {n_features} features, got "
                f"n_deleted={self.n_deleted!r}. Choose an integer in [0, {n_features}]."
            )
        return int(self.n_deleted)

    def _store(self, result: Result, results: list[Result], classes: Array, dtype: Any) -> None:
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(result.coef[:-1].T.astype(dtype))
        self.intercept_ = result.coef[-1].astype(dtype)
        self.n_iter_ = result.n_iter
        self.objective_ = float(result.objective.sum())
        self.gap_ = max(_relative_gap(column) for column in results)
        self.converged_ = result.converged
        self.history_ = result.history
        if not result.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.message}. Raise max_iter or tol, scale the columns "
                "of X to similar ranges, or choose a smaller C.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, positive for ``classes_[1]``, else (n_samples, n_classes).
        """
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        scores = linear_scores(X, self.coef_, self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row of ``X``."""
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Of two features the worst case deletes the better one: scikit-learn's check of the score is not for that.
        tags.classifier_tags.poor_score = self.n_deleted != 0
        return tags


class _Monitor:
    """Prints a line per iteration, if asked to, and ends the fit of a class once another one has failed."""

    def __init__(self, name: str, label: Any, verbose: bool, stop: threading.Event) -> None:
        self.heading = f"[{name}] class {label}"
        self.verbose = verbose
        self.stop = stop

    def __call__(self, entry: Iteration) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        if self.verbose:
            print(
                f"{self.heading}  iteration {entry.iteration:4d}  objective {entry.objective:.8g}"
                f"  gap {entry.gap / entry.objective:8.1e}",
                file=sys.stderr,
                flush=True,
            )


def _constant(risk: WorstCaseRisk) -> Result:
    """Return the solution ``w = 0`` of a problem in which no weight helps."""
    value, offset = risk.constant()
    coef = np.zeros((risk.n_features + 1, 1))
    coef[-1] = offset
    return Result(coef, np.array([value]), 1, True, "every row may lose all of its entries: the weights are zero")


def _relative_gap(result: Result) -> float:
    if not result.history:
        return 0.0
    last = result.history[-1]
    return max(0.0, last.gap / last.objective) if last.objective > 0.0 else 0.0
