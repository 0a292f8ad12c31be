"""The cells of a column as one array, and the rule of a column: what kind of values its text stands for.

A column is read as a whole. `decide` looks at all different values of the training data once and returns a
`ColumnRule`; `apply_rule` reads every later column of that name by the same rule, or raises an error that names the
cell. No cell is interpreted by itself.
"""

from __future__ import annotations

import itertools
import re
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from dropmargin.errors import ParameterError
from dropmargin.typing import Array

#: Text that is a missing value, in a column of any kind.
MISSING_VALUES = frozenset({"", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "?"})
_PER_CENT = "%"
_CURRENCIES = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF")
_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d %B %Y"),
    *("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d-%b-%Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
#: What the training data of a column hold, see `ColumnRule`.
SOURCES = ("number", "date", "text", "digits")
#: The forms of dates: those of `datetime.fromisoformat`, and formats of `datetime.strptime`.
DATE_FORMS = ("iso", *(day + time for day, time in itertools.product(_DAYS, _TIMES)))


class Texts(NamedTuple):
    """A column of text: ``names[code]`` for each of ``codes``, missing if the code is -1.

    ``is_category`` says whether the column is of a type of categories, which may be numbers.
    """

    codes: Array
    names: list[str]
    is_category: bool = False

    def present(self) -> list[str]:
        """Return the different texts that occur, sorted."""
        used = np.unique(self.codes)
        return sorted({self.names[code] for code in used[used >= 0].tolist()})

    def strings(self, missing: str = "") -> Array:
        """Return the texts as an array of objects."""
        return np.array([*self.names, missing], dtype=object)[self.codes]

    def take(self, rows: Array) -> Texts:
        """Return some of the rows."""
        return self._replace(codes=self.codes[rows])


#: The cells of a column: float64 (NaN is missing), datetime64[s] (NaT is missing), or texts.
Cells = Array | Texts


class ColumnRule(NamedTuple):
    """How the cells of a column are read.

    ``source`` is what the training data held: ``"number"``, ``"date"`` or ``"text"``; or ``"digits"`` for categories
    that are numbers, which may come as numbers or as text. ``form`` is that of dates in text, one of `DATE_FORMS`, or
    the decimal mark of numbers in text; ``unit`` is ``"%"`` or a currency.
    """

    kind: str
    source: str
    form: str = ""
    unit: str = ""


def read_cells(name: str, values: Any) -> Cells:
    """Return the values of a column of any data frame as cells."""
    dtype = getattr(values, "dtype", None)
    is_category = getattr(dtype, "name", "") == "category"
    if getattr(dtype, "tz", None) is not None:  # pandas: the local time
        values = values.dt.tz_localize(None)
    if isinstance(values, np.ma.MaskedArray):
        values = values.astype(object).filled(None)  # type: ignore[attr-defined]
    array = np.asarray(values) if hasattr(values, "__array__") else np.fromiter(values, dtype=object)
    if array.ndim != 1 or array.dtype.kind not in "fiubMOUST":
        raise ValueError(f"Column {name!r} is of type {array.dtype}; convert it to numbers, strings or dates.")
    if array.dtype.kind in "fiub" and not is_category:
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "M":
        return array.astype("datetime64[s]", copy=False)
    cells = [None if _is_missing(cell) else cell for cell in array.tolist()]
    present = [] if is_category else [cell for cell in cells if cell is not None]
    if present and all(isinstance(cell, Real | Decimal) for cell in present):
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    if present and all(isinstance(cell, date) for cell in present):  # also a datetime; without the time zone
        return np.array(["NaT" if cell is None else cell.isoformat()[:19] for cell in cells], dtype="datetime64[s]")
    known: dict[str, int] = {}
    codes = [-1 if cell is None else known.setdefault(_as_text(name, cell), len(known)) for cell in cells]
    return Texts(np.array(codes, dtype=np.int64), list(known), is_category)


def missing(cells: Cells) -> Array:
    """Return whether each cell is missing."""
    return cells.codes < 0 if isinstance(cells, Texts) else cells != cells


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip() in MISSING_VALUES
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def _as_text(name: str, cell: Any) -> str:
    if isinstance(cell, bool | np.bool_ | str):
        return str(cell)
    if isinstance(cell, Real):
        return str(int(cell)) if float(cell).is_integer() else repr(float(cell))  # type: ignore[call-overload]
    raise ValueError(f"Column {name!r} has {cell!r} of type {type(cell).__name__}; use numbers, strings or dates.")


def _source(cells: Cells) -> str:
    return "text" if isinstance(cells, Texts) else "date" if cells.dtype.kind == "M" else "number"


def decide(name: str, cells: Cells, kind: str | None = None) -> ColumnRule:
    """Return the rule of a column from all of its training cells.

    Text is a number if all of it is (``$1,200.50``, ``12%``, ``1.200,50``), unless integers have leading zeros; a date
    if all of it has one form; else a category. ``kind`` overrides that for ``"category"`` and ``"text"``.
    """
    source = _source(cells)
    kind = "category" if kind is None and isinstance(cells, Texts) and cells.is_category else kind
    if kind == "category" and source != "date" and all(map(_is_written, _names(cells))):
        return ColumnRule(kind, "digits")
    if kind is not None or not isinstance(cells, Texts):
        return ColumnRule(kind or source, source)
    present = [text.strip() for text in cells.present()]
    if not present or any(re.fullmatch("0[0-9]+", text) for text in present):
        return ColumnRule("category", source)
    for decimal in ".,":
        units = {quantity and quantity[1] for quantity in (_quantity(text, decimal) for text in present)}
        if None not in units:
            if len(units - {""}) > 1 or units == {"", _PER_CENT}:
                raise _refused(name, "has numbers in several units, such as " + " and ".join(sorted(map(repr, units))))
            return ColumnRule("number", source, decimal, "".join(unit for unit in units if unit))
    forms = [form for form in DATE_FORMS if all(_date(text, form) is not None for text in present)]
    if len({form[:2] for form in forms if form[:5] in ("%d/%m", "%m/%d", "%d-%m", "%m-%d")}) > 1:
        raise _refused(name, f"has dates such as {present[0]!r}, in which day and month cannot be told apart")
    return ColumnRule("date", source, forms[0]) if forms else ColumnRule("category", source)


def apply_rule(rule: ColumnRule, name: str, cells: Cells) -> Cells:
    """Return the cells of a column by its rule: numbers, dates, or texts; an error if they are of another kind."""
    source, is_text = _source(cells), rule.kind in ("category", "text")
    if missing(cells).all():
        return no_cells(rule, n_rows(cells))
    allowed = ((rule.source,) if rule.source != "digits" else ("number", "text")) if is_text else (rule.kind, "text")
    if source not in allowed:
        held = dict(zip(SOURCES, ("numbers", "dates", "text", "numbers"), strict=True))
        raise ValueError(
            f"Column {name!r} has {held[source]}, but it held {held[rule.source]} in the training data: convert it."
        )
    if source == "number" and rule.kind == "number":
        if rule.unit == _PER_CENT:
            raise ValueError(f"Column {name!r} has plain numbers, but it held numbers in % in the training data.")
        if np.isinf(np.asarray(cells)).any():
            raise ValueError(f"Column {name!r} has infinity: replace it, for example by missing values.")
    if isinstance(cells, Texts):
        return cells if is_text else _parsed(rule, name, cells)
    if not is_text:
        return cells
    codes = np.unique(cells, return_inverse=True)[1]
    return Texts(np.where(missing(cells), -1, codes), _names(cells))


def _names(cells: Cells) -> list[str]:
    """Return the different cells as text."""
    if isinstance(cells, Texts):
        return cells.present()
    present = np.unique(cells[cells == cells]).tolist()  # without NaN and NaT
    return [_as_text("", value) if isinstance(value, float) else str(value) for value in present]


def _is_written(text: str) -> bool:
    """Return whether a text is a number as `_as_text` writes it."""
    found = re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text) and _quantity(text, ".")
    return bool(found) and _as_text("", found[0]) == text  # type: ignore[index]


