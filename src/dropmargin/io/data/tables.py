"""Tables (CSV, TSV, JSON lines, Parquet, Arrow) and text files, whole or in chunks.

Each format has a function that yields blocks of rows as Arrow tables. Blocks and whole files are converted by the same
code; a whole file is converted after its last block, so that all rows determine the kind of a column.

The ``csv`` module of Python, in strict mode, defines the CSV format. Arrow reads blocks without quotes much faster.
From the first block on that Arrow refuses, the ``csv`` module reads the file, and finds the line of an error.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from dropmargin.io.data.conversion import Converter
from dropmargin.io.data.dataset import Dataset, ReadOptions, Rows, select_columns
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import MAX_LINE, Source, decode_lines, text_blocks

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


# CSV and TSV --------------------------------------------------------------------------------------------------------


# Each column of a block has a fixed cost, so the blocks of a wide file have at least so many lines.
_MIN_LINES = 16
_MAX_ARROW_BYTES = 2**30
# Arrow is slower than the csv module on blocks of few lines and many columns.
_MIN_BYTES_PER_COLUMN = 256
_SEPARATORS = (",", ";", "\t")


def delimited_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the rows of about ``n_bytes`` bytes at a time; each column is text."""
    # The default limit is 131072 characters. It is global, so it is never lowered again.
    csv.field_size_limit(max(MAX_LINE, csv.field_size_limit()))
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
        self.line, self._block_line, self._is_end = 0, 0, False
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
            is_long = "field limit" in str(error)
            if self._is_end:
                what = "a quoted field begins in this record and does not end"
            elif is_long:
                what = f"a quoted field begins in this record and has more than {MAX_LINE // 2**20} MB (does it end?)"
            raise DataFormatError(what, self._name, first_line if self._is_end or is_long else self.line) from None

    def blocks(self, names: list[str], wanted: list[str]) -> Iterator[Rows]:
        """Yield the ``wanted`` columns of the records that begin in each block."""
        positions, records = {name: i for i, name in enumerate(names)}, {}
        for line, record in self:
            if record and len(record) != len(names):
                what = f"{len(record)} fields, but the header has {len(names)} columns"
                raise DataFormatError(what, self._name, line)
            if record:
                records[line] = record
            if records and (not self.pending or line < self._block_line):  # the end of a block, or within this record
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
        self._block_line, content = block
        self.pending, self.line = deque(decode_lines(content, self._name, block[0])), block[0] - 1
        return bool(self.pending) or self._decode_next()


# JSON lines ---------------------------------------------------------------------------------------------------------


# The json module of Python reads the lines: Arrow and pandas turn some texts into dates, and do not tell the line of an
# error.
class _Numeral(str):
    """A number as it is in the file, with all its digits."""

    __slots__ = ()


_NUMBER, _NESTED = "a number", "a list or an object"
_KINDS = {**dict.fromkeys((int, float, bool, _Numeral), _NUMBER), str: "text"}


def json_blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    """Yield the rows of about ``n_bytes`` bytes at a time; numbers are float64, ``true`` is 1 and ``false`` is 0.

    Those of the target and of ``ids`` are text, so that no digit is lost.
    A column that an object does not have is missing in this row. Whether the file has a column at all is known only
    at its end.
    """
    names: dict[str, None] = {}
    kinds: dict[str, str] = {}
    asked = [*(options.columns or ()), options.target, options.ids, *options.text_columns]
    asked += [*options.categorical, *options.ignore]
    known = dict.fromkeys(name for name in asked if name is not None)
    exact = {options.target, options.ids}
    with source.open() as stream:
        for first_line, block in text_blocks(stream, source.name, n_bytes):
            texts = decode_lines(block, source.name, first_line)
            numbered = [(line, text) for line, text in enumerate(texts, first_line) if text.strip()]
            rows = {line: _parse(text, source.name, line, options.ids is not None) for line, text in numbered}
            if not rows:
                continue
            found = dict.fromkeys(name for row in rows.values() for name in row)
            names |= found
            if not whole and options.target not in (None, *names) and not options.skip_unlabelled:
                select_columns(list(names), replace(options, columns=None), source.name)
            wanted = select_columns(list(known | found), options, source.name)
            columns = [_column(name, rows, kinds, source.name, exact=name in exact) for name in wanted]
            numerals = frozenset(name for name in wanted if name in exact and kinds.get(name) == _NUMBER)
            yield Rows(pa.table(columns, wanted), list(rows), numerals)
    if names:
        select_columns(list(names), options, source.name)


