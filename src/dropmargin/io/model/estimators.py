"""Fitted classifiers as plain data, and back: the only classes that a file can name, and what each of them consists of.

A classifier is made by its constructor from checked parameters, and given its fitted attributes one by one. Nothing
that a file says becomes a name of an attribute, a function or a module.
"""

from __future__ import annotations

import math
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.baselines import FDropSVC
from dropmargin.estimators import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.estimators.parameters import specification
from dropmargin.io.model.parameters import decode_parameters, encode_parameters
from dropmargin.io.model.schema import ModelFormatError, choice, fields, from_plain, integer, shown, to_plain
from dropmargin.losses import as_loss
from dropmargin.noise import as_noise
from dropmargin.solvers import Iteration
from dropmargin.typing import Array

#: The classifiers that a file can name.
CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier, FDropSVC)
}
_SCALARS = ("n_iter_", "objective_", "n_passes_", "converged_")
_FDROP_SCALARS = ("n_iter_", "objective_", "gap_", "converged_")
_ARRAYS = ("coef_", "intercept_", "classes_")
_OPTIONAL_ARRAYS = ("feature_names_in_", "feature_means_", "feature_deviations_")
_HISTORY = "history_"


def plain_classifier(model: Any) -> Any:
    """Return the fitted classifier that a file can hold: of a search over parameters, the one that it refitted.

    Of a classifier on a cluster (`dropmargin.dask`), the local one. Searches are known by scikit-learn's attribute
    ``best_estimator_``. A search of another make has its place here.
    """
    found = getattr(model, "best_estimator_", model)
    found = found.to_local() if hasattr(found, "to_local") else found
    if CLASSES.get(type(found).__name__) is not type(found):
        raise ValueError(
            f"Model files and exports hold fitted {', '.join(CLASSES)} (files also a Pipeline of a TableEncoder or "
            f"TextEncoder and one of these); got {type(found).__name__}."
        )
    check_is_fitted(found)
    return copy(found).densify() if hasattr(found, "densify") else found