def no_cells(rule: ColumnRule, n: int) -> Cells:
    """Return missing cells of a column."""
    if rule.kind in ("category", "text"):
        return Texts(np.full(n, -1), [])
    return np.full(n, np.nan if rule.kind == "number" else "NaT", _dtype(rule))


def n_rows(cells: Cells) -> int:
    """Return the number of cells."""
    return len(cells.codes) if isinstance(cells, Texts) else len(cells)


def take(table: dict[str, Cells], rows: Array) -> dict[str, Cells]:
    """Return some of the rows of a table."""
    return {name: own.take(rows) if isinstance(own, Texts) else own[rows] for name, own in table.items()}


def _dtype(rule: ColumnRule) -> str:
    return "f8" if rule.kind == "number" else "M8[s]"


def _parsed(rule: ColumnRule, name: str, cells: Texts) -> Array:
    """Return the numbers or dates in a column of text; each different text is parsed once."""
    values = np.full(len(cells.names) + 1, np.nan if rule.kind == "number" else "NaT", _dtype(rule))
    for code in np.unique(cells.codes[cells.codes >= 0]).tolist():
        text = cells.names[code].strip()
        value = _date(text, rule.form or "iso") if rule.kind == "date" else _number(text, rule)
        if value is None:
            what = f"a {rule.kind}{f' in {rule.unit}' * bool(rule.unit)}{f' such as {rule.form}' * bool(rule.form)}"
            row = int(np.argmax(cells.codes == code))
            raise ValueError(
                f"Column {name!r} has {text!r} in row {row}, but it held {rule.kind}s: this is not {what}."
            )
        values[code] = value
    return values[cells.codes]


