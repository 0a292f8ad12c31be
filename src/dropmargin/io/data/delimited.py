"""Blocks of rows of a CSV or TSV file.

The ``csv`` module of Python, in strict mode, defines the format. Arrow reads blocks without quotes much faster.
From the first block on that Arrow refuses, the ``csv`` module reads the file, and finds the line of an error.
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
    # The default limit is 131072 characters. It is global, so it is never lowered again.
    csv.field_size_limit(max(_MAX_FIELD, csv.field_size_limit()))
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
        reader = _Records(source.name, separator or ",", blocks)
        names = next(([field.strip() for field in record] for _, record in reader if record), None)
        if names is None:
            what = "the file is empty: the first line must be a header with the column names"
            raise DataFormatError(what, source.name)
        wanted = select_columns(names, options, source.name, reader.line)
        if reader.pending:
            blocks = itertools.chain([(reader.line + 1, "\n".join(reader.pending).encode())], blocks)
        for first_line, block in blocks:
            rows = _read_by_arrow(first_line, block, separator or ",", names, wanted)
            if rows is None:
                rest = itertools.chain([(first_line, block)], blocks)
                yield from _Records(source.name, separator or ",", rest).blocks(names, wanted)
                return
            yield rows


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


def _read_by_arrow(first_line: int, block: bytes, separator: str, names: list[str], wanted: list[str]) -> Rows | None:
    """Return the records of a block, or None if the ``csv`` module has to read it."""
    has_return = block.count(b"\r") != block.count(b"\r\n")
    if b'"' in block or b"\0" in block or has_return or not separator.isascii():
        return None
    if not _MIN_BYTES_PER_COLUMN * len(names) <= len(block) <= _MAX_ARROW_BYTES:
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False),
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


class _Records:
    """An iterator over records by the ``csv`` module: the first line and the fields, none if the line is empty.

    ``blocks`` has the first line and the content of each block of lines. `line` is the last line that was read, and
    `pending` are the decoded lines of its block that were not.
    """

    def __init__(self, name: str, separator: str, blocks: Iterator[tuple[int, bytes]]) -> None:
        self._name, self._blocks = name, blocks
        self.pending: deque[str] = deque()
        self.line, self._is_end = 0, False
        self._reader = csv.reader(self._lines(), delimiter=separator, strict=True)

    def __iter__(self) -> _Records:
        return self

    def __next__(self) -> tuple[int, list[str]]:
        if not self.pending:
            self._decode_next()
        first_line = self.line + 1
        try:
            return first_line, next(self._reader)
        except csv.Error as error:
            what = f"the quotes or line ends are malformed: {one_line(error)}"
            if self._is_end:
                what = "a quoted field begins in this record and does not end"
            raise DataFormatError(what, self._name, first_line if self._is_end else self.line) from None

    def blocks(self, names: list[str], wanted: list[str]) -> Iterator[Rows]:
        """Yield the ``wanted`` columns of the records that begin in each block."""
        positions, records = {name: i for i, name in enumerate(names)}, {}
        for line, record in self:
            if record and len(record) != len(names):
                what = f"{len(record)} fields, but the header has {len(names)} columns"
                raise DataFormatError(what, self._name, line)
            if record:
                records[line] = record
            if not self.pending and records:
                cells = ([record[positions[name]] for record in records.values()] for name in wanted)
                yield Rows(pa.table([pa.array(column, pa.string()) for column in cells], wanted), list(records))
                records = {}

    def _lines(self) -> Iterator[str]:
        """Yield lines for the ``csv`` module, from the next block if a quoted field goes on in it."""
        while self.pending or self._decode_next():
            self.line += 1
            yield self.pending.popleft() + "\n"

    def _decode_next(self) -> bool:
        """Decode the next block, if there is one."""
        block = next(self._blocks, None)
        if block is None:
            self._is_end = True
            return False
        self.pending, self.line = deque(decode_lines(block[1], self._name, block[0])), block[0] - 1
        return bool(self.pending) or self._decode_next()
