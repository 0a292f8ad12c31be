"""Tables in CSV, JSON lines, Parquet and Arrow files, and documents, as data frames, read by Arrow and Python's json.

Cells of CSV files are text, and values of JSON lines objects, exactly as in the file: `dropmargin.tables` reads a
column as a whole.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.dataset as arrow_dataset
from pyarrow import parquet

from dropmargin.io.data.dataset import Dataset, ReadOptions, labels_of
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import STDIN, files_of, name_of, open_bytes
from dropmargin.tables.cells import MISSING_VALUES

#: The column of documents.
TEXT = "text"
_HEAD, _SEPARATORS, _MAX_LISTED = 2**20, ",;\t", 20
_PAGES = 2**16  # bytes of a Parquet file that are read at a time
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BROKEN = (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError)


# CSV ----------------------------------------------------------------------------------------------------------------


def csv_chunks(path: Any, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of a CSV file in chunks."""
    name = name_of(path)
    with open_bytes(path) as stream:
        head = stream.read(_HEAD)
        stream.seek(0)
        encoding = options.encoding or ("utf-16" if head[:2] in _UTF_16 else "utf-8")
        separator, header, n_lines = _sniff(_decode(head, encoding), options, name)
        names, notes = _complete_names(header)
        if separator != "," and options.separator is None and options.format != "tsv":
            notes.append(f"the cells are separated by {separator!r}")
        kept = select_columns(names, options, name, 1)
        types, counted = dict.fromkeys(names, pa.string()), _Counted(stream)
        read = {"use_threads": False, "block_size": max(chunk_bytes, 2**16), "encoding": encoding}
        read |= {"skip_rows": n_lines, "column_names": names}
        try:
            reader = arrow_csv.open_csv(
                counted,
                arrow_csv.ReadOptions(**read),
                arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                arrow_csv.ConvertOptions(column_types=types, include_columns=kept),
            )
            frame = None
            for batch in reader:
                frame = _frame(batch)
                yield _split(frame, options, name, notes)
            last = [] if frame is None or frame.empty else frame.iloc[-1].tolist()
            if counted.n_quotes % 2 and any("\n" in cell for cell in last if isinstance(cell, str)):
                raise DataFormatError("the last row has a quoted cell without an end", name)
        except _BROKEN as error:
            raise _csv_error(error, name) from error


class _Counted:
    """A stream that counts quotes: Arrow takes the end of the file for that of a quoted cell."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream, self.n_quotes = stream, 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.n_quotes += data.count(b'"')
        return data


def _decode(head: bytes, encoding: str) -> str:
    try:
        return head.decode(encoding, errors="replace").removeprefix("\ufeff")
    except LookupError:
        raise ValueError(f"encoding {encoding!r} is not known (--encoding): use one such as latin-1.") from None


def _sniff(head: str, options: ReadOptions, name: str) -> tuple[str, list[str], int]:
    """Return the separator, the names in the header, and the number of its lines."""
    found: list[tuple[bool, int, str, list[str], int]] = []
    given = options.separator or ("\t" if options.format == "tsv" else None)
    for separator in given or _SEPARATORS:
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
        try:
            records = ((record, reader.line_num) for record in reader if record)
            header, n_lines = next(records, ([], 0))
        except csv.Error as error:
            raise DataFormatError(f"the header cannot be read: {one_line(error)}", name, 1) from error
        first = header
        with suppress(csv.Error):  # such as a long document
            first, _ = next(records, (header, 0))
        found.append((len(first) == len(header) > 1, len(header), separator, header, n_lines))
    _, n_names, separator, header, n_lines = max(found, key=lambda one: one[:2])  # of equal ones the first
    if any("\ufffd" in column for column in header):
        raise _csv_error(UnicodeError(), name)
    if not n_names:
        raise DataFormatError("there is no header: the file is empty", name)
    return separator, [column.strip() for column in header], n_lines


def _complete_names(header: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return names without empty and equal ones, and notes about those that were made up."""
    names: list[str] = []
    notes = []
    for number, given in enumerate(header, 1):
        wanted = given or f"column_{number}"
        made, count = wanted, 1
        while made in names:
            count += 1
            made = f"{wanted}_{count}"
        if made != given:
            problem = "has no name" if not given else f"has the name {quoted(given)} of another"
            notes.append(f"column {number} {problem}: it is {quoted(made)}")
        names.append(made)
    return names, notes


