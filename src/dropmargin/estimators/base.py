"""The models with a given noise and ``C``: their fit; `prediction` has the scores of rows."""

from __future__ import annotations

from typing import Any, Self

from joblib import effective_n_jobs

from dropmargin.estimators import held_out, validation
from dropmargin.estimators.fitting import fit_rows, problem_of
from dropmargin.estimators.parameters import NoiseParameters, boolean, parameter
from dropmargin.estimators.prediction import Prediction
from dropmargin.estimators.rows import check_rows
from dropmargin.losses import Loss
from dropmargin.typing import Array


class MarginalisedModel(Prediction, NoiseParameters):
    """Base of the linear models whose loss is marginalised over noise on the features."""

    warm_start: bool = parameter(default=False, check=boolean)

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
            problem = problem_of(self)
            rows, n_threads = check_rows(self, X, y, sample_weight), effective_n_jobs(self.n_jobs)
            fit_rows(self, problem, rows, n_threads)
            held_out.learn(self, rows, n_threads=n_threads)
        return self

    def _scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        """Return the factor of the default values of ``C`` of a search."""
        return 1.0
