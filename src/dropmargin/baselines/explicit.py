"""Explicit corruption: any classifier, trained on corrupted copies of the data in place of the expected loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from dropmargin.data import canonical, one_partition, stack_rows
from dropmargin.data.inputs import validate_rows
from dropmargin.data.missing_values import feature_means
from dropmargin.estimators import validation
from dropmargin.noise import DropoutNoise, Noise, as_noise
from dropmargin.typing import Array


def _estimator_has(name: str) -> Callable[[ExplicitCorruption], bool]:
    """Return a check that the estimator (the fitted one, if there is one) has a method."""

    def check(self: ExplicitCorruption) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class ExplicitCorruption(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit a classifier to ``n_copies`` corrupted copies of the training data, each of weight ``1 / n_copies``.

    Minimises ``R(w) + C sum_i s_i (1/M) sum_m loss(y_i, x~_im)`` for the classifier's own loss and penalty, where
    ``x~_i1, ..., x~_iM`` are ``M`` draws of the noise around row ``i``. As ``M`` grows, this tends to the expected
    loss, which `NoisyLinearClassifier` and the related estimators minimise (or bound) without sampling.

    The copies are stacked, which takes ``n_copies`` times the memory of ``X``. Sparse data stay sparse.

    Parameters
    ----------
    estimator : classifier
        Any scikit-learn classifier; it is cloned. If its `fit` has no ``sample_weight``, each copy has weight 1: a
        parameter such as ``C`` that multiplies a sum over the rows then has ``n_copies`` times its effect.
    noise : float, Noise or None, default=0.1
        A number q in [0, 1) means ``DropoutNoise(rate=q, reference="zero")``; ``None`` means exact copies.
    n_copies : int, default=10
        Number of copies, ``M``.
    random_state : int, RandomState instance or None, default=None
        Seed of the noise.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Only if X had string column names.

    See Also
    --------
    DropoutSVC : The limit of infinitely many copies, in closed form.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from sklearn.svm import LinearSVC
    >>> from dropmargin.baselines import ExplicitCorruption
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = ExplicitCorruption(LinearSVC(C=0.1), noise=0.5, n_copies=4, random_state=0)
    >>> model.fit(scale(X), y).score(scale(X), y) > 0.95
    True
    """

    def __init__(self, estimator: Any, *, noise: Any = 0.1, n_copies: int = 10, random_state: Any = None) -> None:
        self.estimator = estimator
        self.noise = noise
        self.n_copies = n_copies
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExplicitCorruption:
        """Sample the copies and fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data; float32 is kept.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, divided among the copies of a row; the classifier must have ``sample_weight``. Rows of
            weight 0 are ignored.

        Returns
        -------
        self : ExplicitCorruption
            The fitted estimator. If the fit fails or is interrupted, the estimator is not changed.
        """
        with validation.unchanged_on_failure(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> ExplicitCorruption:
        n_copies = validation.check_integer("n_copies", self.n_copies, 1)
        if not is_classifier(self.estimator):
            raise ValueError(f"estimator must be a scikit-learn classifier, got {self.estimator!r}.")
        noise = as_noise(self.noise, reference="zero") or DropoutNoise(rate=0.0, reference="zero")
        estimator = clone(self.estimator)
        X, y = validate_rows(self, X, y)
        check_classification_targets(y)
        noise = noise.resolve(X.shape[1], getattr(self, "feature_names_in_", None))
        X = validation.check_entries(canonical(X), noise, getattr(self, "feature_names_in_", None))
        takes_weights = has_fit_parameter(estimator, "sample_weight")
        if sample_weight is not None and not takes_weights:
            raise ValueError(
                f"sample_weight was given, but {type(estimator).__name__} has no sample_weight. Leave sample_weight "
                "out, or choose another estimator."
            )
        weights = validation.check_weights(sample_weight, X.shape[0])
        counted = weights > 0.0
        if not counted.all():
            X, y, weights = X[counted], y[counted], weights[counted]
        if noise.needs_means:
            noise = noise.with_means(feature_means(one_partition(X, weights), has_missing=False))
        rng = check_random_state(self.random_state)
        copies = stack_rows([canonical(noise.sample(X, rng)) for _ in range(n_copies)])
        extra = {"sample_weight": np.tile(weights / n_copies, n_copies)} if takes_weights else {}
        self.estimator_ = estimator.fit(copies, np.tile(y, n_copies), **extra)
        return self

    @property
    def classes_(self) -> Array:
        """The class labels."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.classes_

    @available_if(_estimator_has("predict"))
    def predict(self, X: Any) -> Array:
        """Return the classifier's predicted labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data, not corrupted.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            As the classifier returns them.
        """
        return self._call(X, "predict")

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> Array:
        """Return the classifier's scores.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data, not corrupted.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            As the classifier returns them.
        """
        return self._call(X, "decision_function")

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Return the classifier's probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data, not corrupted.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            As the classifier returns them.
        """
        return self._call(X, "predict_proba")

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the classifier's probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data, not corrupted.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            As the classifier returns them.
        """
        return self._call(X, "predict_log_proba")

    def _call(self, X: Any, method: str) -> Array:
        """Check ``X`` and pass it, without feature names, to a method of the fitted classifier."""
        check_is_fitted(self, "estimator_")
        X = validate_rows(self, X, reset=False)
        return getattr(self.estimator_, method)(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        needs_positive = isinstance(self.noise, Noise) and not self.noise.allows_negative
        tags.input_tags.positive_only = inner.input_tags.positive_only or needs_positive
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        return tags