def _refused(name: str, problem: str) -> ParameterError:
    advice = "correct it, or leave it out"
    return ParameterError(f"Column {name!r} {problem}: {advice}.", None, f"column {name!r} {problem} ({advice})")


@cache
def _pattern(decimal: str) -> re.Pattern[str]:
    """Return the pattern of numbers as people write them: ``$1,200.50``, ``12%``, ``1 234``, ``-1.5e3``."""
    spaces, sign, currency = " \u00a0\u202f", "[+\\-\u2212]", "|".join(map(re.escape, _CURRENCIES))
    thousands, mark = rf"['\u2019{spaces}{'.' if decimal == ',' else ','}]", re.escape(decimal)
    return re.compile(
        rf"(?P<sign>{sign}?)(?:(?P<before>{currency})[{spaces}]?)?(?P<inner>{sign}?)"
        rf"(?P<whole>[0-9]*|[1-9][0-9]{{0,2}}(?P<mark>{thousands})[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*)"
        rf"(?:{mark}(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?(?:[{spaces}]?(?P<after>%|{currency}))?"
    )


def _quantity(text: str, decimal: str) -> tuple[float, str] | None:
    """Return the finite number in text and its unit, or None; ``0x10``, ``inf`` and ``1_000`` are not numbers."""
    found = _pattern(decimal).fullmatch(text)
    if found is None or (found["sign"] and found["inner"]) or (found["before"] and found["after"]):
        return None
    whole = re.sub("[^0-9]", "", found["whole"])
    if not whole and not found["fraction"]:
        return None
    value = float(f"{whole or 0}.{found['fraction'] or 0}{found['exponent'] or ''}")
    is_negative = (found["sign"] or found["inner"]) in ("-", "\u2212")
    return (-value if is_negative else value, found["before"] or found["after"] or "") if value < np.inf else None


def _number(text: str, rule: ColumnRule) -> float | None:
    """Return the number in text, if it is on the scale of the column: 0.12 for ``12%``."""
    found = _quantity(text, rule.form or ".")
    if found is None or (found[1] != rule.unit and (found[1] or rule.unit == _PER_CENT)):
        return None
    return found[0] / 100.0 if rule.unit == _PER_CENT else found[0]


def _date(text: str, form: str) -> np.datetime64 | None:
    """Return the date in text on its own clock (a time zone is ignored), or None if it has another form."""
    try:
        when = datetime.fromisoformat(text) if form == "iso" else datetime.strptime(text, form)
    except ValueError:
        return None
    return np.datetime64(when.replace(tzinfo=None), "s")
