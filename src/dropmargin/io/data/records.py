"""Records of comma- or tab-separated text: quotes as in RFC 4180, in blocks of many lines.

A cell that begins with a quote ends at the next one that is not doubled, and may hold separators and newlines; in any
other cell a quote is a letter like others. Empty lines are no records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.sources import decoded_blocks


@dataclass(frozen=True)
class Records:
    """Some records: the line on which each begins, how many cells it has, and the cells of all, one after the other."""

    lines: Sequence[int]
    widths: list[int]
    cells: list[str]

    def without_first(self) -> Records:
        """Return all records but the first."""
        return Records(self.lines[1:], self.widths[1:], self.cells[self.widths[0] :])

    def column(self, position: int) -> list[str]:
        """Return the cells of one column; all records must have the same width."""
        return self.cells[position :: self.widths[0]]


def record_blocks(stream: IO[bytes], name: str, separator: str, n_bytes: int, min_lines: int = 1) -> Iterator[Records]:
    """Yield the records of about ``n_bytes`` bytes at a time, and of at least ``min_lines`` lines."""
    reader = _QuoteReader(name, separator)
    for first_line, lines in decoded_blocks(stream, name, n_bytes, min_lines):
        joined = separator.join(lines)
        if reader.is_open or '"' in joined:
            for number, line in enumerate(lines, first_line):
                reader.add(number, line)
            yield reader.take()
            continue
        numbers: Sequence[int] = range(first_line, first_line + len(lines))
        if "\r" in joined or "" in lines:
            stripped = [line.removesuffix("\r") for line in lines]
            numbers = [number for number, line in zip(numbers, stripped, strict=True) if line]
            lines = [line for line in stripped if line]
            joined = separator.join(lines)
        if lines:
            # One split of all is several times faster than one of each.
            yield Records(numbers, [line.count(separator) + 1 for line in lines], joined.split(separator))
    reader.finish()


@dataclass
class _QuoteReader:
    """Reads records line by line, since a quoted cell may go on over the next lines."""

    name: str
    separator: str
    is_open: bool = False
    _first_line: int = 0
    _cells: list[str] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)
    _widths: list[int] = field(default_factory=list)
    _done: list[str] = field(default_factory=list)

    def add(self, number: int, line: str) -> None:
        """Read one line, without its newline."""
        position = 0
        if self.is_open:
            position = self._read_quoted(line, 0)
        else:
            if not line.removesuffix("\r"):
                return
            self._first_line = number
        while not self.is_open and position <= len(line):
            position = self._read_cell(number, line, position)
        if self.is_open:
            self._pieces.append("\n")
        else:
            self._lines.append(self._first_line)
            self._widths.append(len(self._cells))
            self._done += self._cells
            self._cells = []

    def take(self) -> Records:
        """Return the records that are complete."""
        done = Records(self._lines, self._widths, self._done)
        self._lines, self._widths, self._done = [], [], []
        return done

    def finish(self) -> None:
        """Complain if the text ends within quotes."""
        if self.is_open:
            raise DataFormatError("a quote is opened in this record and never closed", self.name, self._first_line)

    def _read_cell(self, number: int, line: str, position: int) -> int:
        """Read a cell from its beginning, or go on behind a quote; return where the next one begins."""
        if self._pieces:  # behind the closing quote
            goes_on = line.startswith(self.separator, position)
            is_end = position == len(line) or (position == len(line) - 1 and line.endswith("\r"))
            if not goes_on and not is_end:
                raise DataFormatError("there is text behind a closing quote", self.name, number, position + 1)
            self._cells.append("".join(self._pieces))
            self._pieces = []
            return position + 1 if goes_on else len(line) + 1
        if line.startswith('"', position):
            self.is_open = True
            return self._read_quoted(line, position + 1)
        end = line.find(self.separator, position)
        if end < 0:
            self._cells.append(line[position:].removesuffix("\r"))
            return len(line) + 1
        self._cells.append(line[position:end])
        return end + 1

    def _read_quoted(self, line: str, position: int) -> int:
        """Read on within quotes; return the position behind the closing one, if it is on this line."""
        while True:
            end = line.find('"', position)
            if end < 0:
                self._pieces.append(line[position:])
                return len(line)
            self._pieces.append(line[position:end])
            if not line.startswith('"', end + 1):
                self.is_open = False
                return end + 1
            self._pieces.append('"')
            position = end + 2
