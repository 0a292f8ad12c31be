"""``dropmargin predict DATA MODEL``: files are read and predicted in parts, so they may be larger than memory."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, printable
from dropmargin.cli.files import STANDARD, check_can_read, check_keeps_inputs, check_output
from dropmargin.cli.program import Command

_OUTPUTS = ("label", "decision", "probability", "stability", "prediction", "std", "interval")


def _outputs(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    for name in found:
        if name not in _OUTPUTS:
            raise click.BadParameter(f"expected some of {', '.join(_OUTPUTS)}, got {name!r}")
    return found


_PARAMS = [
    shared.file_argument("data"),
    shared.file_argument("model"),
    shared.path_option("-o", "--out", default=STANDARD, help="Output file; - is standard output."),
    shared.FORCE,
    shared.list_option("--output", parse=_outputs, show_default="label or prediction", help=", ".join(_OUTPUTS) + "."),
    shared.option("--stability-noise", type=shared.noise_spec, metavar="NOISE", help="By default that of the model."),
    shared.option("--coverage", type=shared.rate, default=0.9, metavar="R", help="Probability of an interval."),
    shared.option("--ids", type=shared.column_name, metavar="COLUMN", help="Tables: write this column first."),
    shared.option("--no-header", help="Omit the first line, the names of the columns."),
    shared.SAFE_CSV,
    shared.IGNORE_EXTRA,
    *shared.DATA_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Predict labels, probabilities or numbers.")
def predict(options: SimpleNamespace, console: Console) -> None:
    """Predict the rows of the file DATA by the model file MODEL.

    DATA may be - for standard input (with --format).
    """
    to_file = options.out != STANDARD
    if console.as_json and not to_file:
        raise UsageError("--json needs -o FILE, as the predictions are on standard output")
    inputs = (options.data, options.model)
    check_can_read(*inputs)
    if to_file and not _is_device(options.out):
        check_output("--out", options.out, inputs, options, "a file of predictions with a header")
    elif not to_file:  # with ">> DATA" the command would read its own output
        check_keeps_inputs("standard output", "/dev/stdout", inputs)
    from dropmargin.cli.predictions import PredictionWriter
    from dropmargin.cli.reading import SavedModel, read_parts

    started = time.perf_counter()
    model = SavedModel.from_file(options.model)
    writer = PredictionWriter(model, options)
    blocks = writer.blocks(read_parts(options.data, model, options, console, labels=False))
    if not to_file:
        _print(blocks, sys.stdout)
        return
    _write(options.out, blocks)
    seconds = round(time.perf_counter() - started, 3)
    facts = {"rows": writer.n_rows, "out": options.out, "columns": writer.columns, "seconds": seconds}
    console.result(facts, f"{writer.n_rows} rows in {seconds:.2f} s\nsaved {options.out}")


def _write(path: str, blocks: Iterable[bytes]) -> None:
    """Write a file as a whole or not at all; write a device or a pipe block by block."""
    from dropmargin.io.atomic import write_atomically

    if path.lower().endswith(".gz"):
        blocks = map(gzip.compress, blocks)  # a gzip file may have several members
    if not _is_device(path):
        write_atomically(path, blocks)
        return
    with open(path, "wb") as file:
        file.writelines(blocks)


def _is_device(path: str) -> bool:
    """Return whether a path is a device or a pipe."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _print(blocks: Iterable[bytes], stream: Any) -> None:
    """Write UTF-8, whatever the locale; to a terminal, text in its encoding with control characters escaped."""
    binary = None if stream.isatty() else getattr(stream, "buffer", None)
    for block in blocks:
        if binary is None:
            stream.write(printable(block.decode()) if stream.isatty() else block.decode())
            continue
        rest = memoryview(block)
        while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may write a part only
            rest = rest[binary.write(rest) :]
    stream.flush()
