"""The parts of a fitted estimator that an explanation needs: encoder, model, names of features, what can vanish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dropmargin.estimators.base import MarginalisedModel
from dropmargin.noise import DropoutNoise, as_noise
from dropmargin.noise.groups import group_features
from dropmargin.typing import Array

# A group without a name is named after its columns, of which so many are listed.
_MAX_LISTED = 3


def split_estimator(estimator: Any, caller: str) -> tuple[Any, MarginalisedModel]:
    """Return the steps before the model, ``None`` if there are none, and the model, both fitted."""
    check_is_fitted(estimator, msg=f"{caller} needs a fitted model; this %(name)s is not fitted yet.")
    model, encoder = getattr(estimator, "best_estimator_", estimator), None
    if isinstance(model, Pipeline):
        encoder, model = (model[:-1] if len(model.steps) > 1 else None), model[-1]
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, MarginalisedModel):
        raise TypeError(
            f"{caller} needs a model of dropmargin, such as DropoutSVC or DropoutSVCCV, or a pipeline that ends in "
            f"one, got {estimator!r}."
        )
    return encoder, model


def name_features(encoder: Any, model: MarginalisedModel, given: Any = None) -> list[str]:
    """Return the names of the model's features: the given ones, those of the steps before it, or x0, x1, ..."""
    n_features, names = model.n_features_in_, given
    if names is not None:
        names = [str(name) for name in names]
        if len(names) != n_features:
            raise ValueError(f"feature_names has {len(names)} names, but the model has {n_features} features.")
        return names
    if encoder is not None:
        try:
            names = encoder.get_feature_names_out()
        except AttributeError:  # a step that does not name its features
            names = None
    names = getattr(model, "feature_names_in_", None) if names is None else names
    return [f"x{d}" for d in range(n_features)] if names is None else [str(name) for name in names]


class Units(NamedTuple):
    """What can vanish: the number of each feature's unit, the names of the units, those that every row has."""

    numbers: Array
    names: Sequence[str]
    always: Array


def find_units(encoder: Any, model: MarginalisedModel, names: list[str]) -> Units:
    """Return what can vanish: groups of the noise; else columns of a `TableEncoder`; else features."""
    columns, is_table = _columns(encoder, name_features(encoder, model))
    noise = as_noise(model.noise)
    if isinstance(noise, DropoutNoise) and noise.groups is not None:
        numbers, given = group_features(noise.groups, len(names), getattr(model, "feature_names_in_", None))
        members: list[dict[str, None]] = [{} for _ in given]
        for number, column in zip(numbers.tolist(), columns if is_table.any() else names, strict=True):
            members[number][column] = None
        given = [_group_name(name, list(own)) for name, own in zip(given, members, strict=True)]
    elif is_table.any():
        found, numbers = np.unique(np.array(columns, dtype=str), return_inverse=True)
        given = found.tolist()
    else:
        numbers, given = np.arange(len(names)), names
    return Units(numbers, given, np.unique(numbers[is_table]))


def _columns(encoder: Any, names: list[str]) -> tuple[list[str], Array]:
    """Return the column of the table that each feature comes from, else its own name; and whether it is of a table."""
    for _, step in reversed(getattr(encoder, "steps", [("", encoder)])):
        if hasattr(step, "feature_columns_"):
            column = dict(zip(step.get_feature_names_out(), step.feature_columns_, strict=True))
            if column.keys() >= set(names):  # the steps after it scale or select features
                columns = [column[name] for name in names]
                return columns, np.isin(columns, list(step.column_kinds_))
    return names, np.zeros(len(names), dtype=bool)


def _group_name(name: Any, columns: list[str]) -> str:
    """Return the name of a group: its own, or a list of its columns if it has a number or none."""
    if isinstance(name, str):
        return name
    more = len(columns) - _MAX_LISTED
    return ", ".join(columns[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
