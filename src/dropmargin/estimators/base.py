"""The estimator shell that all classifiers share: parameters, `fit`, `decision_function`, `predict`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.special import log_expit, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dropmargin.data import (
    ClassArray,
    Rows,
    as_dense,
    as_sparse,
    binary_outputs,
    canonical,
    linear_scores,
    missing_values,
)
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import (
    STATISTICS,
    FeatureStatistics,
    feature_statistics,
    has_missing,
    nan_to_negative_zero,
)
from dropmargin.estimators import missing, stability, validation
from dropmargin.estimators.conditional import FactorModel, NormalScores, log_expected_expit
from dropmargin.estimators.factor_analysis import ConditionalRows, check_rank
from dropmargin.estimators.parameters import ModelParameters, check_parameter, check_parameters
from dropmargin.estimators.patterns import DropoutPatterns
from dropmargin.losses import Loss, MGFLoss
from dropmargin.noise import DropoutNoise, Noise, Variance, as_noise
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Problem, Result, choose_solver, no_monitor, solve
from dropmargin.typing import Array


def _gives_probabilities(estimator: MarginalisedClassifier) -> bool:
    """Return whether `predict_proba` exists; if not, raise an error that names the alternatives."""
    if not estimator._make_loss().scores_are_log_odds:
        raise AttributeError(
            f"{type(estimator).__name__} has no predict_proba: its scores are not log-odds. Wrap it in "
            "sklearn.calibration.CalibratedClassifierCV, or use DropoutLogisticRegression."
        )
    if estimator.multi_class == "ovo":
        raise AttributeError("predict_proba needs multi_class='ovr', or sklearn.calibration.CalibratedClassifierCV.")
    return True


class CheckedRows(Rows):
    """Validated training data; missing entries, if there are any, have become minus zeros."""

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        has_missing: bool,
        feature_names: Sequence[str] | None = None,
        are_filled: bool = False,
    ) -> None:
        super().__init__(X, y, sample_weight)
        self.has_missing = has_missing
        self.feature_names = feature_names
        self.are_filled = are_filled  # missing entries take values before the fit, so the noise corrupts them

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with its noise for these features; the noise excludes missing entries."""
        if problem.noise is None:
            return problem
        noise: Noise | None = problem.noise.resolve(self.X.shape[1], self.feature_names)
        if self.has_missing and not self.are_filled:
            noise = missing.exclude_missing_from_noise(self.X, noise)
        return replace(problem, noise=noise)

    def take(self, index: Array) -> CheckedRows:
        chosen = self.X[index], self.y[index], self.sample_weight[index]
        return CheckedRows(*chosen, self.has_missing, self.feature_names, self.are_filled)


