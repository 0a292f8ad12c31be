"""``dropmargin demo [FOLDER]``: the main commands, one after the other, on the digits data of scikit-learn."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, printable
from dropmargin.cli.program import Command

_TARGET = "digit"
_DATA = {"training data": "train.csv", "test data": "test.csv"}
_RESULTS = {
    "cross-validated": "chosen.safetensors",
    "model": "model.safetensors",
    "predictions": "predictions.csv",
    "report": "report.html",
}
_GRID = ("--noises", "0.05,0.1,0.3", "--cs", "0.001,0.01,0.1,1", "--folds", "3")
_PARAMS = [shared.file_argument("folder", default="dropmargin-demo"), shared.n_jobs_option()]


@click.command(cls=Command, params=_PARAMS, short_help="Run the main commands on data of scikit-learn.")
def demo(options: SimpleNamespace, console: Console) -> int:
    """Run the main commands on the digits data of scikit-learn, and write all files to FOLDER (dropmargin-demo).

    A folder with other files of the same names is refused.
    """
    files = {name: os.path.join(options.folder, file) for name, file in (_DATA | _RESULTS).items()}
    _write_tables(options.folder, list(files.values()), digits_tables())
    # With --json, standard output has one object and nothing else.
    with contextlib.redirect_stdout(sys.stderr) if console.as_json else contextlib.nullcontext():
        _print_now(f"8 x 8 images of digits, one half for training: {files['training data']}")
        _print_now(f"and the other half for testing: {files['test data']}")
        code = _run_commands(files, options, console)
    if code:
        return code
    width = max(map(len, files))
    lines = [f"  {name.ljust(width)}  {os.path.abspath(path)}" for name, path in files.items()]
    console.result({"command": "demo", "files": files}, "\n".join(["\nFiles:", *lines]))
    return 0


def digits_tables() -> dict[str, bytes]:
    """Return the digits of scikit-learn as two csv files by name, with a column per pixel."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True, as_frame=True)
    table = (pixels / 16.0).assign(**{_TARGET: labels})
    halves = train_test_split(table, test_size=0.5, random_state=0, stratify=labels)
    return {name: half.to_csv(index=False).encode() for name, half in zip(_DATA.values(), halves, strict=True)}


def _write_tables(folder: str, files: list[str], tables: dict[str, bytes]) -> None:
    """Write the data; refuse a folder with files of the same names, unless its data files are those of a demo."""
    from dropmargin.io.atomic import write_atomically

    existing = [path for path in files if os.path.exists(path)]
    for name, content in tables.items() if existing else ():
        path = Path(folder, name)
        if not path.is_file() or path.read_bytes() != content:
            first = str(path) if path.exists() else existing[0]
            raise UsageError(f"FOLDER {folder}: {first} exists and is not from an earlier demo; name another folder")
    os.makedirs(folder, exist_ok=True)
    for name, content in tables.items():
        write_atomically(os.path.join(folder, name), [content])


def _run_commands(files: dict[str, str], options: SimpleNamespace, console: Console) -> int:
    """Run the commands up to the first that fails, and return the exit code of the last."""
    train, test, chosen, model, predictions, report = files.values()
    target = ("--target", _TARGET)
    n_jobs = () if options.n_jobs is None else ("--n-jobs", str(options.n_jobs))
    stability = ["-o", predictions, "--output", "label,stability", "--stability-noise", "0.5"]
    deletion = ["--delete", "0:0.9:10", *_GRID, *n_jobs, "--html", report]
    steps = [
        ("Choose the noise and C by cross-validation.", ["cv", train, *target, *_GRID, *n_jobs, "-o", chosen]),
        ("Train a model that accepts missing pixels.", ["train", train, model, *target, "--missing", "rescale"]),
        ("Predict labels, and how sure they are with half of the pixels.", ["predict", test, model, *stability]),
        ("Compare the predictions with the labels, without any loss.", ["evaluate", test, model]),
        ("Delete pixels, and compare with other classifiers.", ["stress", train, test, *target, *deletion]),
    ]
    from dropmargin.cli.main import main

    for purpose, arguments in steps:
        if arguments[0] == "train":
            arguments = [*arguments, *_chosen_settings(chosen)]
        _print_now(f"\n# {purpose}\n$ {shlex.join(['dropmargin', *arguments])}")
        code = main([*arguments, *(["--quiet"] if console.quiet else [])])
        if code:
            return code
    return 0


def _chosen_settings(path: str) -> list[str]:
    """Return the options for the noise and C of a model that ``dropmargin cv`` has saved."""
    from dropmargin.io.model import describe

    summary = describe(path)["summary"]
    return ["--noise", summary["noise"], "-c", f"{summary['C']:g}"]


def _print_now(text: str) -> None:
    """Print at once, as the commands also write to standard error."""
    print(printable(text), flush=True)
