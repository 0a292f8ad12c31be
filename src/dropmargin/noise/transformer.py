"""Noise as a step of a pipeline: corrupted training rows for any model."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import canonical, one_partition
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import feature_means
from dropmargin.noise.base import Noise, as_noise

_WHEN = ("fit", "always")


class NoiseTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Corrupt the rows of ``X`` by a noise, to train any model on corrupted rows.

    With ``when="fit"``, only `fit_transform` corrupts the rows; a pipeline calls it in training. `transform`, which a
    pipeline calls at prediction, returns ``X`` unchanged, as a dropout layer does. ``fit_transform(X)`` and
    ``fit(X).transform(X)`` therefore differ on purpose. With ``when="always"`` both corrupt the rows.

    A corrupted row replaces the original, so the number of rows does not change.

    Parameters
    ----------
    noise : float, Noise or None, default=0.1
        A number ``q`` means ``DropoutNoise(q, reference="zero")``, which keeps sparse rows sparse; ``None`` changes
        nothing.
    when : {"fit", "always"}, default="fit"
        Whether rows are corrupted only in training, or also at prediction.
    random_state : int, RandomState instance or None, default=None
        An integer draws the same noise in every call; a RandomState instance continues from call to call.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if ``X`` has column names that are all strings.
    feature_means_ : ndarray of shape (n_features,)
        Means of the features, only if the noise needs them (``DropoutNoise(reference="mean")``).

    See Also
    --------
    Noise.sample : One corrupted copy.

    Examples
    --------
    >>> import numpy as np
    >>> from dropmargin import DropoutNoise, NoiseTransformer
    >>> X = np.ones((2, 4))
    >>> step = NoiseTransformer(DropoutNoise(rate=0.5, reference="zero"), random_state=0)
    >>> step.fit_transform(X)
    array([[2., 2., 2., 2.],
           [0., 2., 0., 2.]])
    >>> step.transform(X)
    array([[1., 1., 1., 1.],
           [1., 1., 1., 1.]])
    """

    def __init__(self, noise: Any = 0.1, *, when: str = "fit", random_state: Any = None) -> None:
        self.noise = noise
        self.when = when
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> NoiseTransformer:
        """Check the parameters and the features of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : ignored
            Present for the scikit-learn API.

        Returns
        -------
        self : NoiseTransformer
            The fitted transformer.
        """
        self._checked(X, reset=True)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Return a corrupted copy of the training rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : ignored
            Present for the scikit-learn API.

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_features)
            The corrupted rows; sparse if ``X`` is.
        """
        X, noise = self._checked(X, reset=True)
        return X if noise is None else noise.sample(X, self.random_state)

    def transform(self, X: Any) -> Any:
        """Return the rows unchanged, or a corrupted copy if ``when="always"``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data.

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_features)
            The rows; sparse if ``X`` is.
        """
        check_is_fitted(self)
        X, noise = self._checked(X, reset=False)
        return X if noise is None or self.when == "fit" else noise.sample(X, self.random_state)

    def _checked(self, X: Any, reset: bool) -> tuple[Any, Noise | None]:
        """Return rows, and the noise for the features and the feature means of the training data."""
        if not isinstance(self.when, str) or self.when not in _WHEN:
            raise ValueError(f"when must be one of {list(_WHEN)}, got {self.when!r}.")
        noise = as_noise(self.noise, reference="zero")
        X = validate_rows(self, X, reset=reset)
        if reset:
            self.__dict__.pop("feature_means_", None)  # of an earlier fit
        if noise is None:
            return X, None
        noise = noise.resolve(X.shape[1], getattr(self, "feature_names_in_", None))
        if reset and noise.needs_means:
            self.feature_means_ = feature_means(one_partition(canonical(X)), has_missing=False)
        return X, noise.with_means(self.feature_means_) if noise.needs_means else noise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = isinstance(self.noise, Noise) and not self.noise.allows_negative
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        # fit_transform differs from fit followed by transform; scikit-learn has no other tag for that
        tags.non_deterministic = self.noise is not None
        return tags
