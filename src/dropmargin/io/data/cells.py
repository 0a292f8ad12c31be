"""Values of tables: text as a number or a date, a number as a category, and the numbers that a date becomes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

import numpy as np

from dropmargin.io.data.errors import quoted
from dropmargin.typing import Array

#: A decimal number such as ``-1.5e3``, also for the regular expressions of Arrow.
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(NUMBER)
_COMMA_NUMBER = re.compile(r"[^0-9a-zA-Z,]{0,3}[0-9]+,[0-9]+(?![0-9])[^0-9a-zA-Z,]{0,3}")
_SPACES = " \u00a0\u202f"
_CURRENCIES = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF")
_CURRENCY = "|".join(map(re.escape, _CURRENCIES))
PER_CENT = "%"
#: The units of numbers; empty for plain numbers.
UNITS = ("", PER_CENT, *_CURRENCIES)
_MINUS = "\u2212"


@cache
def _formatted(decimal: str) -> re.Pattern[str]:
    """Return the pattern of numbers as people write them: ``$1,200.50``, ``12%``, ``1 234``."""
    thousands = rf"['\u2019{_SPACES}{'.' if decimal == ',' else ','}]"
    mark = re.escape(decimal)
    whole = rf"[0-9]+|[1-9][0-9]{{0,2}}(?P<mark>{thousands})[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    sign = rf"[+\-{_MINUS}]"
    return re.compile(
        rf"(?P<sign>{sign}?)(?:(?P<before>{_CURRENCY})[{_SPACES}]?)?(?P<inner>{sign}?)"
        rf"(?:(?P<whole>{whole})(?:{mark}(?P<fraction>[0-9]*))?|{mark}(?P<only>[0-9]+))"
        rf"(?P<exponent>[eE][+-]?[0-9]+)?(?:[{_SPACES}]?(?P<after>%|{_CURRENCY}))?"
    )


class Quantity(NamedTuple):
    """A number as it is written, and its unit, one of `UNITS`."""

    number: float
    unit: str

    @property
    def value(self) -> float:
        """The number that features and targets have: 0.12 for ``12%``."""
        return self.number / 100.0 if self.unit == PER_CENT else self.number

    @property
    def text(self) -> str:
        """The quantity with a decimal point and without separators of thousands, such as ``1200.5$``."""
        return f"{self.number!r}{self.unit}"


def parse_quantity(text: str, decimal: str = ".") -> Quantity | None:
    """Return the finite number in ``text``, or None; ``1_000``, ``0x10``, ``inf`` and ``nan`` are not numbers.

    Thousands separators (comma, space, apostrophe; a point if ``decimal`` is a comma) are understood, and one unit.
    Spaces around the text are not removed.
    """
    if decimal == "." and _NUMBER.fullmatch(text):
        value = float(text)
        return Quantity(value, "") if math.isfinite(value) else None
    found = _formatted(decimal).fullmatch(text)
    if found is None or (found["sign"] and found["inner"]) or (found["before"] and found["after"]):
        return None
    whole = re.sub("[^0-9]", "", found["whole"] or "")
    value = float(f"{whole or 0}.{found['fraction'] or found['only'] or 0}{found['exponent'] or ''}")
    negative = (found["sign"] or found["inner"]) in ("-", _MINUS)
    unit = found["before"] or found["after"] or ""
    return Quantity(-value if negative else value, unit) if math.isfinite(value) else None


def common_unit(units: Iterable[str]) -> str | None:
    """Return the unit of a column whose numbers have these units, None if they are not on one scale.

    Numbers without a unit are amounts in the one currency of the column; beside per cent they are on another scale.
    """
    found = set(units) or {""}
    others = found - {""}
    if len(others) > 1 or found == {"", PER_CENT}:
        return None
    return others.pop() if others else ""


def two_units(texts: Sequence[str], decimal: str = ".") -> str:
    """Return two numbers that are not in one unit, for a message, from text that `common_unit` refuses."""
    units = {quantity.unit: text for text in reversed(texts) if (quantity := parse_quantity(text, decimal))}
    first, second = sorted(units, reverse=True)[:2]  # plain numbers are last
    return f"{quoted(units[first])} and {quoted(units[second])}"


def is_in_unit(unit: str, of_column: str) -> bool:
    """Return whether a number with a unit is on the scale of a column with this unit."""
    return common_unit((unit, of_column)) == of_column


def is_plain_number(text: str) -> bool:
    """Return whether text is a number as programs write it, such as ``-1.5e3``."""
    return _NUMBER.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Return whether text looks like a number with a decimal comma, such as ``1,5``."""
    return _COMMA_NUMBER.fullmatch(text) is not None


def number_as_category(value: float) -> str:
    """Return a number as text, the way a CSV file has it: ``1``, not ``1.0``."""
    return str(int(value)) if value.is_integer() else repr(value)


