"""Blocks of rows of a Parquet or Arrow (Feather) file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from dropmargin.io.data.dataset import ReadOptions
from dropmargin.io.data.errors import DataFormatError, one_line
from dropmargin.io.data.selection import Rows, select_columns
from dropmargin.io.data.sources import Source

_MAX_ROWS = 2**16
_BYTES_PER_VALUE = 16
_ARROW_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
# Errors of pyarrow on broken files; ArrowInvalid is a ValueError, ArrowMemoryError a MemoryError.
_ERRORS = (ValueError, OSError, KeyError, IndexError, TypeError, NotImplementedError, MemoryError, OverflowError)


def arrow_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the rows of about ``n_bytes`` bytes at a time, 16 bytes per value."""
    n_before = n_values = 0
    with source.open_seekable() as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        try:
            for batch in _batches(stream, source, options, n_bytes, size):
                n_values += batch.num_rows * batch.num_columns
                if whole:
                    source.check_size(8 * n_values, size)
                step = _rows_per_block(n_bytes, batch.num_columns)
                for start in range(0, batch.num_rows, step):
                    table = pa.Table.from_batches([batch.slice(start, step)])
                    yield Rows(table, range(n_before + 1, n_before + table.num_rows + 1))
                    n_before += table.num_rows
        except DataFormatError:
            raise
        except (*_ERRORS, pa.ArrowException) as error:
            raise DataFormatError(f"this file cannot be read: {one_line(error)}", source.name) from error


def _rows_per_block(n_bytes: int, n_columns: int) -> int:
    return max(1, min(_MAX_ROWS, n_bytes // (_BYTES_PER_VALUE * max(1, n_columns))))


def _batches(stream: Any, source: Source, options: ReadOptions, n_bytes: int, size: int) -> Iterator[Any]:
    """Yield batches of the columns to read, after their validation."""
    is_parquet = options.format == "parquet"
    file = pyarrow.parquet.ParquetFile(stream) if is_parquet else _open_ipc(stream, source)
    schema = file.schema_arrow if is_parquet else file.schema
    wanted = select_columns(schema.names, options, source.name)
    batches: Any = file
    if is_parquet:
        groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
        source.check_size(sum(group.total_byte_size for group in groups), size)
        batches = file.iter_batches(_rows_per_block(n_bytes, len(wanted)), columns=wanted, use_threads=False)
    elif hasattr(file, "get_batch"):
        batches = map(file.get_batch, range(file.num_record_batches))
    for batch in batches:
        source.check_size(8 * batch.num_rows, size)
        batch.validate(full=True)  # a broken file may refer to memory outside of it
        yield batch.select(wanted)


def _open_ipc(stream: Any, source: Source) -> Any:
    """Return the reader of an Arrow file or stream."""
    start = stream.read(8)
    stream.seek(0)
    if start.startswith(_FEATHER_1):
        raise DataFormatError("this is Feather version 1 (save it as version 2)", source.name)
    options = pyarrow.ipc.IpcReadOptions(use_threads=False)
    make = pyarrow.ipc.open_file if start.startswith(_ARROW_FILE) else pyarrow.ipc.open_stream
    return make(stream, options=options)
