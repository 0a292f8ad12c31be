"""``dropmargin explain DATA MODEL``: what the predictions lean on, and how many columns must vanish for a flip."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterator
from itertools import chain, islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, plural, table_text
from dropmargin.cli.files import check_can_read, check_output
from dropmargin.cli.program import Command

if TYPE_CHECKING:
    from dropmargin.cli.reading import SavedModel
    from dropmargin.explanation import RowExplanation

_FORMATS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".jsonl": ""}
_BLOCK = 1000
_PLOTS = (".png", ".svg", ".pdf")
_PARAMS = [
    shared.file_argument("data"),
    shared.file_argument("model"),
    shared.option("--rows", type=shared.count, default=10, metavar="N", help="Rows to print, from the first on."),
    shared.option("--top", type=shared.count, default=5, metavar="N", help="Features or columns to list for a row."),
    shared.path_option("-o", "--output", help="Write all rows: *.csv, *.tsv or *.jsonl, also with .gz."),
    shared.path_option("--plot", help="Plot one row: *.png, *.svg or *.pdf."),
    shared.option("--row", type=shared.count, default=1, metavar="N", help="The row to plot; the first is 1."),
    shared.FORCE,
    shared.SAFE_CSV,
    shared.IGNORE_EXTRA,
    *shared.DATA_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Show what the predictions of a data file lean on.")
def explain(options: SimpleNamespace, console: Console) -> None:
    """Show what the predictions of the model file MODEL for the rows of the file DATA lean on.

    The contribution of a column, a word or a feature is how much the score of the label, against that of the
    runner-up, decreases when it vanishes. A label flips when as many of the strongest ones vanish as "flips after"
    tells. DATA may be - for standard input (with --format).
    """
    inputs = (options.data, options.model)
    check_can_read(*inputs)
    _check_name("--output", options.output, tuple(_FORMATS), ".gz")
    _check_name("--plot", options.plot, _PLOTS)
    if options.output is not None:
        check_output("--output", options.output, inputs, options, "a file of explanations")
    if options.plot is not None:
        check_output("--plot", options.plot, inputs, options, "a plot")
    from dropmargin.cli.reading import SavedModel
    from dropmargin.io.atomic import write_atomically

    model, shown = SavedModel.from_file(options.model), max(options.rows, options.row if options.plot else 1)
    rows = _explained(model, options, console, None if options.output else shown)
    first = list(islice(rows, shown))
    if options.output is not None:
        write_atomically(options.output, _blocks(chain(first, rows), options))
    facts = {"data": options.data, "model": options.model, "output": options.output, "plot": options.plot}
    facts["rows"] = [{"row": i, **row.to_dict()} for i, row in enumerate(first[: options.rows], 1)]
    saved = [f"saved {path}" for path in (options.output, options.plot) if path is not None]
    if options.plot is not None:
        if options.row > len(first):
            raise UsageError(f"--row {options.row}: {options.data} has {plural(len(first), 'row')}")
        _save_plot(first[options.row - 1], options.plot)
    console.result(facts, "\n\n".join([_text(first[: options.rows]), *(["\n".join(saved)] if saved else [])]))


def _check_name(option: str, path: str | None, extensions: tuple[str, ...], packed: str = "") -> None:
    """Refuse an output whose name does not tell its format; ``packed`` may follow the extension."""
    if path is not None and not path.lower().removesuffix(packed).endswith(extensions):
        raise UsageError(f"{option} {path}: expected a name that ends in {', '.join(extensions)}")


def _explained(
    model: SavedModel, options: SimpleNamespace, console: Console, most: int | None
) -> Iterator[RowExplanation]:
    """Yield the explanations of the rows of the data file, at most so many."""
    from dropmargin.cli.reading import explain_missing, read_parts
    from dropmargin.explanation.rows import explain_rows
    from dropmargin.explanation.units import find_units

    units, n_rows = find_units(model.encoder, model.estimator, model.feature_labels), 0
    for part in read_parts(options.data, model, options, console, labels=False):
        X = part.X if most is None else part.X[: most - n_rows]
        try:
            yield from explain_rows(model.estimator, X, units, options.top, verbose=not console.quiet)
        except ValueError as error:
            raise explain_missing(error, options.data, model) from error
        n_rows += X.shape[0]
        if n_rows == most:
            return


def _blocks(rows: Iterator[RowExplanation], options: SimpleNamespace) -> Iterator[bytes]:
    """Yield the content of the output, a block for some rows; numbers have all their digits."""
    from dropmargin.cli.predictions import without_formula
    from dropmargin.explanation.rows import flat_record

    path, number = options.output.lower(), 0
    separator = _FORMATS[os.path.splitext(path.removesuffix(".gz"))[1]]
    while block := list(islice(rows, _BLOCK)):
        text = io.StringIO()
        records = [row.to_dict() if not separator else flat_record(row, options.top) for row in block]
        records = [{"row": number + i, **record} for i, record in enumerate(records, 1)]
        if separator:
            writer = csv.writer(text, delimiter=separator, lineterminator="\n")
            cells = [list(record.values()) for record in records]
            if options.safe_csv:
                cells = [[without_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in cells]
            writer.writerows(cells if number else [list(records[0]), *cells])
        else:
            text.writelines(f"{json.dumps(record)}\n" for record in records)
        number += len(block)
        content = text.getvalue().encode()
        yield gzip.compress(content) if path.endswith(".gz") else content


def _text(rows: list[RowExplanation]) -> str:
    """Return a table of the rows; the features are in the last column."""
    lines: list[list[str]] = []
    for i, row in enumerate(rows, 1):
        flips = "never" if row.flip_count is None else f"{row.flip_count} of {row.n_present}"
        cells = [str(row.label), str(row.runner_up), f"{row.margin:.4g}", flips]
        lines.append([str(i), *(cells if row.runner_up is not None else [f"{row.label:.6g}", f"{row.margin:+.4g}"])])
    header = ["row", "label", "runner-up", "margin", "flips after"]
    header = header if len(lines[0]) == len(header) else ["row", "prediction", "difference"]
    table = table_text(header, lines).split("\n")
    width, leans = max(map(len, table)), ["leans on"]
    for row in rows:
        pairs = zip(row.features, row.contributions, strict=True)
        leans.append(", ".join(f"{name} {contribution:+.3g}" for name, contribution in pairs))
    return "\n".join(f"{line.ljust(width)}  {text}" for line, text in zip(table, leans, strict=True))


def _save_plot(row: Any, path: str) -> None:
    from dropmargin.explanation import Explanation
    from dropmargin.io.atomic import write_atomically
    from dropmargin.plotting.style import import_matplotlib

    figure = import_matplotlib("figure").Figure(
        figsize=(6.4, 1.4 + 0.28 * max(3, len(row.features))), layout="constrained"
    )
    Explanation([row]).plot(0, ax=figure.subplots())
    content = io.BytesIO()
    figure.savefig(content, format=os.path.splitext(path)[1][1:].lower(), dpi=150)
    write_atomically(path, [content.getvalue()])