class MarginalisedClassifier(ModelParameters, ClassifierMixin, BaseEstimator):
    """Base of the linear classifiers whose loss is marginalised over noise on the features."""

    def _make_loss(self) -> Loss:
        """Return the loss. Each subclass defines it."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MarginalisedClassifier:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, never changed; float32 is kept. NaN is a missing entry, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            Labels: numbers, strings, booleans.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a row of weight 2 counts as the row twice, one of weight 0 not at all.

        Returns
        -------
        self : the fitted estimator. If the fit fails or is interrupted, the estimator is as it was before.
        """
        with validation.unchanged_on_failure(self):
            problem = self._problem()
            rows = self._check_data(problem, X, y, sample_weight)
            classes, encoded = self._encode(rows)
            start = self._warm_coefficients(classes, rows.X.shape[1])
            result = solve(rows.problem(problem), encoded, start, effective_n_jobs(self.n_jobs))
            return self._store(result, classes, rows.X.dtype, self._statistics(encoded))

    def _check_data(self, problem: Problem, X: Any, y: Any, sample_weight: Any) -> CheckedRows:
        """Return the training data after all checks that do not depend on the labels of one fit."""
        X, y = validate_rows(self, X, y, ensure_all_finite=self._finite())
        names = getattr(self, "feature_names_in_", None)
        if problem.noise is not None:
            problem.noise.resolve(X.shape[1], names)
        X = canonical(X)
        is_missing, are_filled = self.missing != "error" and has_missing(X), self.missing == "conditional"
        if is_missing:
            if not are_filled:
                missing.exclude_missing_from_noise(X, problem.noise)  # an error before a copy is made
            X = nan_to_negative_zero(X)
        X = validation.check_entries(X, problem.noise, names)
        weights = validation.check_weights(sample_weight, X.shape[0])
        if are_filled:
            check_rank(self.missing_rank, int(np.count_nonzero(weights)), X.shape[1])
        return CheckedRows(X, y, weights, is_missing, names, are_filled)

    def _encode(self, rows: CheckedRows) -> tuple[Array, ClassArray]:
        """Return the classes, and the rows with the index of their class and their final weights."""
        classes, index, weights = validation.encode_labels(
            rows.y, self.class_weight, rows.sample_weight, type(self).__name__
        )
        if self.missing == "conditional":
            return classes, ConditionalRows(rows.X, index, weights, len(classes), rows.has_missing, self.missing_rank)
        return classes, ClassArray(rows.X, index, weights, len(classes), rows.has_missing)

    def _statistics(self, encoded: ClassArray) -> FeatureStatistics:
        """Return the means of the features and what else ``missing`` needs: their deviations, or their Gaussian."""
        if isinstance(encoded, ConditionalRows):
            return encoded.statistics()
        if self.missing == "rescale":
            return feature_statistics(encoded.X, encoded.sample_weight, encoded.has_missing)
        return FeatureStatistics(encoded.feature_means, None)

    def _set_feature_names(self, n_features: int, names: Sequence[str] | None) -> None:
        self.n_features_in_ = n_features
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_

    def _set_statistics(self, statistics: FeatureStatistics | None) -> None:
        for name, values in zip(STATISTICS, statistics or (None,) * len(STATISTICS), strict=True):
            if values is not None:
                setattr(self, name, values)
            elif hasattr(self, name):  # of an earlier fit
                delattr(self, name)

    def _finite(self) -> Any:
        """Return whether scikit-learn's validation is to demand finite entries (``ensure_all_finite``)."""
        return True if self.missing == "error" else "allow-nan"

    def _problem(self) -> Problem:
        """Check the parameters and return the problem that they describe."""
        values = check_parameters(self)
        penalty = Penalty(l2=1.0 - values["l1_ratio"], l1=values["l1_ratio"])
        loss, noise = self._make_loss(), as_noise(self.noise)
        if isinstance(loss, MGFLoss) and noise is not None and not noise.has_log_mgf:
            raise ValueError(f"{type(loss).__name__} needs a noise with log_mgf(), which {type(noise).__name__} lacks.")
        solver = choose_solver(self.solver, loss, penalty)
        names = ("C", "fit_intercept", "multi_class", "tol", "max_iter")
        given = {name: values[name] for name in names}
        return Problem(loss=loss, noise=noise, penalty=penalty, solver=solver, monitor=self._monitor(), **given)

    def _monitor(self) -> Callable[[Iteration], None]:
        name = type(self).__name__

        def show(entry: Iteration) -> None:
            gap = "" if np.isnan(entry.gap) or np.isinf(entry.gap) else f"  gap {entry.gap / abs(entry.objective):8.1e}"
            print(
                f"[{name}] iteration {entry.iteration:4d}  objective {entry.objective:.8g}{gap}"
                f"  passes {entry.passes:g}  active {entry.n_active}",
                file=sys.stderr,
                flush=True,
            )

        return show if self.verbose else no_monitor

    def _warm_coefficients(self, classes: Array, n_features: int) -> Array | None:
        """Return the coefficients of an earlier fit to start from, if their shape and the classes are the same."""
        if not (self.warm_start and hasattr(self, "coef_")) or not np.array_equal(self.classes_, classes):
            return None
        if self.coef_.shape != (len(binary_outputs(len(classes), self.multi_class)), n_features):
            return None
        return np.vstack([as_dense(self.coef_).T, self.intercept_[None, :]]).astype(np.float64)

    def _store(
        self, result: Result, classes: Array, dtype: Any, statistics: FeatureStatistics | None
    ) -> MarginalisedClassifier:
        """Set the fitted attributes; warn if the solver has not converged."""
        if not np.isfinite(result.coef).all():
            raise ValueError(
                "The fit left the range of floating-point numbers. Scale the columns of X, for example with "
                "sklearn.preprocessing.StandardScaler, or choose a smaller C."
            )
        self.__dict__.pop("_stream", None)  # of an earlier `partial_fit`
        self._set_statistics(statistics)
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(result.coef[:-1].T.astype(dtype))
        self.intercept_ = result.coef[-1].astype(dtype)
        self.n_iter_ = result.n_iter
        self.n_passes_ = result.n_passes
        self.objective_ = float(result.objective.sum())
        self.converged_ = result.converged
        self.history_ = result.history
        if not result.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.message}. {self._remedy(result)}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _remedy(self, result: Result) -> str:
        scale = "scale the columns of X to similar ranges, or choose a smaller C"
        if result.n_iter >= self.max_iter:
            return f"Raise max_iter or tol, {scale}."
        return f"More iterations will not help: {scale}."

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score per row, positive for ``classes_[1]``; for more, one per class. With
            ``multi_class="ovo"`` the score of a class is its number of votes, plus less than half a vote from the sums
            of the scores, which decides ties.
        """
        X = self._check_rows(X)
        if self.missing == "error":
            return self._combine(linear_scores(X, self.coef_, self.intercept_))
        if self.missing == "conditional":
            return self._combine(self._factor_model().scores(X, as_dense(self.coef_), self.intercept_))
        statistics = self._feature_statistics()
        return self._combine(missing.anchored_scores(X, as_dense(self.coef_), self.intercept_, statistics))

    def _check_rows(self, X: Any) -> Any:
        """Return rows to predict as an array or a sparse matrix, after scikit-learn's checks."""
        check_is_fitted(self)
        check_parameter(self, "missing")
        if self.missing != "error":
            needed = "feature_deviations_" if self.missing == "rescale" else "feature_factors_"
            if not hasattr(self, needed):
                raise ValueError(
                    f"missing={self.missing!r} needs statistics of the training data ({needed}), which a fit with "
                    "another value of missing does not have: fit again."
                )
            whole = missing.restore_columns(X, getattr(self, "feature_names_in_", None))
            if whole is not X:
                return whole
        return validate_rows(self, X, reset=False, ensure_all_finite=self._finite())

    def _feature_statistics(self) -> FeatureStatistics:
        return FeatureStatistics(self.feature_means_, self.feature_deviations_)

    def _factor_model(self) -> FactorModel:
        return FactorModel(self.feature_means_, self.feature_factors_, self.residual_variances_)

    def _combine(self, scores: Array) -> Array:
        """Return one score per row for two classes, one per class for more: the votes, if columns are pairs."""
        if scores.shape[1] == 1:
            return scores[:, 0]
        if len(self.classes_) != scores.shape[1] or self.multi_class == "ovo":
            return _votes(scores, len(self.classes_))
        return scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        winners = _winners(self.decision_function(X))
        return self.classes_[winners]

    def predict_stability(
        self, X: Any, noise: Any = None, method: str = "auto", *, n_draws: int = 2048, random_state: Any = 0
    ) -> Array:
        """Return, for each row, the probability that its predicted label is still predicted under noise.

        The noise is unbiased, ``E[x~] = x``: dropout divides the features that it keeps by ``1 - rate``. Features that
        are missing stay missing, and only the observed ones are corrupted.

        With ``missing="conditional"``, the probability of an incomplete row is that its label is the label of the
        complete row, whose score is normal given the observed features; noise on these adds a variance, and the sum is
        taken as normal.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the noise of the estimator. Without noise, every
            probability is 1, except of incomplete rows with ``missing="conditional"``; for these alone pass
            ``noise=0``.
        method : {"auto", "normal", "guaranteed"}, default="auto"
            ``"auto"``: the probability itself, exact or with a known standard error. It is exact for Gaussian noise,
            and for dropout in rows where the features that are not zero and have a coefficient can be dropped in at
            most ``4 * n_draws`` ways, by default 13 features. Otherwise it is the share of ``n_draws`` draws from the
            noise that do not change the label, with a standard error of at most ``sqrt(p (1 - p) / (n_draws - 1))``,
            by default .011. For a noise that cannot be drawn (a class without ``draw``; Laplace noise on a sparse
            ``X``, which it would make dense) it is that of ``"normal"``.
            ``"normal"``: a fast approximation that takes the scores as normally distributed: ``Phi(|m| / sqrt(v))`` for
            two classes, with ``m`` and ``v`` the mean and the variance of the score; for more, the probability that
            the score of the predicted class stays above all others. It is inaccurate if few features determine the
            score.
            ``"guaranteed"``: a lower bound for every noise with these variances, ``m^2 / (m^2 + v)`` (Cantelli) for two
            classes; for more, 1 minus the sum of ``v / (m^2 + v)`` over the other classes, at least 0.
            ``"normal"`` and ``"guaranteed"`` need ``multi_class="ovr"`` if there are more than two classes.
        n_draws : int, default=2048
            Number of draws of ``method="auto"``. Four times as many halve the standard error.
        random_state : int, RandomState instance or None, default=0
            Seed of these draws. With an integer, the probability of a row is the same in every call and does not depend
            on the other rows of ``X``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples,)
            Probabilities, or lower bounds on them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DropoutSVC(noise=0.1).fit(X, y)
        >>> model.predict_stability(X[[0, 50, 100]], 0.1).round(2)
        array([1.  , 0.81, 0.99])
        """
        X = self._check_rows(X)
        by_pairs = self.multi_class == "ovo" and len(self.classes_) > 2
        validation.check_choice("method", method, stability.METHODS)
        stability.check_scores(by_pairs, method)
        n_draws = validation.check_integer("n_draws", n_draws, 1)
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        noise = as_noise(self.noise if noise is None else noise)
        names, X = getattr(self, "feature_names_in_", None), canonical(X)
        out, complete = np.ones(X.shape[0]), np.ones(X.shape[0], dtype=bool)
        if noise is not None:
            noise = self._at_training_means(noise.resolve(X.shape[1], names))
        if self.missing == "conditional":
            variance = None if noise is None else noise.variance()
            if noise is not None:
                validation.check_entries(missing_values.zero_missing(X), noise, names)
            for rows, mean, covariance in self._normal_scores(X, variance):
                out[rows] = stability.of_normal_scores(
                    mean, covariance, method, self._winners_of if by_pairs else None, n_draws, seed
                )
            complete = ~missing_values.incomplete_rows(X)
        if noise is not None and complete.all():
            return self._unchanged(X, noise, method, n_draws, seed)
        if noise is not None and complete.any():
            out[complete] = self._unchanged(X[complete], noise, method, n_draws, seed)
        return out

    def _unchanged(self, X: Any, noise: Noise, method: str, n_draws: int, seed: int) -> Array:
        """Return the probabilities of `predict_stability` for checked rows and a noise for these features."""
        by_pairs = self.multi_class == "ovo" and len(self.classes_) > 2
        names, out = getattr(self, "feature_names_in_", None), np.empty(X.shape[0])
        statistics = self._feature_statistics() if self.missing == "rescale" else None
        coef = as_dense(self.coef_)
        room = stability.n_results(len(coef), noise.variance().groups)
        patterns = None
        if method == "auto" and isinstance(noise, DropoutNoise):
            patterns = DropoutPatterns(coef, noise, n_draws, seed)
        for where, rows in missing.anchored_rows(X, coef, self.intercept_, statistics, room):
            rows = replace(rows, filled=validation.check_entries(rows.filled, noise, names))
            if patterns is not None:
                out[where] = patterns.unchanged(rows, self._winners_of)
            elif method == "auto":
                out[where] = stability.exact_or_drawn(
                    rows, coef, noise, self._winners_of, by_pairs=by_pairs, n_draws=n_draws, seed=seed
                )
            else:
                out[where] = stability.closed_form(rows, coef, noise.variance(), method)
        return out

    def _normal_scores(self, X: Any, variance: Variance | None = None) -> Iterator[NormalScores]:
        """Yield the incomplete rows with the moments of their scores; see `FactorModel.normal_scores`."""
        return self._factor_model().normal_scores(X, as_dense(self.coef_), self.intercept_, variance)

    def expected_accuracy(self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None) -> float:
        """Return the expected accuracy if the features are corrupted by noise, in closed form.

        It is the mean probability that the predicted label of a row is the given one, for normally distributed scores.
        Nothing is sampled.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Complete data, or with NaN for missing features unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            The correct labels.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the noise of the estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        accuracy : float
            The expected accuracy.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DropoutSVC(noise=0.3).fit(X, y)
        >>> model.expected_accuracy(X, y, noise=0.3) < model.score(X, y)
        True
        """
        X, y = self._check_rows(X), column_or_1d(y)
        noise = as_noise(self.noise if noise is None else noise)
        noise = DropoutNoise(0.0, reference="zero") if noise is None else noise
        noise = self._at_training_means(noise.resolve(X.shape[1], getattr(self, "feature_names_in_", None)))
        return self._expected_accuracy(canonical(X), y, noise, sample_weight)

    def _expected_accuracy(self, X: Any, y: Array, noise: Noise, sample_weight: Any) -> float:
        """Return the expected accuracy for checked rows and a noise for these features."""
        if self.multi_class == "ovo" and len(self.classes_) > 2:
            raise ValueError("The expected accuracy under noise needs multi_class='ovr', got multi_class='ovo'.")
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        is_known = self.classes_[index] == y
        statistics = self._feature_statistics() if self.missing == "rescale" else None
        coef, variance = as_dense(self.coef_), noise.variance()
        room = stability.n_results(len(coef), variance.groups)
        right, complete = np.empty(X.shape[0]), np.arange(X.shape[0])
        if self.missing == "conditional" and has_missing(X):
            complete = np.flatnonzero(~missing_values.incomplete_rows(X))
            for members, mean, covariance in self._normal_scores(X, variance):
                right[members] = stability.normal_label_probabilities(mean, covariance, index[members])
            X = X[complete]
        for where, rows in missing.anchored_rows(X, coef, self.intercept_, statistics, room):
            own = complete[where]
            right[own] = stability.label_probabilities(rows, coef, variance, index[own])
        return float(np.average(right * is_known, weights=sample_weight))

    def _at_training_means(self, noise: Noise) -> Noise:
        """Return the noise for the feature means of the training data."""
        return noise.with_means(self.feature_means_) if noise.needs_means else noise

    def _winners_of(self, scores: Array) -> Array:
        """Return the index of the predicted class from the scores of all columns."""
        return _winners(self._combine(scores))

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        Only for losses whose scores are log-odds (the logistic losses), and with ``multi_class="ovr"``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            For more than two classes, the one-vs-rest probabilities divided by their sum.
        """
        return np.exp(self.predict_log_proba(X))

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class, accurate also for very small probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            The logarithm of `predict_proba`.
        """
        scores = self.decision_function(X)
        scores = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
        logs = log_expit(scores)
        if self.missing == "conditional":
            for rows, mean, covariance in self._normal_scores(canonical(self._check_rows(X))):
                mean = np.hstack([-mean, mean]) if mean.shape[1] == 1 else mean
                logs[rows] = log_expected_expit(mean, np.diagonal(covariance, axis1=1, axis2=2))
        return logs if len(self.classes_) == 2 else logs - logsumexp(logs, axis=1, keepdims=True)

    def sparsify(self) -> MarginalisedClassifier:
        """Convert the coefficients to a sparse array, as in `sklearn.svm.LinearSVC`.

        With an l1 penalty, most coefficients may be zero. Sparse coefficients then take less memory, and predictions
        less time. `predict_stability`, and predictions of rows with missing features, convert them to a dense array for
        the time of the call. `fit` and `partial_fit` make them dense again.

        Returns
        -------
        self : object
            The estimator, with ``coef_`` as a CSR array.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.preprocessing import scale
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = DropoutSVC(C=0.01, l1_ratio=1.0).fit(scale(X), y).sparsify()
        >>> model.coef_.nnz < X.shape[1]
        True
        """
        check_is_fitted(self)
        self.coef_ = as_sparse(self.coef_)
        return self

    def densify(self) -> MarginalisedClassifier:
        """Convert the coefficients to a dense array, which they are after `fit`.

        Returns
        -------
        self : object
            The estimator, with ``coef_`` as an ndarray.
        """
        check_is_fitted(self)
        self.coef_ = as_dense(self.coef_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        noise = self.noise
        tags.input_tags.positive_only = isinstance(noise, Noise) and not noise.allows_negative
        return tags


def _winners(scores: Array) -> Array:
    """Return the index of the predicted class of each row of what `decision_function` returns."""
    return (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)


def _votes(scores: Array, n_classes: int) -> Array:
    """Return the votes of one-vs-one scores; sums of the scores, squeezed to under half a vote, break ties."""
    votes = np.zeros((len(scores), n_classes))
    sums = np.zeros((len(scores), n_classes))
    for column, (first, second) in enumerate(combinations(range(n_classes), 2)):
        score = scores[:, column]
        votes[np.arange(len(scores)), np.where(score > 0.0, second, first)] += 1.0
        sums[:, second] += score
        sums[:, first] -= score
    return votes + sums / (3.0 * (np.abs(sums) + 1.0))
