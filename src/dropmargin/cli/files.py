"""Checks of the files that a command reads and writes, before it does any work."""

from __future__ import annotations

import csv
import gzip
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dropmargin.cli.console import UsageError

STANDARD = "-"
_MAX_HEADER = 2**20
# In the head of the pages of `dropmargin.report`.
_REPORT_MARK = b'<meta name="generator" content="dropmargin">'
_EXPLAINED = re.compile(rb'row([,\t])(label\1runner_up|prediction\1difference)\1|{"row": 1, "(label|prediction)": ')
_PREDICTED = re.compile(r"label|stability|prediction|std|interval_(low|high)|(decision|probability)(_.*)?", re.DOTALL)


def check_can_read(*paths: str | None) -> None:
    """Raise the error of the system if a file does not exist; ``-`` is standard input."""
    for path in paths:
        if path is not None and path != STANDARD:
            os.stat(path)


def read_text(option: str, path: str) -> str:
    """Return the content of a text file that an option names."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{option} {path}: this is not a text file in UTF-8") from None


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
            raise UsageError(f"{option} {path}: this command reads that file ({read}); name another output")


def check_output(option: str, path: str, inputs: Iterable[str | None], options: Any, kind: str) -> None:
    """Refuse an output as `check_can_write` does, and if it would replace a file that is not of this kind.

    ``kind`` is a key of `_KINDS`. Nothing is lost if the file is empty or not a regular file, or ``--force`` is given.
    """
    check_can_write(option, path, inputs)
    found = _regular_file(path)
    if not options.force and found is not None and found.st_size and not _KINDS[kind](path, options):
        raise UsageError(f"{option} {path}: this file exists and is not {kind}; name another, or use --force")


def _is_model(path: str, options: Any) -> bool:
    from dropmargin.io.model import ModelFormatError, describe

    try:
        return bool(describe(path))
    except ModelFormatError:
        return False


def _is_predictions(path: str, options: Any) -> bool:
    """Return whether the first line is the header of predictions, after a column of ids if the options name one."""
    try:
        line = _start_of_text(path).decode()
        header = next(csv.reader([line], delimiter="\t" if "\t" in line else ","), [])
    except (UnicodeDecodeError, csv.Error):
        return False
    header = header[1:] if options.ids is not None and header[:1] == [options.ids] else header
    return bool(header) and all(map(_PREDICTED.fullmatch, header))


#: The kinds of outputs, and whether a file begins as such an output does.
_KINDS: dict[str, Callable[[str, Any], bool]] = {
    "a model": _is_model,
    "a file of predictions with a header": _is_predictions,
    "a file of explanations": lambda path, options: _EXPLAINED.match(_start_of_text(path)) is not None,
    "a plot": lambda path, options: _start(path).startswith((b"\x89PNG", b"%PDF")) or b"<svg" in _start(path),
    "an export for liblinear": lambda path, options: _start(path).startswith(b"solver_type"),
    "an export for onnx": lambda path, options: _start(path)[:1] == b"\x08" and b"dropmargin" in _start(path),
    "a report of dropmargin": lambda path, options: _REPORT_MARK in _start(path),
}


def _start_of_text(path: str) -> bytes:
    """Return the first line of a file, decompressed if its name ends in .gz; nothing if that fails."""
    try:
        with (gzip.open if path.lower().endswith(".gz") else open)(path, "rb") as file:
            return file.readline(_MAX_HEADER)
    except (OSError, EOFError):
        return b""


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
