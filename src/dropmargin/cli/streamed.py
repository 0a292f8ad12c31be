"""``dropmargin train`` on files that do not fit into memory: the options ``--memory-limit`` and so on."""

from __future__ import annotations

import argparse
from typing import Any

from dropmargin.cli import training, wording
from dropmargin.cli.console import Console
from dropmargin.io.data import ReadOptions
from dropmargin.io.model import save
from dropmargin.streaming import find_files, fit_files


def train(options: argparse.Namespace, console: Console, noise: Any) -> bool:
    """Fit, save and say how it went; return whether a model was saved."""
    watch = training.Stopwatch()
    read_options = ReadOptions(
        format=options.format,
        target=options.target,
        zero_based=options.zero_based,
        ignore=tuple(options.ignore),
        max_ratio=options.max_ratio,
    )
    if options.missing is None:  # nobody has looked
        options.missing = "error"
    files = find_files(options.data, read_options)
    own = {"noise": noise, "C": options.C, "verbose": int(options.verbose)}
    classifier = training.make_classifier(options, None, console, **own)
    fit_files(
        classifier,
        files,
        memory_limit=options.memory_limit,
        cache=options.cache,
        checkpoint=options.checkpoint,
        progress=not console.quiet,
    )
    saved = classifier.converged_ or not options.strict
    facts = {
        "command": "train",
        "features": classifier.n_features_in_,
        "format": files.format,
        "target": files.options.target,
        "zero_based": files.options.zero_based,
        "loss": options.loss,
        "noise": wording.noise_text(noise),
        "C": options.C,
        "classes": len(classifier.classes_),
        "seconds": watch.seconds,
        "converged": bool(classifier.converged_),
        "iterations": int(classifier.n_iter_),
        "objective": float(classifier.objective_),
    }
    if saved:
        save(classifier, options.model, summary=facts)
    console.result(
        facts | {"classes": classifier.classes_, "model": options.model if saved else None},
        f"{wording.plural(len(files.paths), 'file')}, {wording.plural(facts['features'], 'feature')}, "
        f"{facts['classes']} classes: {'converged' if facts['converged'] else 'not converged'} in "
        f"{wording.plural(facts['iterations'], 'iteration')}, {facts['seconds']:.2f} s\n"
        + (f"saved {options.model}" if saved else "nothing is saved (--strict)"),
    )
    return saved
