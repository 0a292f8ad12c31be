"""The output of a command: results on standard output, notes, warnings and errors on standard error; and its words."""

from __future__ import annotations

import difflib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from click import UsageError

__all__ = ["Console", "UsageError", "closest", "label_texts", "noise_text", "plural", "printable", "table_text"]

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
        if not self.quiet:
            self._print_line(text)

    def warn(self, text: str) -> None:
        self._print_line(f"warning: {text}")

    def error(self, text: str) -> None:
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


def noise_text(noise: Any) -> str:
    """Return a noise as the option ``--noise`` takes it; of a parameter per feature, the number of features."""
    from dropmargin.noise import as_noise

    noise = as_noise(noise)  # a model may store a number
    if noise is None or noise.variance().is_zero:
        return "none"
    kind = type(noise).__name__.removesuffix("Noise").lower()
    if noise.level_name is None:
        return kind
    level = noise.level
    return f"{kind} of {len(level)} features" if hasattr(level, "__len__") else f"{kind}={float(level):g}"


def label_texts(classes: Any) -> list[str]:
    """Return labels as text; numbers have all their digits."""
    return [label if isinstance(label, str) else repr(label) for label in classes.tolist()]


def plural(n: int, noun: str) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns of equal width; the first is left-aligned, the others right."""
    cells = [header, *rows]
    first, *widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    lines = []
    for name, *others in cells:
        padded = [cell.rjust(width) for cell, width in zip(others, widths, strict=True)]
        lines.append("  ".join([name.ljust(first), *padded]).rstrip())
    return "\n".join(lines)
