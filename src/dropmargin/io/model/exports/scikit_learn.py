"""Export to the classes of scikit-learn, which are imported when they are used, because that takes time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.io.model.exports.linear import has_intercept, is_multinomial, is_one_vs_one, linear_model
from dropmargin.typing import Array


def to_sklearn(model: Any) -> Any:
    """Return a fitted estimator of scikit-learn with the same scores, labels and, if there are any, probabilities.

    Its parameters are scikit-learn's defaults: fitting it again trains without noise.

    Parameters
    ----------
    model : estimator
        A fitted classifier or regressor of dropmargin.

    Returns
    -------
    estimator
        A `LinearSVC`, or a `LogisticRegression` if scores are log-odds. With three or more classes these are inside a
        `OneVsOneClassifier` for ``multi_class="ovo"``, and inside a `OneVsRestClassifier` for one-vs-rest log-odds,
        because a multi-class `LogisticRegression` computes other probabilities from the same scores (softmax), which
        are those of ``multi_class="multinomial"``. A regressor becomes a `Ridge`.
    """
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    model = linear_model(model, "scikit-learn")
    if not hasattr(model, "classes_"):
        return _ridge(model)
    is_ovo, n_outputs = is_one_vs_one(model), len(model.coef_)
    is_plain = len(model.classes_) == 2 or is_multinomial(model) or not hasattr(model, "predict_proba")
    if is_plain and not is_ovo:
        return _fitted(model, model.classes_, slice(None))
    estimator = (OneVsOneClassifier if is_ovo else OneVsRestClassifier)(_unfitted(model))
    # one estimator per output, for the classes 0 and 1
    estimator.estimators_ = [_fitted(model, np.array([0, 1]), slice(k, k + 1)) for k in range(n_outputs)]
    if is_ovo:
        estimator.pairwise_indices_ = None
    else:
        estimator.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    if not isinstance(getattr(type(estimator), "classes_", None), property):  # a property in scikit-learn 1.6
        estimator.classes_ = model.classes_.copy()
    return _with_features(estimator, model)


def _ridge(model: Any) -> Any:
    from sklearn.linear_model import Ridge

    estimator = Ridge(fit_intercept=has_intercept(model))
    estimator.coef_, estimator.intercept_ = model.coef_[0].copy(), model.intercept_[0]
    estimator.n_iter_ = None
    return _with_features(estimator, model)


def _unfitted(model: Any) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    kind = LogisticRegression if hasattr(model, "predict_proba") else LinearSVC
    return kind(fit_intercept=has_intercept(model))


def _fitted(model: Any, classes: Array, outputs: slice) -> Any:
    """Return an estimator with some of the outputs."""
    estimator = _unfitted(model)
    estimator.classes_ = classes.copy()
    estimator.coef_ = model.coef_[outputs].copy()
    estimator.intercept_ = model.intercept_[outputs].copy()
    estimator.n_iter_ = np.array([1], dtype=np.int32) if hasattr(model, "predict_proba") else 1
    return _with_features(estimator, model)


def _with_features(estimator: Any, model: Any) -> Any:
    estimator.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_.copy()
    return estimator
