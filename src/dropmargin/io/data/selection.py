"""The columns of a table that are read, and blocks of their rows."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, quoted

_MAX_LISTED = 20


class Rows(NamedTuple):
    """Consecutive rows: a `pyarrow.Table`, and the line of each row in the file (without lines, its number)."""

    table: Any
    lines: Sequence[int]


def select_columns(names: Sequence[str], options: ReadOptions, file: str, line: int | None = None) -> list[str]:
    """Return the columns to read: features, target, text, ids. Duplicate, empty and absent names are an error."""
    counts = Counter(names)
    if "" in counts:
        raise DataFormatError(f"column {list(names).index('') + 1} has no name (name it, or remove it)", file, line)
    if len(counts) < len(names):
        raise DataFormatError(f"there are two columns named {quoted(counts.most_common(1)[0][0])}", file, line)
    asked = [("target", options.target), *(("text", name) for name in options.text_columns), ("ids", options.ids)]
    asked += [(option, name) for option in ("categorical", "ignore") for name in getattr(options, option)]
    for option, name in asked:
        if name is not None and name not in counts:
            raise DataFormatError(_absent(name, option, list(names)), file, line)
    extra = [name for name in (options.target, *options.text_columns, options.ids) if name is not None]
    excluded = {options.target, *options.text_columns, *options.ignore}
    features = [name for name in names if name not in excluded]
    what = "there are no columns besides those of --target and --ignore"
    if options.columns is not None:
        features = [name for name in features if name in options.columns]
        what = f"the file has none of the columns {_listed(list(options.columns))}, but {_listed(names)}"
    if not features and not options.text_columns:
        raise DataFormatError(what, file, line)
    return list(dict.fromkeys(features + extra))


def _absent(name: str, option: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {quoted(close[0])}? " if close else ""
    separator = next((c for c in ";\t|," if c in names[0]), None) if len(names) == 1 else None
    if separator is not None:
        hint = f"is the separator {separator!r} (--separator)? "
    return f"there is no column {quoted(name)} (--{option}); {hint}The columns are {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(quoted(name) for name in names[:_MAX_LISTED]) + more
