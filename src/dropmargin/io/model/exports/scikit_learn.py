"""A model as one of scikit-learn's own classes, which needs dropmargin no more.

These classes are imported when they are used: nothing else of dropmargin needs them, and they take time to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.io.model.exports.linear import LinearModel, linear_model
from dropmargin.typing import Array


def to_sklearn(model: Any) -> Any:
    """Return a fitted estimator of scikit-learn with the same scores, labels and, if there are any, probabilities.

    Its parameters are scikit-learn's defaults: to fit it again would be to train without noise.

    Parameters
    ----------
    model : a fitted classifier of dropmargin

    Returns
    -------
    `LinearSVC`, or `LogisticRegression` if scores are log-odds. With three classes or more, these are within
    `OneVsOneClassifier` for ``multi_class="ovo"``, and within `OneVsRestClassifier` for one-vs-rest log-odds, since
    scikit-learn's own multi-class `LogisticRegression` would turn the same scores into other probabilities (softmax).
    """
    plain = linear_model(model, "scikit-learn")
    if plain.one_vs_one:
        return _one_vs_one(plain)
    if plain.is_log_odds and len(plain.classes) > 2:
        return _one_vs_rest(plain)
    return _fitted(plain, plain.classes, slice(None))


def _unfitted(plain: LinearModel) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    kind = LogisticRegression if plain.is_log_odds else LinearSVC
    return kind(fit_intercept=plain.has_offset)


def _fitted(plain: LinearModel, classes: Array, columns: slice) -> Any:
    """Return the simplest estimator with some columns of the coefficients."""
    estimator = _unfitted(plain)
    estimator.classes_ = classes.copy()
    estimator.coef_ = plain.coef[columns].copy()
    estimator.intercept_ = plain.intercept[columns].copy()
    estimator.n_iter_ = np.array([1], dtype=np.int32) if plain.is_log_odds else 1
    return _with_features(estimator, plain)


def _with_features(estimator: Any, plain: LinearModel) -> Any:
    estimator.n_features_in_ = plain.coef.shape[1]
    if plain.feature_names is not None:
        estimator.feature_names_in_ = plain.feature_names.copy()
    return estimator


def _binary_parts(plain: LinearModel) -> list[Any]:
    """Return one estimator per column, for the classes 0 and 1."""
    return [_fitted(plain, np.array([0, 1]), slice(k, k + 1)) for k in range(len(plain.coef))]


def _one_vs_rest(plain: LinearModel) -> Any:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    whole = OneVsRestClassifier(_unfitted(plain))
    whole.estimators_ = _binary_parts(plain)
    whole.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(plain.classes)
    if not isinstance(getattr(OneVsRestClassifier, "classes_", None), property):  # which it is in scikit-learn 1.6
        whole.classes_ = plain.classes.copy()
    return _with_features(whole, plain)


def _one_vs_one(plain: LinearModel) -> Any:
    from sklearn.multiclass import OneVsOneClassifier

    whole = OneVsOneClassifier(_unfitted(plain))
    whole.estimators_ = tuple(_binary_parts(plain))
    whole.classes_ = plain.classes.copy()
    whole.pairwise_indices_ = None
    return _with_features(whole, plain)
