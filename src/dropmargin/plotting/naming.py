"""Names for what is compared in one picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def named_estimators(estimators: Any, *, alone: bool = False) -> dict[str, Any]:
    """Return estimators by name: as given, or that of their class; ``alone``: whether one by itself will do."""
    if isinstance(estimators, Mapping):
        named = dict(estimators)
    elif alone and hasattr(estimators, "fit"):
        named = {type(last_step(estimators)).__name__: estimators}
    elif isinstance(estimators, Iterable) and not hasattr(estimators, "predict"):
        listed = list(estimators)
        named = {type(last_step(estimator)).__name__: estimator for estimator in listed}
        if len(named) < len(listed):
            raise ValueError("Two of the estimators are of one class: name them, as in {'C = 1': ..., 'C = 10': ...}.")
    else:
        raise ValueError(f"estimators must be a dict of names and fitted classifiers, or a list; got {estimators!r}.")
    if not named:
        raise ValueError("estimators is empty: give at least one fitted classifier.")
    return named


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline; anything else as it is."""
    steps = getattr(estimator, "steps", None)
    return steps[-1][1] if steps else estimator
