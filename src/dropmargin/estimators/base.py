"""The estimator shell that classifiers and regressors share: parameters, checks, fit, fitted attributes, scores."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import ClassArray, Rows, as_dense, as_sparse, canonical, linear_scores
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import (
    STATISTICS,
    FeatureStatistics,
    feature_statistics,
    has_missing,
    nan_to_negative_zero,
)
from dropmargin.estimators import missing, validation
from dropmargin.estimators.conditional import FactorModel, NormalScores
from dropmargin.estimators.factor_analysis import ConditionalRows, check_rank
from dropmargin.estimators.parameters import ModelParameters, check_parameter, check_parameters
from dropmargin.losses import Loss, MGFLoss
from dropmargin.noise import Noise, Variance, as_noise
from dropmargin.penalties import Penalty
from dropmargin.solvers import Iteration, Problem, Result, choose_solver, no_monitor, solve
from dropmargin.typing import Array


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


class MarginalisedModel(ModelParameters, BaseEstimator):
    """Base of the linear models whose loss is marginalised over noise on the features."""

    def _make_loss(self) -> Loss:
        """Return the loss. Each subclass defines it."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, never changed; float32 is kept. NaN is a missing entry, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            Labels (numbers, strings, booleans) for a classifier, numbers for a regressor.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a row of weight 2 counts as the row twice, one of weight 0 not at all.

        Returns
        -------
        self : object
            The fitted estimator. If the fit fails or is interrupted, the estimator is as it was before.
        """
        with validation.unchanged_on_failure(self):
            problem = self._problem()
            rows = self._check_data(problem, X, y, sample_weight)
            classes, encoded = self._encode(rows)
            start = self._warm_coefficients(classes, rows.X.shape[1])
            result = solve(rows.problem(problem), encoded, start, effective_n_jobs(self.n_jobs))
            return self._store(result, classes, rows.X.dtype, self._statistics(encoded))._set_residuals(rows)

    def _check_data(self, problem: Problem, X: Any, y: Any, sample_weight: Any) -> CheckedRows:
        """Return the training data after all checks that do not depend on the labels of one fit."""
        X, y = self._validate_rows(X, y)
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

    def _validate_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return training rows and targets after scikit-learn's checks."""
        return validate_rows(self, X, y, ensure_all_finite=self._finite())

    def _encode(self, rows: CheckedRows) -> tuple[Array | None, ClassArray]:
        """Return the classes, ``None`` in a regression, and the rows as a solver needs them."""
        raise NotImplementedError

    def _set_classes(self, classes: Array | None) -> None:
        """Set the classes; a regression has none."""

    def _n_outputs(self, classes: Array | None) -> int:
        """Return the number of outputs for these classes."""
        return 1

    def _scale_of_C(self, rows: Rows) -> float:  # noqa: N802
        """Return the factor of the default values of ``C`` of a search."""
        return 1.0

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
        given = {name: values[name] for name in ("C", "fit_intercept", "tol", "max_iter")}
        given["multi_class"] = values.get("multi_class", "ovr")
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

    def _set_residuals(self, rows: CheckedRows) -> Self:
        """Set what depends on the predictions of the training rows; a classifier has nothing like that."""
        return self

    def _warm_coefficients(self, classes: Array | None, n_features: int) -> Array | None:
        """Return the coefficients of an earlier fit to start from, if their shape and the classes are the same."""
        if not (self.warm_start and hasattr(self, "coef_")):
            return None
        if classes is not None and not np.array_equal(self.classes_, classes):
            return None
        coef, intercept = self._coefficients()
        if coef.shape != (self._n_outputs(classes), n_features):
            return None
        return np.vstack([as_dense(coef).T, intercept[None, :]]).astype(np.float64)

    def _coefficients(self) -> tuple[Any, Array]:
        """Return the coefficients, one row per output, and the intercepts."""
        return self.coef_, self.intercept_

    def _set_coefficients(self, coef: Array, dtype: Any) -> None:
        """Set coefficients and intercepts from those of a solver, intercept last and one column per output."""
        self.coef_ = np.ascontiguousarray(coef[:-1].T.astype(dtype))
        self.intercept_ = coef[-1].astype(dtype)

    def _store(self, result: Result, classes: Array | None, dtype: Any, statistics: FeatureStatistics | None) -> Self:
        """Set the fitted attributes; warn if the solver has not converged."""
        if not np.isfinite(result.coef).all():
            raise ValueError(
                "The fit left the range of floating-point numbers. Scale the columns of X, for example with "
                "sklearn.preprocessing.StandardScaler, or choose a smaller C."
            )
        self.__dict__.pop("_stream", None)  # of an earlier `partial_fit`
        self._set_statistics(statistics)
        self._set_classes(classes)
        self._set_coefficients(result.coef, dtype)
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

    def _scores(self, X: Any) -> Array:
        """Return the scores of rows to predict, one column per output."""
        X = self._check_rows(X)
        coef, intercept = self._coefficients()
        if self.missing == "error":
            return linear_scores(X, coef, intercept)
        if self.missing == "conditional":
            return self._factor_model().scores(X, as_dense(coef), intercept)
        return missing.anchored_scores(X, as_dense(coef), intercept, self._feature_statistics())

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

    def _normal_scores(self, X: Any, variance: Variance | None = None) -> Iterator[NormalScores]:
        """Yield the incomplete rows with the moments of their scores; see `FactorModel.normal_scores`."""
        coef, intercept = self._coefficients()
        return self._factor_model().normal_scores(X, as_dense(coef), intercept, variance)

    def _at_training_means(self, noise: Noise) -> Noise:
        """Return the noise for the feature means of the training data."""
        return noise.with_means(self.feature_means_) if noise.needs_means else noise

    def sparsify(self) -> Self:
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
        self.coef_ = as_sparse(self._coefficients()[0])
        return self

    def densify(self) -> Self:
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
