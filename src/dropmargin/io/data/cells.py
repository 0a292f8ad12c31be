"""Single values of tables: text as a number, and a number as a category."""

from __future__ import annotations

import math
import re

#: A decimal number such as ``-1.5e3``, also for the regular expressions of Arrow.
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(NUMBER)


def parse_number(text: str) -> float | None:
    """Return the finite decimal number in ``text``, or None; ``1_000``, ``0x10``, ``inf`` and ``nan`` are not numbers.

    Spaces are not removed.
    """
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def number_as_category(value: float) -> str:
    """Return a number as text, the way a CSV file has it: ``1``, not ``1.0``."""
    return str(int(value)) if value == math.floor(value) else repr(value)