def _parse(text: str, file: str, line: int, as_text: bool) -> dict[str, Any]:
    """Return the object of a line, with numbers as text if ``as_text``."""
    try:
        try:
            row = _loads(text, _Numeral, _Numeral) if as_text else _loads(text, int, float)
        except ValueError:  # thousands of digits are too many for an int
            row = _loads(text, float, float)
        if "\\u" in text:  # half of a surrogate pair is not a character
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataFormatError(f"this is not valid JSON: {one_line(error)}", file, line) from None
    if not isinstance(row, dict):
        raise DataFormatError(f"expected a JSON object, got {quoted(text)}", file, line)
    return row


def _loads(text: str, parse_int: Any, parse_float: Any) -> Any:
    own: dict[str, Any] = {"object_pairs_hook": _to_dict, "parse_constant": _refuse_constant}
    return json.loads(text, parse_int=parse_int, parse_float=parse_float, **own)


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key occurs twice")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON (use null for a missing value)")


def _column(name: str, rows: dict[int, dict[str, Any]], kinds: dict[str, str], file: str, *, exact: bool) -> Any:
    """Return a column as an Arrow array, of numbers as text if ``exact``.

    ``kinds`` has the kinds of the columns in all blocks so far.
    """
    values = [row.get(name) for row in rows.values()]
    for kind in sorted(filter(None, set(map(_kind, values)))):
        expected = kinds.setdefault(name, kind)
        if kind == _NESTED or kind != expected:
            line = next(line for line, row in rows.items() if _kind(row.get(name)) == kind)
            what = f"the value of {quoted(name)} is {kind}"
            what += ", but should be a number or text" if kind == _NESTED else f", but other values are {expected}"
            raise DataFormatError(f"{what} (or use --ignore {name})", file, line)
    if name not in kinds:
        return pa.nulls(len(values))
    if kinds[name] == "text":
        return pa.array(values, pa.string())
    if exact:
        return pa.array([None if value is None else _as_text(value) for value in values], pa.string())
    try:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    except OverflowError:  # of an int; as text it is infinite
        return pa.array([None if value is None else float(_as_text(value)) for value in values], pa.float64())


def _as_text(number: Any) -> str:
    return str(int(number) if isinstance(number, bool) else number)


def _kind(value: Any) -> str | None:
    return None if value is None else _KINDS.get(type(value), _NESTED)


# Parquet and Arrow --------------------------------------------------------------------------------------------------

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
    start = stream.read(8)
    stream.seek(0)
    if start.startswith(_FEATHER_1):
        raise DataFormatError("this is Feather version 1 (save it as version 2)", source.name)
    options = pyarrow.ipc.IpcReadOptions(use_threads=False)
    make = pyarrow.ipc.open_file if start.startswith(_ARROW_FILE) else pyarrow.ipc.open_stream
    return make(stream, options=options)


# All formats --------------------------------------------------------------------------------------------------------

_BLOCK_BYTES = 2**22
_BLOCKS: dict[str | None, Any] = dict.fromkeys(("csv", "tsv"), delimited_blocks)
_BLOCKS |= {"jsonl": json_blocks, "parquet": arrow_blocks, "arrow": arrow_blocks}


def read(source: Source, options: ReadOptions) -> Dataset:
    blocks = list(_blocks(source, options, _BLOCK_BYTES, whole=True))
    if not blocks:
        raise DataFormatError("there are no rows", source.name)
    lines = [block.lines for block in blocks]
    numerals = frozenset[str]().union(*(block.numerals for block in blocks))
    table = pa.concat_tables([block.table for block in blocks], promote_options="default")
    del blocks  # they refer to the same memory
    data = Converter(source.name, options, lines, whole=True, numerals=numerals).convert(table)
    return replace(data, separator=source.separator)


def chunks(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of about ``chunk_bytes`` bytes at a time; a column whose kind is not given is not inspected."""
    for block in _blocks(source, options, chunk_bytes, whole=False):
        converter = Converter(source.name, options, [block.lines], whole=False, numerals=block.numerals)
        data = converter.convert(block.table)
        yield replace(data, separator=source.separator)


def _blocks(source: Source, options: ReadOptions, n_bytes: int, *, whole: bool) -> Iterator[Rows]:
    make = _BLOCKS.get(options.format, document_blocks)
    return (block for block in make(source, options, n_bytes, whole=whole) if block.table.num_rows)
