"""Parquet and Arrow (Feather) tables, through pyarrow, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dropmargin.io.data.cells import as_objects, labels_from_cells
from dropmargin.io.data.dataset import Dataset, Frame, ReadOptions, concatenate
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.schema import Selection, select_columns
from dropmargin.io.data.sources import Source
from dropmargin.typing import Array

_BATCH_ROWS = 2**16
_ARROW_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
# What pyarrow raises for broken files; ArrowInvalid is a ValueError, ArrowMemoryError a MemoryError.
_BROKEN = (ValueError, OSError, KeyError, IndexError, TypeError, NotImplementedError, MemoryError, OverflowError)


def _import_pyarrow() -> Any:
    """Return pyarrow with its modules for files, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet and Arrow files need pyarrow, which is not installed. "
            "Install it with: pip install 'dropmargin[parquet]'"
        ) from error
    return pyarrow


def read_columnar(source: Source, options: ReadOptions) -> Dataset:
    """Return a whole table."""
    parts, n_cells = [], 0
    table = _Table(source, options)
    for part in table.chunks(_BATCH_ROWS):
        width = 1 if isinstance(part.X, list) else len(part.X.names)
        n_cells += part.n_samples * width
        source.check_size(8 * n_cells, table.size)
        parts.append(part)
    if not n_cells:
        raise DataFormatError("there are no rows", source.name)
    return concatenate(parts)


