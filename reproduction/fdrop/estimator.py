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
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import canonical, linear_scores
from dropmargin.data.inputs import validate_rows
from dropmargin.estimators import validation
from dropmargin.estimators.parameters import RunParameters, check_parameters, integer, number, parameter
from dropmargin.solvers import Iteration, Result, combine
from dropmargin.threads import in_threads, one_blas_thread
from dropmargin.typing import Array
from reproduction.fdrop.bundle import minimise
from reproduction.fdrop.worst_case import WorstCaseRisk, pad_rows


class FDropSVC(RunParameters, ClassifierMixin, BaseEstimator):
    """Linear SVM that minimises the hinge loss under the worst deletion of ``n_deleted`` features of each row.

    Minimises ``1/2 |w|^2 + C sum_i s_i max(0, 1 - y_i (w.x_i + b) + t_i)``, where ``t_i`` is the sum of the ``K``
    largest of ``max(0, y_i w_d x_id)``: the at most ``K`` features whose deletion increases the loss of row ``i`` most.
    Several classes are one-vs-rest. The fit is deterministic, and its relative gap is proved.

    If every row has at most ``K`` non-zero entries, all coefficients are zero and the class of the largest weight is
    predicted. If the classes have much in common, this is the optimum for far smaller ``K``, too.

    Parameters
    ----------
    n_deleted : int, default=1
        ``K``, from 0 (the ordinary SVM) to the number of features.
    C : float, default=1.0
        Inverse strength of the penalty: it multiplies the loss, as in `sklearn.svm.LinearSVC`.
    tol : float, default=1e-4
        The fit stops at a relative gap ``(J - J*) / J`` of ``tol``, proved by a lower bound on ``J*``.
    max_iter : int, default=5000
        Maximum number of passes over the data for each class.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is neither deleted nor penalised.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights; ``"balanced"`` takes the total weights of the classes.
    n_jobs : int or None, default=None
        Number of classes to fit at a time, in threads. The result does not depend on it.
    verbose : int, default=0
        Whether to print a line per iteration to stderr.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    n_iter_ : int
        Passes over the data, the maximum over the classes.
    objective_ : float
        The objective at the solution, summed over the classes.
    gap_ : float
        Proved relative gap, the maximum over the classes.
    converged_ : bool
        Whether the gap of every class is at most ``tol``.
    history_ : list of named tuples (iteration, objective, gap, passes, n_active)
        All iterations of the first class, then of the second, and so on.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Only if X had string column names.

    See Also
    --------
    DropoutSVC : Expects the loss of random features, not of the worst ones.

    References
    ----------
    A. Globerson, S. Roweis. Nightmare at Test Time: Robust Learning by Feature Deletion. ICML 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from reproduction.fdrop import FDropSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FDropSVC(n_deleted=2, C=0.1).fit(scale(X), y).score(scale(X), y) > 0.9
    True
    """

    n_deleted: int = parameter(default=1, check=integer(0), kw_only=False)
    C: float = parameter(default=1.0, check=number(0.0, low_open=True))
    tol: float = parameter(default=1e-4, check=number(0.0))
    max_iter: int = parameter(default=5000, check=integer(1))
    fit_intercept: bool = parameter(default=True)
    class_weight: Any = parameter(default=None)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FDropSVC:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data; float32 is kept.
        y : array-like of shape (n_samples,)
            Labels: numbers, strings, booleans.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; a row of weight 2 is equivalent to the row twice, one of weight 0 has no effect.

        Returns
        -------
        self : FDropSVC
            The fitted estimator. If the fit fails or is interrupted, the estimator is not changed.
        """
        with validation.unchanged_on_failure(self):
            results, dtype = self._solve(X, y, sample_weight)
            result = combine(results)
            self.coef_ = np.ascontiguousarray(result.coef[:-1].T.astype(dtype))
            self.intercept_ = result.coef[-1].astype(dtype)
            self.n_iter_ = result.n_iter
            self.objective_ = float(result.objective.sum())
            self.gap_ = max(output.history[-1].gap / output.history[-1].objective for output in results)
            self.converged_ = result.converged
            self.history_ = result.history
            if not result.converged:
                warnings.warn(
                    f"{type(self).__name__} did not converge: {result.message}. Raise max_iter or tol, scale the "
                    "columns of X to similar ranges, or choose a smaller C.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            return self

    def _solve(self, X: Any, y: Any, sample_weight: Any) -> tuple[list[Result], Any]:
        """Check parameters and data, and return the result of each class and the data type of the features."""
        checked = check_parameters(self)
        n_deleted, C = checked["n_deleted"], checked["C"]
        X, y = validate_rows(self, X, y)
        n_features = X.shape[1]
        if n_deleted > n_features:
            raise ValueError(
                f"n_deleted must be at most the number of features: X has {n_features} features, got "
                f"n_deleted={n_deleted!r}. Choose an integer in [0, {n_features}]."
            )
        X = validation.check_entries(canonical(X), None, getattr(self, "feature_names_in_", None))
        weights = validation.check_weights(sample_weight, X.shape[0])
        name = type(self).__name__
        check_classification_targets(y)
        labels, codes = np.unique(y, return_inverse=True)
        totals = np.bincount(codes, weights)
        present, index, factors = validation.encode_classes(labels, totals, self.class_weight, name)
        self.classes_, codes, weights = labels[present], index[codes], weights * factors[codes]
        rows = np.flatnonzero(weights)
        codes, weights, blocks = codes[rows], C * weights[rows], pad_rows(X[rows])
        stop = threading.Event()

        def fit_class(code: int) -> Result:
            targets = np.where(codes == code, 1.0, -1.0)
            risk = WorstCaseRisk(blocks, targets, weights, n_deleted, n_features, bool(self.fit_intercept))
            monitor = partial(_report, f"[{name}] class {self.classes_[code]}" if self.verbose else "", stop)
            return minimise(risk, n_features, tol=checked["tol"], max_iter=checked["max_iter"], monitor=monitor)

        jobs = [partial(fit_class, code) for code in (range(len(self.classes_)) if len(self.classes_) > 2 else [1])]
        with one_blas_thread():
            return in_threads(jobs, effective_n_jobs(self.n_jobs), stop), X.dtype

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score per row, positive for ``classes_[1]``; for more, one per class.
        """
        check_is_fitted(self)
        X = validate_rows(self, X, reset=False)
        scores = linear_scores(X, self.coef_, self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        scores = self.decision_function(X)
        index = (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # scikit-learn checks the score on two features, of which the better one is deleted.
        tags.classifier_tags.poor_score = self.n_deleted != 0
        return tags


def _report(heading: str, stop: threading.Event, entry: Iteration) -> None:
    """Print an iteration if there is a heading. Raise KeyboardInterrupt if the fit of another class has failed."""
    if stop.is_set():
        raise KeyboardInterrupt
    if heading:
        text = f"{heading}  iteration {entry.iteration:4d}  objective {entry.objective:.8g}"
        print(f"{text}  gap {entry.gap / entry.objective:8.1e}", file=sys.stderr, flush=True)
