"""Results of the benchmarks: one file of JSON lines each, from which all tables and figures are made.

::

    from benchmarks import results

    results.write("calibration", rows, key=("table", "method"))    # rows: dictionaries; results/calibration.jsonl
    for row in results.read("calibration"):
        ...

Each line of a file has the name ``run``. A line in which it is an object describes a run: its number, the command, the
date, the machine and the versions. In a row it is the number of the run that measured it. `write` replaces the earlier
rows that have the same values under ``key``, so that a part of a benchmark can be measured anew, and nothing is lost if
a run is interrupted: call it after each part.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dropmargin.io.atomic import write_atomically

FOLDER = Path(os.environ.get("DROPMARGIN_RESULTS", Path(__file__).parent / "results"))
_LIBRARIES = ("dropmargin", "numpy", "scipy", "scikit-learn")
# Of the last minute before the benchmark.
_LOAD = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def write(name: str, rows: Iterable[Mapping[str, Any]], key: Sequence[str] = (), libraries: Sequence[str] = ()) -> Path:
    """Store the rows of a benchmark, and return the file.

    Parameters
    ----------
    name : str
        Of the benchmark: the file is ``results/NAME.jsonl``.
    rows : iterable of mappings
        What was measured, as values that JSON has (NumPy's numbers are converted).
    key : sequence of str, default=()
        The names whose values say what a row is about: earlier rows with the same values are replaced. Without names,
        all earlier rows are.
    libraries : sequence of str, default=()
        Packages whose versions matter to this benchmark, beside dropmargin, NumPy, SciPy and scikit-learn.
    """
    measured = [json.loads(json.dumps({k: v for k, v in row.items() if k != "run"}, default=_plain)) for row in rows]
    replaced = {tuple(row[part] for part in key) for row in measured}
    kept = [row for row in read(name) if key and tuple(row.get(part) for part in key) not in replaced]
    lines: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    run = describe(libraries)
    for row in [*kept, *({**row, "run": run} for row in measured)]:
        text = json.dumps(row["run"], sort_keys=True)
        if text not in numbers:
            numbers[text] = len(numbers) + 1
            lines.append({"run": {"number": numbers[text], **row["run"]}})
        lines.append({"run": numbers[text], **{k: v for k, v in row.items() if k != "run"}})
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.jsonl"
    write_atomically(path, [(json.dumps(line) + "\n").encode() for line in lines])
    return path


def read(name: str) -> list[dict[str, Any]]:
    """Return the stored rows of a benchmark, each with its ``run`` as a dictionary; none if nothing is stored."""
    path = FOLDER / f"{name}.jsonl"
    runs: dict[int, dict[str, Any]] = {}
    rows = []
    for text in path.read_text().splitlines() if path.exists() else []:
        line = {"run": None, **json.loads(text)}
        if isinstance(line["run"], dict):
            runs[line["run"].pop("number")] = line["run"]
        else:
            rows.append(line | {"run": runs.get(line["run"], {})})
    return rows


def describe(libraries: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the figures of this process depend on: command, date, machine and versions."""
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
    arguments = list(sys.argv[1:])
    if "--folder" in arguments:  # its name says nothing to others
        where = arguments.index("--folder")
        del arguments[where : where + 2]
    threads = os.environ.get("OMP_NUM_THREADS")
    return {
        "command": " ".join([*([f"OMP_NUM_THREADS={threads}"] if threads else []), "python", program, *arguments]),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load_before": _LOAD,
        "python": platform.python_version(),
        "versions": {library: _version(library) for library in (*_LIBRARIES, *libraries)},
    }


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    """Return a value of NumPy as one that JSON has."""
    return value.tolist()
