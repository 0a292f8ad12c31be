"""Tables of comma- or tab-separated text (csv, tsv), with a header line.

A whole file is read twice: first to see what its columns hold, then to read them as that. So no part of a file can be
taken for something else than the rest, and parts that are told what the columns hold are read as the whole is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, NoReturn

from dropmargin.io.data.cells import Complain, Tally, column_from_cells, labels_from_cells
from dropmargin.io.data.dataset import ColumnKind, Dataset, Frame, ReadOptions, concatenate
from dropmargin.io.data.errors import DataFormatError, quoted
from dropmargin.io.data.records import Records, record_blocks
from dropmargin.io.data.schema import Selection, select_columns
from dropmargin.io.data.sources import Source

SEPARATORS = {"csv": ",", "tsv": "\t"}
_BLOCK_BYTES = 2**20
# Each column of a block has a fixed cost, which at least so many rows share.
_BLOCK_LINES = 16


def read_delimited(source: Source, options: ReadOptions) -> Dataset:
    """Return a whole file."""
    table = _Table(source.name, options)
    opener = source.opener()
    with opener() as stream:
        options = _infer(table, stream)
    with opener() as stream:
        parts = list(_Table(source.name, options).chunks(stream, _BLOCK_BYTES, _BLOCK_LINES))
    return concatenate(parts)


def chunk_delimited(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of about ``chunk_bytes`` bytes at a time; what is not told stays a string."""
    with source.open() as stream:
        yield from _Table(source.name, options).chunks(stream, chunk_bytes)


class _Table:
    """One file: its header, then its records."""

    def __init__(self, name: str, options: ReadOptions) -> None:
        separator = options.separator or SEPARATORS[options.format or "csv"]
        if len(separator) != 1 or separator in '"\r\n':
            raise ValueError(f"separator must be one character, not a quote or a line's end, got {separator!r}.")
        self.name, self.options, self.separator = name, options, separator
        self.missing = frozenset(options.missing_values)
        self.categorical = frozenset(options.categorical)

    def blocks(self, stream: IO[bytes], n_bytes: int, min_lines: int = 1) -> Iterator[tuple[Selection, Records]]:
        """Yield the columns to read and records, as many cells in each as the header has."""
        selection = None
        for records in record_blocks(stream, self.name, self.separator, n_bytes, min_lines):
            rest = records
            if selection is None and records.widths:
                names = [cell.strip() for cell in records.cells[: records.widths[0]]]
                selection = select_columns(names, self.options, self.name, records.lines[0])
                rest = records.without_first()
            if selection is None or not rest.widths:
                continue
            width = len(selection.names)
            if set(rest.widths) != {width}:
                line, found = next(pair for pair in zip(rest.lines, rest.widths, strict=True) if pair[1] != width)
                raise DataFormatError(f"{found} cells, but the header has {width} columns", self.name, line)
            yield selection, rest
        if selection is None:
            raise DataFormatError("the file is empty: a header line with the names of the columns is needed", self.name)

    def chunks(self, stream: IO[bytes], n_bytes: int, min_lines: int = 1) -> Iterator[Dataset]:
        """Yield the rows of about ``n_bytes`` bytes at a time, and of at least ``min_lines`` lines."""
        kinds: Mapping[str, ColumnKind] = self.options.columns or {}
        for selection, records in self.blocks(stream, n_bytes, min_lines):
            complain = self._complain_at(records.lines)
            y = None
            if selection.target is not None:
                y = labels_from_cells(records.column(selection.target), self.options.label_kind, self.missing, complain)
            if selection.text is not None:
                yield Dataset(records.column(selection.text), y)
                continue
            names = selection.feature_names
            converted = [
                column_from_cells(records.column(i), kinds.get(name), self.missing, name, complain)
                for i, name in zip(selection.features, names, strict=True)
            ]
            yield Dataset(Frame(names, tuple(converted)), y, feature_names=names)

    def _complain_at(self, lines: Sequence[int]) -> Complain:
        def complain(position: int, what: str) -> NoReturn:
            raise DataFormatError(what, self.name, lines[position])

        return complain


def _infer(table: _Table, stream: IO[bytes]) -> ReadOptions:
    """Return the options with what the whole file says of its columns and labels."""
    options, selection = table.options, None
    tallies: dict[int, Tally] = {}
    for selection, records in table.blocks(stream, _BLOCK_BYTES, _BLOCK_LINES):
        wanted = selection.features if options.columns is None else ()
        for i in (*wanted, *(() if selection.target is None else (selection.target,))):
            tallies.setdefault(i, Tally()).add(records.column(i), records.lines, table.missing)
    if selection is None:
        raise DataFormatError("there are no rows below the header", table.name)
    kinds = options.columns
    if kinds is None:
        kinds = {selection.names[i]: _kind(selection.names[i], tallies[i], table) for i in selection.features}
    label_kind = options.label_kind
    if selection.target is not None and label_kind is None:
        label_kind = tallies[selection.target].label_kind
    return replace(options, columns=kinds, label_kind=label_kind)


def _kind(name: str, tally: Tally, table: _Table) -> ColumnKind:
    """Return what a column holds: names if it is said so, or if not even half of its cells are numbers."""
    if name in table.categorical:
        return "category"
    if tally.first_other is None:
        return "number"
    if tally.n_numbers <= tally.n_others:
        return "category"
    line, cell = tally.first_other
    what = (
        f"{quoted(cell)} in column {quoted(name)} is not a finite number, but {tally.n_numbers} of its "
        f"{tally.n_numbers + tally.n_others} cells are (correct it, or use --categorical {name})"
    )
    raise DataFormatError(what, table.name, line)
