"""Prediction: scores of rows by the model's rule for missing features, and their moments under noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import as_dense, as_sparse, canonical, linear_scores
from dropmargin.data.deletion import DeletedRows
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import has_missing, row_chunks
from dropmargin.estimators import missing, validation
from dropmargin.estimators.conditional import FactorModel, factor_model
from dropmargin.estimators.deleted import scores_of_deleted
from dropmargin.estimators.fitting import coefficients
from dropmargin.estimators.moments import NoisyScores, ScoreMoments
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

    def _factor_model(self) -> FactorModel:
        return factor_model(self)

    def _rule(self) -> missing.Rescaled:
        return missing.Rescaled(*self._coefficients(), self.feature_means_, self.feature_deviations_)

    def _scores(self, X: Any) -> Array:
        """Return the scores of checked rows, one column per output."""
        if self.missing == "error" or not has_missing(X):
            return linear_scores(X, *coefficients(self))
        if self.missing == "conditional":
            return self._factor_model().scores(canonical(X), *self._coefficients())
        statistics = self.feature_means_, self.feature_deviations_
        return missing.rescaled_scores(X, *self._coefficients(), *statistics)

    def _normal_scores(self, X: Any, has_covariance: bool = True, noise: Noise | None = None) -> Iterator[ScoreMoments]:
        """Yield checked rows with the moments of the scores of the complete rows; see `FactorModel.normal_scores`.

        Without missing features, all rows are complete. With ``missing="rescale"``, scores vary by what the rule leaves
        out.
        """
        (coef, intercept), X = self._coefficients(), canonical(X)
        if self.missing == "error" or not has_missing(X):
            yield ScoreMoments(np.arange(X.shape[0]), linear_scores(X, coef, intercept), None)
        elif self.missing == "conditional":
            yield from self._factor_model().normal_scores(X, coef, intercept, has_covariance, noise)
        else:
            rule = self._rule()
            for where in row_chunks(X, len(coef)):
                rows = missing.AffineRows(X[where], intercept, rule)
                lost = None if rows.missing is None else rule.lost_variances(rows.missing)[:, :, None]
                yield ScoreMoments(np.arange(X.shape[0])[where], rows.scores(coef), lost)

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
        coef, intercept = self._coefficients()
        variance, names = noise.variance(), getattr(self, "feature_names_in_", None)
        X = validation.check_entries(X, noise, names)
        members, rule = np.arange(X.shape[0]), None
        if self.missing == "conditional" and has_missing(X):
            members = members[:0]
            for scores in self._normal_scores(X, of_complete, None if variance.is_zero else noise):
                if scores.covariance is not None:
                    yield scores
                else:
                    members = scores.rows
            X = X[members]
        elif self.missing == "rescale" and has_missing(X):
            rule = self._rule()
        n_groups = 0 if variance.groups is None else int(variance.groups.max()) + 1
        for where in row_chunks(X, (n_groups + len(coef)) * len(coef)):
            yield NoisyScores(members[where], missing.AffineRows(X[where], intercept, rule), coef, noise)

    def _deleted_scores(self, rows: DeletedRows) -> Any:
        """Return the function of coefficients and intercepts that gives the scores of rows with deleted features."""
        if self.missing == "conditional":
            return scores_of_deleted(rows, model=self._factor_model())
        return scores_of_deleted(rows, statistics=(self.feature_means_, self.feature_deviations_))

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