# Dates --------------------------------------------------------------------------------------------------------------

#: The numbers that a date becomes: decimal year, month from 1, weekday from 0 (Monday), hour with its fraction.
PARTS = ("year", "month", "weekday", "hour")
#: The order of day and month in dates such as 03/04/2024; empty for forms that need none.
ORDERS = ("", "day", "month")
_EPOCH = datetime(1970, 1, 1)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_TIME = (
    r"(?:(?:T| {1,2})(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)? ?(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_YEAR, _DAY = "(?P<year>[0-9]{4})", "(?P<day>[0-9]{1,2})"
_NAME = "(?P<name>[A-Za-z]{3,9})"
_FORMS = [
    re.compile(form + _TIME)
    for form in (
        rf"{_YEAR}(?P<mark>[-/.])(?P<month>[0-9]{{1,2}})(?P=mark){_DAY}",
        rf"{_DAY}\.(?P<month>[0-9]{{1,2}})\.{_YEAR}",
        rf"{_DAY}[ -]{_NAME}\.?,?[ -]{_YEAR}",
        rf"{_NAME}\.? {_DAY},? {_YEAR}",
    )
]
# Either the day or the month is first; years of two digits do not even tell which of three parts they are.
_EITHER = re.compile(r"(?P<first>[0-9]{1,2})(?P<mark>[-/])(?P<other>[0-9]{1,2})(?P=mark)" + _YEAR + _TIME)
_SHORT = re.compile(r"[0-9]{1,2}([-/.])[0-9]{1,2}\1[0-9]{2}(?: .*)?")
_N_TRIED = 200


def find_order(names: Sequence[str]) -> str | None:
    """Return the order of day and month in a column of dates, one of `ORDERS`, or None if it does not hold dates.

    Most of the different values ``names`` must be dates. A value that is none, and an order that cannot be known, raise
    a `ValueError` that says what is wrong with the column, without the column's name.
    """
    tried = names[:: max(1, len(names) // _N_TRIED)]
    forms = (*_FORMS, _EITHER, _SHORT)
    if 2 * sum(any(form.fullmatch(name) for form in forms) for name in tried) <= len(tried):
        return None
    short = next((name for name in names if _SHORT.fullmatch(name)), None)
    if short is not None:
        raise ValueError(f"has dates such as {quoted(short)}, whose year has two digits")
    order = _day_or_month(names)
    other = next((name for name in names if parse_date(name, order) is None), None)
    if other is not None:
        raise ValueError(f"has dates, but {quoted(other)} is not a date")
    return order


def _day_or_month(names: Sequence[str]) -> str:
    found = [match for match in map(_EITHER.fullmatch, names) if match is not None]
    if not found:
        return ""
    day_first, month_first = (any(int(match[part]) > 12 for match in found) for part in ("first", "other"))
    if day_first == month_first:
        raise ValueError(f"has dates such as {quoted(found[0][0])}, in which day and month cannot be told apart")
    return "day" if day_first else "month"


def parse_date(text: str, order: str) -> int | None:
    """Return a date as seconds since 1970 on its own clock (time zones are ignored), or None if it is not a date."""
    found = next((match for match in (form.fullmatch(text) for form in _FORMS) if match is not None), None)
    if found is not None:
        day = int(found["day"])
        name = found.groupdict().get("name")
        short = (name or "")[:3].lower()
        month = int(found["month"]) if name is None else _MONTHS.index(short) + 1 if short in _MONTHS else 0
    else:
        found = _EITHER.fullmatch(text) if order else None
        if found is None:
            return None
        first, other = int(found["first"]), int(found["other"])
        day, month = (first, other) if order == "day" else (other, first)
    hour = int(found["hour"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"] in "Pp" else 0)
    try:
        when = datetime(int(found["year"]), month, day, hour, int(found["minute"] or 0), int(found["second"] or 0))
    except ValueError:
        return None
    return round((when - _EPOCH).total_seconds())


def date_parts(when: Array, parts: Sequence[str]) -> Array:
    """Return the parts of dates (datetime64), a column each; missing dates (NaT) are NaN."""
    seconds = when.astype("datetime64[s]")
    years, months, days = (seconds.astype(f"datetime64[{unit}]") for unit in "YMD")
    start, end = years.astype("datetime64[s]"), (years + 1).astype("datetime64[s]")
    numbers = {
        "year": lambda: years.astype(np.int64) + 1970 + (seconds - start) / (end - start),
        "month": lambda: (months - years.astype("datetime64[M]")).astype(np.int64) + 1.0,
        "weekday": lambda: (days.astype(np.int64) + 3) % 7 + 0.0,
        "hour": lambda: (seconds - days.astype("datetime64[s]")).astype(np.int64) / 3600.0,
    }
    matrix = np.column_stack([numbers[part]() for part in parts])
    matrix[np.isnat(when)] = np.nan
    return matrix
