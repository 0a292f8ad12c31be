"""Checks of the files that a command reads and writes, before it does any work."""

from __future__ import annotations

import csv
import gzip
import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import Any

from dropmargin.cli.console import UsageError

STANDARD = "-"
_MAX_HEADER = 2**20
# In the head of the pages of `dropmargin.report`.
_REPORT_MARK = b'<meta name="generator" content="dropmargin">'
_PREDICTED = re.compile(
    r"label|decision|stability|prediction|std|interval_(low|high)|(decision|probability)_.*", re.DOTALL
)


def check_can_read(*paths: str | None) -> None:
    """Raise the error of the system if a file does not exist; ``-`` is standard input."""
    for path in paths:
        if path is not None and path != STANDARD:
            os.stat(path)


def more_inputs(options: Any) -> tuple[str | None, ...]:
    """Return the files that training reads besides the data."""
    stop_words = None if options.stop_words == "english" else options.stop_words
    return options.feature_names, options.groups, stop_words


def check_can_write(option: str, path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that cannot be written or would replace an input.

    ``option`` is the option or argument that names the output; ``inputs`` are the files that are read.
    """
    check_keeps_inputs(option, path, inputs)
    folder = os.path.dirname(os.path.realpath(path))
    if path == STANDARD:
        raise UsageError(f"{option}: this cannot be written to standard output; name a file")
    if os.path.isdir(path):
        raise IsADirectoryError(21, "cannot write: it is a folder", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, f"cannot write: there is no folder {folder}", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "cannot write: no permission to write in its folder", path)


def check_keeps_inputs(option: str, path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that is the same file as an input, also by a link or another path."""
    found = _regular_file(path)
    for name in inputs:
        other = None if name is None else _regular_file(name)
        if found is not None and other is not None and os.path.samestat(found, other):
            read = "standard input" if name == STANDARD else name
            raise UsageError(
                f"{option} {path}: this command reads that file ({read}) and would replace it; name another output"
            )


def check_replaces_model(option: str, path: str, options: Any) -> None:
    """Refuse to replace a file that is not a model, unless ``--force`` is given."""

    def is_model() -> bool:
        from dropmargin.io.model import ModelFormatError, describe

        try:
            return bool(describe(path))
        except ModelFormatError:
            return False

    _check_replaces(option, path, options, "a model", is_model)


def check_replaces_predictions(option: str, path: str, options: Any, ids: str | None) -> None:
    """Refuse to replace a file whose first line is not the header of predictions, unless ``--force`` is given.

    ``ids`` is the name of a column before those of the predictions, if there is one.
    """

    def has_header() -> bool:
        try:
            with (gzip.open if path.lower().endswith(".gz") else open)(path, "rb") as file:
                line = file.readline(_MAX_HEADER).decode()
            header = next(csv.reader([line], delimiter="\t" if "\t" in line else ","), [])
        except (OSError, EOFError, UnicodeDecodeError, csv.Error):
            return False
        header = header[1:] if ids is not None and header[:1] == [ids] else header
        return bool(header) and all(map(_PREDICTED.fullmatch, header))

    _check_replaces(option, path, options, "a file of predictions with a header", has_header)


def check_replaces_export(option: str, path: str, options: Any, to: str) -> None:
    """Refuse to replace a file that does not begin as an export of this kind does, unless ``--force`` is given."""

    def is_export() -> bool:
        start = _start(path)
        return start.startswith(b"solver_type") if to == "liblinear" else start[:1] == b"\x08" and b"onnx" in start

    _check_replaces(option, path, options, f"an export for {to}", is_export)


def check_replaces_report(option: str, path: str, options: Any) -> None:
    """Refuse to replace a file that is not a page of `dropmargin.report`, unless ``--force`` is given."""
    _check_replaces(option, path, options, "a report of dropmargin", lambda: _REPORT_MARK in _start(path))


def _check_replaces(option: str, path: str, options: Any, kind: str, is_such: Callable[[], bool]) -> None:
    """Refuse to replace a file of another kind; nothing is lost if it is empty or not a regular file."""
    found = _regular_file(path)
    if not options.force and found is not None and found.st_size and not is_such():
        raise UsageError(
            f"{option} {path}: this file exists and is not {kind}; name another file, or replace it by --force"
        )


def _start(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_MAX_HEADER)


def _regular_file(path: str) -> os.stat_result | None:
    """Return the status of a regular file, or None if there is none at the path; ``-`` is standard input."""
    try:
        found = os.fstat(0) if path == STANDARD else os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