def _csv_error(error: BaseException, name: str) -> DataFormatError:
    text = one_line(error)
    if "UTF8" in text or isinstance(error, UnicodeError):
        return DataFormatError("the text is not UTF-8 (name its encoding, such as --encoding latin-1)", name)
    row = re.search(r"Row #(\d+): (.*)", text)
    if row is not None:
        return DataFormatError(row[2], name, int(row[1]))
    if "straddl" in text:
        text = "a row is longer than a block: the end of a quoted cell is probably missing"
    return DataFormatError(text, name)


def _frame(batch: Any) -> Any:
    """Return Arrow's columns of text as a data frame, without spaces around cells and with missing values."""
    cells = {name: pc.utf8_trim_whitespace(batch[name]) for name in batch.schema.names}
    missing = pa.array(sorted(MISSING_VALUES))
    return pa.table({name: pc.if_else(pc.is_in(own, missing), None, own) for name, own in cells.items()}).to_pandas()


# JSON lines, Parquet, Arrow, documents --------------------------------------------------------------------------------


class _Numeral(float):
    """A number of a JSON file that knows its digits."""

    digits: str

    def __new__(cls, digits: str) -> _Numeral:
        made = super().__new__(cls, digits)
        made.digits = digits
        return made

    def __str__(self) -> str:
        return self.digits


