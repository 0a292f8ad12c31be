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

from dropmargin import estimators, losses
from dropmargin.data.missing_values import STATISTICS
from dropmargin.estimators.fitting import coefficients, loss_of, set_coefficients
from dropmargin.estimators.parameters import NUMBER, specification
from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.io.model.checks import ModelFormatError, check_choice, check_fields, check_type, shorten, to_plain
from dropmargin.io.model.packing import pack, unpack
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, Noise, PoissonNoise, as_noise
from dropmargin.solvers import Iteration
from dropmargin.typing import Array

#: The models that a file can name.
_CLASSIFIERS = ("DropoutSVC", "DropoutLogisticRegression", "MCFClassifier", "NoisyLinearClassifier")
_REGRESSORS = ("DropoutRidge", "DropoutSVR", "NoisyLinearRegressor")
CLASSES: dict[str, type] = {name: getattr(estimators, name) for name in (*_CLASSIFIERS, *_REGRESSORS)}
#: The noises and losses that a file can name.
NOISES = (DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise)
LOSSES = (
    *(losses.Hinge, losses.Logistic, losses.Quadratic, losses.GaussianHinge, losses.GaussianLogistic),
    *(losses.Exponential, losses.MCFLogistic, losses.EpsilonInsensitive, losses.Huber, losses.GaussianHuber),
)
#: The parameters that are objects: their classes, and the types of plain values in place of one.
_OBJECTS: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "noise": (NOISES, (int, float, type(None))),
    "loss": (LOSSES, (str,)),
}
#: The arrays of a model: their shapes, in the numbers of ``coef_`` (None is any number), and their data types (None is
#: that of ``coef_``). Those after ``history_`` are optional.
_ARRAYS: dict[str, tuple[tuple[str | int | None, ...], tuple[str, ...] | None]] = {
    "coef_": (("outputs", "features"), ("float32", "float64")),
    "intercept_": (("outputs",), None),
    "history_": ((None, len(Iteration._fields)), ("float64",)),
    "feature_names_in_": (("features",), ("object",)),
    **dict.fromkeys(("feature_means_", "feature_deviations_", "residual_variances_"), (("features",), ("float64",))),
    "feature_factors_": (("features", None), ("float64",)),
    "residual_deviation_": ((1,), ("float64",)),
}
_SCALARS: dict[str, Any] = {"n_iter_": (int,), "objective_": NUMBER, "n_passes_": NUMBER, "converged_": (bool,)}
_NEEDED = ("coef_", "intercept_", "history_")
_MAX_DEVIATION = 1e154
_NOT_NEGATIVE = ("feature_deviations_", "residual_variances_", "residual_deviation_")
#: The statistics that each rule for missing values needs; each of the second pair needs the other.
_STATISTICS_OF = {"rescale": ("feature_means_", "feature_deviations_"), "conditional": STATISTICS[2:]}


def plain_model(model: Any, what: str) -> Any:
    """Return a copy of a fitted model, or of the best one of a search, with a dense row of ``coef_`` per output."""
    found = getattr(model, "best_estimator_", model)
    if CLASSES.get(type(found).__name__) is not type(found):
        raise ValueError(
            f"{what} take a fitted {', '.join(CLASSES)}, or a Pipeline that ends with one of these; "
            f"got {type(found).__name__}."
        )
    check_is_fitted(found)
    plain: Any = copy(found)
    plain.coef_, plain.intercept_ = coefficients(plain.densify())
    return plain


