"""The encoder before the classifier in a model file, stored as the state that it returns."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dropmargin.io.model.checks import ModelFormatError, check_choice, check_fields, check_type, to_plain
from dropmargin.typing import Array

#: The encoders that a file can name, with their modules, which are imported only if they are needed. Each class has
#: ``get_state() -> (facts, arrays)``, ``from_state(facts, arrays)``, which checks everything, and
#: ``get_feature_names_out()``.
KINDS: dict[str, str] = {
    "TableEncoder": "dropmargin.io.data.table_encoder",
    "TextEncoder": "dropmargin.io.data.text_encoder",
    "FrameEncoder": "dropmargin.io.data.frame_encoder",
}
_PREFIX = "preprocessing."


def encoder_kind(step: Any) -> str | None:
    """Return the name of an encoder that a file can hold, None for any other step of a pipeline."""
    name = type(step).__name__
    return name if KINDS.get(name) == type(step).__module__ else None


def encode_preprocessing(step: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return an encoder as JSON values and arrays; lists of strings, such as a vocabulary, become arrays."""
    facts, arrays = step.get_state()
    kind = type(step).__name__
    lists = [name for name, value in facts.items() if type(value) is list and all(type(item) is str for item in value)]
    stored = {name: np.asarray(array) for name, array in arrays.items()}
    stored |= {name: np.array(facts[name], dtype=object) for name in lists}
    if len(stored) < len(arrays) + len(lists):
        raise ValueError(f"The state of {kind} has an array and a list of the same name.")
    plain = {name: to_plain(value, f"{kind}.{name}") for name, value in facts.items() if name not in lists}
    entries = {"kind": kind, "facts": plain, "lists": lists, "arrays": list(arrays)}
    return entries, {_PREFIX + name: array for name, array in stored.items()}


def decode_preprocessing(entries: Any, arrays: dict[str, Array]) -> Any:
    """Return the encoder of JSON values and arrays, all checked; removes its arrays from ``arrays``."""
    entries = check_fields(entries, "preprocessing", ("kind", "facts", "lists", "arrays"))
    kind = check_choice(entries["kind"], "kind of preprocessing", KINDS)
    facts = check_type(entries["facts"], f"facts of {kind}", dict)
    found: dict[str, dict[str, Array]] = {}
    for group in ("lists", "arrays"):
        found[group] = {}
        for name in check_type(entries[group], f"{group} of preprocessing", list):
            key = _PREFIX + check_type(name, "the name of an array", str)
            if key not in arrays:
                raise ModelFormatError(f"it lacks the array {key!r}")
            found[group][name] = arrays.pop(key)
            if group == "lists" and found[group][name].dtype != object:
                raise ModelFormatError(f"{name!r} of {kind} must be a list of strings")
    lists = {name: array.tolist() for name, array in found["lists"].items()}
    encoder = getattr(import_module(KINDS[kind]), kind)
    try:
        return encoder.from_state({**facts, **lists}, found["arrays"])
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFormatError(f"{kind}: {str(error).removesuffix('.')}") from None
