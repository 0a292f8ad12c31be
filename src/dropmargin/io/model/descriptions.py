"""What a file holds of each class that it can name: the fitted attributes, each described once.

An object is made by its constructor from the parameters in the file, and then gets its fitted attributes. A model must
then predict, or the file is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.io.model import values
from dropmargin.io.model.values import ModelFormatError
from dropmargin.typing import Array


@dataclass(frozen=True)
class Attribute:
    """A fitted attribute: a plain value of some types, or, with a shape, an array of some data types."""

    types: tuple[Any, ...]
    shape: tuple[str, ...] | None = None
    required: bool = True
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Description:
    """Where a class is, and the fitted attributes of its objects."""

    module: str
    fitted: Mapping[str, Attribute] = field(default_factory=dict)
    check: Callable[[Any], None] = lambda made: None

    def find(self, name: str) -> type:
        """Return the class of a name."""
        return getattr(import_module(self.module), name)


def _check_classes(model: Any) -> None:
    """Check that labels are in ascending order, and that there are as many outputs as the classes need."""
    classes, n_outputs = model.classes_, len(model.coef_)
    if len(classes) < 2 or not (classes[:-1] < classes[1:]).all():
        raise ModelFormatError("classes_ must hold two labels or more in ascending order, each once")
    n_pairs = len(classes) * (len(classes) - 1) // 2
    allowed = {"ovr": {len(classes), n_pairs}, "ovo": {n_pairs}, "multinomial": {len(classes)}}
    rule = values.check_choice(model.multi_class, "multi_class", allowed)
    if n_outputs not in ({1} if len(classes) == 2 else allowed[rule]):
        raise ModelFormatError(f"coef_ has {n_outputs} rows for {len(classes)} classes")


def _check_table(model: Any) -> None:
    """Check that encoder and model fit together, and set the attributes that follow from the encoder."""
    encoder, inner = model.encoder_, model.model_
    model.fourier_ = getattr(model, "fourier_", None)
    kinds = {name: rule.kind for name, rule in encoder.rules_.items()}
    if kinds != {name: own.kind for name, own in encoder.encoders_.items()}:
        raise ModelFormatError("the rules of the columns do not fit their encoders")
    n_features = len((model.fourier_ or encoder).get_feature_names_out())
    if n_features != inner.n_features_in_ or hasattr(inner, "classes_") != hasattr(type(model), "classes_"):
        raise ModelFormatError(f"the table has {n_features} features, but its model takes {inner.n_features_in_}")
    for name in ("columns_", "n_features_in_", "feature_names_in_"):
        if hasattr(encoder, name):
            setattr(model, name, getattr(encoder, name))


_NUMBER, _FLOAT, _FLOATS = (int, float), ("float64",), ("float32", "float64")
_LABELS = ("bool", "object", "str", *_FLOATS, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_SHARED = {
    "n_iter_": Attribute((int,)),
    "objective_": Attribute(_NUMBER),
    "n_passes_": Attribute(_NUMBER),
    "converged_": Attribute((bool,)),
    "feature_names_in_": Attribute(("object",), ("features",), required=False),
    "feature_means_": Attribute(_FLOAT, ("features",), required=False),
    "feature_deviations_": Attribute(_FLOAT, ("features",), required=False, low=0.0),
    "feature_factors_": Attribute(_FLOAT, ("features", "factors"), required=False),
    "residual_variances_": Attribute(_FLOAT, ("features",), required=False, low=0.0),
    "conformal_scores_": Attribute(_FLOAT, ("levels", "held out"), required=False, low=0.0),
    "conformal_shares_": Attribute(_FLOAT, ("levels",), required=False, low=0.0, high=1.0),
}
_CLASSIFIER = {
    "coef_": Attribute(_FLOATS, ("outputs", "features")),
    "intercept_": Attribute(_FLOATS, ("outputs",)),
    "classes_": Attribute(_LABELS, ("classes",)),
    "calibration_": Attribute(_FLOAT, ("classes", "slope and intercept"), required=False),
    "calibration_variance_": Attribute(_NUMBER, required=False, low=0.0, high=1e154),
    "isotonic_": Attribute(_FLOAT, ("probabilities", "points"), required=False, low=0.0, high=1.0),
    **_SHARED,
}
_REGRESSOR = {
    "coef_": Attribute(_FLOATS, ("features",)),
    "intercept_": Attribute(_FLOATS, ()),
    "residual_deviation_": Attribute(_NUMBER, required=False, low=0.0, high=1e154),  # its square is finite
    **_SHARED,
}
_CLASSIFIERS = ("DropoutSVC", "DropoutLogisticRegression", "MCFClassifier", "NoisyLinearClassifier")
_REGRESSORS = ("DropoutRidge", "DropoutSVR", "NoisyLinearRegressor")
_NOISES = ("DropoutNoise", "GaussianNoise", "LaplaceNoise", "PoissonNoise")
_LOSSES = "Hinge Logistic Quadratic GaussianHinge GaussianLogistic Exponential MCFLogistic"
_LOSSES += " EpsilonInsensitive Huber GaussianHuber"
_TABLE = {
    **{name: Attribute((str,)) for name in ("basis_", "scaling_")},
    "noise_": Attribute((int, float, dict, str, type(None))),
    "C_": Attribute(_NUMBER),
    "cv_scores_": Attribute((dict,)),
    "encoder_": Attribute(("TableEncoder",)),
    "fourier_": Attribute(("FourierFeatures",), required=False),
    "model_": Attribute((*_CLASSIFIERS, *_REGRESSORS)),
    "residual_deviation_": Attribute(_NUMBER, required=False, low=0.0, high=1e154),
}
#: The models that a file can hold, and every class that it can name.
MODELS: dict[str, Description] = {
    **dict.fromkeys(_CLASSIFIERS, Description("dropmargin.estimators", _CLASSIFIER, _check_classes)),
    **dict.fromkeys(_REGRESSORS, Description("dropmargin.estimators", _REGRESSOR)),
    **dict.fromkeys(("TableClassifier", "TableRegressor"), Description("dropmargin.tables", _TABLE, _check_table)),
}
CLASSES: dict[str, Description] = {
    **MODELS,
    **dict.fromkeys(("TableEncoder", "FourierFeatures"), Description("dropmargin.tables")),
    **dict.fromkeys(_NOISES, Description("dropmargin.noise")),
    **dict.fromkeys(_LOSSES.split(), Description("dropmargin.losses")),
}


def is_known(value: Any, names: Mapping[str, Description] = CLASSES) -> bool:
    """Return whether the class of an object is one that a file can name."""
    name = type(value).__name__
    return name in names and names[name].find(name) is type(value)


def plain_model(model: Any) -> Any:
    """Return a copy of a fitted model, or of the best one of a search, with dense coefficients."""
    found = model if is_known(model, MODELS) else getattr(model, "best_estimator_", model)
    if not is_known(found, MODELS):
        own = "For a Pipeline or a class of your own, use skops.io.dump (https://skops.readthedocs.io)."
        raise ValueError(f"A model is one of {', '.join(MODELS)}, or a search, got {type(model).__name__}. {own}")
    check_is_fitted(found)
    return copy(found).densify() if hasattr(found, "densify") else found


def pack_object(value: Any, name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return an object as JSON; its arrays are added to ``arrays``."""
    if not is_known(value):
        raise ValueError(
            f"{name}={value!r:.80} cannot be stored: a file holds plain data and {', '.join(CLASSES)}. Predictions "
            f"do not depend on a parameter of another kind: save the model after model.set_params({name}=None)."
        )
    prefix, kind = f"{name}." if name else "", type(value).__name__
    parameters = {key: getattr(value, key) for key in signature(type(value)).parameters}
    packed = {key: values.pack(one, prefix + key, arrays, pack_object) for key, one in parameters.items()}
    fitted = {}
    if hasattr(value, "get_state") and any(key.endswith("_") for key in vars(value)):
        fitted["state"] = values.pack(value.get_state(), prefix + "state", arrays, pack_object)
    for key, attribute in CLASSES[kind].fitted.items():
        found = getattr(value, key, None)
        if found is not None and attribute.shape is None:
            fitted[key] = values.pack(found, prefix + key, arrays, pack_object)
        elif found is not None:
            arrays[prefix + key] = np.asarray(found)
    return {"class": kind, "parameters": packed, "fitted": fitted}


