"""Blocks of documents of a text file: one per line, after a label and a tab if labels are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, quoted
from dropmargin.io.data.selection import Rows
from dropmargin.io.data.sources import Source, decode_lines, text_blocks

_SVMLIGHT_LINE = re.compile(r"\s*[+-]?[0-9.]+(\s+[0-9]+:[-+0-9.eE]+)+\s*(#.*)?")


def document_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the documents of about ``n_bytes`` bytes at a time, and their labels in a column named as the target."""
    name = f"document of {options.target}"  # any name but that of the target
    with source.open() as stream:
        for first_line, block in text_blocks(stream, source.name, n_bytes):
            lines = [line.removesuffix("\r") for line in decode_lines(block, source.name, first_line)]
            if first_line == 1 and options.format is None and _SVMLIGHT_LINE.fullmatch(lines[0][:1000]):
                what = "this looks like svmlight, not like a document (use --format svmlight or --format text)"
                raise DataFormatError(what, source.name, 1)
            if options.target is None:  # an empty line is an empty document: its prediction has the same line
                yield Rows(pa.table({name: pa.array(lines, pa.string())}), range(first_line, first_line + len(lines)))
                continue
            numbers = [number for number, line in enumerate(lines, first_line) if line]
            pairs = [line.partition("\t") for line in lines if line]
            for number, (label, tab, _) in zip(numbers, pairs, strict=True):
                if not tab:
                    what = f"expected a label, a tab and a document, got {quoted(label)}"
                    raise DataFormatError(f"{what} (labels are read because of --target)", source.name, number)
            columns = [pa.array([pair[i] for pair in pairs], pa.string()) for i in (0, 2)]
            yield Rows(pa.table(columns, [options.target, name]), numbers)
