"""What the searches of regressors have in common beyond `model_selection.base`: scores by errors, also under noise."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from dropmargin.data import linear_scores
from dropmargin.estimators import validation
from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.model_selection.search import ArrayFold, CheckedScorer
from dropmargin.noise import Noise, as_noise
from dropmargin.typing import Array

# The scores under ``target_noise`` by the name of ``scoring``.
_METRICS = {"neg_mean_squared_error": "squared", "neg_mean_absolute_error": "absolute"}


class R2(CheckedScorer):
    """The coefficient of determination."""

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        return float(estimator.score(X, y, sample_weight))

    def of_checked_rows(self, estimator: MarginalisedRegressor, fold: ArrayFold) -> float:
        assert fold.test is not None
        y, weights = fold.test.y, fold.score_params.get("sample_weight")
        if len(y) < 2:
            return float("nan")
        scores = linear_scores(fold.test.X, *estimator._coefficients())[:, 0]
        error = np.average(np.square(y - scores), weights=weights)
        spread = np.average(np.square(y - np.average(y, weights=weights)), weights=weights)
        # Equal targets have no R^2: 1 or 0, as in scikit-learn.
        return float(1.0 - error / spread) if spread > 0.0 else float(error == 0.0)


class ExpectedError(CheckedScorer):
    """The score under ``target_noise``: minus the expected error if the features are corrupted by that noise."""

    is_mean = True

    def __init__(self, noise: Noise, metric: str) -> None:
        self.noise = noise
        self.metric = metric

    def __call__(self, estimator: MarginalisedRegressor, X: Any, y: Any, sample_weight: Any = None) -> float:
        return -estimator.expected_error(X, y, self.noise, sample_weight, metric=self.metric)

    def of_checked_rows(self, estimator: MarginalisedRegressor, fold: ArrayFold) -> float:
        assert fold.test is not None
        noise, weights = fold.noise(self.noise, estimator), fold.score_params.get("sample_weight")
        return -estimator._expected_error(fold.test.X, fold.test.y, noise, weights, self.metric)


class MarginalisedRegressorCV(RegressorMixin, MarginalisedModelCV):
    """Base of the regressors that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedRegressor]]
    _default_scoring = "r2"
    _plain_scorer = R2()
    #: The error under ``target_noise`` for ``scoring=None``.
    _target_metric: ClassVar[str] = "squared"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose noise and ``C`` by cross-validation and fit the model with them to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            Targets: numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the fits and in the scores. With scikit-learn's metadata routing enabled, the scores
            have weights only if the scorer requests them.
        groups : array-like of shape (n_samples,), default=None
            Groups of rows, for a ``cv`` that needs them, such as `sklearn.model_selection.GroupKFold`.

        Returns
        -------
        self : object
            The fitted estimator. If the fit fails or is interrupted, the estimator is unchanged.

        Warns
        -----
        UserWarning
            If the chosen ``C``, or the chosen noise among those of its class, is at an end of the grid, as in
            `DropoutSVCCV.fit`.
        ConvergenceWarning
            If a fit did not converge.
        """
        with validation.unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, groups)

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        if not len(y):
            raise ValueError(f"Fold {index} of cv has no training row, or only rows of weight 0.")

    def _target_scorer(self) -> ExpectedError | None:
        if self.target_noise is None:
            return None
        if self.scoring is not None and (not isinstance(self.scoring, str) or self.scoring not in _METRICS):
            raise ValueError(
                f"With target_noise, scoring must be None or one of {sorted(_METRICS)}, whose expectation under noise "
                f"has a closed form; got {self.scoring!r}."
            )
        noise = as_noise(self.target_noise)
        assert noise is not None
        return ExpectedError(noise, self._target_metric if self.scoring is None else _METRICS[self.scoring])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted number of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        return_std : bool, default=False
            Whether to return standard deviations, as in `DropoutRidge.predict`.

        Returns
        -------
        predictions : ndarray of shape (n_samples,)
            The predicted numbers.
        deviations : ndarray of shape (n_samples,)
            Their standard deviations given the observed features; only with ``return_std=True``.
        """
        return self._best().predict(X, return_std)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, residual_deviation: float | None = None) -> Array:
        """Return an interval for the number of each row of ``X``, as `DropoutRidge.predict_interval`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, with ``missing="conditional"``.
        coverage : float, default=0.9
            The probability with which the interval is to contain the number.
        residual_deviation : float, default=None
            The standard deviation of the residuals; ``None`` for that of ``best_estimator_``.

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2)
            Lower and upper ends.
        """
        return self._best().predict_interval(X, coverage, residual_deviation=residual_deviation)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            True numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            The score of ``scoring``, the coefficient of determination R^2 by default.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self._scorer()(self._best(), X, y, **weights))
