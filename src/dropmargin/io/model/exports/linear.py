"""What every export needs to know of a model: its scores are ``X @ coef.T + intercept``, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline

from dropmargin.io.model.estimators import plain_classifier
from dropmargin.typing import Array


@dataclass(frozen=True)
class LinearModel:
    """A plain linear classifier.

    Parameters
    ----------
    coef, intercept : ndarray of shape (n_columns, n_features) and (n_columns,)
    classes : ndarray of shape (n_classes,)
        Two classes have one column, positive for the second of them.
    feature_names : ndarray of shape (n_features,) or None
    has_offset : bool
        Whether the offset was fitted.
    is_log_odds : bool
        Whether scores are log-odds, so that there are probabilities.
    one_vs_one : bool
        Whether columns are pairs of classes, and the scores of the classes their votes.
    """

    coef: Array
    intercept: Array
    classes: Array
    feature_names: Array | None
    has_offset: bool
    is_log_odds: bool
    one_vs_one: bool


def linear_model(model: Any, target: str) -> LinearModel:
    """Return the linear model of a fitted classifier, or say why ``target`` cannot have it."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        raise ValueError(
            f"{target} takes the classifier alone, not its preprocessing: export pipeline[-1], and give it the rows "
            "that pipeline[:-1].transform makes."
        )
    model = plain_classifier(model)
    if getattr(model, "missing", "error") == "rescale":
        raise ValueError(
            f"{target} has no missing features, got a model with missing='rescale'. For complete rows it is an "
            "ordinary linear model: export it after model.set_params(missing='error')."
        )
    n_classes = len(model.classes_)
    by_votes = n_classes > 2 and (getattr(model, "multi_class", "ovr") == "ovo" or len(model.coef_) != n_classes)
    return LinearModel(
        coef=model.coef_,
        intercept=model.intercept_,
        classes=model.classes_,
        feature_names=getattr(model, "feature_names_in_", None),
        has_offset=bool(model.fit_intercept) or bool(model.intercept_.any()),
        is_log_odds=hasattr(model, "predict_proba"),
        one_vs_one=by_votes,
    )
