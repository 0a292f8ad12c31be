"""What the classifiers have in common beyond `estimators.base`: labels, votes, probabilities, stability."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import log_expit, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dropmargin.data import as_dense, canonical
from dropmargin.estimators import calibration, conformal, stability, validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.conditional import log_expected_expit, log_expected_softmax
from dropmargin.estimators.parameters import ClassParameters
from dropmargin.estimators.prediction import Prediction
from dropmargin.noise import Noise
from dropmargin.typing import Array


def _gives_probabilities(estimator: Any) -> bool:
    """Return whether `predict_proba` exists; if not, raise an error that names the alternatives."""
    if estimator.probability is None and not estimator._make_loss().scores_are_log_odds:
        raise AttributeError(
            f"{type(estimator).__name__} has no predict_proba: its scores are not log-odds. Set "
            "probability='sigmoid' before fit, or use DropoutLogisticRegression."
        )
    if estimator.multi_class == "ovo":
        raise AttributeError(
            "predict_proba needs multi_class='ovr' or 'multinomial', or sklearn.calibration.CalibratedClassifierCV."
        )
    return True


class Classification(ClassParameters, ClassifierMixin, Prediction):
    """The predictions of all linear classifiers."""

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the rows of ``X``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes one score per row, positive for ``classes_[1]``; for more, one per class. With
            ``multi_class="ovo"`` the score of a class is its number of votes, plus less than half a vote from the sums
            of the scores, which decides ties.
        """
        return self._combine(self._scores(self._check_rows(X)))

    def _combine(self, scores: Array) -> Array:
        """Return one score per row for two classes, one per class for more: the votes, if columns are pairs."""
        if scores.shape[1] == 1:
            return scores[:, 0]
        if len(self.classes_) != scores.shape[1] or self.multi_class == "ovo":
            return _votes(scores, len(self.classes_))
        return scores

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
        return self._labels_of(self._scores(self._check_rows(X)))

    def predict_stability(
        self, X: Any, noise: Any = None, method: str = "auto", *, n_draws: int = 2048, random_state: Any = 0
    ) -> Array:
        """Return, for each row, the probability that its predicted label is still predicted under noise.

        The noise is unbiased, ``E[x~] = x``: dropout divides the features that it keeps by ``1 - rate``. Features that
        are missing stay missing, and only the observed ones are corrupted.

        With ``missing="conditional"``, the probability of an incomplete row is that its label is the label of the
        complete row, whose score is normal given the observed features; noise on these adds a variance, and the sum is
        taken as normal.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the noise of the estimator. Without noise, every
            probability is 1, except of incomplete rows with ``missing="conditional"``; for these alone pass
            ``noise=0``.
        method : {"auto", "normal", "guaranteed"}, default="auto"
            ``"auto"``: the probability itself, exact or with a known standard error. It is exact for Gaussian noise,
            and for dropout in rows where the features that are not zero and have a coefficient can be dropped in at
            most ``4 * n_draws`` ways, by default 13 features. Otherwise it is the share of ``n_draws`` draws from the
            noise that do not change the label, with a standard error of at most ``sqrt(p (1 - p) / (n_draws - 1))``,
            by default .011. For a noise that cannot be drawn (a class without ``draw``; Laplace noise on a sparse
            ``X``, which it would make dense) it is that of ``"normal"``.
            ``"normal"``: a fast approximation that takes the scores as normally distributed: ``Phi(|m| / sqrt(v))`` for
            two classes, with ``m`` and ``v`` the mean and the variance of the score; for more, the probability that
            the score of the predicted class stays above all others. It is inaccurate if few features determine the
            score.
            ``"guaranteed"``: a lower bound for every noise with these variances, ``m^2 / (m^2 + v)`` (Cantelli) for two
            classes; for more, 1 minus the sum of ``v / (m^2 + v)`` over the other classes, at least 0.
            ``"normal"`` and ``"guaranteed"`` need ``multi_class="ovr"`` if there are more than two classes.
        n_draws : int, default=2048
            Number of draws of ``method="auto"``. Four times as many halve the standard error.
        random_state : int, RandomState instance or None, default=0
            Seed of these draws. With an integer, the probability of a row is the same in every call and does not depend
            on the other rows of ``X``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples,)
            Probabilities, or lower bounds on them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DropoutSVC(noise=0.1).fit(X, y)
        >>> model.predict_stability(X[[0, 50, 100]], 0.1).round(2)
        array([1.  , 0.81, 0.99])
        """
        X = canonical(self._check_rows(X))
        validation.check_choice("method", method, stability.METHODS)
        if self._has_votes() and method != "auto":
            raise ValueError(
                f"predict_stability(method={method!r}) needs multi_class='ovr', got multi_class='ovo', whose votes "
                "have no closed form. Choose method='auto', or fit with multi_class='ovr'."
            )
        n_draws = validation.check_integer("n_draws", n_draws, 1)
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        noise, out = self._resolved_noise(noise), np.empty(X.shape[0])
        labels = stability.LabelStability(
            as_dense(self.coef_), noise, self._winners, method, self._has_votes(), n_draws, seed
        )
        for scores in self._noisy_scores(X, noise, of_complete=True):
            out[scores.rows] = labels.of_scores(scores)
        return out

    def _has_votes(self) -> bool:
        """Return whether labels are chosen by the votes of pairs of classes."""
        return self.multi_class == "ovo" and len(self.classes_) > 2

    def expected_accuracy(self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None) -> float:
        """Return the expected accuracy if the features are corrupted by noise, in closed form.

        It is the mean probability that the predicted label of a row is the given one, for normally distributed scores.
        Nothing is sampled. Labels whose scores are equal whatever the noise are predicted with equal probabilities.

        The noise is unbiased, ``E[x~] = x``: dropout replaces a feature by its reference value, and divides the
        deviations of the others by ``1 - rate``. A dropped feature is not a missing one, whatever ``missing`` is. For
        the accuracy with missing features, see `deletion_curve` with ``fill=float("nan")``, and ``target_noise`` of
        `DropoutSVCCV`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Complete data, or with NaN for missing features unless ``missing="error"``. Missing features are those that
            `predict` would not know either: the noise corrupts the others.
        y : array-like of shape (n_samples,)
            The correct labels.
        noise : float, Noise or None, default=None
            A number means ``DropoutNoise(rate=noise)``, ``None`` the noise of the estimator.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        accuracy : float
            The expected accuracy.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_wine(return_X_y=True)
        >>> model = DropoutSVC(noise=0.3).fit(X, y)
        >>> model.expected_accuracy(X, y, noise=0.3) < model.score(X, y)
        True
        """
        X, y = canonical(self._check_rows(X)), column_or_1d(y)
        check_consistent_length(X, y, sample_weight)
        return float(np.average(self._label_probabilities(X, y, self._resolved_noise(noise)), weights=sample_weight))

    def _label_probabilities(self, X: Any, y: Array, noise: Noise) -> Array:
        """Return the probability that the label of each checked row is predicted under a resolved noise."""
        if self._has_votes():
            raise ValueError("The expected accuracy under noise needs multi_class='ovr', got multi_class='ovo'.")
        index = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        out = np.empty(X.shape[0])
        for scores in self._noisy_scores(X, noise):
            out[scores.rows] = stability.label_probabilities(scores, index[scores.rows])
        return out * (self.classes_[index] == y)

    def _labels_of(self, scores: Array) -> Array:
        """Return the predicted labels from the scores of all outputs."""
        return self.classes_[self._winners(scores)]

    def _winners(self, scores: Array) -> Array:
        """Return the index of the predicted class from the scores of all outputs."""
        scores = self._combine(scores)
        return (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        Only with ``probability``, which calibrates scores, or for losses whose scores are log-odds (the logistic
        losses), and not with ``multi_class="ovo"``. The label of the highest calibrated probability may be another than
        that of `predict`, which is that of the scores, as in `sklearn.svm.SVC`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            The calibrated probabilities, if ``probability`` is set. Else, for more than two classes, the softmax of the
            scores with ``multi_class="multinomial"``, and the one-vs-rest probabilities divided by their sum with
            ``multi_class="ovr"``.
        """
        return np.exp(self.predict_log_proba(X))

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class, accurate also for very small probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            The logarithm of `predict_proba`.
        """
        X = self._check_rows(X)
        if self.probability is not None:
            return calibration.log_probabilities(self, X)
        is_softmax = self.multi_class == "multinomial" and len(self.classes_) > 2
        logs = np.empty((X.shape[0], len(self.classes_)), dtype=np.result_type(X.dtype, self.coef_.dtype))
        for part in self._normal_scores(X):
            rows, mean, covariance = part.rows, part.mean, part.covariance
            scores = np.hstack([-mean, mean]) if mean.shape[1] == 1 else mean
            if covariance is None or self.missing != "conditional":
                logs[rows] = scores if is_softmax else log_expit(scores)
            elif is_softmax:
                logs[rows] = log_expected_softmax(scores, covariance)
            else:
                logs[rows] = log_expected_expit(scores, np.diagonal(covariance, axis1=1, axis2=2))
        return logs if len(self.classes_) == 2 else logs - logsumexp(logs, axis=1, keepdims=True)

    def predict_set(self, X: Any, coverage: float = 0.9, *, allow_empty: bool = False) -> Array:
        """Return the labels that each row may have: a set that contains its label with a given probability.

        The probability holds for each share of missing features, if rows are drawn as the training rows are and
        features are missing at random. It needs ``conformal=True`` before fit.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. NaN is a missing feature, unless ``missing="error"``.
        coverage : float, default=0.9
            The probability with which the set is to contain the label. With ``n`` held-out rows, a set has all labels
            if it is above ``n / (n + 1)``.
        allow_empty : bool, default=False
            Whether a set may be empty. Without it the predicted label is always in the set: the coverage is at least
            the accuracy, and above ``coverage`` where the accuracy is. With it the coverage is close to ``coverage``
            there as well, and an empty set is a row that is less like its label than ``coverage`` of the rows.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
            Whether each label of ``classes_`` is in the set.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dropmargin import DropoutSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DropoutSVC(C=10.0, missing="conditional", conformal=True).fit(X, y)
        >>> X[56, 2:] = float("nan")
        >>> model.predict_set(X[[0, 56]]).sum(axis=1)
        array([1, 2])
        """
        coverage = conformal.check_coverage(coverage)
        return conformal.label_sets(self, self._check_rows(X), coverage, allow_empty)


class MarginalisedClassifier(Classification, MarginalisedModel):
    """Base of the linear classifiers whose loss is marginalised over noise on the features."""


def _votes(scores: Array, n_classes: int) -> Array:
    """Return the votes of one-vs-one scores; sums of the scores, squeezed to under half a vote, break ties."""
    votes = np.zeros((len(scores), n_classes))
    sums = np.zeros((len(scores), n_classes))
    for column, (first, second) in enumerate(combinations(range(n_classes), 2)):
        score = scores[:, column]
        votes[np.arange(len(scores)), np.where(score > 0.0, second, first)] += 1.0
        sums[:, second] += score
        sums[:, first] -= score
    return votes + sums / (3.0 * (np.abs(sums) + 1.0))
