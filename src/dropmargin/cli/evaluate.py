"""``dropmargin evaluate DATA MODEL``: predictions against labels, part by part."""

from __future__ import annotations

import argparse

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("data", help="the data file, with labels; - is standard input (with --format)")
    parser.add_argument("model", help="the model file")
    parser.add_argument("--ignore-extra", action="store_true", help="svmlight: leave out features unknown to the model")
    shared.add_data_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Count what is predicted right, class by class."""
    from dropmargin.cli.main import SUCCESS
    from dropmargin.cli.reading import SavedModel, explain_missing, read_parts
    from dropmargin.cli.tally import Tally

    model = SavedModel.from_file(options.model)
    tally = Tally(model.classifier)
    for part in read_parts(options.data, model, options, console, labels=True):
        try:
            tally.add(part.X, part.y)
        except ValueError as error:
            raise explain_missing(error, options.data, model) from error
    facts = {"data": options.data, "model": options.model} | tally.facts()
    if tally.n_unknown:
        console.warn(f"{tally.n_unknown} rows have labels that {options.model} does not know; they count as errors")
    console.result(facts, tally.text())
    return SUCCESS
