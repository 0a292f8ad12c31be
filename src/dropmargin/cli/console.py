"""What a command says, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from dropmargin.cli.streams import writing_output

_LONGEST_LINE = 2000


class UsageError(Exception):
    """A command was given what it cannot take; the run ends with exit code 2."""


class Console:
    """The two streams of a run.

    Parameters
    ----------
    as_json : bool, default=False
        Whether the result is one JSON object instead of text.
    quiet : bool, default=False
        Whether notes are left out; warnings and errors are not.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def result(self, facts: Mapping[str, Any], text: str) -> None:
        """Print the result of a run: ``text`` for people, or ``facts`` for programs."""
        print_output(json.dumps(_plain(facts), allow_nan=False) if self.as_json else printable(text))

    def note(self, text: str) -> None:
        """Say something that is good to know."""
        if not self.quiet:
            self._say(text)

    def warn(self, text: str) -> None:
        """Say something that should be looked at."""
        self._say(f"warning: {text}")

    def error(self, text: str) -> None:
        """Say why a run failed."""
        self._say(f"error: {text}")

    def _say(self, text: str) -> None:
        line = printable(" ".join(text.split()))
        line = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
        print(f"dropmargin: {line}", file=sys.stderr, flush=True)


def print_output(text: str) -> None:
    """Print to standard output; an error of writing names it."""
    with writing_output():
        print(text)


def printable(text: str) -> str:
    """Return a text without control characters, which files may have in names to fool a terminal; lines stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers that are not finite are null, NumPy's numbers and arrays are Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
