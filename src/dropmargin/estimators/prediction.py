"""Prediction: scores of rows by the model's rule for missing features, and their moments under noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import as_dense, as_sparse, canonical, linear_scores
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import has_missing, row_chunks
from dropmargin.estimators import missing, validation
from dropmargin.estimators.conditional import FactorModel, factor_model
from dropmargin.estimators.fitting import coefficients
from dropmargin.estimators.missing import AffineRows, Rescaled, ScoreMoments
from dropmargin.estimators.moments import NoisyScores
from dropmargin.estimators.parameters import RunParameters, SharedParameters, check_parameter
from dropmargin.noise import DropoutNoise, Noise, as_noise
from dropmargin.typing import Array


class Prediction(RunParameters, SharedParameters, BaseEstimator):
    """What all models share in predictions: those with a given noise and ``C``, and those that choose them."""

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

    def _coefficients(self) -> tuple[Array, Array]:
        coef, intercept = coefficients(self)
        return as_dense(coef), intercept

    def _rule(self) -> Any:
        """Return the rule for missing features, ``None`` if they are an error."""
        if self.missing == "error":
            return None
        if self.missing == "conditional":
            return factor_model(self)
        return Rescaled(self.feature_means_, self.feature_deviations_)

    def _scores(self, X: Any) -> Array:
        """Return the scores of checked rows, one column per output."""
        if self.missing == "error" or not has_missing(X):
            return linear_scores(X, *coefficients(self))
        return missing.scores_of_rule(self._rule(), canonical(X), *self._coefficients())

    def _normal_scores(self, X: Any) -> Iterator[ScoreMoments]:
        """Yield checked rows with the moments of the scores of the complete rows, by the rule for missing features."""
        rule, X = self._rule(), canonical(X)
        if rule is None or not has_missing(X):
            yield ScoreMoments(np.arange(X.shape[0]), linear_scores(X, *self._coefficients()), None)
        else:
            yield from rule.normal_scores(X, *self._coefficients())

    def _score_moments(self, X: Any) -> tuple[Array, Array]:
        """Return means and variances of these scores, of shape (n_rows, n_outputs) each."""
        mean = np.empty((X.shape[0], len(self._coefficients()[1])), dtype=np.result_type(X.dtype, self.coef_.dtype))
        variance = np.zeros(mean.shape)
        for part in self._normal_scores(X):
            mean[part.rows] = part.mean
            if part.covariance is not None:
                variance[part.rows] = np.maximum(part.variance, 0.0)
        return mean, variance

    def _resolved_noise(self, noise: Any) -> Noise:
        """Return a noise for the features and their training means; ``None`` means that of the estimator."""
        found = as_noise(self.noise if noise is None else noise)
        found = DropoutNoise(0.0, reference="zero") if found is None else found
        found = found.resolve(self.n_features_in_, getattr(self, "feature_names_in_", None))
        return found.with_means(self.feature_means_) if found.needs_means else found

    def _noisy_scores(self, X: Any, noise: Noise, of_complete: bool = False) -> Iterator[ScoreMoments]:
        """Yield checked rows with the moments of their scores under a resolved noise.

        ``of_complete``: with ``missing="conditional"``, the scores are those of the complete rows, which vary by the
        missing features as well.
        """
        (coef, intercept), variance = self._coefficients(), noise.variance()
        X = validation.check_entries(X, noise, getattr(self, "feature_names_in_", None))
        members, rule = np.arange(X.shape[0]), self._rule()
        if isinstance(rule, FactorModel) and has_missing(X):
            members = members[:0]
            own = rule.normal_scores(X, coef, intercept, of_complete, None if variance.is_zero else noise)
            for scores in own:
                if scores.covariance is not None:
                    yield scores
                else:
                    members = scores.rows
            X = X[members]
        rescaled = rule if isinstance(rule, Rescaled) else None
        n_groups = 0 if variance.groups is None else int(variance.groups.max()) + 1
        for where in row_chunks(X, (n_groups + len(coef)) * len(coef)):
            yield NoisyScores(members[where], AffineRows(X[where], coef, intercept, rescaled), noise)

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
        return self._set_coef(as_sparse(coefficients(self)[0]))

    def densify(self) -> Self:
        """Convert the coefficients to a dense array, which they are after `fit`.

        Returns
        -------
        self : object
            The estimator, with ``coef_`` as an ndarray.
        """
        check_is_fitted(self)
        coef = as_dense(self.coef_)
        return self._set_coef(coef.reshape(-1) if isinstance(self, RegressorMixin) else coef)

    def _set_coef(self, coef: Any) -> Self:
        self.coef_ = coef
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "error"
        noise = getattr(self, "noise", None)
        tags.input_tags.positive_only = isinstance(noise, Noise) and not noise.allows_negative
        return tags
