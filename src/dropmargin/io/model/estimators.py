"""Fitted models and their parameters as plain data, and back.

A model is made by its constructor from checked parameters, and then gets its fitted attributes, which are listed
here. A file can name only the classes, noises and losses listed here.
"""

from __future__ import annotations

import math
from copy import copy
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.baselines import FDropSVC
from dropmargin.data.missing_values import STATISTICS
from dropmargin.estimators import (
    DropoutLogisticRegression,
    DropoutRidge,
    DropoutSVC,
    DropoutSVR,
    MCFClassifier,
    NoisyLinearClassifier,
    NoisyLinearRegressor,
)
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import coefficients, loss_of, set_coefficients
from dropmargin.estimators.parameters import NUMBER, specification
from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.io.model.checks import ModelFormatError, check_choice, check_fields, check_type, shorten, to_plain
from dropmargin.io.model.packing import pack, unpack
from dropmargin.losses import (
    EpsilonInsensitive,
    Exponential,
    GaussianHinge,
    GaussianHuber,
    GaussianLogistic,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MCFLogistic,
    Quadratic,
)
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, Noise, PoissonNoise, as_noise
from dropmargin.solvers import Iteration
from dropmargin.typing import Array

#: The classifiers that a file can name.
CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier, FDropSVC)
}
REGRESSORS: dict[str, type] = {cls.__name__: cls for cls in (DropoutRidge, DropoutSVR, NoisyLinearRegressor)}
#: The noises and losses that a file can name.
NOISES = (DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise)
LOSSES = (
    *(Hinge, Logistic, Quadratic, GaussianHinge, GaussianLogistic, Exponential, MCFLogistic),
    *(EpsilonInsensitive, Huber, GaussianHuber),
)
#: The parameters that are objects: their classes, and the types of plain values in place of one.
_OBJECTS: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "noise": (NOISES, (int, float, type(None))),
    "loss": (LOSSES, (str,)),
}

_SCALARS = ("n_iter_", "objective_", "n_passes_", "converged_")
_FDROP_SCALARS = ("n_iter_", "objective_", "gap_", "converged_")
_ARRAYS = ("coef_", "intercept_", "classes_")
_OPTIONAL_ARRAYS = ("feature_names_in_", *STATISTICS)
#: An array of one number in the files of regressors.
_RESIDUALS = "residual_deviation_"
_HISTORY = "history_"


def plain_outputs(model: Any) -> Any:
    """Return the fitted model to export: dense coefficients, a row of ``coef_`` per output, also of a regressor."""
    model = plain_model(model, "Exports")
    if isinstance(model, MarginalisedRegressor):
        model = copy(model)
        model.coef_, model.intercept_ = coefficients(model)
    return model


def plain_model(model: Any, what: str = "Model files") -> Any:
    """Return the fitted model that a file can hold, with dense coefficients.

    Of a search over parameters it is ``best_estimator_``.
    """
    classes = CLASSES | REGRESSORS
    found = getattr(model, "best_estimator_", model)
    if classes.get(type(found).__name__) is not type(found):
        raise ValueError(
            f"{what} take a fitted {', '.join(classes)}, or a Pipeline that ends with one of these; "
            f"got {type(found).__name__}."
        )
    check_is_fitted(found)
    return copy(found).densify() if hasattr(found, "densify") else found


