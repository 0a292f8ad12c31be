"""``dropmargin export MODEL OUTPUT``: a model for LIBLINEAR or ONNX."""

from __future__ import annotations

import argparse
import os

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError

_ENDINGS = {".onnx": "onnx", ".model": "liblinear", ".liblinear": "liblinear"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("model", help="the model file")
    parser.add_argument("out", help="the file to write: *.onnx, or *.model for LIBLINEAR")
    parser.add_argument("--to", choices=("liblinear", "onnx"), help="if the name of the output does not tell")
    complete = "export a model that takes missing values for rows that have none"
    parser.add_argument("--complete-rows", action="store_true", help=complete)


def run(options: argparse.Namespace, console: Console) -> int:
    """Read the model and write it in another format."""
    to = options.to or _ENDINGS.get(os.path.splitext(options.out)[1].lower())
    if to is None:
        raise UsageError(f"the format of {options.out} is not known: say --to liblinear or --to onnx")
    shared.check_can_write("OUT", options.out, (options.model,))
    from dropmargin.cli.main import SUCCESS
    from dropmargin.cli.reading import SavedModel
    from dropmargin.io.model import export_liblinear, export_onnx

    model = SavedModel.from_file(options.model)
    if model.drops_missing:
        if not options.complete_rows:
            raise UsageError(
                f"{options.model} takes missing values, which {to} does not know; for rows that have none, "
                "export it with --complete-rows"
            )
        model.classifier.set_params(missing="error")
    if model.encoder is not None:
        console.note(
            f"{options.out} takes the {model.classifier.n_features_in_} numbers that the model's "
            f"{type(model.encoder).__name__} makes of a row; that step is not in it"
        )
    (export_onnx if to == "onnx" else export_liblinear)(model.classifier, options.out)
    facts = {"model": options.model, "out": options.out, "to": to, "bytes": os.path.getsize(options.out)}
    console.result(facts, f"saved {options.out}")
    return SUCCESS
