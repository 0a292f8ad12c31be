"""``dropmargin train DATA [MODEL]``."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, noise_text, plural
from dropmargin.cli.files import check_can_read, check_can_write, check_output, more_inputs
from dropmargin.cli.program import NOT_CONVERGED, Command

if TYPE_CHECKING:
    from dropmargin.cli.training import TrainingData

_PARAMS = [
    shared.file_argument("data"),
    shared.file_argument("model", required=False),
    shared.option("--noise", type=shared.noise_spec, metavar="N", default="dropout=0.1", help=shared.NOISE_HELP),
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
    started = time.perf_counter()
    if options.memory_limit is None:
        data = training.read_training_data(options.data, options, console)
        noise = groups.with_groups(noise, groups.feature_groups(data, options))
        model = training.make_model(options, data.X, console, noise=noise, C=options.C, verbose=int(options.verbose))
        model.fit(data.X, data.y)
    else:
        model, data = _fit_files(options, console, noise)
    saved = options.model if model.converged_ or not options.strict else None
    facts = _facts(model, options, noise, round(time.perf_counter() - started, 3))
    lines = [_text(data.summary | facts)]
    if data.X is not None:
        metric = "R2" if training.learns_numbers(options.loss) else "accuracy"
        score = facts[f"training_{metric.lower()}"] = float(model.score(data.X, data.y))
        lines.append(f"training {metric} {score:.4f}")
    lines.append("nothing is saved (--strict)" if saved is None else f"saved {saved}")
    if saved is not None:
        training.save_model(model, data, saved, facts)
    found = {"classes": getattr(model, "classes_", None), "model": saved, "data_hash": data.data_hash}
    console.result(data.summary | facts | found, "\n".join(lines))
    return NOT_CONVERGED if saved is None else 0


def _facts(model: Any, options: SimpleNamespace, noise: Any, seconds: float) -> dict[str, Any]:
    """Return the facts about a fit that are printed and saved."""
    from dropmargin.cli.training import n_classes

    return {
        "command": "train",
        "loss": options.loss,
        "noise": noise_text(noise),
        "C": options.C,
        "classes": n_classes(model),
        "seconds": seconds,
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
        "objective": float(model.objective_),
    }


def _text(facts: dict[str, Any]) -> str:
    classes = "" if facts["classes"] is None else f", {facts['classes']} classes"
    status = "converged" if facts["converged"] else "not converged"
    size = f"{plural(facts['rows'], 'row')}, {plural(facts['features'], 'feature')}{classes}"
    return f"{size}: {status} in {plural(facts['iterations'], 'iteration')}, {facts['seconds']:.2f} s"


def _fit_files(options: SimpleNamespace, console: Console, noise: Any) -> tuple[Any, TrainingData]:
    """Fit a model to files that do not fit into memory; return it, and what is known of its training data."""
    from dropmargin import streaming
    from dropmargin.cli import training

    read_options = replace(training.basic_read_options(options, "svmlight"), format=options.format)
    if options.missing is None:  # the files are not searched for missing values
        options.missing = "error"
    where = {"memory_limit": options.memory_limit, "cache": options.cache}
    where |= {"options": read_options, "progress": not console.quiet}
    found = streaming.prepare_files(options.data, **where)
    n_rows, n_features = found.shape
    console.note(f"{options.data}: {n_rows} rows, {n_features} features")
    training.check_labels(found.classes, n_rows, options, console, decimal=None)
    model = training.make_model(options, None, console, noise=noise, C=options.C, verbose=int(options.verbose))
    streaming.fit(model, options.data, checkpoint=options.checkpoint, **where)
    summary = {"rows": n_rows, "features": n_features, "target": options.target, "zero_based": found.zero_based}
    return model, training.TrainingData(None, None, summary)


def _check_streaming_options(options: SimpleNamespace) -> None:
    """Refuse options that cannot be combined."""
    streamed = options.memory_limit is not None
    for name in ("checkpoint", "cache"):
        if not streamed and getattr(options, name) is not None:
            raise UsageError(f"--{name} is for --memory-limit: without it, data are read into memory")
    if streamed and options.missing == "conditional":
        raise UsageError("--missing conditional needs all rows in memory: with --memory-limit, use rescale")
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
    check_output("MODEL", options.model, inputs, options, "a model")
    if options.checkpoint is not None:
        check_can_write("--checkpoint", options.checkpoint, inputs)
        if os.path.realpath(options.checkpoint) == os.path.realpath(options.model):
            raise UsageError(f"--checkpoint {options.checkpoint} is also the model file; name another file")


def _default_model(data: str) -> str:
    """Return the name of the model of a data file: that of ``data/train.2024.svm.gz`` is ``train.2024.safetensors``."""
    if data == "-":
        raise UsageError("MODEL is missing: there is no default name for data from standard input")
    return Path(Path(data).name.removesuffix(".gz")).stem + ".safetensors"