def chunk_columnar(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield some rows at a time: about ``chunk_bytes`` bytes, if a cell takes 16."""
    table = _Table(source, options)
    yield from table.chunks(max(1, min(_BATCH_ROWS, chunk_bytes // 16)))


class _Table:
    """One file."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self._arrow = _import_pyarrow()
        self._source, self._options = source, options
        self._categorical = frozenset(options.categorical)
        self.size = 0

    def chunks(self, n_rows: int) -> Iterator[Dataset]:
        """Yield at most ``n_rows`` rows at a time."""
        n_before = 0
        with self._source.open_seekable() as stream:
            self.size = stream.seek(0, 2)
            stream.seek(0)
            for selection, batch in self._guarded(self._batches(stream, n_rows)):
                for begin in range(0, batch.num_rows, n_rows):
                    rows = batch.slice(begin, n_rows)
                    yield self._dataset(selection, rows, n_before)
                    n_before += rows.num_rows

    def _guarded(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the same; what pyarrow says of broken files becomes a `DataFormatError`."""
        while True:
            try:
                batch = next(batches, None)
            except DataFormatError:
                raise
            except (*_BROKEN, self._arrow.ArrowException) as error:
                raise DataFormatError(f"this cannot be read: {one_line(error)}", self._source.name) from error
            if batch is None:
                return
            yield batch

    def _batches(self, stream: Any, n_rows: int) -> Iterator[tuple[Selection, Any]]:
        """Yield the columns to read and a batch of rows, which has been checked: a broken file may point anywhere."""
        is_parquet = self._options.format != "arrow"
        for names, batch in self._parquet(stream, n_rows) if is_parquet else self._ipc(stream):
            self._source.check_size(8 * batch.num_rows, self.size)
            batch.validate(full=True)
            yield select_columns(names, self._options, self._source.name), batch

    def _parquet(self, stream: Any, n_rows: int) -> Iterator[tuple[list[str], Any]]:
        file = self._arrow.parquet.ParquetFile(stream)
        names = list(file.schema_arrow.names)
        selection = select_columns(names, self._options, self._source.name)
        extra = (i for i in (selection.target, selection.text) if i is not None)
        wanted = [names[i] for i in (*selection.features, *extra)]
        n_bytes = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        self._source.check_size(n_bytes, self.size)
        for batch in file.iter_batches(n_rows, columns=wanted, use_threads=False):
            yield names, batch

    def _ipc(self, stream: Any) -> Iterator[tuple[list[str], Any]]:
        start = stream.read(8)
        stream.seek(0)
        if start.startswith(_FEATHER_1):
            raise DataFormatError("this is Feather version 1 (save it again, as version 2)", self._source.name)
        options = self._arrow.ipc.IpcReadOptions(use_threads=False)
        if start.startswith(_ARROW_FILE):
            file = self._arrow.ipc.open_file(stream, options=options)
            for i in range(file.num_record_batches):
                yield list(file.schema.names), file.get_batch(i)
        else:
            reader = self._arrow.ipc.open_stream(stream, options=options)
            for batch in reader:
                yield list(reader.schema.names), batch

    def _dataset(self, selection: Selection, batch: Any, n_before: int) -> Dataset:
        positions = {name: i for i, name in enumerate(batch.schema.names)}

        def column(i: int) -> Any:
            return batch.column(positions[selection.names[i]])

        y = None if selection.target is None else self._labels(column(selection.target), n_before)
        if selection.text is not None:
            cells = column(selection.text)
            if not self._is_text(cells.type):
                what = f"column {quoted(str(self._options.text))} should hold text, but its type is {cells.type}"
                raise DataFormatError(what, self._source.name)
            return Dataset([document or "" for document in self._to_list(cells)], y)
        names = selection.feature_names
        columns = [self._feature(name, column(i)) for i, name in zip(selection.features, names, strict=True)]
        return Dataset(Frame(names, tuple(columns)), y, feature_names=names)

    def _feature(self, name: str, cells: Any) -> Array:
        """Return a column of numbers, or of strings if it holds them or is said to."""
        kind = (self._options.columns or {}).get(name)
        if self._is_text(cells.type):
            if kind == "number" and cells.null_count < len(cells):
                what = f"column {quoted(name)} should hold numbers, but its type is {cells.type}"
                raise DataFormatError(what, self._source.name)
            return as_objects(self._to_list(cells)) if kind != "number" else np.full(len(cells), np.nan)
        numbers = self._numbers(name, cells)
        if np.isinf(numbers).any():
            what = f"column {quoted(name)} has an infinite value"
            raise DataFormatError(what, self._source.name)
        as_names = kind == "category" or name in self._categorical
        return as_objects([name_of_number(n) for n in numbers.tolist()]) if as_names else numbers

    def _numbers(self, name: str, cells: Any) -> Array:
        types = self._arrow.types
        kind = cells.type
        if types.is_dictionary(kind):
            cells = cells.dictionary_decode()
            kind = cells.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
            if not types.is_decimal(kind):
                what = (
                    f"column {quoted(name)} is of type {kind}; it should hold numbers or text (or use --ignore {name})"
                )
                raise DataFormatError(what, self._source.name)
            return np.array([np.nan if cell is None else float(cell) for cell in cells.to_pylist()], dtype=np.float64)
        if types.is_null(kind):
            return np.full(len(cells), np.nan)
        if types.is_boolean(kind):
            cells = cells.cast(self._arrow.int8())
        return np.array(cells.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _labels(self, cells: Any, n_before: int) -> Array:
        """Return labels: whole numbers as int64, bool, or strings."""
        name = self._options.target or ""
        if cells.null_count:
            row = n_before + 1 + cells.is_null().index(True).as_py()
            raise DataFormatError(f"the label in row {row} is missing", self._source.name)

        def complain(position: int, what: str) -> Any:
            raise DataFormatError(f"row {n_before + position + 1}: {what}", self._source.name)

        if self._is_text(cells.type):
            return labels_from_cells(self._to_list(cells), self._options.label_kind, (), complain)
        if self._arrow.types.is_boolean(cells.type):
            return np.array(cells.to_numpy(zero_copy_only=False), dtype=bool)
        if self._arrow.types.is_integer(cells.type) and not self._arrow.types.is_uint64(cells.type):
            return cells.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = self._numbers(name, cells)
        bad = np.flatnonzero(~((np.abs(numbers) <= 2.0**53) & (np.floor(numbers) == numbers)))
        if len(bad):
            complain(int(bad[0]), f"the label {numbers[bad[0]]} is not a whole number (labels are those, or strings)")
        return numbers.astype(np.int64)

    def _is_text(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    def _to_list(self, cells: Any) -> list[Any]:
        """Return strings, of which equal ones are the same object, with None for missing ones."""
        known: dict[str, str] = {}
        try:
            return [None if cell is None else known.setdefault(cell, cell) for cell in cells.to_pylist()]
        except UnicodeDecodeError as error:
            raise DataFormatError(f"this is not UTF-8 text: {one_line(error)}", self._source.name) from error


def name_of_number(value: float) -> str | None:
    """Return the name of a number in a column of names, as a text file would have it: 1 and not 1.0; None for NaN."""
    if value != value:
        return None
    return str(int(value)) if value == int(value) else repr(value)
