"""What the searches of classifiers have in common beyond `model_selection.base`: labels, probabilities, stability."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from dropmargin.estimators import validation
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.parameters import ClassParameters
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.model_selection.search import accuracy, target_scorer
from dropmargin.typing import Array


def _plain_has(name: str) -> Any:
    """Return the check that the plain classifier has a method; if not, it raises the error of the plain classifier."""

    def check(estimator: MarginalisedClassifierCV) -> bool:
        getattr(getattr(estimator, "best_estimator_", None) or estimator._plain(), name)
        return True

    return check


class MarginalisedClassifierCV(ClassParameters, ClassifierMixin, MarginalisedModelCV):
    """Base of the classifiers that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedClassifier]]
    _default_scoring = "accuracy"
    _plain_scorer = staticmethod(accuracy)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose noise and ``C`` by cross-validation and fit the model with them to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            Labels: numbers, strings or booleans.
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
            If the chosen ``C``, or the chosen noise among those of its class, is at an end of the grid, so that values
            outside of the grid may score higher. There is no warning for a grid of one value, where the score does not
            change towards the end, or at a natural end: no noise, and dropout rates from 0.9 on.
        ConvergenceWarning
            If a fit did not converge.
        """
        with validation.unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, groups)

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        assert classes is not None
        present = np.unique(y).tolist()
        absent = [label for label in classes.tolist() if label not in present]
        if absent:
            raise ValueError(
                f"Fold {index} of cv has no training row of class {absent[0]!r}. Use fewer folds, stratified ones "
                "(sklearn.model_selection.StratifiedKFold), or leave out classes with hardly any rows."
            )

    def _target_scorer(self) -> Any:
        return target_scorer(self.target_noise, self.scoring, self.multi_class)

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        return self._best().predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            The score of ``scoring``, accuracy by default.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self._scorer()(self._best(), X, y, **weights))

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            As in `DropoutSVC.decision_function`.
        """
        return self._best().decision_function(X)

    @available_if(_plain_has("predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        Only for losses whose scores are log-odds (the logistic losses), and not with ``multi_class="ovo"``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            As in `DropoutLogisticRegression.predict_proba`.
        """
        return self._best().predict_proba(X)

    @available_if(_plain_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            The logarithm of `predict_proba`.
        """
        return self._best().predict_log_proba(X)

    def predict_stability(
        self, X: Any, noise: Any = None, method: str = "auto", *, n_draws: int = 2048, random_state: Any = 0
    ) -> Array:
        """Return, for each row, the probability that its predicted label is still predicted under noise.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the chosen noise.
        method : {"auto", "normal", "guaranteed"}, default="auto"
            As in `DropoutSVC.predict_stability`.
        n_draws : int, default=2048
            Number of draws of ``method="auto"``.
        random_state : int, RandomState instance or None, default=0
            Seed of these draws.

        Returns
        -------
        probabilities : ndarray of shape (n_samples,)
            Probabilities, or lower bounds on them.
        """
        return self._best().predict_stability(X, noise, method, n_draws=n_draws, random_state=random_state)