def json_chunks(path: Any, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the objects of a JSON lines file, one per row, in chunks; a key that one lacks is a missing value."""
    name, names = name_of(path), {}  # type: str, dict[str, None]
    with open_bytes(path) as stream:
        lines = io.TextIOWrapper(stream, options.encoding or "utf-8-sig", newline="\n")
        numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        try:
            while part := list(islice(numbered, max(1, chunk_bytes // 64))):
                records = [_record(line, number, name) for number, line in part]
                names |= dict.fromkeys(key for record in records for key in record)
                kept = select_columns(list(names), options, name)
                columns = {key: pd.Series([record.get(key) for record in records], dtype=object) for key in kept}
                yield _split(pd.DataFrame(columns), options, name)
        except UnicodeError as error:
            raise _csv_error(error, name) from error


def _record(line: str, number: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line.strip(), parse_float=_Numeral)
    except (ValueError, RecursionError) as error:
        raise DataFormatError(f"this is not JSON: {one_line(error)}", name, number) from error
    if type(found) is not dict:
        raise DataFormatError('a line must be an object, such as {"a": 1}', name, number)
    nested = next((key for key, value in found.items() if isinstance(value, dict | list)), None)
    if nested is not None:
        raise DataFormatError(f"the value of {quoted(nested)} is nested; use numbers and text", name, number)
    return found


def arrow_chunks(path: Any, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the rows of a Parquet or Arrow file, or of a folder of these, in chunks."""
    name = name_of(path)
    if path == STDIN:
        raise DataFormatError(f"{options.format} data cannot come from standard input: give a file", name)
    try:
        if options.format == "parquet" and Path(path).is_file():  # a data set of Arrow would hold whole row groups
            file = parquet.ParquetFile(path, buffer_size=_PAGES, pre_buffer=False)
            names, batches = file.schema_arrow.names, partial(file.iter_batches, use_threads=False)
        else:
            source = [str(file) for file in files_of(path)]
            data = arrow_dataset.dataset(source, format="ipc" if options.format == "arrow" else options.format)
            names, batches = data.schema.names, partial(data.to_batches, batch_readahead=0, fragment_readahead=0)
        kept = select_columns(names, options, name)
        n_rows = max(1, chunk_bytes // (16 * len(kept)))
        for batch in batches(columns=kept, batch_size=n_rows):
            batch = batch.select(kept)  # Parquet: without columns such as x.a, whose names begin with that of another
            batch.validate(full=True)  # forged offsets would be read outside of the memory
            if batch.num_rows:
                yield _split(batch.to_pandas(integer_object_nulls=True, ignore_metadata=True), options, name)
    except (DataFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # Arrow raises many types for broken files
        raise DataFormatError(f"this is not a {options.format} file: {one_line(error)}", name) from error


def text_chunks(path: Any, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield documents: the lines of a file, each after a label and a tab if there is a target; or files of a folder."""
    name, encoding = name_of(path), options.encoding or "utf-8-sig"
    try:
        if Path(path).is_dir():
            files = files_of(path)
            frame = pd.DataFrame({TEXT: [file.read_text(encoding) for file in files]}, dtype=object)
            folders = np.array([file.relative_to(path).parts[0] for file in files])
            ids = [file.relative_to(path).as_posix() for file in files]
            yield Dataset(frame, None if options.target is None else folders, ids=ids)
            return
        with open_bytes(path) as stream:
            lines = io.TextIOWrapper(stream, encoding, newline="\n")
            numbered = enumerate((line.rstrip("\r\n") for line in lines), 1)
            while part := list(islice(numbered, max(1, chunk_bytes // 64))):
                labels = None
                if options.target is not None:
                    split = [(number, *line.partition("\t")) for number, line in part if line.strip()]
                    wrong = next((number for number, label, tab, _ in split if not (tab and label.strip())), None)
                    if wrong is not None:
                        raise DataFormatError("a line must be a label, a tab and a document", name, wrong)
                    labels = labels_of([label.strip() for _, label, _, _ in split], name)
                    part = [(number, document) for number, _, _, document in split]
                if part:
                    yield Dataset(pd.DataFrame({TEXT: [document for _, document in part]}, dtype=object), labels)
    except UnicodeError as error:
        raise _csv_error(error, name) from error


# Columns --------------------------------------------------------------------------------------------------------------


def select_columns(names: Sequence[str], options: ReadOptions, file: str, line: int | None = None) -> list[str]:
    """Return the columns to read; a column that an option names and the file lacks is an error."""
    for option, name in (("target", options.target), ("ids", options.ids), *(("ignore", n) for n in options.ignore)):
        if name is not None and name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {quoted(close[0])}? " if close else ""
            listed = ", ".join(map(quoted, names[:_MAX_LISTED])) + (" and more" if len(names) > _MAX_LISTED else "")
            what = f"there is no column {quoted(name)} (--{option}); {hint}The columns are {listed}"
            raise DataFormatError(what, file, line)
    asked = {options.target, options.ids}
    features = [name for name in names if name not in {options.target, *options.ignore}]
    if options.columns is not None:
        features = [name for name in features if name in options.columns]
    if not features:
        raise DataFormatError("there are no columns to learn from", file, line)
    return [name for name in names if name in features or name in asked]


def _split(frame: Any, options: ReadOptions, name: str, notes: Sequence[str] = ()) -> Dataset:
    """Return features, labels and ids of a part of a table."""
    notes = list(notes)
    if options.target is not None:
        is_absent = frame[options.target].isna()
        n_absent = int(is_absent.sum())
        if n_absent and not options.skip_unlabelled:
            what = f"{n_absent} of {len(frame)} rows have no label in {quoted(options.target)}"
            raise DataFormatError(f"{what} (--skip-unlabelled leaves them out)", name)
        if n_absent:
            notes.append(f"{n_absent} of {len(frame)} rows have no label and are left out")
            frame = frame[~is_absent].reset_index(drop=True)
    y = None if options.target is None else labels_of(frame[options.target].tolist(), name)
    ids = None
    if options.ids is not None:
        ids = ["" if pd.isna(value) else str(value) for value in frame[options.ids].tolist()]
    listed = options.columns is None or options.ids in options.columns
    left_out = {options.target, *(() if listed and options.ids != options.target else (options.ids,))}
    X = frame[[column for column in frame.columns if column not in left_out]]
    return Dataset(X, y, ids=ids, notes=tuple(notes))
