"""What the searches of regressors have in common beyond `model_selection.base`: scores by errors, also under noise."""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.base import RegressorMixin

from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.estimators.scorers import R2, ExpectedError
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.noise import Noise
from dropmargin.typing import Array

# The errors under ``target_noise`` by the name of ``scoring``.
_METRICS = {"neg_mean_squared_error": "squared", "neg_mean_absolute_error": "absolute"}


class MarginalisedRegressorCV(RegressorMixin, MarginalisedModelCV):
    """Base of the regressors that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedRegressor]]
    _default_scoring = "r2"
    _default_scorer = R2()
    score = MarginalisedModelCV.score  # not that of the mixin
    #: The error under ``target_noise`` for ``scoring=None``.
    _target_metric: ClassVar[str] = "squared"

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        if not len(y):
            raise ValueError(f"Fold {index} of cv has no training row, or only rows of weight 0.")

    def _target_scorer(self, noise: Noise | None) -> ExpectedError | None:
        if noise is None:
            return None
        if self.scoring is not None and (not isinstance(self.scoring, str) or self.scoring not in _METRICS):
            raise ValueError(
                f"With target_noise, scoring must be None or one of {sorted(_METRICS)}, whose expectation under noise "
                f"has a closed form; got {self.scoring!r}."
            )
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
