"""Blocks of rows of a CSV or TSV file.

The ``csv`` module of Python, in strict mode, defines the format and reads blocks that contain quotes. Arrow reads the
others several times faster; a block that it refuses is read again by the ``csv`` module, which finds the line.
"""

from __future__ import annotations

import csv
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, one_line
from dropmargin.io.data.selection import Rows, select_columns
from dropmargin.io.data.sources import Source, decode_lines, text_blocks

# Each column of a block has a fixed cost, so the blocks of a wide file have at least so many lines.
_MIN_LINES = 16
_MAX_ARROW_BYTES = 2**30
# Arrow is slower than the csv module on blocks of few lines and many columns.
_MIN_BYTES_PER_COLUMN = 256
_MAX_FIELD = 2**31 - 1
_SEPARATORS = (",", ";", "\t")


def delimited_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the rows of about ``n_bytes`` bytes at a time; each column is text."""
    with source.open() as stream:
        blocks = text_blocks(stream, source.name, n_bytes, _MIN_LINES if whole else 2)
        separator = options.separator or ("\t" if options.format == "tsv" else None)
        if separator is None and (first := next(blocks, None)) is not None:
            separator = find_separator(first[1])
            source.separator = None if separator == "," else separator
            blocks = itertools.chain([first], blocks)
        if separator == options.decimal:
            what = "the separator is a comma, and so is the decimal mark (--decimal): name another --separator"
            raise DataFormatError(what, source.name)
        reader = _Reader(source.name, separator or ",", blocks)
        names = reader.read_header()
        yield from reader.blocks(names, select_columns(names, options, source.name, reader.line))


def find_separator(block: bytes) -> str:
    """Return the separator of a csv file from its first lines: a semicolon or a tab if the header has more of them.

    The first row must have as many of them as the header; otherwise the separator is a comma.
    """
    header, _, rest = block.lstrip(b"\r\n").partition(b"\n")
    counts = _counts(header)
    separator = max(_SEPARATORS, key=counts.__getitem__)  # the first of equals
    return separator if not rest or _counts(rest.partition(b"\n")[0])[separator] == counts[separator] else ","


def _counts(line: bytes) -> dict[str, int]:
    """Return the numbers of separators in a line, outside of quotes."""
    outside = b"".join(line.split(b'"')[::2])
    return {separator: outside.count(separator.encode()) for separator in _SEPARATORS}


class _Reader:
    """Reads records: blocks by Arrow, or lines by the ``csv`` module.

    Parameters
    ----------
    name : str
        The file.
    separator : str
    blocks : iterator of (int, bytes)
        First line and content of each block of lines.
    """

    def __init__(self, name: str, separator: str, blocks: Iterator[tuple[int, bytes]]) -> None:
        self._name, self._separator, self._blocks = name, separator, blocks
        self._pending: deque[str] = deque()  # decoded lines of the current block
        self._n_decoded = 0
        self._is_end = False
        self.line = 0  # the last one that was read
        # The default limit is 131072 characters. It is global, so it is never lowered again.
        csv.field_size_limit(max(_MAX_FIELD, csv.field_size_limit()))
        self._records = csv.reader(self._lines(), delimiter=separator, strict=True)

    def read_header(self) -> list[str]:
        """Return the fields of the first record; `line` is its last line."""
        while record := self._next_record():
            if record[1]:
                return [field.strip() for field in record[1]]
        raise DataFormatError("the file is empty: the first line must be a header with the column names", self._name)

    def blocks(self, names: list[str], wanted: list[str]) -> Iterator[Rows]:
        """Yield the ``wanted`` columns of the records, block by block."""
        first_line, block = self.line + 1, "\n".join(self._pending).encode()
        self._pending.clear()
        while True:
            rows = self._read_by_arrow(first_line, block, names, wanted)
            if rows is not None:
                yield rows
            else:
                self._decode(first_line, block)
                while self._pending:
                    yield self._read_records(names, wanted)
            if (following := next(self._blocks, None)) is None:
                return
            first_line, block = following

    def _read_by_arrow(self, first_line: int, block: bytes, names: list[str], wanted: list[str]) -> Rows | None:
        """Return the records of a block, or None if the ``csv`` module has to read it."""
        has_return = block.count(b"\r") != block.count(b"\r\n")
        if b'"' in block or b"\0" in block or has_return or not self._separator.isascii():
            return None
        if not _MIN_BYTES_PER_COLUMN * len(names) <= len(block) <= _MAX_ARROW_BYTES:
            return None
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
                pyarrow.csv.ParseOptions(delimiter=self._separator, quote_char=False),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid:
            return None
        lines: Any = range(first_line, first_line + table.num_rows)
        if table.num_rows < block.count(b"\n") + (not block.endswith(b"\n")):
            lines = [i for i, line in enumerate(block.split(b"\n"), first_line) if line.removesuffix(b"\r")]
        return Rows(table, lines)

    def _read_records(self, names: list[str], wanted: list[str]) -> Rows:
        """Return the records that begin in the current block."""
        lines: list[int] = []
        records: list[list[str]] = []
        n_decoded = self._n_decoded
        while self._pending and self._n_decoded == n_decoded and (found := self._next_record()):
            line, record = found
            if record and len(record) != len(names):
                what = f"{len(record)} fields, but the header has {len(names)} columns"
                raise DataFormatError(what, self._name, line)
            if record:
                lines.append(line)
                records.append(record)
        positions = {name: i for i, name in enumerate(names)}
        cells = ([record[positions[name]] for record in records] for name in wanted)
        return Rows(pa.table([pa.array(column, pa.string()) for column in cells], wanted), lines)

    def _next_record(self) -> tuple[int, list[str]] | None:
        """Return the first line and the fields of a record, no fields if the line is empty, or None at the end."""
        first_line = self.line + 1
        try:
            return first_line, next(self._records)
        except StopIteration:
            return None
        except csv.Error as error:
            what = f"the quotes or line ends are malformed: {one_line(error)}"
            if self._is_end:
                what = "a quoted field begins in this record and does not end"
            raise DataFormatError(what, self._name, first_line if self._is_end else self.line) from None

    def _lines(self) -> Iterator[str]:
        """Yield lines for the ``csv`` module, from the next block if a quoted field goes on in it."""
        while True:
            while self._pending:
                self.line += 1
                yield self._pending.popleft() + "\n"
            if (block := next(self._blocks, None)) is None:
                self._is_end = True
                return
            self._decode(*block)

    def _decode(self, first_line: int, block: bytes) -> None:
        self._pending = deque(decode_lines(block, self._name, first_line))
        self._n_decoded += 1
        self.line = first_line - 1
