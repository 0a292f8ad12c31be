"""Single values of tables: text as a number, and a number as a category."""

from __future__ import annotations

import math
import re
from functools import cache

#: A decimal number such as ``-1.5e3``, also for the regular expressions of Arrow.
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(NUMBER)
_COMMA_NUMBER = re.compile(r"[^0-9a-zA-Z,]{0,3}[0-9]+,[0-9]+(?![0-9])[^0-9a-zA-Z,]{0,3}")
_SPACES = " \u00a0\u202f"
_CURRENCY = rf"(?:(?:[$€£¥₹]|USD|EUR|GBP|CHF)[{_SPACES}]?)"
_CURRENCY_AFTER = rf"(?:[{_SPACES}]?(?:[$€£¥₹]|USD|EUR|GBP|CHF))"
_MINUS = "\u2212"


@cache
def _formatted(decimal: str) -> re.Pattern[str]:
    """Return the pattern of numbers as people write them: ``$1,200.50``, ``12%``, ``1 234``."""
    thousands = rf"['\u2019{_SPACES}{'.' if decimal == ',' else ','}]"
    mark = re.escape(decimal)
    whole = rf"[0-9]+|[1-9][0-9]{{0,2}}(?P<mark>{thousands})[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    sign = rf"[+\-{_MINUS}]"
    return re.compile(
        rf"(?P<sign>{sign}?){_CURRENCY}?(?P<inner>{sign}?)"
        rf"(?:(?P<whole>{whole})(?:{mark}(?P<fraction>[0-9]*))?|{mark}(?P<only>[0-9]+))"
        rf"(?P<exponent>[eE][+-]?[0-9]+)?(?P<percent>[{_SPACES}]?%)?{_CURRENCY_AFTER}?"
    )


def parse_number(text: str, decimal: str = ".") -> float | None:
    """Return the finite number in ``text``, or None; ``1_000``, ``0x10``, ``inf`` and ``nan`` are not numbers.

    Currency signs, thousands separators (comma, space, apostrophe; a point if ``decimal`` is a comma) and per cent are
    understood: ``12%`` is 0.12. Spaces around the text are not removed.
    """
    if decimal == "." and _NUMBER.fullmatch(text):
        value = float(text)
        return value if math.isfinite(value) else None
    found = _formatted(decimal).fullmatch(text)
    if found is None or (found["sign"] and found["inner"]):
        return None
    whole = re.sub("[^0-9]", "", found["whole"] or "")
    digits = f"{whole or 0}.{found['fraction'] or found['only'] or 0}{found['exponent'] or ''}"
    value = float(digits) / (100.0 if found["percent"] else 1.0)
    negative = (found["sign"] or found["inner"]) in ("-", _MINUS)
    return (-value if negative else value) if math.isfinite(value) else None


def is_plain_number(text: str) -> bool:
    """Return whether text is a number as programs write it, such as ``-1.5e3``."""
    return _NUMBER.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Return whether text looks like a number with a decimal comma, such as ``1,5``."""
    return _COMMA_NUMBER.fullmatch(text) is not None


def number_as_category(value: float) -> str:
    """Return a number as text, the way a CSV file has it: ``1``, not ``1.0``."""
    return str(int(value)) if value == math.floor(value) else repr(value)
