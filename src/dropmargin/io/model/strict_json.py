"""JSON from strangers: limits on size, depth and number of containers are checked before Python's parser sees it."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from dropmargin.io.model.schema import ModelFormatError

#: Parsed JSON takes up to about 14 times its length, so its length has a limit. Wide arrays stand outside of it.
MAX_BYTES = 2**23
_MAX_DEPTH = 32
_MAX_CONTAINERS = 100_000
# A 64-bit integer has at most 20 characters.
_MAX_DIGITS = 20
# A string (also one that never ends, so that no character is looked at twice), or a bracket.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
# The escape of half of a surrogate pair; two of them may be a pair, which is a character.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; duplicate keys, NaN, Infinity and lone surrogates are errors."""
    if len(data) > MAX_BYTES:
        raise ModelFormatError(f"its JSON text has {len(data)} bytes, more than the {MAX_BYTES} allowed")
    _check_nesting(data)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_short_integer,
        )
        if _SURROGATE.search(data):
            dump(value).encode("utf-8")
        return value
    except UnicodeEncodeError as error:
        wrong = ascii(error.object[error.start])[1:-1]
        raise ModelFormatError(f"its JSON text has half of a surrogate pair, {wrong}, which is no character") from None
    except ModelFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"its text is not valid JSON ({error})") from None


def dump(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text; floats are written so that they are read back bit for bit."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def _check_nesting(data: bytes) -> None:
    depth = n_containers = 0
    for match in _TOKEN.finditer(data):
        first = data[match.start()]
        if first in b"[{":
            depth += 1
            n_containers += 1
            if depth > _MAX_DEPTH or n_containers > _MAX_CONTAINERS:
                raise ModelFormatError(
                    f"its JSON text has more than {_MAX_DEPTH} levels or {_MAX_CONTAINERS} arrays and objects"
                )
        elif first in b"]}":
            depth -= 1


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFormatError("its JSON text has an object with the same key twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ModelFormatError(f"its JSON text has {name}, which is not JSON")


def _short_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ModelFormatError(f"its JSON text has an integer of {len(digits)} digits")
    return int(digits)
