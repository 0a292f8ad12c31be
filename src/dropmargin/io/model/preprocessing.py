"""What stands before the classifier in a file: one of a few encoders, as the plain state that it gives of itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dropmargin.io.model.schema import ModelFormatError, choice, fields, from_plain, items, shown, text, to_plain
from dropmargin.typing import Array

#: Kind -> module of its class, which is imported only if a file or a pipeline has one. Each class has
#: ``get_state() -> (facts, arrays)``, ``from_state(facts, arrays)``, which checks everything, and
#: ``get_feature_names_out()``.
KINDS: dict[str, str] = {
    "TableEncoder": "dropmargin.io.data.table_encoder",
    "TextEncoder": "dropmargin.io.data.text_encoder",
}
_PREFIX = "preprocessing."
_STRINGS = "preprocessing.strings."
# Lists of strings from this length on stand outside of the text.
_LONG = 1000


def is_encoder(step: Any) -> bool:
    """Return whether a pipeline's step is one that a file can hold."""
    name = type(step).__name__
    return name in KINDS and type(step).__module__ == KINDS[name]


def encode_preprocessing(step: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return an encoder as facts and arrays; a long list of strings, such as a vocabulary, becomes an array."""
    facts, arrays = step.get_state()
    named = {f"{_PREFIX}{name}": np.asarray(array) for name, array in arrays.items()}
    kind = type(step).__name__
    return {"kind": kind, "facts": _move_strings(to_plain(facts, kind), named), "arrays": list(arrays)}, named


def _move_strings(value: Any, arrays: dict[str, Array]) -> Any:
    """Return plain facts with ``{"strings": name}`` for each long list of strings, which goes to ``arrays``."""
    if isinstance(value, dict):
        return {key: _move_strings(item, arrays) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) < _LONG or not all(isinstance(item, str) for item in value):
        return [_move_strings(item, arrays) for item in value]
    name = f"{_STRINGS}{len(arrays)}"
    arrays[name] = np.empty(len(value), dtype=object)
    arrays[name][:] = value
    return {"strings": name}


def _restore_strings(value: Any, arrays: dict[str, Array]) -> Any:
    """Return facts as they were before `_move_strings`; the arrays that are used leave ``arrays``."""
    if isinstance(value, list):
        return [_restore_strings(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {"strings"}:
        return {key: _restore_strings(item, arrays) for key, item in value.items()}
    name = text(value["strings"], "strings")
    if not name.startswith(_STRINGS) or name not in arrays or arrays[name].dtype != object:
        raise ModelFormatError(f"the facts name an array of strings that is not there, {shown(name)}")
    return arrays.pop(name).tolist()


def decode_preprocessing(facts: Any, arrays: dict[str, Array]) -> Any:
    """Return the encoder of facts and arrays, all checked; arrays that are used leave ``arrays``."""
    facts = fields(facts, "preprocessing", ("kind", "facts", "arrays"))
    kind = choice(facts["kind"], "kind of preprocessing", KINDS)
    own = {}
    for name in items(facts["arrays"], "arrays of preprocessing"):
        key = _PREFIX + text(name, "an array of preprocessing")
        if key not in arrays:
            raise ModelFormatError(f"it lacks the array {key!r}")
        own[name] = arrays.pop(key)
    state = _restore_strings(from_plain(facts["facts"], kind), arrays)
    if type(state) is not dict:
        raise ModelFormatError(f"the facts of {kind} must be an object")
    encoder = getattr(import_module(KINDS[kind]), kind)
    try:
        return encoder.from_state(state, own)
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFormatError(f"{kind}: {error}") from None