def encode_classifier(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a fitted classifier as JSON values and arrays."""
    arrays = {name: np.asarray(getattr(model, name)) for name in (*_ARRAYS, *_OPTIONAL_ARRAYS) if hasattr(model, name)}
    if isinstance(model, MarginalisedRegressor):
        arrays["coef_"], arrays["intercept_"] = coefficients(model)
        if hasattr(model, _RESIDUALS):
            arrays[_RESIDUALS] = np.array([model.residual_deviation_])
    history = np.array([tuple(entry) for entry in model.history_], dtype=np.float64)
    arrays[_HISTORY] = history.reshape(len(history), len(Iteration._fields))
    parameters = {name: _encode_parameter(name, value, arrays) for name, value in model.get_params(deep=False).items()}
    fitted = {name: to_plain(getattr(model, name), name) for name in _scalars(type(model))}
    return {"class": type(model).__name__, "parameters": parameters, "fitted": fitted}, arrays


def decode_classifier(entries: Any, arrays: dict[str, Array]) -> Any:
    """Return the fitted classifier of JSON values and arrays, all checked; removes its arrays from ``arrays``."""
    entries = check_fields(entries, "model", ("class", "parameters", "fitted"))
    known = CLASSES | REGRESSORS
    cls = known[check_choice(entries["class"], "class", known)]
    model = cls(**_decode_parameters(entries["parameters"], cls, arrays))
    scalars = check_fields(entries["fitted"], "fitted", _scalars(cls))
    is_regressor = issubclass(cls, MarginalisedRegressor)
    needed = _ARRAYS[:2] if is_regressor else _ARRAYS
    absent = [name for name in (*needed, _HISTORY) if name not in arrays]
    if absent:
        raise ModelFormatError(f"it lacks the array {absent[0]!r}")
    found = {name: arrays.pop(name) for name in (*needed, *_OPTIONAL_ARRAYS) if name in arrays}
    _check_arrays(found, None if is_regressor else getattr(model, "multi_class", "ovr"))
    _check_parameters(model, found)
    for name, array in found.items():
        setattr(model, name, array)
    if is_regressor:
        set_coefficients(model, np.vstack([model.coef_.T, model.intercept_]), model.coef_.dtype)
        if _RESIDUALS in arrays:
            deviation = arrays.pop(_RESIDUALS)
            _check_vector(deviation, _RESIDUALS, 1, "float64")
            if deviation[0] < 0.0:
                raise ModelFormatError(f"{_RESIDUALS} has a negative number")
            model.residual_deviation_ = float(deviation[0])
    types = {"n_iter_": (int,), "converged_": (bool,)}
    for name, value in scalars.items():
        setattr(model, name, check_type(value, name, *types.get(name, (int, float))))
    model.n_features_in_ = found["coef_"].shape[1]
    model.history_ = _decode_history(arrays.pop(_HISTORY))
    return model


def _scalars(cls: type) -> tuple[str, ...]:
    return _FDROP_SCALARS if cls is FDropSVC else _SCALARS


# Parameters ---------------------------------------------------------------------------------------------------------


def _encode_parameter(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    """Return a constructor parameter as JSON; arrays that it consists of are added to ``arrays``."""
    if not isinstance(value, Noise | Loss):
        return pack(value, name, arrays) if name == "class_weight" else to_plain(value, name)
    cls = type(value)
    if cls not in (*NOISES, *LOSSES):
        known, neutral = (NOISES, None) if isinstance(value, Noise) else (LOSSES, "hinge")
        raise ValueError(
            f"{name}={value!r} cannot be stored: model files hold {', '.join(one.__name__ for one in known)}. "
            f"Predictions do not depend on it: save the model after model.set_params({name}={neutral!r})."
        )
    given = {key: pack(getattr(value, key), f"{name}.{key}", arrays) for key in signature(cls).parameters}
    return {"class": cls.__name__, "parameters": given}


def _decode_parameters(entries: Any, cls: type, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the constructor parameters of a class; removes the arrays of noise and loss from ``arrays``."""
    declared = specification(cls)
    names = list(declared)
    unknown = [name for name in check_type(entries, "parameters", dict) if name not in names]
    if unknown:
        raise ModelFormatError(
            f"{cls.__name__} has no parameter {shorten(unknown[0])}; its parameters are {', '.join(names)}"
        )
    required = [name for name in names if not declared[name].optional_in_files]
    check_fields(entries, "parameters", required, names)
    return {name: _decode_parameter(name, value, declared[name].stored_as, arrays) for name, value in entries.items()}


def _decode_parameter(name: str, value: Any, types: tuple[type, ...], arrays: dict[str, Array]) -> Any:
    if name in _OBJECTS and type(value) is dict:
        return _decode_object(name, value, arrays)
    if name == "class_weight":
        value = unpack(value, name, arrays)
        is_right = value is None or isinstance(value, str | dict)
        if not is_right or (isinstance(value, dict) and not all(type(weight) in NUMBER for weight in value.values())):
            raise ModelFormatError(f"class_weight must be a string or pairs of a label and a number, got {value!r:.60}")
        return value
    return check_type(value, f"parameter {name!r}", *(_OBJECTS[name][1] if name in _OBJECTS else types))


def _decode_object(name: str, value: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """Return a noise or a loss."""
    entries = check_fields(value, name, ("class", "parameters"))
    known = {cls.__name__: cls for cls in _OBJECTS[name][0]}
    cls = known[check_choice(entries["class"], name, known)]
    given = check_fields(entries["parameters"], f"{name} {cls.__name__}", list(signature(cls).parameters))
    try:
        return cls(**{key: unpack(part, f"{name}.{key}", arrays) for key, part in given.items()})
    except ModelFormatError:
        raise
    except (ValueError, TypeError) as error:
        raise ModelFormatError(f"{name}: {error}") from None


# Checks -------------------------------------------------------------------------------------------------------------


def _check_parameters(model: Any, arrays: dict[str, Array]) -> None:
    """Check the parameters that predictions depend on."""
    for name, declared in specification(type(model)).items():
        if declared.choices is not None:
            check_choice(getattr(model, name), name, declared.choices)
    if getattr(model, "missing", "error") == "rescale" and "feature_deviations_" not in arrays:
        raise ModelFormatError("missing='rescale' needs the arrays 'feature_means_' and 'feature_deviations_'")
    if getattr(model, "missing", "error") == "conditional" and "feature_factors_" not in arrays:
        raise ModelFormatError("missing='conditional' needs the arrays 'feature_factors_' and 'residual_variances_'")
    try:
        noise = as_noise(getattr(model, "noise", None))
        if noise is not None:
            names = arrays.get("feature_names_in_")
            noise.resolve(arrays["coef_"].shape[1], None if names is None else names.tolist())
        if isinstance(model, MarginalisedModel):
            loss_of(model)
    except ValueError as error:
        raise ModelFormatError(str(error).removesuffix(".")) from None


def _check_arrays(arrays: dict[str, Array], multi_class: str | None) -> None:
    """Check that coefficients, classes and the statistics of the features fit together and are finite.

    ``multi_class`` is ``None`` in a regression.
    """
    coef, intercept = arrays["coef_"], arrays["intercept_"]
    if coef.ndim != 2 or coef.shape[1] == 0 or coef.dtype.name not in ("float32", "float64"):
        raise ModelFormatError(f"coef_ must be a matrix of floats, got shape {coef.shape} and dtype {coef.dtype}")
    n_outputs, n_features = coef.shape
    if multi_class is not None:
        _check_classes(arrays["classes_"], n_outputs, multi_class)
    elif n_outputs != 1:
        raise ModelFormatError(f"coef_ has {n_outputs} rows, and a regressor has one")
    _check_finite(coef, "coef_")
    _check_vector(intercept, "intercept_", n_outputs, str(coef.dtype))
    _check_statistics({name: arrays[name] for name in STATISTICS if name in arrays}, n_features)
    names = arrays.get("feature_names_in_")
    if names is not None and (names.dtype != object or names.shape != (n_features,)):
        raise ModelFormatError(f"feature_names_in_ must hold {n_features} strings")


def _check_statistics(statistics: dict[str, Array], n_features: int) -> None:
    """Check means, deviations and Gaussian of the features."""
    for name, values in statistics.items():
        if "feature_means_" not in statistics:
            raise ModelFormatError(f"{name} needs the array 'feature_means_'")
        if name != "feature_factors_":
            _check_vector(values, name, n_features, "float64")
        if name in ("feature_deviations_", "residual_variances_") and values.min() < 0.0:
            raise ModelFormatError(f"{name} has a negative number")
    if ("feature_factors_" in statistics) != ("residual_variances_" in statistics):
        raise ModelFormatError("feature_factors_ and residual_variances_ need each other")
    if "feature_factors_" not in statistics:
        return
    factors = statistics["feature_factors_"]
    if factors.ndim != 2 or len(factors) != n_features or factors.dtype != np.float64:
        raise ModelFormatError(
            f"feature_factors_ must hold {n_features} rows of type float64, got {factors.shape}, {factors.dtype}"
        )
    if factors.size:
        _check_finite(factors, "feature_factors_")


def _check_classes(classes: Array, n_outputs: int, multi_class: str) -> None:
    if classes.ndim != 1 or len(classes) < 2:
        raise ModelFormatError(f"classes_ must hold at least two labels, got shape {classes.shape}")
    if classes.dtype.kind == "f":
        _check_finite(classes, "classes_")
    if not all(one < other for one, other in pairwise(classes.tolist())):
        raise ModelFormatError("classes_ must be in ascending order, each label once")
    n_classes = len(classes)
    n_pairs = n_classes * (n_classes - 1) // 2
    possible = {n_pairs} if multi_class == "ovo" or n_classes == 2 else {n_classes}
    possible |= {n_pairs} if multi_class == "ovr" else set()
    if n_outputs not in possible:
        raise ModelFormatError(f"coef_ has {n_outputs} rows, which do not fit {n_classes} classes ({multi_class})")


def _check_vector(values: Array, name: str, size: int, dtype: str) -> None:
    if values.shape != (size,) or values.dtype.name != dtype:
        raise ModelFormatError(f"{name} must hold {size} numbers of type {dtype}, got {values.shape}, {values.dtype}")
    _check_finite(values, name)


def _check_finite(values: Array, name: str) -> None:
    """Refuse NaN and infinities, without a temporary array."""
    if not (math.isfinite(values.min()) and math.isfinite(values.max())):
        raise ModelFormatError(f"{name} has NaN or infinity")


def _decode_history(table: Array) -> list[Iteration]:
    """Return the history of a table with the iteration in column 0 and the number of active outputs in column 4."""
    if table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != len(Iteration._fields):
        raise ModelFormatError(f"history_ must be a table of {len(Iteration._fields)} columns of floats")
    counts = table[:, [0, 4]]
    if not (np.isfinite(counts).all() and (counts == np.floor(counts)).all() and (np.abs(counts) < 2**53).all()):
        raise ModelFormatError("history_ must count iterations and outputs in integers")
    return [
        Iteration(int(iteration), objective, gap, passes, int(n_active))
        for iteration, objective, gap, passes, n_active in table.tolist()
    ]