@contextmanager
def _refused(where: str) -> Iterator[None]:
    """Turn any error, which a forged file may cause, into one of the file."""
    try:
        yield
    except ModelFormatError:
        raise
    except Exception as error:
        raise ModelFormatError(f"{where}: {str(error).removesuffix('.')}") from None


def unpack_object(entry: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return the object that `pack_object` has packed, all checked, and remove its arrays from ``arrays``."""
    where, prefix = name or "the model", f"{name}." if name else ""
    entry = values.check_entries(entry, where, ("class", "parameters", "fitted"))
    kind = values.check_choice(entry["class"], f"the class of {where}", CLASSES)
    description, cls = CLASSES[kind], CLASSES[kind].find(kind)
    given = values.check_type(entry["parameters"], f"the parameters of {kind}", dict)
    declared = signature(cls).parameters  # of later versions, which a file may lack, they have defaults
    values.check_entries(dict.fromkeys(declared) | given, f"the parameters of {kind}", declared)
    given = {key: values.unpack(value, prefix + key, arrays, unpack_object) for key, value in given.items()}
    fitted = dict(values.check_type(entry["fitted"], "fitted", dict))
    with _refused(where):
        if "state" in fitted and hasattr(cls, "from_state"):
            return cls.from_state(values.unpack(fitted["state"], prefix + "state", arrays, unpack_object))
        made = cls(**given)
    plain = [key for key, attribute in description.fitted.items() if attribute.shape is None]
    stored = [key for key in description.fitted if key not in plain and prefix + key in arrays]
    fitted |= {key: arrays.pop(prefix + key) for key in stored}
    needed = {key for key, attribute in description.fitted.items() if attribute.required or key in fitted}
    values.check_entries(fitted, f"the fitted attributes of {where}", needed)
    sizes: dict[str, int] = {}
    for key in [key for key in description.fitted if key in fitted]:
        found = values.unpack(fitted[key], prefix + key, arrays, unpack_object) if key in plain else fitted[key]
        _check_attribute(prefix + key, found, description.fitted[key], sizes)
        setattr(made, key, found[()] if description.fitted[key].shape == () else found)
    if "features" in sizes:
        if not max(1, sizes.get("factors", 0)) <= sizes["features"]:
            raise ModelFormatError(f"{where} has {sizes['features']} features and {sizes.get('factors', 0)} factors")
        made.n_features_in_, made.history_ = sizes["features"], []
    with _refused(where):
        description.check(made)
    return made


def _check_attribute(name: str, found: Any, attribute: Attribute, sizes: dict[str, int]) -> None:
    """Check the type, the shape and the numbers of a fitted attribute; ``sizes`` are those of the earlier ones."""
    is_number = type(found) in (int, float)
    if attribute.shape is None and isinstance(attribute.types[0], str):
        values.check_choice(type(found).__name__, f"the class of {name}", attribute.types)
    elif attribute.shape is None:
        values.check_type(found, name, *attribute.types)
    else:
        kind = "str" if found.dtype.kind == "U" else found.dtype.name
        fits = len(attribute.shape) == found.ndim and kind in attribute.types
        if not fits or any(sizes.setdefault(a, n) != n for a, n in zip(attribute.shape, found.shape, strict=True)):
            wanted = tuple(sizes.get(size, size) for size in attribute.shape)
            types = " or ".join(attribute.types)
            raise ModelFormatError(f"{name} must have shape {wanted} and type {types}, got {found.shape} and {kind}")
        is_number = found.size > 0 and found.dtype.kind == "f"
        if is_number and not np.isfinite((np.min(found), np.max(found))).all():
            raise ModelFormatError(f"{name} has NaN or infinity")
    bounds = -np.inf < attribute.low or attribute.high < np.inf  # an objective may be infinite or NaN
    if bounds and is_number and not attribute.low <= np.min(found) <= np.max(found) <= attribute.high:
        raise ModelFormatError(f"{name} has the number {np.min(found):g}, which no fit has")


def _trial_rows(model: Any) -> Any:
    """Return rows that a valid model predicts: zeros, and missing values if it takes them; or cells of each kind."""
    if hasattr(model, "encoder_"):
        cells: dict[str, Any] = {}
        for name, rule in model.encoder_.rules_.items():
            text = {"number": f"1{rule.unit}", "date": "2024-01-31"}.get(rule.kind, "1")
            found = {"number": 1.0, "date": date(2024, 1, 31)}.get(rule.source, text)
            cells[name] = np.array([None, found], dtype=object)
        return cells
    rows = np.zeros((1 if model.missing == "error" else 3, model.n_features_in_))
    rows[1:2], rows[2:, ::2] = np.nan, np.nan
    return rows


def unpack_model(entry: Any, arrays: dict[str, Array]) -> Any:
    """Return a model of JSON values and arrays, which must be all of the file's, and which must predict."""
    model = unpack_object(entry, "", arrays)
    if not is_known(model, MODELS):
        raise ModelFormatError(f"it holds a {type(model).__name__}, which is not a model")
    if arrays:
        raise ModelFormatError(f"it has the array {values.shorten(next(iter(arrays)))}, which its model does not use")
    with np.errstate(all="ignore"), warnings.catch_warnings(), _refused("it does not predict"):
        warnings.simplefilter("ignore")
        rows, inner = _trial_rows(model), getattr(model, "model_", model)
        has_intervals = hasattr(inner, "residual_deviation_") and inner.missing == "conditional"
        methods = ["predict", "predict_interval" if has_intervals else "predict_proba"]
        for method in [*methods, *(["predict_set"] if hasattr(inner, "classes_") and inner.conformal else ())]:
            getattr(model, method, repr)(rows)
        repr(model)
    return model
