"""A linear classifier of scikit-learn with the anchored scores of ``missing="rescale"``, for Figure 4."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from dropmargin.data import canonical, one_partition
from dropmargin.data.inputs import check_rows
from dropmargin.data.missing_values import feature_statistics, fill_missing, has_missing, nan_to_negative_zero
from dropmargin.estimators.missing import Rescaled, scores_of_rule
from dropmargin.typing import Array


class RescalingClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier of scikit-learn that predicts with missing features as ``missing="rescale"`` does.

    In training a missing value is replaced by the mean of its feature.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> RescalingClassifier:
        """Fit the classifier to ``X`` with its missing values replaced by means."""
        X = canonical(X)
        is_missing = has_missing(X)
        X = nan_to_negative_zero(X) if is_missing else X
        self.columns_ = feature_statistics(one_partition(X), is_missing)
        if is_missing:
            X = fill_missing(X, self.columns_.mean)
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_, self.n_features_in_ = self.estimator_.classes_, X.shape[1]
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the scores of each row: one for two classes, else one per class."""
        check_is_fitted(self)
        X = check_rows(X, ensure_all_finite="allow-nan")
        rule = Rescaled(*self.columns_[:2])
        scores = scores_of_rule(rule, X, self.estimator_.coef_, self.estimator_.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Return the predicted label of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
