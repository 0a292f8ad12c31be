"""What stands before the classifier in a file: one of a few encoders, as the plain state that it gives of itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dropmargin.io.model.schema import ModelFormatError, choice, fields, from_plain, items, text, to_plain
from dropmargin.typing import Array

#: Kind -> module of its class, which is imported only if a file or a pipeline has one. Each class has
#: ``get_state() -> (facts, arrays)`` and ``from_state(facts, arrays)``, which checks everything.
KINDS: dict[str, str] = {
    "TableEncoder": "dropmargin.io.data.table_encoder",
    "TextEncoder": "dropmargin.io.data.text_encoder",
}
_PREFIX = "preprocessing."


def is_encoder(step: Any) -> bool:
    """Return whether a pipeline's step is one that a file can hold."""
    name = type(step).__name__
    return name in KINDS and type(step).__module__ == KINDS[name]


def encode_preprocessing(step: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return an encoder as facts and arrays."""
    facts, arrays = step.get_state()
    named = {f"{_PREFIX}{name}": np.asarray(array) for name, array in arrays.items()}
    kind = type(step).__name__
    return {"kind": kind, "facts": to_plain(facts, kind), "arrays": list(arrays)}, named


def decode_preprocessing(facts: Any, arrays: dict[str, Array]) -> Any:
    """Return the encoder of checked facts and arrays; the arrays that are used are taken out of ``arrays``."""
    facts = fields(facts, "preprocessing", ("kind", "facts", "arrays"))
    kind = choice(facts["kind"], "kind of preprocessing", KINDS)
    own = {}
    for name in items(facts["arrays"], "arrays of preprocessing"):
        key = _PREFIX + text(name, "an array of preprocessing")
        if key not in arrays:
            raise ModelFormatError(f"it lacks the array {key!r}")
        own[name] = arrays.pop(key)
    state = from_plain(facts["facts"], kind)
    if type(state) is not dict:
        raise ModelFormatError(f"the facts of {kind} must be an object")
    encoder = getattr(import_module(KINDS[kind]), kind)
    try:
        return encoder.from_state(state, own)
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFormatError(f"{kind}: {error}") from None
