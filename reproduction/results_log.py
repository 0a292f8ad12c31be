"""The results log of an experiment: each measurement is saved at once, and is not repeated by a later run.

A log is a text file with one JSON object per line. The first line is a header: the experiment, whether it is the
quick version, the seed, and the versions of the libraries. Each other line is a measurement: its ``key`` (data, model,
parameters) and its ``result``. A run with another version of this package, or with other code under the same version,
measures all anew: it appends a header of its own, and the lines below a header were measured by its code. An
interruption loses the current measurement only. If it leaves an incomplete line at the end of the file, the line is
removed when the log is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dropmargin
from dropmargin import __version__
from dropmargin.io.atomic import write_atomically
from dropmargin.progress import Progress

_FORMAT = 1
_LIBRARIES = ("numpy", "scipy", "scikit-learn")
# Measurements that differ in one of these must not be in the same log.
_IDENTITY = ("format", "experiment", "quick", "seed")
# The part of the package on which measurements depend.
_MEASURING = (
    "data", "noise", "losses", "penalties.py", "objective", "solvers", "estimators", "model_selection", "evaluation",
)  # fmt: skip


class ResultsLogError(ValueError):
    """A results log cannot be read, is not complete, or belongs to another experiment or seed."""


@dataclass(frozen=True)
class Measurement:
    """One line of a log: the key, the result, and the time in seconds."""

    key: Mapping[str, Any]
    result: Mapping[str, Any]
    seconds: float

    def matches(self, wanted: Mapping[str, Any]) -> bool:
        """Return whether the key has all values of ``wanted``."""
        return all(name in self.key and self.key[name] == value for name, value in wanted.items())


@dataclass(frozen=True)
class Task:
    """A measurement: its key, and the function that returns its result."""

    key: Mapping[str, Any]
    measure: Callable[[], Mapping[str, Any]]


class ResultsLog:
    """The measurements of one experiment by one version of the package.

    Parameters
    ----------
    path : path-like
        The file. The first measurement creates it, and its folder.
    header : mapping
        The line above the measurements, see `make_header`.
    measurements : sequence of Measurement, default=()
        Those of this version that are in the file.
    is_last : bool, default=True
        Whether the header is the last one of the file; if not, the next measurement repeats it.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], measurements: Sequence[Measurement] = (), is_last: bool = True
    ) -> None:
        self.path = path
        self.header = dict(header)
        self._is_last = is_last
        self._measurements = {_canonical(measurement.key): measurement for measurement in measurements}

    def __len__(self) -> int:
        return len(self._measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._measurements.values())

    def get(self, key: Mapping[str, Any]) -> Measurement | None:
        """Return the measurement with exactly this key, or None if there is none."""
        return self._measurements.get(_canonical(key))

    def __getitem__(self, key: Mapping[str, Any]) -> Measurement:
        found = self.get(key)
        if found is None:
            raise ResultsLogError(
                f"{self.path} has no measurement for {_canonical(key)}: run the experiment to its end."
            )
        return found

    def select(self, **wanted: Any) -> list[Measurement]:
        """Return the measurements whose keys have these values, in the order of the file."""
        return [measurement for measurement in self if measurement.matches(wanted)]

    def add(self, measurement: Measurement) -> None:
        """Append a measurement to the file, and wait until it is on the disk."""
        line = json.dumps({"key": measurement.key, "result": measurement.result, "seconds": measurement.seconds})
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, [(json.dumps(self.header) + "\n").encode()])
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("" if self._is_last else json.dumps(self.header) + "\n") + line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._is_last = True
        # Parsed from the line, so that a resumed run and an uninterrupted one have the same values.
        self._measurements[_canonical(measurement.key)] = _measurement(json.loads(line))

    def perform(self, tasks: Sequence[Task], label: str, verbose: int = 1) -> None:
        """Perform the tasks whose measurements are not in the log yet."""
        remaining = [task for task in tasks if self.get(task.key) is None]
        with Progress(len(remaining), label, verbose=verbose) as progress:
            for task in remaining:
                started = time.perf_counter()
                result = task.measure()
                self.add(Measurement(task.key, result, round(time.perf_counter() - started, 3)))
                progress.advance()

    @property
    def seconds(self) -> float:
        """The total time of the measurements."""
        return sum(measurement.seconds for measurement in self)


