"""``dropmargin export MODEL OUT``: write a model for LIBLINEAR or ONNX."""

from __future__ import annotations

import os
from types import SimpleNamespace

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError
from dropmargin.cli.files import check_can_read, check_output
from dropmargin.cli.program import Command

_EXTENSIONS = {".onnx": "onnx", ".model": "liblinear", ".liblinear": "liblinear"}
_PARAMS = [
    shared.file_argument("model"),
    shared.file_argument("out"),
    shared.option("--to", choices=["liblinear", "onnx"], help="Format of OUT; by default its name tells it."),
    shared.option("--complete-rows", help="Export a model for missing values, to use with rows that have none."),
    shared.FORCE,
]


@click.command(cls=Command, params=_PARAMS, short_help="Write a model for LIBLINEAR or ONNX.")
def export(options: SimpleNamespace, console: Console) -> None:
    """Write the model file MODEL as OUT: *.onnx, or *.model for LIBLINEAR."""
    to = options.to or _EXTENSIONS.get(os.path.splitext(options.out)[1].lower())
    if to is None:
        raise UsageError(f"the format of {options.out} is not known: add --to liblinear or --to onnx")
    check_can_read(options.model)
    check_output("OUT", options.out, (options.model,), options, f"an export for {to}")
    from sklearn.pipeline import make_pipeline

    from dropmargin.cli.reading import SavedModel
    from dropmargin.io.model import export_liblinear, export_onnx

    model = SavedModel.from_file(options.model)
    if options.complete_rows and model.drops_missing:
        model.estimator.set_params(missing="error")
    elif model.drops_missing and not (to == "onnx" and model.estimator.missing == "rescale"):
        what = f"the scores of --missing {model.estimator.missing}" if to == "onnx" else "missing values"
        raise UsageError(
            f"{options.model} accepts missing values, but {to} has no way to express {what}; for rows without missing "
            "values, export it with --complete-rows"
        )
    exported = model.estimator
    if model.encoder is not None and to == "onnx":
        exported = make_pipeline(model.encoder, model.estimator)  # one graph from the raw columns to the labels
    elif model.encoder is not None:
        takes = f"takes the {model.estimator.n_features_in_} numbers"
        console.note(f"{options.out} {takes} that the model's {type(model.encoder).__name__} makes; it is not exported")
    (export_onnx if to == "onnx" else export_liblinear)(exported, options.out)
    facts = {"model": options.model, "out": options.out, "to": to, "bytes": os.path.getsize(options.out)}
    console.result(facts, f"saved {options.out}")
