"""``dropmargin train DATA [MODEL]``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError
from dropmargin.cli.files import check_can_read, check_can_write, check_replaces, more_inputs
from dropmargin.cli.program import NOT_CONVERGED, SUCCESS, Command

_PARAMS = [
    shared.file_argument("data"),
    shared.file_argument("model", required=False),
    shared.option(
        "--noise", type=shared.noise_spec, metavar="NOISE", default="dropout=0.1", help=f"One of {shared.NOISE_FORMS}."
    ),
    shared.option("-c", "--C", "C", type=shared.positive_number, default=1.0, metavar="R", help="Weight of the loss."),
    shared.option("-v", "--verbose", help="Print a line per iteration on standard error."),
    shared.FORCE,
    *shared.DATA_OPTIONS,
    *shared.FEATURE_OPTIONS,
    *shared.LEARNING_OPTIONS,
    *shared.STREAMING_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Train a model on a data file.")
def train(options: SimpleNamespace, console: Console) -> int:
    """Train a model on the file DATA and save it as MODEL.

    DATA may be - for standard input (with --format), or with --memory-limit a folder of files. Without MODEL, the
    model of train.svm is saved as train.safetensors in the current folder.
    """
    options.model = options.model or _default_model(options.data)
    _check_streaming_options(options)
    _check_files(options)
    from dropmargin.cli import groups, training

    noise = options.noise.make()
    groups.check_dropout(options, [options.noise.kind])
    training.check_loss(options)
    if options.memory_limit is not None:
        from dropmargin.cli import streamed

        return SUCCESS if streamed.train(options, console, noise) else NOT_CONVERGED
    started = time.perf_counter()
    data = training.read_training_data(options.data, options, console)
    noise = groups.with_groups(noise, groups.feature_groups(data, options))
    model = training.make_model(options, data.X, console, noise=noise, C=options.C, verbose=int(options.verbose))
    model.fit(data.X, data.y)
    saved = options.model if model.converged_ or not options.strict else None
    facts = training.fit_facts(model, options, noise, round(time.perf_counter() - started, 3))
    metric = "R2" if training.learns_numbers(options.loss) else "accuracy"
    score = facts[f"training_{metric.lower()}"] = float(model.score(data.X, data.y))
    if saved is not None:
        training.save_model(model, data, saved, facts)
    classes = getattr(model, "classes_", None)
    console.result(
        data.summary | facts | {"classes": classes, "model": saved, "data_hash": data.data_hash},
        training.fit_text(
            data.summary["rows"], data.summary["features"], facts, f"training {metric} {score:.4f}", saved=saved
        ),
    )
    return SUCCESS if saved is not None else NOT_CONVERGED


def _check_streaming_options(options: SimpleNamespace) -> None:
    """Refuse options that cannot be combined."""
    streamed = options.memory_limit is not None
    for name in ("checkpoint", "cache"):
        if not streamed and getattr(options, name) is not None:
            raise UsageError(f"--{name} is for --memory-limit: without it, data are read into memory")
    if streamed and options.missing == "conditional":
        raise UsageError(
            "--missing conditional needs all rows in memory, and --memory-limit reads them from disk: use rescale"
        )
    whole = ("text", "separator", "decimal", "missing_values", "keep", "skip_unlabelled", "feature_names")
    for name in (*whole, "groups", "group_by"):  # for data that are read as a whole
        if streamed and getattr(options, name) not in (None, (), False):
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --memory-limit")


def _check_files(options: SimpleNamespace) -> None:
    """Check that inputs exist, and that outputs can be written and replace neither an input nor each other."""
    inputs = [options.data, *more_inputs(options)]
    check_can_read(*inputs)
    if options.memory_limit is not None and os.path.isdir(options.data):
        inputs += [entry.path for entry in os.scandir(options.data)]
    check_can_write("MODEL", options.model, inputs)
    check_replaces("MODEL", options.model, options, "a model")
    if options.checkpoint is not None:
        check_can_write("--checkpoint", options.checkpoint, inputs)
        if os.path.realpath(options.checkpoint) == os.path.realpath(options.model):
            raise UsageError(f"--checkpoint {options.checkpoint} is also the model file; name another file")


def _default_model(data: str) -> str:
    """Return the name of the model of a data file: that of ``data/train.2024.svm.gz`` is ``train.2024.safetensors``."""
    if data == "-":
        raise UsageError("MODEL is missing: there is no default name for data from standard input")
    return Path(Path(data).name.removesuffix(".gz")).stem + ".safetensors"
