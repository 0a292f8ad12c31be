"""The lab book of an experiment: every measurement is on disk as soon as it is made, and none is made twice.

A book is a text file, one JSON object per line. The first line says what the experiment is and with what it was made;
every other line is a measurement: its ``key`` (what was measured) and its ``result``. An interruption costs the
measurement that was under way, at most half a line of text, which is cut off when the book is opened again.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dropmargin.io.model.atomic import write_atomically
from dropmargin.progress import Progress

_FORMAT = 1
_LIBRARIES = ("dropmargin", "numpy", "scipy", "scikit-learn")
# What a book is about: measurements with other values of these do not belong in it.
_SUBJECT = ("format", "experiment", "quick", "seed")


class LabBookError(ValueError):
    """A lab book that cannot be read, or that is about something else."""


@dataclass(frozen=True)
class Measurement:
    """One line of a book: what was measured, what came out, and how long it took."""

    key: Mapping[str, Any]
    result: Mapping[str, Any]
    seconds: float

    def has(self, wanted: Mapping[str, Any]) -> bool:
        """Return whether all of ``wanted`` is in the key."""
        return all(name in self.key and self.key[name] == value for name, value in wanted.items())


@dataclass(frozen=True)
class Task:
    """A measurement to be made: its key, and the function that makes it and returns the result."""

    key: Mapping[str, Any]
    measure: Callable[[], Mapping[str, Any]]


class LabBook:
    """The measurements of one experiment.

    Parameters
    ----------
    path : path-like
        The file; it is made, with its folder, at the first measurement.
    header : mapping
        What the first line says, see `header_of`.
    measurements : iterable of Measurement
        Those that are in the file.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], measurements: Sequence[Measurement] = ()) -> None:
        self.path = path
        self.header = dict(header)
        self._found = {_canonical(measurement.key): measurement for measurement in measurements}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._found.values())

    def get(self, key: Mapping[str, Any]) -> Measurement | None:
        """Return the measurement with just this key, if it was made."""
        return self._found.get(_canonical(key))

    def __getitem__(self, key: Mapping[str, Any]) -> Measurement:
        found = self.get(key)
        if found is None:
            raise LabBookError(f"{self.path} has no measurement for {_canonical(key)}: run the experiment to its end.")
        return found

    def select(self, **wanted: Any) -> list[Measurement]:
        """Return the measurements whose keys have these values, in the order they were made."""
        return [measurement for measurement in self if measurement.has(wanted)]

    def add(self, measurement: Measurement) -> None:
        """Write a measurement into the file, down to the disk."""
        line = json.dumps({"key": measurement.key, "result": measurement.result, "seconds": measurement.seconds})
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, [(json.dumps(self.header) + "\n").encode()])
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        # What is read back from the line, so that a resumed run and an uninterrupted one see the same.
        self._found[_canonical(measurement.key)] = _measurement(json.loads(line))

    def perform(self, tasks: Sequence[Task], label: str, verbose: int = 1) -> None:
        """Make all measurements that are not in the book yet."""
        waiting = [task for task in tasks if self.get(task.key) is None]
        with Progress(len(waiting), label, verbose=verbose) as progress:
            for task in waiting:
                started = time.perf_counter()
                result = task.measure()
                self.add(Measurement(task.key, result, round(time.perf_counter() - started, 3)))
                progress.advance()

    @property
    def seconds(self) -> float:
        """What all measurements took together."""
        return sum(measurement.seconds for measurement in self)


def header_of(experiment: str, *, quick: bool, seed: int, command: str, threads: int) -> dict[str, Any]:
    """Return the first line of a book: its subject, and what it was made with."""
    return {
        "format": _FORMAT,
        "experiment": experiment,
        "quick": quick,
        "seed": seed,
        "command": command,
        "threads": threads,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
    }


def book_path(folder: str | os.PathLike[str], experiment: str, quick: bool) -> Path:
    """Return where the book of an experiment is."""
    return Path(folder) / f"{experiment}{'-quick' if quick else ''}.jsonl"


def open_book(folder: str | os.PathLike[str], header: Mapping[str, Any], fresh: bool = False) -> LabBook:
    """Return the book to go on with, or a new one if there is none or it is to be ``fresh``.

    Half a line at the end, which an interruption may have left, is cut off.
    """
    path = book_path(folder, header["experiment"], header["quick"])
    if fresh:
        path.unlink(missing_ok=True)
    if not path.exists():
        return LabBook(path, header)
    book, whole = _read(path)
    for name in _SUBJECT:
        if book.header.get(name) != header[name]:
            raise LabBookError(
                f"{path} has results for {name} {book.header.get(name)!r}, not {header[name]!r}. "
                "Pass --fresh to start anew, or another folder with --results."
            )
    if whole < path.stat().st_size:
        os.truncate(path, whole)
    return book


def read_book(path: Path) -> LabBook:
    """Return a book to be looked at; its file is not changed."""
    return _read(path)[0]


def _read(path: Path) -> tuple[LabBook, int]:
    """Return a book, and how many bytes of its file are whole lines."""
    lines = path.read_bytes().split(b"\n")
    whole = sum(len(line) + 1 for line in lines[:-1])  # what follows the last newline is half a line, or nothing
    entries = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entries.append(json.loads(line))
            if number > 1:
                entries[-1] = _measurement(entries[-1])
            elif not isinstance(entries[0], dict) or entries[0].get("format") != _FORMAT:
                raise ValueError(f"the first line is not a header of format {_FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise LabBookError(
                f"{path}, line {number}: not a line of a lab book ({error}). Pass --fresh to start anew."
            ) from error
    if not entries:
        raise LabBookError(f"{path} is empty. Pass --fresh to start anew.")
    return LabBook(path, entries[0], entries[1:]), whole


def _measurement(entry: Any) -> Measurement:
    key, result = dict(entry["key"]), dict(entry["result"])
    return Measurement(key, result, float(entry["seconds"]))


def _canonical(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
