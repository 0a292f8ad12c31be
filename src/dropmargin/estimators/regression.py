"""What the regressors have in common beyond `estimators.base`: targets that are numbers, and expected errors."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dropmargin.data import NumberArray, Rows, as_dense, canonical, linear_scores
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import has_missing, incomplete_rows, negative_zero_to_nan
from dropmargin.estimators import missing, stability, validation
from dropmargin.estimators.base import CheckedRows, MarginalisedModel
from dropmargin.estimators.factor_analysis import ConditionalNumbers
from dropmargin.losses import Loss, MomentLoss
from dropmargin.noise import DropoutNoise, Noise, as_noise
from dropmargin.typing import Array

#: The errors of `MarginalisedRegressor.expected_error`.
METRICS = ("squared", "absolute")


class MarginalisedRegressor(RegressorMixin, MarginalisedModel):
    """Base of the linear regressors whose loss is marginalised over noise on the features."""

    def _validate_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = validate_rows(self, X, y, ensure_all_finite=self._finite(), y_numeric=True)
        return X, check_targets(y)

    def _encode(self, rows: CheckedRows) -> tuple[None, NumberArray]:
        given = rows.X, rows.y, rows.sample_weight, 1, rows.has_missing
        is_conditional = self.missing == "conditional"
        encoded = ConditionalNumbers(*given, self.missing_rank) if is_conditional else NumberArray(*given)
        encoded.first_intercept = first_intercept(self._make_loss(), rows.y, rows.sample_weight)
        return None, encoded

    def _scale_of_C(self, rows: Rows) -> float:  # noqa: N802
        # The best C of a ridge regression is about R^2 / (1 - R^2) / (2 * mean squared norm of a row): R^2 may be small
        return 0.01

    def _coefficients(self) -> tuple[Any, Array]:
        coef = self.coef_ if self.coef_.ndim == 2 else self.coef_[None, :]
        return coef, np.atleast_1d(self.intercept_)

    def _set_coefficients(self, coef: Array, dtype: Any) -> None:
        self.coef_ = np.ascontiguousarray(coef[:-1, 0].astype(dtype))
        self.intercept_ = coef[-1, 0].astype(dtype)

    def _store(self, *args: Any) -> Self:
        self.__dict__.pop("residual_deviation_", None)  # of an earlier fit
        return super()._store(*args)

    def _set_residuals(self, rows: CheckedRows) -> Self:
        """Set the standard deviation of the residuals of complete rows, if there are more than coefficients."""
        X, y, weights = rows.X, rows.y, rows.sample_weight
        if rows.has_missing:
            complete = np.flatnonzero(~incomplete_rows(negative_zero_to_nan(X)))
            X, y, weights = X[complete], y[complete], weights[complete]
        n_rows = np.count_nonzero(weights)
        # Noise and penalty leave fewer degrees of freedom to the coefficients, so this is an upper bound.
        n_free = n_rows - 1 - np.count_nonzero(self.coef_)
        if n_free > 0:
            squares = np.square(y - linear_scores(X, *self._coefficients())[:, 0])
            self.residual_deviation_ = float(np.sqrt(np.average(squares, weights=weights) * n_rows / n_free))
        return self

    def densify(self) -> Self:
        """Convert the coefficients to a dense array, which they are after `fit`.

        Returns
        -------
        self : object
            The estimator, with ``coef_`` as an ndarray.
        """
        super().densify()
        self.coef_ = self.coef_.reshape(-1)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted number of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        return_std : bool, default=False
            Whether to return the standard deviation of the prediction of the complete row given the observed features,
            as well. It needs ``missing="conditional"``.

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
        scores = self._scores(X)[:, 0]
        if not return_std:
            return scores
        if self.missing != "conditional":
            raise ValueError(f"return_std=True needs missing='conditional' before fit, got missing={self.missing!r}.")
        deviations = np.zeros(len(scores))
        for rows, _, covariance in self._normal_scores(canonical(self._check_rows(X))):
            deviations[rows] = np.sqrt(np.maximum(covariance[:, 0, 0], 0.0))
        return scores, deviations

    def predict_interval(self, X: Any, coverage: float = 0.9, *, residual_deviation: float | None = None) -> Array:
        """Return an interval for the number of each row of ``X``, which is wider if features are missing.

        The number of a row is taken as normal. Its mean is the prediction, and its variance the sum of that of the
        residuals of complete rows and that of the prediction of the complete row given the observed features
        (`predict` with ``return_std=True``).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, with ``missing="conditional"``.
        coverage : float, default=0.9
            The probability with which the interval is to contain the number.
        residual_deviation : float, default=None
            The standard deviation of the residuals, such as the root mean squared error of complete rows that were not
            used in training; ``None`` for ``residual_deviation_``.

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
        if not (isinstance(coverage, Real) and 0.0 < coverage < 1.0):
            raise ValueError(f"coverage must be a number in (0, 1), such as 0.9, got {coverage!r}.")
        if residual_deviation is not None:
            spread = validation.check_number("residual_deviation", residual_deviation, 0.0)
        elif hasattr(self, "residual_deviation_"):
            spread = self.residual_deviation_
        else:
            raise ValueError(
                "residual_deviation is not known from this fit, which had no more complete rows than coefficients, or "
                "rows in files or on a cluster: pass the root mean squared error of complete rows."
            )
        if self.missing == "conditional":
            means, deviations = self.predict(X, return_std=True)
        else:
            means, deviations = self.predict(X), 0.0
            if self.missing != "error" and has_missing(canonical(self._check_rows(X))):
                raise ValueError(
                    "Intervals of rows with missing features need missing='conditional' before fit, got "
                    f"missing={self.missing!r}."
                )
        half = ndtri(0.5 + 0.5 * coverage) * np.sqrt(np.square(deviations) + spread**2)
        return np.column_stack([means - half, means + half])

    def expected_error(
        self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None, *, metric: str = "squared"
    ) -> float:
        """Return the expected error of the predictions if the features are corrupted by noise, in closed form.

        Nothing is sampled. The squared error is exact for every noise; the absolute error is that of normally
        distributed predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Complete data, or with NaN for missing features unless ``missing="error"``.
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
        check_consistent_length(X, y, sample_weight)
        noise = as_noise(self.noise if noise is None else noise)
        noise = DropoutNoise(0.0, reference="zero") if noise is None else noise
        noise = self._at_training_means(noise.resolve(X.shape[1], getattr(self, "feature_names_in_", None)))
        return self._expected_error(canonical(X), y, noise, sample_weight, metric)

    def _expected_error(self, X: Any, y: Array, noise: Noise, sample_weight: Any, metric: str) -> float:
        """Return the expected error for checked rows and a noise for these features."""
        coef, intercept = self._coefficients()
        coef, variance = as_dense(coef).astype(np.float64), noise.variance()
        statistics = self._feature_statistics() if self.missing == "rescale" else None
        room = stability.n_results(1, variance.groups)
        errors, complete = np.empty(X.shape[0]), np.arange(X.shape[0])
        if self.missing == "conditional" and has_missing(X):
            complete = np.flatnonzero(~incomplete_rows(X))
            for members, mean, covariance in self._normal_scores(X, variance):
                errors[members] = expected_errors(y[members] - mean[:, 0], covariance[:, 0, 0], metric)
            X = X[complete]
        for where, rows in missing.anchored_rows(X, coef, intercept, statistics, room):
            own = complete[where]
            v = np.square(rows.factor) * rows.covariances(np.arange(len(own)), variance, coef, coef)
            errors[own] = expected_errors(y[own] - rows.scores(coef)[:, 0], v[:, 0], metric)
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
    variance = np.maximum(variance, 0.0)
    if metric == "squared":
        return np.square(residual) + variance
    sd = np.sqrt(variance)
    ratio = np.divide(residual, sd, out=np.zeros_like(residual), where=sd > 0.0)
    folded = sd * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * np.square(ratio)) + residual * (1.0 - 2.0 * ndtr(-ratio))
    return np.where(sd > 0.0, folded, np.abs(residual))
