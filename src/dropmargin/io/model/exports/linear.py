"""Properties of a fitted linear model that the exports share."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from dropmargin.io.model.estimators import plain_outputs


def linear_model(model: Any, target: str) -> Any:
    """Return the fitted model for an export that has neither preprocessing nor missing values."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        raise ValueError(
            f"{target} takes the model without its preprocessing: export pipeline[-1], and transform the rows "
            "with pipeline[:-1]. export_onnx exports the whole pipeline."
        )
    missing = getattr(model, "missing", "error")
    if missing != "error":
        raise ValueError(
            f"{target} does not support missing values, got a model with missing={missing!r}. For complete rows it is "
            "an ordinary linear model: export it after model.set_params(missing='error')."
        )
    return plain_outputs(model)


def is_one_vs_one(model: Any) -> bool:
    """Return whether the rows of ``coef_`` are pairs of classes, and the scores of the classes their votes."""
    if not hasattr(model, "classes_"):
        return False
    n_classes = len(model.classes_)
    return n_classes > 2 and (getattr(model, "multi_class", "ovr") == "ovo" or len(model.coef_) != n_classes)


def is_multinomial(model: Any) -> bool:
    """Return whether the probabilities of the classes are the softmax of their scores."""
    return len(getattr(model, "classes_", ())) > 2 and getattr(model, "multi_class", "ovr") == "multinomial"


def has_intercept(model: Any) -> bool:
    """Return whether a model has an intercept."""
    return bool(model.fit_intercept) or bool(model.intercept_.any())
