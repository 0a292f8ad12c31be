"""``dropmargin demo [FOLDER]``: the main job from end to end, by the commands that a user would type."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, printable
from dropmargin.cli.streams import writing_output

FOLDER = "dropmargin-demo"
_TARGET = "digit"
_GRID = ("--noises", "0.05,0.1,0.3", "--cs", "0.01,0.1,1,10", "--folds", "3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", nargs="?", default=FOLDER, help=f"where to write to (default: {FOLDER})")
    parser.add_argument(
        "--n-jobs", type=shared.n_jobs_of, metavar="N", help="threads, -1 for all; the result is the same"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the data, run one command after the other, and say what is where."""
    from dropmargin.cli.main import SUCCESS

    os.makedirs(options.folder, exist_ok=True)
    # With --json standard output has one object, and nothing else.
    with contextlib.redirect_stdout(sys.stderr) if console.as_json else contextlib.nullcontext():
        train, test = _write_digits(options.folder)
        _show(f"8 x 8 pictures of digits, half of them to learn from: {train}\nand half to test: {test}")
        made = {
            "cross-validated": "chosen.json",
            "model": "model.json",
            "predictions": "predictions.csv",
            "report": "report.html",
        }
        written = {name: os.path.join(options.folder, file) for name, file in made.items()}
        threads = () if options.n_jobs is None else ("--n-jobs", str(options.n_jobs))
        code = _run_commands(_Steps(console), train, test, written, threads)
    if code != SUCCESS:
        return code
    written = {"training data": train, "test data": test} | written
    width = max(map(len, written))
    lines = [f"  {name.ljust(width)}  {os.path.abspath(path)}" for name, path in written.items()]
    console.result({"command": "demo", "files": written}, "\n".join(["\nWritten:", *lines]))
    return SUCCESS


def _run_commands(steps: _Steps, train: str, test: str, written: dict[str, str], threads: tuple[str, ...]) -> int:
    """Run the commands of the main job and return the exit code of the last."""
    chosen, model, predictions, report = written.values()
    labelled = ("--target", _TARGET)
    steps.run(
        "Cross-validation chooses the noise and C.",
        *("cv", train, *labelled, *_GRID, *threads, "-o", chosen),
    )
    steps.run(
        "A model with these, which knows what to do about missing pixels.",
        *("train", train, model, *labelled, *steps.settings(chosen), "--missing", "rescale"),
    )
    stability = ("--output", "label,stability", "--stability-noise", "dropout=0.5")
    steps.run(
        "Labels, and how probable each is to survive the loss of half of the pixels.",
        *("predict", test, model, "-o", predictions, *stability),
    )
    steps.run("The labels against the truth, with nothing deleted.", "evaluate", test, model)
    steps.run(
        "The nightmare: pixels are deleted, against the peers of scikit-learn, all with their best settings.",
        *("nightmare", train, test, *labelled, "--delete", "0:0.9:10", *_GRID, *threads, "--html", report),
    )
    return steps.code


class _Steps:
    """Commands, one after the other; after one that failed, no more are run."""

    def __init__(self, console: Console) -> None:
        self.code = 0
        self._flags = ("--quiet",) if console.quiet else ()

    def run(self, why: str, *arguments: str) -> None:
        """Say what a command is for, show it as it would be typed, and run it."""
        from dropmargin.cli.main import main

        if self.code == 0:
            _show(f"\n# {why}\n$ {shlex.join(['dropmargin', *arguments])}")
            self.code = main([*arguments, *self._flags])

    def settings(self, path: str) -> tuple[str, ...]:
        """Return the options for the noise and C that a model file of ``dropmargin cv`` has."""
        from dropmargin.io.model import describe

        if self.code != 0:
            return ()
        summary = describe(path)["summary"]
        return "--noise", summary["noise"], "-c", f"{summary['C']:g}"


def _show(text: str) -> None:
    """Print at once: the commands write to standard error, too."""
    with writing_output():
        print(printable(text), flush=True)


def _write_digits(folder: str) -> tuple[str, str]:
    """Write the digits of scikit-learn as two tables, one column per pixel, and return their paths."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from dropmargin.io.atomic import write_atomically

    X, y = load_digits(return_X_y=True)
    halves = train_test_split(X / 16.0, y, test_size=0.5, random_state=0, stratify=y)
    header = ",".join([_TARGET, *(f"pixel_{row}_{column}" for row in range(8) for column in range(8))])
    paths = os.path.join(folder, "train.csv"), os.path.join(folder, "test.csv")
    for path, pixels, labels in zip(paths, halves[:2], halves[2:], strict=True):
        rows = (",".join([str(label), *(f"{x:g}" for x in row)]) for label, row in zip(labels, pixels, strict=True))
        write_atomically(path, ["\n".join([header, *rows, ""]).encode()])
    return paths
