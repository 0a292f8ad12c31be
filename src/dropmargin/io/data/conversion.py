"""Arrow columns as features (a pandas data frame), documents and labels."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dropmargin.io.data.cells import (
    NUMBER,
    UNITS,
    common_unit,
    has_decimal_comma,
    is_in_unit,
    number_as_category,
    parse_quantity,
)
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.frames import as_categories
from dropmargin.typing import Array

_MAX_LABEL = 2.0**53
# An integer that is the text of its value: 7, not 007 or 7.0.
_CANONICAL = "^(?:0|-?[1-9][0-9]*)$"
_PADDED = "^[+-]?0[0-9]"
# Limits of what is converted at a time; an Arrow array of text has less than 2^31 bytes.
_MAX_VALUES, _MAX_BYTES = 2**20, 2**30
#: Formats whose values are all text: a value is a number if it looks like one.
_UNTYPED = ("csv", "tsv", "text")


class Converter:
    """Converts the columns of some rows; ``lines`` has the line (or number) of each row, block by block.

    ``numerals`` are columns of numbers that are given as text, with all their digits. If these are the ``whole`` file,
    they determine the kinds of columns and labels.
    """

    def __init__(
        self,
        name: str,
        options: ReadOptions,
        lines: list[Sequence[int]],
        *,
        whole: bool,
        numerals: Collection[str] = (),
    ) -> None:
        self._name, self._options, self._lines, self._numerals = name, options, lines, numerals
        self._format = options.format or "text"
        self._is_typed = self._format not in _UNTYPED
        self._infers = whole and not self._is_typed
        self._whole, self._n_rows = whole, sum(map(len, lines))
        self._kinds = dict.fromkeys(options.categorical, "category") | dict(options.columns or {})
        # An empty label of a text file is missing, but "NA" is a label.
        self._missing = pa.array([""] if self._format == "text" else options.missing_values, pa.string())

    def convert(self, table: Any) -> Dataset:
        """Return features or documents, and labels if they are read."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        del table  # so that the memory of a column is freed after its conversion
        target = self._options.target
        try:
            n_unlabelled = 0
            if target is not None and self._options.skip_unlabelled:
                n_unlabelled, columns = self._drop_unlabelled(columns)
                if not self._n_rows and self._whole:
                    raise DataFormatError(f"no row has a label in column {quoted(target)}", self._name)
            ids = None if self._options.ids is None else self._ids(columns)
            y = None if target is None else self._labels(target, columns.pop(target))
            if self._format == "text":
                return Dataset(self._documents(*columns.popitem()), y, ids=ids, n_unlabelled=n_unlabelled)
            documents = {name: self._documents(name, columns.pop(name)) for name in self._options.text_columns}
            features = dict(self._typed_features(columns) if self._is_typed else self._text_features(columns))
            X = pd.DataFrame(features | documents)
        except (pa.ArrowException, UnicodeError) as error:
            raise DataFormatError(f"this file cannot be read: {one_line(error)}", self._name) from error
        return Dataset(X, y, feature_names=tuple(X.columns), ids=ids, n_unlabelled=n_unlabelled)

    def _drop_unlabelled(self, columns: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the number of rows without a label, and the columns of the other rows."""
        cells = columns[str(self._options.target)]
        has_label = (self._text(cells) if _is_text(cells) else cells).is_valid().to_numpy()
        n_unlabelled = int(np.count_nonzero(~has_label))
        if n_unlabelled:
            columns = {name: cells.filter(pa.array(has_label)) for name, cells in columns.items()}
            lines = np.fromiter(itertools.chain.from_iterable(self._lines), np.int64, len(has_label))
            self._lines, self._n_rows = [lines[has_label].tolist()], self._n_rows - n_unlabelled
        return n_unlabelled, columns

    def _ids(self, columns: dict[str, Any]) -> list[str]:
        """Return the column that identifies rows as text."""
        options, name = self._options, str(self._options.ids)
        is_used = name in (options.target, *options.text_columns, *(options.columns or ()))
        cells = columns[name] if is_used else columns.pop(name)
        if pa.types.is_floating(cells.type):  # also integers, of a column with missing values
            return ["" if value is None else number_as_category(value) for value in cells.to_pylist()]
        return ["" if value is None else value for value in cells.cast(pa.large_string()).to_pylist()]

    def _documents(self, name: str, cells: Any) -> list[str]:
        if not _is_text(cells) and cells.null_count < len(cells):
            what = f"column {quoted(name)} (--text) should hold text, but its type is {cells.type}"
            raise DataFormatError(what, self._name)
        return [document or "" for document in cells.to_pylist()]

    def _labels(self, name: str, cells: Any) -> Array:
        """Return labels as int64, float64, bool or strings."""
        kind, is_numeral = self._options.label_kind, name in self._numerals
        is_text = _is_text(cells) and not is_numeral
        cells = self._text(cells) if is_text else cells
        if cells.null_count:
            what = "the label is missing"
            if self._whole and cells.null_count > 1:
                what += f", in {cells.null_count} of {len(cells)} rows, of which this is the first"
            self._fail(cells.is_null().to_numpy(), f"{what} (skip such rows with --skip-unlabelled)")
        if pa.types.is_boolean(cells.type):
            return np.array(cells.to_numpy(), dtype=bool)
        if kind == "number":
            numbers = self._targets(cells) if is_text else self._numbers(name, cells)
            return self._check_labels(cells, numbers, np.isfinite(numbers), "a finite number")
        if is_text and kind != "integer" and not (kind is None and self._infers):
            return _texts(cells)
        integers = _integers(cells)
        if integers is not None:
            return integers
        if is_text and kind is None:
            return _texts(cells)
        if pa.types.is_integer(cells.type) or (is_numeral and _are_canonical(cells)):
            texts = map(str, cells.to_pylist())
            is_large = np.array([len(text) > 20 or not -(2**63) <= int(text) < 2**63 for text in texts])
            label = quoted(str(cells[int(is_large.argmax())].as_py()))
            self._fail(is_large, f"the label {label} is not within 64 bits (store such labels as text)")
        numbers = _plain_numbers(cells) if is_text else self._numbers(name, cells)
        if is_text:
            numbers[pc.match_substring_regex(cells, _PADDED).to_numpy()] = np.nan
        is_integer = (np.abs(numbers) <= _MAX_LABEL) & (np.floor(numbers) == numbers)
        if kind == "integer" or is_integer.all():
            return self._check_labels(cells, numbers, is_integer, "an integer").astype(np.int64)
        return self._check_labels(cells, numbers, np.isfinite(numbers), "a finite number")

    def _targets(self, cells: Any) -> Array:
        """Return the targets of a regression in text, NaN where there is no number."""
        (numbers, _, units), unit = self._parse(cells), self._options.label_unit
        self._check_units("the label {}", "correct it", cells, np.where(np.isnan(numbers), -1, units), unit)
        return numbers

    def _check_units(self, what: str, remedy: str, cells: Any, units: Array, unit: str | None = None) -> None:
        """Raise an error at the first number that is not in the unit, by default that of the first one with a unit.

        ``units`` are positions in `UNITS`, -1 where there is no number.
        """
        found = [UNITS[code] for code in np.unique(units[units >= 0]).tolist()]
        of = f"the training data, {unit}" if unit else "the training data, which have none"
        if unit is None:
            if common_unit(found) is not None:
                return
            first = int(np.argmax(units > 0))
            unit, of = UNITS[units[first]], quoted(cells[first].as_py())
        is_wrong = np.isin(units, [UNITS.index(other) for other in found if not is_in_unit(other, unit)])
        if is_wrong.any():
            value = quoted(cells[int(is_wrong.argmax())].as_py())
            self._fail(is_wrong, f"{what.format(value)} is not in the unit of {of} ({remedy})")

    def _check_labels(self, cells: Any, numbers: Array, is_good: Array, what: str) -> Array:
        """Return the labels, after checking that all are good."""
        if not is_good.all():
            self._fail(~is_good, f"the label {quoted(str(cells[int(is_good.argmin())].as_py()))} is not {what}")
        return numbers

    def _typed_features(self, columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield names and columns: an array of numbers, or a series or categorical of categories."""
        for name in list(columns):
            cells, kind = columns.pop(name), self._kinds.get(name)
            if _is_text(cells) and name not in self._numerals:
                cells = self._text(cells)
                is_number = kind == "number"
                yield name, self._infer(name, cells, *self._parse(cells)) if is_number else _categorical(cells)
                continue
            is_date = pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type)
            values = _as_dates(cells) if is_date else self._numbers(name, cells)
            if values.dtype.kind == "f" and np.isinf(values).any():
                self._fail(np.isinf(values), f"the value of column {quoted(name)} is infinite")
            yield name, as_categories(values).to_pandas() if kind == "category" else values

    def _text_features(self, columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the same for columns of text; several at a time if they are short, because of fixed costs."""
        names, n_rows = list(columns), self._n_rows
        n_bytes = sum(cells.nbytes for cells in columns.values())
        step = max(1, _MAX_VALUES // max(1, n_rows)) if n_bytes < _MAX_BYTES else 1
        for start in range(0, len(names), step):
            group = names[start : start + step]
            chunks = [chunk for name in group for chunk in columns.pop(name).chunks]
            chunks = chunks if len(group) == 1 else [pa.concat_arrays(chunks)]
            cells = self._text(pa.chunked_array(chunks, pa.string()))
            kinds = [self._kinds.get(name, None if self._infers else "category") for name in group]
            parsed = None if set(kinds) <= {"category", "date"} else self._parse(cells)
            for i, (name, kind) in enumerate(zip(group, kinds, strict=True)):
                own, part = cells.slice(i * n_rows, n_rows), slice(i * n_rows, (i + 1) * n_rows)
                if parsed is None or kind in ("category", "date"):  # encoders convert dates
                    yield name, _categorical(own)
                else:
                    yield name, self._infer(name, own, *(array[part] for array in parsed))

    def _infer(self, name: str, cells: Any, numbers: Array, is_other: Array, units: Array) -> Any:
        """Return numbers, or categories if the kind is not given and at most half of the values are numbers.

        Numbers with a unit stay text: the encoders convert them, as they know the unit of the training data.
        """
        n_others = int(np.count_nonzero(is_other))
        kind, n_numbers = self._kinds.get(name), int(np.isfinite(numbers).sum())
        if kind is None and n_numbers <= n_others:
            return _categorical(cells)
        if not n_others:
            if not units.any():
                return numbers
            units = np.where(np.isnan(numbers), -1, units)
            self._check_units(f"{{}} in column {quoted(name)}", f"correct it{self._or_categorical(name)}", cells, units)
            return _categorical(cells if self._options.decimal == "." else self._with_decimal_points(cells))
        value = cells[int(is_other.argmax())].as_py()
        what = f"{quoted(value)} in column {quoted(name)} is not a finite number"
        if kind is None:
            remedy = f"(correct it{self._or_categorical(name)})"
            if has_decimal_comma(value) and self._options.decimal != ",":
                remedy = f"(use --decimal , if the comma is a decimal mark; or --categorical {name})"
            what += f", but {n_numbers} of {n_numbers + n_others} values are {remedy}"
        self._fail(is_other, what)

    def _or_categorical(self, name: str) -> str:
        """Return the remedy of training, in which the kind of a column is not given."""
        return "" if name in self._kinds else f", or use --categorical {name}"

    def _with_decimal_points(self, cells: Any) -> Any:
        """Return numbers with units as the encoders read them."""
        encoded = cells.dictionary_encode().combine_chunks()
        parsed = [parse_quantity(text, self._options.decimal) for text in encoded.dictionary.to_pylist()]
        texts = pa.array([quantity.text for quantity in parsed if quantity is not None], pa.string())
        return texts.take(encoded.indices)

    def _parse(self, cells: Any) -> tuple[Array, Array, Array]:
        """Return the numbers in text, which values are neither numbers nor missing, and positions in `UNITS`.

        Where there is no number, it is NaN.
        """
        decimal = self._options.decimal
        numbers = _plain_numbers(cells) if decimal == "." else np.full(len(cells), np.nan)
        is_other = np.isnan(numbers) & cells.is_valid().to_numpy()
        units = np.zeros(len(cells), np.int8)
        if is_other.any():  # numbers as people write them; each different text is parsed once
            encoded = cells.filter(pa.array(is_other)).dictionary_encode().combine_chunks()
            parsed = [parse_quantity(text, decimal) for text in encoded.dictionary.to_pylist()]
            values = np.array([np.nan if found is None else found.value for found in parsed])
            codes = np.array([0 if found is None else UNITS.index(found.unit) for found in parsed], np.int8)
            numbers[is_other] = values[encoded.indices.to_numpy()]
            units[is_other] = codes[encoded.indices.to_numpy()]
            is_other &= np.isnan(numbers)
        return numbers, is_other, units

    def _text(self, cells: Any) -> Any:
        """Return text; that of an untyped format without spaces around it, and null if it is a missing value."""
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        if self._is_typed:
            return cells.cast(pa.large_string())
        cells = pc.utf8_trim_whitespace(cells)
        return pc.if_else(pc.is_in(cells, value_set=self._missing), pa.scalar(None, pa.string()), cells)

    def _numbers(self, name: str, cells: Any) -> Array:
        """Return the values of a column that is not text as float64, missing ones as NaN."""
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        types, kind = pa.types, cells.type
        if types.is_decimal(kind):
            cells = cells.cast(pa.string())  # rounded to the nearest double, as text is
        elif name in self._numerals:
            pass
        elif types.is_boolean(kind):
            cells = cells.cast(pa.int8())
        elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)):
            what = f"column {quoted(name)} is of type {kind}; it should hold numbers or text (or use --ignore {name})"
            raise DataFormatError(what, self._name)
        return _to_numpy(cells.cast(pa.float64(), safe=False))

    def _fail(self, is_bad: Array, what: str) -> NoReturn:
        """Raise an error at the first of the bad rows."""
        line = next(itertools.islice(itertools.chain.from_iterable(self._lines), int(is_bad.argmax()), None))
        if self._format in ("parquet", "arrow"):
            raise DataFormatError(f"row {line}: {what}", self._name)
        raise DataFormatError(what, self._name, line)


def _plain_numbers(cells: Any) -> Array:
    """Return the finite numbers in text as programs write them, NaN elsewhere."""
    try:
        numbers = _to_numpy(cells.cast(pa.float64()))  # accepts inf and nan
    except pa.ArrowInvalid:
        is_number = pc.match_substring_regex(cells, f"^(?:{NUMBER})$")
        numbers = _to_numpy(pc.if_else(is_number, cells, pa.scalar(None, cells.type)).cast(pa.float64()))
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def _are_canonical(cells: Any) -> bool:
    """Return whether all texts are integers as programs write them: the number has this text, and no other."""
    return bool(pc.all(pc.match_substring_regex(cells, _CANONICAL)).as_py())


def _integers(cells: Any) -> Array | None:
    """Return integers, or text that is all canonical integers, as int64; None if they are not, or need more bits."""
    if not pa.types.is_integer(cells.type) and not (_is_text(cells) and _are_canonical(cells)):
        return None
    try:
        return np.array(cells.cast(pa.int64()).to_numpy(), dtype=np.int64)
    except pa.ArrowInvalid:
        return None


def _texts(cells: Any) -> Array:
    encoded = _categorical(cells).cat
    return np.array(encoded.categories, dtype=object)[encoded.codes.to_numpy()]


def _categorical(cells: Any) -> Any:
    return cells.dictionary_encode().to_pandas()


def _to_numpy(cells: Any) -> Array:
    return np.array(cells.to_numpy(), dtype=np.float64)


def _as_dates(cells: Any) -> Array:
    """Return dates and times as datetime64, on the clock of their time zone."""
    if pa.types.is_timestamp(cells.type) and cells.type.tz is not None:
        cells = pc.local_timestamp(cells)
    return np.array(cells.cast(pa.timestamp("s"), safe=False).to_numpy(), dtype="datetime64[s]")


def _is_text(cells: Any) -> bool:
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
