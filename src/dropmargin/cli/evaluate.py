"""``dropmargin evaluate DATA MODEL``: compare predictions with labels, in parts of the file."""

from __future__ import annotations

from types import SimpleNamespace

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console
from dropmargin.cli.files import check_can_read
from dropmargin.cli.program import Command

_PARAMS = [shared.file_argument("data"), shared.file_argument("model"), shared.IGNORE_EXTRA, *shared.DATA_OPTIONS]


@click.command(cls=Command, params=_PARAMS, short_help="Compare predictions with the labels of a data file.")
def evaluate(options: SimpleNamespace, console: Console) -> None:
    """Compare the predictions of the model file MODEL with the labels of the file DATA.

    DATA may be - for standard input (with --format).
    """
    check_can_read(options.data, options.model)
    from dropmargin.cli.reading import SavedModel, explain_missing, read_parts
    from dropmargin.cli.scores import ConfusionCounter, ErrorCounter

    model = SavedModel.from_file(options.model)
    counter = (ErrorCounter if model.predicts_numbers else ConfusionCounter)(model.estimator)
    for part in read_parts(options.data, model, options, console, labels=True):
        try:
            counter.add(part.X, part.y)
        except ValueError as error:
            raise explain_missing(error, options.data, model) from error
    facts = {"data": options.data, "model": options.model} | counter.facts()
    if facts.get("unknown_labels"):
        n_unknown = facts["unknown_labels"]
        console.warn(f"{n_unknown} rows have labels that {options.model} does not know; they count as errors")
    console.result(facts, counter.text())
