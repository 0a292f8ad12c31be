"""Tables (CSV, TSV, JSON lines, Parquet, Arrow) and text files, whole or in chunks.

Each format has a function that yields blocks of rows as Arrow tables. Blocks and whole files are converted by the same
code; a whole file is converted after its last block, so that all rows determine the kind of a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dropmargin.io.data.arrow_files import arrow_blocks
from dropmargin.io.data.conversion import Converter
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.delimited import delimited_blocks
from dropmargin.io.data.errors import DataFormatError
from dropmargin.io.data.json_lines import json_blocks
from dropmargin.io.data.selection import Rows
from dropmargin.io.data.sources import Source
from dropmargin.io.data.text import document_blocks

_BLOCK_BYTES = 2**22
_BLOCKS: dict[str | None, Any] = {
    "csv": delimited_blocks,
    "tsv": delimited_blocks,
    "jsonl": json_blocks,
    "parquet": arrow_blocks,
    "arrow": arrow_blocks,
}


def read(source: Source, options: ReadOptions) -> Dataset:
    """Return all rows."""
    blocks = list(_blocks(source, options, _BLOCK_BYTES, whole=True))
    if not blocks:
        raise DataFormatError("there are no rows", source.name)
    lines = [block.lines for block in blocks]
    table = pa.concat_tables([block.table for block in blocks], promote_options="default")
    del blocks  # they refer to the same memory
    data = Converter(source.name, options, lines, whole=True).convert(table)
    return replace(data, separator=source.separator)


def chunks(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of about ``chunk_bytes`` bytes at a time; a column whose kind is not given is not inspected."""
    for block in _blocks(source, options, chunk_bytes, whole=False):
        data = Converter(source.name, options, [block.lines], whole=False).convert(block.table)
        yield replace(data, separator=source.separator)


def _blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    make = _BLOCKS.get(options.format, document_blocks)
    return (block for block in make(source, options, n_bytes, whole=whole) if block.table.num_rows)
