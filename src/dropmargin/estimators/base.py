"""The estimator that classifiers and regressors share: parameters, fit, scores of rows, also under noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import as_dense, as_sparse, linear_scores
from dropmargin.data.deletion import DeletedRows
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import FeatureStatistics, has_missing, incomplete_rows, zero_missing
from dropmargin.estimators import deleted, missing, stability, validation
from dropmargin.estimators.conditional import FactorModel, NormalScores
from dropmargin.estimators.fitting import Fit, coefficients
from dropmargin.estimators.parameters import ModelParameters, check_parameter
from dropmargin.losses import Loss
from dropmargin.noise import DropoutNoise, Noise, Variance, as_noise
from dropmargin.solvers import solve
from dropmargin.typing import Array


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
            fit = Fit(self)
            rows = fit.check_rows(X, y, sample_weight)
            # The steps of `Fit.run`, written out: the way to the kernel is one frame shorter.
            problem = rows.problem(fit.problem)
            with rows.encoded(fit) as encoded:
                start = fit.start(encoded.classes, rows.n_features)
                result = solve(problem, encoded, start, effective_n_jobs(self.n_jobs))
                fit.store(result, encoded, rows)
        return self

    def _scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        """Return the factor of the default values of ``C`` of a search."""
        return 1.0

    def _finite(self) -> Any:
        """Return whether scikit-learn's validation is to demand finite entries (``ensure_all_finite``)."""
        return True if self.missing == "error" else "allow-nan"

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

    def _scores(self, X: Any) -> Array:
        """Return the scores of checked rows, one column per output."""
        coef, intercept = coefficients(self)
        if self.missing == "error" or not has_missing(X):
            return linear_scores(X, coef, intercept)
        if self.missing == "conditional":
            return self._factor_model().scores(X, as_dense(coef), intercept)
        return missing.anchored_scores(X, as_dense(coef), intercept, self._feature_statistics())

    def _deleted_rows(self, rows: DeletedRows) -> deleted.ScoredRows:
        """Return rows with deleted features, to score with other coefficients of this model."""
        if self.missing != "conditional":
            return deleted.RescaledRows(rows, self._feature_statistics())
        of_kind = deleted.FilledRows if rows.is_dense else deleted.SparseFilledRows
        return of_kind(rows, self._factor_model())

    def _feature_statistics(self) -> FeatureStatistics:
        return FeatureStatistics(self.feature_means_, self.feature_deviations_)

    def _factor_model(self) -> FactorModel:
        return FactorModel(self.feature_means_, self.feature_factors_, self.residual_variances_)

    def _normal_scores(
        self, X: Any, variance: Variance | None = None, of_complete: bool = True
    ) -> Iterator[NormalScores]:
        """Yield the incomplete rows with the moments of their scores; see `FactorModel.normal_scores`."""
        coef, intercept = coefficients(self)
        return self._factor_model().normal_scores(X, as_dense(coef), intercept, variance, of_complete)

    def _resolved_noise(self, noise: Any) -> Noise:
        """Return a noise for the features and their training means; ``None`` means that of the estimator."""
        found = as_noise(self.noise if noise is None else noise)
        found = DropoutNoise(0.0, reference="zero") if found is None else found
        found = found.resolve(self.n_features_in_, getattr(self, "feature_names_in_", None))
        return found.with_means(self.feature_means_) if found.needs_means else found

    def _noisy_scores(
        self, X: Any, noise: Noise, of_complete: bool = False
    ) -> Iterator[tuple[Array, stability.ScoreMoments]]:
        """Yield indices of checked rows, and the moments of the scores of these under a resolved noise.

        ``of_complete``: with ``missing="conditional"``, the scores are those of the complete rows, which vary by the
        missing features as well.
        """
        coef, intercept = coefficients(self)
        coef, variance, names = as_dense(coef), noise.variance(), getattr(self, "feature_names_in_", None)
        members, statistics = np.arange(X.shape[0]), None
        if self.missing == "conditional" and has_missing(X):
            validation.check_entries(zero_missing(X), noise, names)
            for scores in self._normal_scores(X, variance, of_complete):
                yield scores.rows, scores
            members = np.flatnonzero(~incomplete_rows(X))
            X = X[members]
        elif self.missing == "rescale" and has_missing(X):
            statistics = self._feature_statistics()
        n_results = stability.n_results(len(coef), variance.groups)
        for where, rows in missing.anchored_rows(X, coef, intercept, statistics, n_results):
            rows = replace(rows, filled=validation.check_entries(rows.filled, noise, names))
            yield members[where], stability.NoisyScores(rows, coef, variance)

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
        self.coef_ = as_sparse(coefficients(self)[0])
        return self

    def densify(self) -> Self:
        """Convert the coefficients to a dense array, which they are after `fit`.

        Returns
        -------
        self : object
            The estimator, with ``coef_`` as an ndarray.
        """
        check_is_fitted(self)
        coef = as_dense(self.coef_)
        self.coef_ = coef.reshape(-1) if isinstance(self, RegressorMixin) else coef
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        noise = self.noise
        tags.input_tags.positive_only = isinstance(noise, Noise) and not noise.allows_negative
        return tags