def command_of(experiment: str, quick: bool, seed: int) -> str:
    """Return the command that reproduces the results: with all options that change them, and without folders."""
    return f"python -m reproduction {experiment}" + " --quick" * quick + (f" --seed {seed}" if seed else "")


def make_header(experiment: str, *, quick: bool, seed: int, threads: int) -> dict[str, Any]:
    """Return the first line of a log."""
    return {
        "format": _FORMAT,
        "experiment": experiment,
        "quick": quick,
        "seed": seed,
        "command": command_of(experiment, quick, seed),
        "threads": threads,
        "versions": {
            "python": platform.python_version(),
            "dropmargin": code_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
    }


def code_version(root: Path = Path(dropmargin.__file__).parent) -> str:
    """Return the version of this package with a hash of the code that measurements depend on, `0.2.0+1a2b3c4d5e6f`."""
    digest = hashlib.sha256()
    for path in sorted(path for part in _MEASURING for path in [root / part, *(root / part).rglob("*")]):
        if path.is_file() and path.suffix in (".py", ".c", ".h"):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def log_path(folder: str | os.PathLike[str], experiment: str, quick: bool) -> Path:
    """Return the path of an experiment's log."""
    return Path(folder) / f"{experiment}{'-quick' if quick else ''}.jsonl"


def open_log(folder: str | os.PathLike[str], header: Mapping[str, Any], fresh: bool = False) -> ResultsLog:
    """Return the log to continue, or a new one if there is none or ``fresh`` is true.

    Measurements of another version of the package stay in the file and are not in the log.
    An incomplete line at the end, which an interruption may have left, is removed from the file.
    """
    path = log_path(folder, header["experiment"], header["quick"])
    if fresh:
        path.unlink(missing_ok=True)
    if not path.exists():
        return ResultsLog(path, header)
    sections, n_complete = _read(path)
    for own, _ in sections:
        for name in _IDENTITY:
            if own.get(name) != header[name]:
                raise ResultsLogError(
                    f"{path} has results for {name} {own.get(name)!r}, not {header[name]!r}. "
                    "Pass --fresh to start anew, or another folder with --results."
                )
    if n_complete < path.stat().st_size:
        os.truncate(path, n_complete)
    return _of_version(path, sections, header)


def read_log(path: Path) -> ResultsLog:
    """Return the log of the version that measured last, without changing the file."""
    sections, _ = _read(path)
    measured = [header for header, measurements in sections if measurements] or [sections[0][0]]
    return _of_version(path, sections, measured[-1])


def version_of(header: Mapping[str, Any]) -> str:
    """Return the version of this package that measured the lines below a header."""
    versions = header.get("versions")
    return str(versions.get("dropmargin", "unknown")) if isinstance(versions, Mapping) else "unknown"


_Section = tuple[dict[str, Any], list[Measurement]]


def _of_version(path: Path, sections: Sequence[_Section], header: Mapping[str, Any]) -> ResultsLog:
    """Return the log of the measurements by the version of a header."""
    own = [section for section in sections if version_of(section[0]) == version_of(header)]
    measurements = [measurement for _, section in own for measurement in section]
    return ResultsLog(path, own[-1][0] if own else header, measurements, bool(own) and own[-1] is sections[-1])


def _read(path: Path) -> tuple[list[_Section], int]:
    """Return the headers of a file and the measurements below each, and the size of its complete lines in bytes."""
    lines = path.read_bytes().split(b"\n")
    n_complete = sum(len(line) + 1 for line in lines[:-1])  # the last item is empty or an incomplete line
    sections: list[_Section] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entry = json.loads(line)
            if sections and "key" in entry:
                sections[-1][1].append(_measurement(entry))
            elif isinstance(entry, dict) and entry.get("format") == _FORMAT:
                sections.append((entry, []))
            else:
                raise ValueError(f"neither a measurement nor a header of format {_FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsLogError(
                f"{path}, line {number}: not a line of a results log ({error}). Pass --fresh to start anew."
            ) from error
    if not sections:
        raise ResultsLogError(f"{path} is empty. Pass --fresh to start anew.")
    return sections, n_complete


def _measurement(entry: Any) -> Measurement:
    key, result = dict(entry["key"]), dict(entry["result"])
    return Measurement(key, result, float(entry["seconds"]))


def _canonical(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
