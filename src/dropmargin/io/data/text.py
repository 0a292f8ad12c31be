"""Raw text: a document a line, or, if labels are asked for, a label, a tab and a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from dropmargin.io.data.cells import Tally, labels_from_cells
from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError, quoted
from dropmargin.io.data.sources import Source, decoded_blocks

_BLOCK_BYTES = 2**20
_SVMLIGHT_LINE = re.compile(r"\s*[+-]?[0-9.]+(\s+[0-9]+:[-+0-9.eE]+)+\s*(#.*)?")
# Not for a label: it may well be "NA" or "null".
_NO_LABEL = ("",)


def read_text(source: Source, options: ReadOptions) -> Dataset:
    """Return a whole file."""
    documents: list[str] = []
    labels: list[str] = []
    numbers: list[int] = []
    for part_numbers, part_labels, part_documents in _parts(source, options, _BLOCK_BYTES):
        numbers += part_numbers
        labels += part_labels
        documents += part_documents
    if not documents:
        raise DataFormatError("there are no documents", source.name)
    kind = options.label_kind
    if options.target is not None and kind is None:
        tally = Tally()
        tally.add(labels, numbers, _NO_LABEL)
        kind = tally.label_kind
    return _dataset(source, options, kind, numbers, labels, documents)


def chunk_text(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield the documents of about ``chunk_bytes`` bytes at a time; labels stay strings if not told what they are."""
    for part in _parts(source, options, chunk_bytes):
        if part[2]:
            yield _dataset(source, options, options.label_kind, *part)


def _dataset(
    source: Source, options: ReadOptions, kind: str | None, numbers: list[int], labels: list[str], documents: list[str]
) -> Dataset:
    def complain(position: int, what: str) -> NoReturn:
        raise DataFormatError(what, source.name, numbers[position])

    if options.target is None:
        return Dataset(documents)
    return Dataset(documents, labels_from_cells(labels, kind, _NO_LABEL, complain))  # type: ignore[arg-type]


def _parts(source: Source, options: ReadOptions, n_bytes: int) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Yield numbers of lines, labels (none if they are not asked for) and documents."""
    with source.open() as stream:
        for first, raw in decoded_blocks(stream, source.name, n_bytes):
            lines = [line.removesuffix("\r") for line in raw]
            if first == 1 and options.format is None and _SVMLIGHT_LINE.fullmatch(lines[0][:1000]):
                what = "this looks like svmlight, not like a document (say --format svmlight or --format text)"
                raise DataFormatError(what, source.name, 1)
            if options.target is None:  # an empty line is an empty document: its prediction is on the same line
                yield list(range(first, first + len(lines))), [], lines
                continue
            numbers, labels, documents = [], [], []
            for number, line in enumerate(lines, first):
                if not line:
                    continue
                label, tab, document = line.partition("\t")
                if not tab:
                    what = (
                        f"expected a label, a tab and a document, got {quoted(line)} (labels were asked for: --target)"
                    )
                    raise DataFormatError(what, source.name, number)
                numbers.append(number)
                labels.append(label)
                documents.append(document)
            yield numbers, labels, documents