def encode_classifier(model: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a model of `plain_model` as JSON values and arrays."""
    arrays = {name: np.asarray(getattr(model, name)) for name in (*_ARRAYS, "classes_") if hasattr(model, name)}
    if "residual_deviation_" in arrays:
        arrays["residual_deviation_"] = np.atleast_1d(arrays["residual_deviation_"])
    history = np.array([tuple(entry) for entry in model.history_], dtype=np.float64)
    arrays["history_"] = history.reshape(len(history), len(Iteration._fields))
    parameters = {name: _encode_parameter(name, value, arrays) for name, value in model.get_params(deep=False).items()}
    fitted = {name: to_plain(getattr(model, name), name) for name in _SCALARS}
    return {"class": type(model).__name__, "parameters": parameters, "fitted": fitted}, arrays


def decode_classifier(entries: Any, arrays: dict[str, Array]) -> Any:
    """Return the fitted classifier of JSON values and arrays, all checked; removes its arrays from ``arrays``."""
    entries = check_fields(entries, "model", ("class", "parameters", "fitted"))
    cls = CLASSES[check_choice(entries["class"], "class", CLASSES)]
    model: Any = cls(**_decode_parameters(entries["parameters"], cls, arrays))
    scalars = check_fields(entries["fitted"], "fitted", list(_SCALARS))
    is_regressor = issubclass(cls, MarginalisedRegressor)
    needed = _NEEDED if is_regressor else (*_NEEDED, "classes_")
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise ModelFormatError(f"it lacks the array {absent[0]!r}")
    found = {name: arrays.pop(name) for name in dict.fromkeys((*needed, *_ARRAYS)) if name in arrays}
    _check_arrays(found, "regressor" if is_regressor else getattr(model, "multi_class", "ovr"))
    _check_parameters(model, found)
    model.n_features_in_ = found["coef_"].shape[1]
    model.history_ = [
        Iteration(int(iteration), objective, gap, passes, int(n_active))
        for iteration, objective, gap, passes, n_active in found.pop("history_").tolist()
    ]
    if "residual_deviation_" in found:
        model.residual_deviation_ = float(found.pop("residual_deviation_")[0])
    for name, value in scalars.items():
        setattr(model, name, check_type(value, name, *_SCALARS[name]))
    for name, array in found.items():
        setattr(model, name, array)
    if is_regressor:
        set_coefficients(model, np.vstack([model.coef_.T, model.intercept_]), model.coef_.dtype)
    return model


# Parameters ---------------------------------------------------------------------------------------------------------


def _encode_parameter(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    """Return a constructor parameter as JSON; arrays that it consists of are added to ``arrays``."""
    if not isinstance(value, Noise | losses.Loss):
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
    unknown = [name for name in check_type(entries, "parameters", dict) if name not in declared]
    if unknown:
        known = ", ".join(declared)
        raise ModelFormatError(f"{cls.__name__} has no parameter {shorten(unknown[0])}; its parameters are {known}")
    check_fields(entries, "parameters", [n for n, one in declared.items() if not one.optional_in_files], declared)
    return {name: _decode_parameter(name, value, declared[name].stored_as, arrays) for name, value in entries.items()}


def _decode_parameter(name: str, value: Any, types: tuple[type, ...], arrays: dict[str, Array]) -> Any:
    if name in _OBJECTS and type(value) is dict:
        return _decode_object(name, value, arrays)
    if name == "class_weight":
        value = unpack(value, name, arrays)
        weights = value.values() if isinstance(value, dict) else ()
        if not isinstance(value, str | dict | None) or not all(type(weight) in NUMBER for weight in weights):
            raise ModelFormatError(f"class_weight must be a string or pairs of a label and a number, got {value!r:.60}")
        return value
    return check_type(value, f"parameter {name!r}", *(_OBJECTS[name][1] if name in _OBJECTS else types))


def _decode_object(name: str, value: dict[str, Any], arrays: dict[str, Array]) -> Any:
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
    missing = getattr(model, "missing", "error")
    needed = _STATISTICS_OF.get(missing, ())
    if any(name not in arrays for name in needed):
        raise ModelFormatError(f"missing={missing!r} needs the arrays {' and '.join(needed)}")
    try:
        noise = as_noise(getattr(model, "noise", None))
        if noise is not None:
            names = arrays.get("feature_names_in_")
            noise.resolve(arrays["coef_"].shape[1], None if names is None else names.tolist())
        loss_of(model)
    except ValueError as error:
        raise ModelFormatError(str(error).removesuffix(".")) from None


def _check_arrays(arrays: dict[str, Array], multi_class: str) -> None:
    """Check that arrays are as `_ARRAYS` has them and fit together; ``multi_class`` may be "regressor"."""
    coef = arrays["coef_"]
    _check_array("coef_", coef, {"outputs": None, "features": None}, None)
    n_outputs, n_features = coef.shape
    if not n_features:
        raise ModelFormatError("coef_ has no features")
    if multi_class != "regressor":
        _check_classes(arrays["classes_"], n_outputs, multi_class)
    elif n_outputs != 1:
        raise ModelFormatError(f"coef_ has {n_outputs} rows, and a regressor has one")
    for name in [name for name in _ARRAYS if name in arrays]:
        _check_array(name, arrays[name], {"outputs": n_outputs, "features": n_features}, coef.dtype.name)
    statistics = [name for name in STATISTICS if name in arrays]
    pair = [name in arrays for name in _STATISTICS_OF["conditional"]]
    if (statistics and "feature_means_" not in arrays) or any(pair) != all(pair):
        raise ModelFormatError(f"{statistics[-1]} needs the other arrays among {', '.join(STATISTICS)}")
    counts = arrays["history_"][:, [0, 4]]  # of iterations and of active outputs
    if not (np.isfinite(counts).all() and (counts == np.floor(counts)).all() and (np.abs(counts) < 2**53).all()):
        raise ModelFormatError("history_ must count iterations and outputs in integers")


def _check_array(name: str, array: Array, sizes: dict[Any, int | None], dtype: str | None) -> None:
    """Check the shape, the type and the numbers of an array; ``dtype`` is that of ``coef_``."""
    shape, dtypes = _ARRAYS[name]
    wanted = tuple(sizes.get(size, size) for size in shape)
    fits = array.ndim == len(wanted) and all(n in (None, m) for n, m in zip(wanted, array.shape, strict=True))
    if not fits or array.dtype.name not in (dtypes or (dtype,)):
        types, got = " or ".join(dtypes or [str(dtype)]), f"{array.dtype} and {array.shape}"
        raise ModelFormatError(f"{name} must be of type {types} and shape {wanted}, got {got}")
    if name != "history_":  # whose first gaps are not known
        _check_finite(name, array)
    if name in _NOT_NEGATIVE and array.min() < 0.0:
        raise ModelFormatError(f"{name} has a negative number")
    if name == "residual_deviation_" and array.max() > _MAX_DEVIATION:
        raise ModelFormatError(f"{name} is {array.max():g}, which no fit has: its square is not finite")


def _check_finite(name: str, array: Array) -> None:
    """Refuse NaN and infinities, without a temporary array."""
    is_float = array.dtype.kind == "f" and array.size
    if is_float and not (math.isfinite(array.min()) and math.isfinite(array.max())):
        raise ModelFormatError(f"{name} has NaN or infinity")


def _check_classes(classes: Array, n_outputs: int, multi_class: str) -> None:
    if classes.ndim != 1 or len(classes) < 2:
        raise ModelFormatError(f"classes_ must hold at least two labels, got shape {classes.shape}")
    _check_finite("classes_", classes)
    if not all(one < other for one, other in pairwise(classes.tolist())):
        raise ModelFormatError("classes_ must be in ascending order, each label once")
    n_classes = len(classes)
    n_pairs = n_classes * (n_classes - 1) // 2
    possible = {n_pairs} if multi_class == "ovo" or n_classes == 2 else {n_classes}
    possible |= {n_pairs} if multi_class == "ovr" else set()
    if n_outputs not in possible:
        raise ModelFormatError(f"coef_ has {n_outputs} rows, which do not fit {n_classes} classes ({multi_class})")
