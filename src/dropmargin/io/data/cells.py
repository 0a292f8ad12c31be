"""Cells of text as columns of numbers or of names, and labels.

A number is written as ``-1.5e3``, and is finite; ``1_000``, ``0x10`` and ``inf`` are none. Spaces around a cell are not
part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dropmargin.io.data.dataset import ColumnKind, LabelKind
from dropmargin.io.data.errors import quoted
from dropmargin.typing import Array

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_IN_NUMBERS = re.compile(r"[^0-9+\-.eE\n]")
_LARGEST_LABEL = 2.0**53

#: Called with the position of a bad cell and what is wrong with it.
Complain = Callable[[int, str], NoReturn]


def parse_number(cell: str) -> float | None:
    """Return the number, or None if the cell is none or is too large."""
    value = float(cell) if _NUMBER.fullmatch(cell) else np.nan
    return value if np.isfinite(value) else None


def parse_numbers(cells: Sequence[str]) -> Array | None:
    """Return the numbers, or None if any cell is none; quickly."""
    if _NOT_IN_NUMBERS.search("\n".join(cells)):
        return None
    try:
        values = np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


@dataclass
class Tally:
    """How many cells of a column are numbers, whole numbers, missing or something else."""

    n_numbers: int = 0
    n_others: int = 0
    all_whole: bool = True
    first_other: tuple[int, str] | None = None

    def add(self, cells: Sequence[str], lines: Sequence[int], missing: Collection[str]) -> None:
        """Count cells of these lines; ``missing`` are those that count as none."""
        stripped = [cell.strip() for cell in cells]
        present, values = stripped, parse_numbers(stripped)
        if values is None:
            present = [cell for cell in stripped if cell not in missing]
            values = parse_numbers(present)
        if values is None:
            numbers = {cell: parse_number(cell) for cell in set(present)}
            values = np.array([number for cell in present if (number := numbers[cell]) is not None])
            if self.first_other is None:
                others = ((n, c) for n, c in zip(lines, stripped, strict=True) if numbers.get(c, 0.0) is None)
                self.first_other = next(others, None)
        self.n_numbers += len(values)
        self.n_others += len(present) - len(values)
        self.all_whole &= bool(np.all((np.floor(values) == values) & (np.abs(values) <= _LARGEST_LABEL)))

    @property
    def label_kind(self) -> LabelKind:
        """What labels are that look like this."""
        return "integer" if self.all_whole and not self.n_others else "string"


def column_from_cells(
    cells: Sequence[str], kind: ColumnKind | None, missing: Collection[str], name: str, complain: Complain
) -> Array:
    """Return a column of what it is said to hold; None: strings that are not looked into."""
    stripped = [cell.strip() for cell in cells]
    if kind == "number":
        return numbers_from_cells(stripped, missing, name, complain)
    known: dict[str, str | None] = dict.fromkeys(missing)
    return as_objects([known.setdefault(cell, cell) for cell in stripped])  # equal cells share one string


def as_objects(values: list[Any]) -> Array:
    """Return an array of objects; strings of a fixed width would all take the place of the longest."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def numbers_from_cells(cells: Sequence[str], missing: Collection[str], name: str, complain: Complain) -> Array:
    """Return numbers, with NaN for missing cells."""
    values = parse_numbers(cells)
    if values is not None:
        return values
    column = np.full(len(cells), np.nan)
    where = [i for i, cell in enumerate(cells) if cell not in missing]
    values = parse_numbers([cells[i] for i in where])
    if values is None:
        bad = next(i for i in where if parse_number(cells[i]) is None)
        complain(bad, f"{quoted(cells[bad])} in column {quoted(name)} is not a finite number")
    column[where] = values
    return column


def labels_from_cells(
    cells: Sequence[str], kind: LabelKind | None, missing: Collection[str], complain: Complain
) -> Array:
    """Return labels, int64 or (objects) strings; a missing one is an error."""
    stripped = [cell.strip() for cell in cells]
    names: dict[str, str] = {}  # equal labels share one string
    for i, cell in enumerate(stripped):
        if cell in missing:
            complain(i, "the label is missing")
    if kind != "integer":
        return as_objects([names.setdefault(cell, cell) for cell in stripped])
    values = parse_numbers(stripped)
    whole = None if values is None else np.abs(values) <= _LARGEST_LABEL
    if values is None or whole is None or not (whole & (np.floor(values) == values)).all():
        bad = next(i for i, cell in enumerate(stripped) if not _is_whole(parse_number(cell)))
        complain(bad, f"the label {quoted(stripped[bad])} is not a whole number")
    return values.astype(np.int64)


def _is_whole(value: float | None) -> bool:
    return value is not None and abs(value) <= _LARGEST_LABEL and value == np.floor(value)
