"""What the searches of classifiers have in common beyond `model_selection.base`: labels, probabilities, stability."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.parameters import ClassParameters
from dropmargin.estimators.scorers import Accuracy, ExpectedAccuracy
from dropmargin.model_selection.base import MarginalisedModelCV, plain_model
from dropmargin.noise import Noise
from dropmargin.typing import Array


def _plain_has(name: str) -> Any:
    """Return the check that the plain classifier has a method; if not, it raises the error of the plain classifier."""

    def check(estimator: MarginalisedClassifierCV) -> bool:
        getattr(getattr(estimator, "best_estimator_", None) or plain_model(estimator), name)
        return True

    return check


def target_scorer(noise: Noise | None, scoring: Any, multi_class: str) -> ExpectedAccuracy | None:
    """Return the scorer of a noise that is the parameter ``target_noise``."""
    if noise is None:
        return None
    if scoring is not None:
        raise ValueError(
            f"scoring={scoring!r} scores complete rows, target_noise={noise!r} rows under noise by their expected "
            "accuracy: pass one of them."
        )
    if multi_class == "ovo":
        raise ValueError("target_noise needs multi_class='ovr', got multi_class='ovo'.")
    return ExpectedAccuracy(noise)


class MarginalisedClassifierCV(ClassParameters, ClassifierMixin, MarginalisedModelCV):
    """Base of the classifiers that choose noise and ``C`` by cross-validation."""

    _plain_class: ClassVar[type[MarginalisedClassifier]]
    _default_scoring = "accuracy"
    _default_scorer = Accuracy()
    score = MarginalisedModelCV.score  # not that of the mixin

    def _check_training_rows(self, index: int, y: Array, classes: Array | None) -> None:
        assert classes is not None
        present = np.unique(y).tolist()
        absent = [label for label in classes.tolist() if label not in present]
        if absent:
            raise ValueError(
                f"Fold {index} of cv has no training row of class {absent[0]!r}. Use fewer folds, stratified ones "
                "(sklearn.model_selection.StratifiedKFold), or leave out classes with hardly any rows."
            )

    def _target_scorer(self, noise: Noise | None) -> ExpectedAccuracy | None:
        return target_scorer(noise, self.scoring, self.multi_class)

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