def encode_classifier(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a fitted classifier as facts and arrays."""
    name = type(model).__name__
    parameters, arrays = encode_parameters(model.get_params(deep=False))
    fitted = {attribute: to_plain(getattr(model, attribute), attribute) for attribute in _scalars(type(model))}
    own = {attribute: np.asarray(getattr(model, attribute)) for attribute in _ARRAYS}
    own |= {
        attribute: np.asarray(getattr(model, attribute)) for attribute in _OPTIONAL_ARRAYS if hasattr(model, attribute)
    }
    history = np.array([tuple(entry) for entry in model.history_], dtype=np.float64)
    own[_HISTORY] = history.reshape(len(history), len(Iteration._fields))
    return {"class": name, "parameters": parameters, "fitted": fitted}, own | arrays


def decode_classifier(facts: Any, arrays: dict[str, Array]) -> Any:
    """Return the fitted classifier of facts and arrays, all checked; arrays that are used leave ``arrays``."""
    facts = fields(facts, "model", ("class", "parameters", "fitted"))
    name = choice(facts["class"], "class", CLASSES)
    cls = CLASSES[name]
    model = cls(**decode_parameters(facts["parameters"], cls, arrays))
    scalars = fields(facts["fitted"], "fitted", _scalars(cls))
    missing = [key for key in (*_ARRAYS, _HISTORY) if key not in arrays]
    if missing:
        raise ModelFormatError(f"it lacks the array {missing[0]!r}")
    found = {key: arrays.pop(key) for key in (*_ARRAYS, *_OPTIONAL_ARRAYS) if key in arrays}
    _check_arrays(found, getattr(model, "multi_class", "ovr"))
    _check_parameters(model, found)
    for attribute, value in found.items():
        setattr(model, attribute, value)  # a name of the two tables above
    for attribute in _scalars(cls):
        setattr(model, attribute, _scalar(attribute, scalars[attribute]))
    model.n_features_in_ = found["coef_"].shape[1]
    model.history_ = _decode_history(arrays.pop(_HISTORY))
    return model


def _scalars(cls: type) -> tuple[str, ...]:
    return _FDROP_SCALARS if cls is FDropSVC else _SCALARS


def _scalar(attribute: str, value: Any) -> Any:
    if attribute == "n_iter_":
        return integer(value, attribute)
    value = from_plain(value, attribute)
    if type(value) not in ((bool,) if attribute == "converged_" else (int, float)):
        raise ModelFormatError(f"{attribute} has a value of the wrong type: {shown(value)}")
    return value


def _check_parameters(model: Any, arrays: dict[str, Array]) -> None:
    """Check the parameters that predictions depend on."""
    for name, declared in specification(type(model)).items():
        if declared.choices is not None:
            choice(getattr(model, name), name, declared.choices)
    if getattr(model, "missing", "error") == "rescale" and "feature_means_" not in arrays:
        raise ModelFormatError("missing='rescale' needs 'feature_means_', which is not there")
    try:
        noise = as_noise(getattr(model, "noise", None))
        if noise is not None:
            noise.check(arrays["coef_"].shape[1])
        if hasattr(model, "approximation"):
            as_loss(getattr(model, "loss", "hinge"), model.approximation)
    except ValueError as error:
        raise ModelFormatError(str(error)) from None


def _check_arrays(arrays: dict[str, Array], multi_class: str) -> None:
    """Check that coefficients, classes and descriptions of the features fit together and are finite."""
    coef, intercept, classes = (arrays[name] for name in _ARRAYS)
    if coef.ndim != 2 or coef.shape[1] == 0 or coef.dtype.name not in ("float32", "float64"):
        raise ModelFormatError(f"coef_ must be a matrix of floats, got shape {coef.shape} and dtype {coef.dtype}")
    _check_classes(classes)
    n_classes, (n_columns, n_features) = len(classes), coef.shape
    n_pairs = n_classes * (n_classes - 1) // 2
    possible = {n_pairs} if multi_class == "ovo" or n_classes == 2 else {n_classes, n_pairs}
    if n_columns not in possible:
        raise ModelFormatError(f"coef_ has {n_columns} rows, which do not fit {n_classes} classes ({multi_class})")
    _check_vector(intercept, "intercept_", n_columns, str(coef.dtype))
    for name in ("feature_means_", "feature_deviations_"):
        if name in arrays:
            _check_vector(arrays[name], name, n_features, "float64")
    if ("feature_means_" in arrays) != ("feature_deviations_" in arrays):
        raise ModelFormatError("feature_means_ and feature_deviations_ must come together")
    if "feature_deviations_" in arrays and arrays["feature_deviations_"].min() < 0.0:
        raise ModelFormatError("feature_deviations_ has a negative number")
    names = arrays.get("feature_names_in_")
    if names is not None and (names.dtype != object or names.shape != (n_features,)):
        raise ModelFormatError(f"feature_names_in_ must hold {n_features} strings")
    _check_finite(coef, "coef_")


def _check_classes(classes: Array) -> None:
    if classes.ndim != 1 or len(classes) < 2:
        raise ModelFormatError(f"classes_ must hold two labels or more, got shape {classes.shape}")
    if classes.dtype.kind == "f":
        _check_finite(classes, "classes_")
    labels = classes.tolist()
    if not all(one < other for one, other in pairwise(labels)):
        raise ModelFormatError("classes_ must be in ascending order, each label once")


def _check_vector(values: Array, name: str, size: int, dtype: str) -> None:
    if values.shape != (size,) or values.dtype.name != dtype:
        raise ModelFormatError(f"{name} must hold {size} numbers of type {dtype}, got {values.shape}, {values.dtype}")
    _check_finite(values, name)


def _check_finite(values: Array, name: str) -> None:
    """Refuse NaN and infinities, without an array of the same size."""
    if not (math.isfinite(values.min()) and math.isfinite(values.max())):
        raise ModelFormatError(f"{name} has NaN or infinity")


def _decode_history(table: Array) -> list[Iteration]:
    if table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != len(Iteration._fields):
        raise ModelFormatError(f"history_ must be a table of {len(Iteration._fields)} columns of floats")
    counts = table[:, [0, 4]]
    if not (np.isfinite(counts).all() and (counts == np.floor(counts)).all() and (np.abs(counts) < 2**53).all()):
        raise ModelFormatError("history_ counts iterations or columns in numbers that are no integers")
    return [
        Iteration(int(iteration), objective, gap, passes, int(n_active))
        for iteration, objective, gap, passes, n_active in table.tolist()
    ]
