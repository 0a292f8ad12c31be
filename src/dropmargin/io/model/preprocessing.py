"""The encoder before the classifier in a model file, stored as the state that it returns."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dropmargin.io.model.checks import ModelFormatError, check_choice, check_fields
from dropmargin.io.model.packing import pack, unpack
from dropmargin.typing import Array

#: The encoders that a file can name, with their modules, which are imported only if they are needed. Each class has
#: ``get_state()``, a dict, ``from_state(state)``, which checks everything, and ``get_feature_names_out()``.
KINDS: dict[str, str] = {
    "TableEncoder": "dropmargin.io.data.table_encoder",
    "TextEncoder": "dropmargin.io.data.text_encoder",
    "FrameEncoder": "dropmargin.io.data.frame_encoder",
}
_NAME = "preprocessing"


def encoder_kind(step: Any) -> str | None:
    """Return the name of an encoder that a file can hold, None for any other step of a pipeline."""
    name = type(step).__name__
    return name if KINDS.get(name) == type(step).__module__ else None


def encode_preprocessing(step: Any, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return an encoder as JSON values, and add its arrays to ``arrays``."""
    return {"kind": type(step).__name__, "state": pack(step.get_state(), _NAME, arrays)}


def decode_preprocessing(entries: Any, arrays: dict[str, Array]) -> Any:
    """Return the encoder of JSON values and arrays, all checked; removes its arrays from ``arrays``."""
    entries = check_fields(entries, _NAME, ("kind", "state"))
    kind = check_choice(entries["kind"], "kind of preprocessing", KINDS)
    state = unpack(entries["state"], _NAME, arrays)
    try:
        return getattr(import_module(KINDS[kind]), kind).from_state(state)
    except (ValueError, TypeError, LookupError) as error:
        raise ModelFormatError(f"{kind}: {str(error).removesuffix('.')}") from None
