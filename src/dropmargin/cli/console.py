"""The output of a command: results on standard output, notes, warnings and errors on standard error."""

from __future__ import annotations

import difflib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from click import UsageError

__all__ = ["Console", "UsageError", "closest", "printable"]

_MAX_LINE = 2000


class Console:
    """Prints results, as one JSON object or as text, notes (unless ``quiet``), warnings and errors."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def result(self, facts: Mapping[str, Any], text: str) -> None:
        """Print the result: ``facts`` as a JSON object with ``--json``, else ``text``."""
        print(json.dumps(_to_json(facts), allow_nan=False) if self.as_json else printable(text))

    def note(self, text: str) -> None:
        """Print a note, unless ``quiet``."""
        if not self.quiet:
            self._print_line(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._print_line(f"warning: {text}")

    def error(self, text: str) -> None:
        """Print an error."""
        self._print_line(f"error: {text}")

    def _print_line(self, text: str) -> None:
        line = printable(" ".join(text.split()))
        line = line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."
        print(f"dropmargin: {line}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return the text with control characters other than line ends escaped, as they could change the terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` with the most similar known name, or an empty string if none is similar."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _to_json(value: Any) -> Any:
    """Return a value of the types of JSON: NaN and infinity become None, arrays become lists."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
