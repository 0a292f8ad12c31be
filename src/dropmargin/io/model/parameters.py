"""Constructor parameters as plain data: numbers, names, and the noises, losses and class weights of the library.

The specification of a parameter (`dropmargin.estimators.parameters`) decides which types a file may give it. `fit`
checks the value, as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dropmargin.estimators.parameters import INTEGER, NUMBER, ModelParameters, specification
from dropmargin.io.model.schema import ModelFormatError, choice, fields, from_plain, items, shown, text, to_plain
from dropmargin.losses import (
    Exponential,
    GaussianHinge,
    GaussianLogistic,
    Hinge,
    Logistic,
    Loss,
    MCFLogistic,
    Quadratic,
)
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, Noise, PoissonNoise
from dropmargin.typing import Array

_NOISES: dict[str, type[Noise]] = {
    cls.__name__: cls for cls in (DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise)
}
_LOSSES: dict[str, type[Loss]] = {
    cls.__name__: cls for cls in (Hinge, Logistic, Quadratic, GaussianHinge, GaussianLogistic, Exponential, MCFLogistic)
}
_LOSS_PARAMETERS = {"Hinge": ("margin",), "GaussianHinge": ("margin",)}

#: Types of the parameters of `FDropSVC` that no other classifier has.
_FDROP_TYPES = {"n_deleted": INTEGER}


def encode_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return parameters as facts, and the arrays that these name; a `ValueError` names what cannot be stored."""
    facts: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, value in parameters.items():
        if name == "noise":
            facts[name], found = _encode_noise(value)
            arrays.update(found)
        elif name == "loss":
            facts[name] = _encode_loss(value)
        elif name == "class_weight":
            facts[name] = _encode_class_weight(value)
        else:
            facts[name] = to_plain(value, name)
    return facts, arrays


def decode_parameters(facts: Any, cls: type, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the parameters of a class from facts; the arrays that are used are taken out of ``arrays``.

    The specification of the class says which types a plain parameter may have, and which parameters may be absent.
    """
    declared = specification(cls)
    names = list(cls().get_params(deep=False))
    required = [name for name in names if name not in declared or not declared[name].optional_in_files]
    facts = fields(facts, "parameters", required, names)
    # A name means the same in all classes: `FDropSVC`, which has no specification, takes the types of the others.
    types = {name: known.stored_as for name, known in (declared or specification(ModelParameters)).items()}
    decoded: dict[str, Any] = {}
    for name, value in facts.items():
        if name == "noise":
            decoded[name] = _decode_noise(value, arrays)
        elif name == "loss":
            decoded[name] = _decode_loss(value)
        elif name == "class_weight":
            decoded[name] = _decode_class_weight(value)
        else:
            decoded[name] = _decode_plain(name, value, (_FDROP_TYPES | types).get(name, ()))
    return decoded


def _decode_plain(name: str, value: Any, types: tuple[type, ...]) -> Any:
    if not types:
        raise ModelFormatError(f"parameter {name!r} cannot be stored by this version of dropmargin")
    found = from_plain(value, name)
    if type(found) not in types:
        raise ModelFormatError(f"parameter {name!r} has a value of the wrong type: {shown(found)}")
    return found


# Noise --------------------------------------------------------------------------------------------------------------


def _encode_noise(noise: Any) -> tuple[Any, dict[str, Array]]:
    if not isinstance(noise, Noise):
        return to_plain(noise, "noise"), {}
    if _NOISES.get(type(noise).__name__) is not type(noise):
        raise ValueError(
            f"noise={noise!r} cannot be stored: model files hold {', '.join(_NOISES)}. Predictions do not need "
            "the noise: save the model after model.set_params(noise=None)."
        )
    facts: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, value in noise.get_params(deep=False).items():
        if np.ndim(value) == 0:
            facts[name] = to_plain(np.asarray(value)[()], f"noise.{name}")
            continue
        key = f"noise.{name}"
        arrays[key] = np.asarray(value)
        kept_as = "list" if isinstance(value, list) else "tuple" if isinstance(value, tuple) else "array"
        facts[name] = {"array": key, "as": kept_as}
    return {"noise": type(noise).__name__, "parameters": facts}, arrays


def _decode_noise(facts: Any, arrays: dict[str, Array]) -> Any:
    if type(facts) is not dict or "noise" not in facts:
        found = from_plain(facts, "noise")
        if found is not None and type(found) not in NUMBER:
            raise ModelFormatError(f"noise must be null, a number or a noise, got {shown(found)}")
        return found
    facts = fields(facts, "noise", ("noise", "parameters"))
    cls = _NOISES[choice(facts["noise"], "noise", _NOISES)]
    names = list(cls().get_params(deep=False))
    given = fields(facts["parameters"], "the noise's parameters", names)
    return cls(**{name: _decode_noise_parameter(name, given[name], arrays) for name in names})


def _decode_noise_parameter(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    if type(value) is not dict or "array" not in value:
        return from_plain(value, f"noise.{name}")
    reference = fields(value, f"noise.{name}", ("array", "as"))
    key = f"noise.{name}"
    if reference["array"] != key or key not in arrays:
        raise ModelFormatError(f"{key} names an array that is not there")
    array = arrays.pop(key)
    kept_as = choice(reference["as"], key, ("list", "tuple", "array"))
    return array if kept_as == "array" else array.tolist() if kept_as == "list" else tuple(array.tolist())


# Loss ---------------------------------------------------------------------------------------------------------------


def _encode_loss(loss: Any) -> Any:
    if not isinstance(loss, Loss):
        return to_plain(loss, "loss")
    name = type(loss).__name__
    if _LOSSES.get(name) is not type(loss):
        raise ValueError(
            f"loss={loss!r} cannot be stored: model files hold {', '.join(_LOSSES)}. Predictions do not need the "
            "loss: save the model after model.set_params(loss='hinge')."
        )
    given = {key: to_plain(getattr(loss, key), f"loss.{key}") for key in _LOSS_PARAMETERS.get(name, ())}
    return {"loss": name, "parameters": given}


def _decode_loss(facts: Any) -> Any:
    if type(facts) is not dict:
        return text(facts, "loss")
    facts = fields(facts, "loss", ("loss", "parameters"))
    name = choice(facts["loss"], "loss", _LOSSES)
    expected = _LOSS_PARAMETERS.get(name, ())
    given = fields(facts["parameters"], "the loss's parameters", expected)
    try:
        return _LOSSES[name](**{key: from_plain(given[key], f"loss.{key}") for key in expected})
    except ValueError as error:
        raise ModelFormatError(f"loss: {error}") from None


# Class weights ------------------------------------------------------------------------------------------------------


def _encode_class_weight(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return to_plain(value, "class_weight")
    pairs = [[to_plain(label, "class_weight"), to_plain(weight, "class_weight")] for label, weight in value.items()]
    return {"weights": pairs}


def _decode_class_weight(facts: Any) -> Any:
    if facts is None or type(facts) is str:
        return facts
    pairs = items(fields(facts, "class_weight", ("weights",))["weights"], "class_weight")
    weights: dict[Any, Any] = {}
    for pair in pairs:
        if len(items(pair, "class_weight")) != 2:
            raise ModelFormatError("class_weight must hold pairs of a label and a weight")
        label, weight = (from_plain(part, "class_weight") for part in pair)
        if type(label) not in (str, int, float, bool) or type(weight) not in NUMBER or label in weights:
            raise ModelFormatError(f"class_weight has a wrong pair of label {shown(label)} and weight {shown(weight)}")
        weights[label] = weight
    return weights
