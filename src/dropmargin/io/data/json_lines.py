"""Blocks of rows of a JSON lines file, with one object per line.

The ``json`` module of Python reads the lines: Arrow and pandas turn some texts into dates, and do not tell the line of
an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.selection import Rows, select_columns
from dropmargin.io.data.sources import Source, decode_lines, text_blocks

_KINDS = {float: "a number", bool: "a number", str: "text"}
_NESTED = "a list or an object"


def json_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the rows of about ``n_bytes`` bytes at a time; numbers are float64, ``true`` is 1 and ``false`` is 0.

    A column that an object does not have is missing in this row. Whether the file has a column at all is known only
    at its end, and checked only if ``whole``.
    """
    names: dict[str, None] = {}
    kinds: dict[str, str] = {}
    asked = [*(options.columns or ()), options.target, options.ids, *options.text_columns]
    asked += [*options.categorical, *options.ignore]
    known = dict.fromkeys(name for name in asked if name is not None)
    with source.open() as stream:
        for first_line, block in text_blocks(stream, source.name, n_bytes):
            texts = decode_lines(block, source.name, first_line)
            rows = {
                line: _parse(text, source.name, line) for line, text in enumerate(texts, first_line) if text.strip()
            }
            if not rows:
                continue
            found = dict.fromkeys(name for row in rows.values() for name in row)
            names |= found
            wanted = select_columns(list(known | found), options, source.name)
            yield Rows(pa.table([_column(name, rows, kinds, source.name) for name in wanted], wanted), list(rows))
    if whole and names:
        select_columns(list(names), options, source.name)


def _parse(text: str, file: str, line: int) -> dict[str, Any]:
    """Return the object of a line; integers are floats, too."""
    try:
        row = json.loads(text, object_pairs_hook=_to_dict, parse_constant=_refuse_constant, parse_int=float)
        if "\\u" in text:  # half of a surrogate pair is not a character
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataFormatError(f"this is not valid JSON: {one_line(error)}", file, line) from None
    if not isinstance(row, dict):
        raise DataFormatError(f"expected a JSON object, got {quoted(text)}", file, line)
    return row


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key occurs twice")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON (use null for a missing value)")


def _column(name: str, rows: dict[int, dict[str, Any]], kinds: dict[str, str], file: str) -> Any:
    """Return a column as an Arrow array; ``kinds`` has the kinds of the columns in all blocks so far."""
    values = [row.get(name) for row in rows.values()]
    for kind in sorted(filter(None, set(map(_kind, values)))):
        expected = kinds.setdefault(name, kind)
        if kind == _NESTED or kind != expected:
            line = next(line for line, row in rows.items() if _kind(row.get(name)) == kind)
            what = f"the value of {quoted(name)} is {kind}"
            what += ", but should be a number or text" if kind == _NESTED else f", but other values are {expected}"
            raise DataFormatError(f"{what} (or use --ignore {name})", file, line)
    if name not in kinds:
        return pa.nulls(len(values))
    if kinds[name] == "text":
        return pa.array(values, pa.string())
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _kind(value: Any) -> str | None:
    return None if value is None else _KINDS.get(type(value), _NESTED)
