"""What the regressors have in common beyond `estimators.base`: targets that are numbers, and expected errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import ndtr
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from dropmargin.data import NumberArray, as_dense, canonical
from dropmargin.data.inputs import validate_rows
from dropmargin.estimators import missing, stability, validation
from dropmargin.estimators.base import CheckedRows, MarginalisedModel
from dropmargin.losses import Loss, MomentLoss
from dropmargin.noise import DropoutNoise, Noise, as_noise
from dropmargin.typing import Array

#: The errors of `MarginalisedRegressor.expected_error`.
METRICS = ("squared", "absolute")


class MarginalisedRegressor(RegressorMixin, MarginalisedModel):
    """Base of the linear regressors whose loss is marginalised over noise on the features."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, never changed; float32 is kept. With ``missing="rescale"``, NaN is a missing entry.
        y : array-like of shape (n_samples,)
            Targets: numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a row of weight 2 counts as the row twice, one of weight 0 not at all.

        Returns
        -------
        self : the fitted estimator. If the fit fails or is interrupted, the estimator is as it was before.
        """
        return self._fit(X, y, sample_weight)

    def _validate_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = validate_rows(self, X, y, ensure_all_finite=self._finite(), y_numeric=True)
        return X, check_targets(y)

    def _encode(self, rows: CheckedRows) -> tuple[None, NumberArray]:
        first = first_intercept(self._make_loss(), rows.y, rows.sample_weight)
        return None, NumberArray(rows.X, rows.y, rows.sample_weight, first, rows.has_missing)

    def _scale_of_C(self, rows: CheckedRows) -> float:  # noqa: N802
        # The best C of a ridge regression is about R^2 / (1 - R^2) / (2 * mean squared norm of a row): R^2 may be small
        return 0.01

    def _coefficients(self) -> tuple[Any, Array]:
        coef = self.coef_ if self.coef_.ndim == 2 else self.coef_[None, :]
        return coef, np.atleast_1d(self.intercept_)

    def _set_coefficients(self, coef: Array, dtype: Any) -> None:
        self.coef_ = np.ascontiguousarray(coef[:-1, 0].astype(dtype))
        self.intercept_ = coef[-1, 0].astype(dtype)

    def predict(self, X: Any) -> Array:
        """Return the predicted number of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. With ``missing="rescale"``, NaN is a missing feature.

        Returns
        -------
        predictions : ndarray of shape (n_samples,)
            The predicted numbers.
        """
        return self._scores(X)[:, 0]

    def expected_error(
        self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None, *, metric: str = "squared"
    ) -> float:
        """Return the expected error of the predictions if the features are corrupted by noise, in closed form.

        Nothing is sampled. The squared error is exact for every noise; the absolute error is that of normally
        distributed predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Complete data, or with NaN for missing features if ``missing="rescale"``.
        y : array-like of shape (n_samples,)
            The correct numbers.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the noise of the estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        metric : {"squared", "absolute"}, default="squared"
            The error.

        Returns
        -------
        error : float
            The expected mean squared or absolute error.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from dropmargin import DropoutRidge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DropoutRidge(noise=0.3, C=1000.0).fit(X, y)
        >>> model.expected_error(X, y, noise=0.3) > model.expected_error(X, y, noise=0.0)
        True
        """
        validation.check_choice("metric", metric, METRICS)
        X, y = self._check_rows(X), check_targets(column_or_1d(y))
        noise = as_noise(self.noise if noise is None else noise)
        noise = DropoutNoise(0.0, reference="zero") if noise is None else noise
        noise = self._at_training_means(noise.resolve(X.shape[1], getattr(self, "feature_names_in_", None)))
        return self._expected_error(canonical(X), y, noise, sample_weight, metric)

    def _expected_error(self, X: Any, y: Array, noise: Noise, sample_weight: Any, metric: str) -> float:
        """Return the expected error for checked rows and a noise for these features."""
        coef, intercept = self._coefficients()
        coef, variance = as_dense(coef).astype(np.float64), noise.variance()
        statistics = None if self.missing == "error" else self._feature_statistics()
        room = stability.n_results(1, variance.groups)
        errors = np.empty(X.shape[0])
        for where, rows in missing.anchored_rows(X, coef, intercept, statistics, room):
            members = np.arange(len(rows.factor))
            v = np.square(rows.factor) * rows.covariances(members, variance, coef, coef)
            errors[where] = expected_errors((y[where] - rows.scores(coef)[:, 0]), np.maximum(v[:, 0], 0.0), metric)
        return float(np.average(errors, weights=sample_weight))


def check_targets(y: Any) -> Array:
    """Return the targets of a regression in double precision, after checking their size."""
    y = np.asarray(y, dtype=np.float64)
    largest = float(np.abs(y).max(initial=0.0))
    if largest > validation.LARGEST:
        raise ValueError(f"y has values up to {largest:.1e}, whose squares overflow; scale it.")
    return y


def first_intercept(loss: Loss, y: Array, weights: Array) -> float:
    """Return the intercept to start from: the weighted mean of the targets, or one without any loss."""
    assert isinstance(loss, MomentLoss)
    counted = y[weights > 0.0]
    middle = 0.5 * (counted.min() + counted.max())
    if not loss.value(counted, np.full_like(counted, middle), np.zeros_like(counted)).any():
        return float(middle)
    return float(np.average(y, weights=weights))


def weighted_deviation(y: Array, weights: Array) -> float:
    """Return the standard deviation of the targets."""
    return float(np.sqrt(np.average(np.square(y - np.average(y, weights=weights)), weights=weights)))


def expected_errors(residual: Array, variance: Array, metric: str) -> Array:
    """Return the expected squared or absolute value of normal variables with these means and variances."""
    if metric == "squared":
        return np.square(residual) + variance
    sd = np.sqrt(variance)
    ratio = np.divide(residual, sd, out=np.zeros_like(residual), where=sd > 0.0)
    folded = sd * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * np.square(ratio)) + residual * (1.0 - 2.0 * ndtr(-ratio))
    return np.where(sd > 0.0, folded, np.abs(residual))
