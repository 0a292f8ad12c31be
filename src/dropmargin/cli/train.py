"""``dropmargin train DATA [MODEL]``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "data", help="the data file; - is standard input (with --format); with --memory-limit, a folder"
    )
    parser.add_argument("model", nargs="?", help="the model file to write (default: train.model.json for train.svm)")
    noise = "default: dropout=0.1; " + "none, 0.5, dropout=0.5, gaussian=0.1, laplace=0.1 or poisson"
    parser.add_argument("--noise", type=shared.noise_name, default=shared.noise_name("0.1"), help=noise)
    parser.add_argument("-c", "--C", type=shared.positive, default=1.0, help="weight of the loss (default: 1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line per iteration on standard error")
    shared.add_data_options(parser)
    shared.add_training_data_options(parser)
    shared.add_learning_options(parser)
    shared.add_streaming_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Read, fit, save and say how it went."""
    if options.model is None:
        options.model = _default_model(options.data)
    shared.check_streaming_options(options)
    _check_outputs(options)
    from dropmargin.cli import training
    from dropmargin.cli.main import NOT_CONVERGED, SUCCESS

    noise = options.noise.make()
    training.check_loss(options)
    if options.memory_limit is not None:
        from dropmargin.cli import streamed

        return SUCCESS if streamed.train(options, console, noise) else NOT_CONVERGED
    watch = training.Stopwatch()
    data = training.read_training_data(options.data, options, console)
    classifier = training.make_classifier(
        options, data.X, console, noise=noise, C=options.C, verbose=int(options.verbose)
    )
    classifier.fit(data.X, data.y)
    saved = options.model if classifier.converged_ or not options.strict else None
    facts = training.fit_facts(classifier, options, noise, watch.seconds)
    facts["training_accuracy"] = float((classifier.predict(data.X) == data.y).mean())
    if saved is not None:
        training.save_model(classifier, data, saved, facts)
    right = f"{facts['training_accuracy']:.2%} of the training rows are predicted right"
    console.result(
        data.summary | facts | {"classes": classifier.classes_, "model": saved, "data_hash": data.data_hash},
        training.fit_text(data.summary["rows"], data.summary["features"], facts, right, saved=saved),
    )
    return SUCCESS if saved is not None else NOT_CONVERGED


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, would replace an input, or are the same file."""
    inputs = [options.data, options.feature_names]
    if options.memory_limit is not None and os.path.isdir(options.data):
        inputs += [entry.path for entry in os.scandir(options.data)]
    shared.check_can_write("MODEL", options.model, inputs)
    if options.checkpoint is not None:
        shared.check_can_write("--checkpoint", options.checkpoint, inputs)
        if os.path.realpath(options.checkpoint) == os.path.realpath(options.model):
            raise UsageError(f"--checkpoint {options.checkpoint} is the model file, too; name another file")


def _default_model(data: str) -> str:
    """Return the model's name for a data file: ``train.2024.svm.gz`` becomes ``train.2024.model.json``, here."""
    if data == "-":
        raise UsageError("name the model file: data from standard input have no name to go by")
    return Path(Path(data).name.removesuffix(".gz")).stem + ".model.json"
