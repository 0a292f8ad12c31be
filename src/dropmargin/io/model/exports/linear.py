"""Properties of a fitted linear model that the exports share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sklearn.pipeline import Pipeline

from dropmargin.io.model.estimators import plain_outputs


def linear_model(model: Any, target: str, accepted: Collection[str] = ("error",)) -> Any:
    """Return the fitted model for an export without preprocessing; ``accepted`` are values of ``missing``."""
    model = getattr(model, "best_estimator_", model)
    if isinstance(model, Pipeline):
        plain_outputs(model[-1])  # raises the error for models of other libraries
        raise ValueError(
            f"{target} takes the model without its preprocessing: export pipeline[-1], and transform the rows "
            "with pipeline[:-1]."
        )
    missing = getattr(model, "missing", "error")
    if missing not in accepted:
        other = ", or fit with missing='rescale'" if "rescale" in accepted else ""
        raise ValueError(
            f"{target} does not support missing={missing!r}. For complete rows it is an ordinary linear model: export "
            f"it after model.set_params(missing='error'){other}."
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
