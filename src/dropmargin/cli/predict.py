"""``dropmargin predict DATA MODEL -o OUTPUT``: a file larger than memory goes through, part by part."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, printable
from dropmargin.cli.streams import writing_output

_STDOUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("data", help="the data file; - is standard input (with --format)")
    parser.add_argument("model", help="the model file")
    parser.add_argument("-o", "--out", default=_STDOUT, metavar="FILE", help="by default standard output")
    outputs = "label, decision, probability or stability, or several with commas (default: label)"
    parser.add_argument("--output", type=_outputs, default=("label",), metavar="WHAT", help=outputs)
    parser.add_argument("--stability-noise", type=shared.noise_name, metavar="NOISE", help="default: that of training")
    parser.add_argument("--no-header", action="store_true", help="no first line with the names of the columns")
    safe = "put a single quote before labels that a spreadsheet would run as a formula"
    parser.add_argument("--safe-csv", action="store_true", help=safe)
    parser.add_argument("--ignore-extra", action="store_true", help="svmlight: leave out features unknown to the model")
    shared.add_data_options(parser)


def _outputs(text: str) -> tuple[str, ...]:
    known, found = ("label", "decision", "probability", "stability"), tuple(text.split(","))
    for name in found:
        if name not in known:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {name!r}")
    return found


def run(options: argparse.Namespace, console: Console) -> int:
    """Predict, and write a line per row."""
    to_file = options.out != _STDOUT
    if console.as_json and not to_file:
        raise UsageError("--json needs -o FILE, since standard output has the predictions")
    inputs = (options.data, options.model)
    if to_file and not _is_device(options.out):
        shared.check_can_write("--out", options.out, inputs)
    elif not to_file:  # a shell has emptied the file by "> FILE", but ">> FILE" would read what it writes
        shared.check_keeps_inputs("standard output", "/dev/stdout", inputs)
    from dropmargin.cli.main import SUCCESS
    from dropmargin.cli.predictions import Table
    from dropmargin.cli.reading import SavedModel, read_parts
    from dropmargin.cli.training import Stopwatch

    watch = Stopwatch()
    model = SavedModel.from_file(options.model)
    noise = None if options.stability_noise is None else options.stability_noise.make()
    separator = "\t" if options.out.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","
    table = Table(model, options.output, noise, separator, safe=options.safe_csv)
    parts = read_parts(options.data, model, options, console, labels=False)
    blocks = table.blocks(parts, options.data, header=not options.no_header)
    if not to_file:
        _stream(blocks, sys.stdout)
        return SUCCESS
    _write(options.out, blocks)
    facts = {"rows": table.n_rows, "out": options.out, "columns": table.columns, "seconds": watch.seconds}
    console.result(facts, f"{table.n_rows} rows in {watch.seconds:.2f} s\nsaved {options.out}")
    return SUCCESS


def _write(path: str, blocks: Iterable[bytes]) -> None:
    """Write a file whole or not at all; a device or a pipe is written to as it is."""
    from dropmargin.io.atomic import write_atomically

    if path.lower().endswith(".gz"):
        blocks = _packed(blocks)
    if not _is_device(path):
        write_atomically(path, blocks)
        return
    with open(path, "wb") as file:
        file.writelines(blocks)


def _is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _stream(blocks: Iterable[bytes], stream: Any) -> None:
    """Write UTF-8, whatever the locale; to a terminal, text in its encoding and without control characters."""
    binary = None if stream.isatty() else getattr(stream, "buffer", None)
    for block in blocks:
        with writing_output():
            if binary is None:
                stream.write(printable(block.decode()) if stream.isatty() else block.decode())
                continue
            rest = memoryview(block)
            while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may take a part only
                rest = rest[binary.write(rest) :]
    with writing_output():
        stream.flush()


def _packed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same, gzipped."""
    import zlib

    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()
