"""What the regressors have in common beyond `estimators.base`: targets that are numbers, and expected errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dropmargin.data import canonical
from dropmargin.estimators import conformal, validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.prediction import Prediction
from dropmargin.noise import Noise
from dropmargin.typing import Array

#: The errors of `MarginalisedRegressor.expected_error`.
METRICS = ("squared", "absolute")


class Regression(RegressorMixin, Prediction):
    """The predictions of all linear regressors."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted number of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        return_std : bool, default=False
            Whether to return the standard deviation of the prediction of the complete row given the observed features,
            as well. With ``missing="rescale"`` it is the root of the sum of ``w_d^2 sd_d^2`` over the missing features,
            which are taken as independent. It needs one of these two rules.

        Returns
        -------
        predictions : ndarray of shape (n_samples,)
            The predicted numbers.
        deviations : ndarray of shape (n_samples,)
            The standard deviations, 0 for complete rows; only with ``return_std=True``. They do not include the
            residuals of complete rows, which `predict_interval` adds.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from dropmargin import DropoutRidge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DropoutRidge(C=100.0, missing="conditional").fit(X, y)
        >>> X[0, 2] = np.nan
        >>> _, deviations = model.predict(X[:2], return_std=True)
        >>> bool(deviations[0] > 10.0), float(deviations[1])
        (True, 0.0)
        """
        X = self._check_rows(X)
        if not return_std:
            return self._scores(X)[:, 0]
        if self.missing == "error":
            raise ValueError("return_std=True needs missing='conditional' or 'rescale' before fit, got 'error'.")
        return self._with_deviations(X)

    def _with_deviations(self, X: Any) -> tuple[Array, Array]:
        """Return the predictions of checked rows, and their standard deviations given the observed features."""
        mean, variance = self._score_moments(X)
        return mean[:, 0], np.sqrt(variance[:, 0])

    def predict_interval(self, X: Any, coverage: float = 0.9, *, residual_deviation: float | None = None) -> Array:
        """Return an interval for the number of each row of ``X``, which is wider if features are missing.

        The middle of the interval is the prediction. Its width is proportional to the root of the sum of the variance
        of the residuals of complete rows and that of the prediction of the complete row given the observed features
        (`predict` with ``return_std=True``). With ``conformal=True`` before fit, the factor is a quantile of the
        errors of held-out rows with the same share of missing features, and the coverage holds for each share if
        features are missing at random. Else the number of a row is taken as normal.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        coverage : float, default=0.9
            The probability with which the interval is to contain the number.
        residual_deviation : float, default=None
            The standard deviation of the residuals, such as the root mean squared error of complete rows that were not
            used in training; ``None`` for ``residual_deviation_``. If it is given, the number is taken as normal.

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2)
            Lower and upper ends.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from dropmargin import DropoutRidge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DropoutRidge(C=100.0, missing="conditional").fit(X[:300], y[:300])
        >>> low, high = model.predict_interval(X[300:], coverage=0.9).T
        >>> print(f"{np.mean((low <= y[300:]) & (y[300:] <= high)):.2f}")
        0.89
        >>> X[300, 2] = np.nan
        >>> wide, narrow = np.diff(model.predict_interval(X[300:302]))[:, 0]
        >>> bool(wide > narrow)
        True
        """
        coverage, X = conformal.check_coverage(coverage), self._check_rows(X)
        if residual_deviation is not None:
            spread = validation.check_number("residual_deviation", residual_deviation, 0.0)
        elif hasattr(self, "residual_deviation_"):
            spread = self.residual_deviation_
        else:
            raise ValueError(
                "residual_deviation is not known from this fit, which had no more complete rows than coefficients, or "
                "rows in files or on a cluster: pass the root mean squared error of complete rows."
            )
        means, deviations = self._with_deviations(X)
        is_normal = residual_deviation is not None or not self.conformal
        factors = ndtri(0.5 + 0.5 * coverage) if is_normal else conformal.thresholds(self, X, coverage)
        half = factors * np.hypot(deviations, spread)
        return np.column_stack([means - half, means + half])

    def expected_error(
        self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None, *, metric: str = "squared"
    ) -> float:
        """Return the expected error of the predictions if the features are corrupted by noise, in closed form.

        Nothing is sampled. The squared error is exact for every noise; the absolute error is that of normally
        distributed predictions. A feature that dropout drops takes its reference value, and is not a missing one,
        whatever ``missing`` is. For the error with missing features, see `deletion_curve` with ``fill=float("nan")``,
        and ``target_noise`` of `DropoutRidgeCV`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Complete data, or with NaN for missing features unless ``missing="error"``. Missing features are those that
            `predict` would not know either: the noise corrupts the others.
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
        X, y = canonical(self._check_rows(X)), validation.check_targets(column_or_1d(y))
        check_consistent_length(X, y, sample_weight)
        return float(np.average(self._errors(X, y, self._resolved_noise(noise), metric), weights=sample_weight))

    def _errors(self, X: Any, y: Array, noise: Noise, metric: str) -> Array:
        """Return the expected error of each checked row under a resolved noise."""
        out = np.empty(X.shape[0])
        for part in self._noisy_scores(X, noise):
            out[part.rows] = expected_errors(y[part.rows] - part.mean[:, 0], part.variance[:, 0], metric)
        return out


class MarginalisedRegressor(Regression, MarginalisedModel):
    """Base of the linear regressors whose loss is marginalised over noise on the features."""

    def _scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        # The best C of a ridge regression is about R^2 / (1 - R^2) / (2 * mean squared norm of a row): R^2 may be small
        return 0.01


def expected_errors(residual: Array, variance: Array, metric: str) -> Array:
    """Return the expected squared or absolute value of normal variables with these means and variances."""
    variance = np.maximum(variance, 0.0)
    if metric == "squared":
        return np.square(residual) + variance
    sd = np.sqrt(variance)
    ratio = np.divide(residual, sd, out=np.zeros_like(residual), where=sd > 0.0)
    folded = sd * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * np.square(ratio)) + residual * (1.0 - 2.0 * ndtr(-ratio))
    return np.where(sd > 0.0, folded, np.abs(residual))
