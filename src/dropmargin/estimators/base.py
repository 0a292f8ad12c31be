"""The estimator that classifiers and regressors share: parameters and fit; `prediction` has the scores of rows."""

from __future__ import annotations

from typing import Any, Self

from joblib import effective_n_jobs
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import as_dense, as_sparse
from dropmargin.estimators import held_out, validation
from dropmargin.estimators.fitting import check_rows, coefficients, fit_rows, problem_of
from dropmargin.estimators.prediction import Prediction
from dropmargin.losses import Loss
from dropmargin.noise import Noise
from dropmargin.typing import Array


class MarginalisedModel(Prediction):
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
            problem = problem_of(self)
            rows, n_threads = check_rows(self, X, y, sample_weight), effective_n_jobs(self.n_jobs)
            fit_rows(self, problem, rows, n_threads)
            held_out.learn(self, rows, n_threads=n_threads)
        return self

    def _scale_of_C(self, y: Array, sample_weight: Array) -> float:  # noqa: N802
        """Return the factor of the default values of ``C`` of a search."""
        return 1.0

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
