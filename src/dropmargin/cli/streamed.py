"""``dropmargin train`` on files that do not fit into memory: the options ``--memory-limit`` and so on."""

from __future__ import annotations

import argparse
from typing import Any

from dropmargin.cli import training, wording
from dropmargin.cli.console import Console
from dropmargin.io.data import ReadOptions
from dropmargin.io.model import save
from dropmargin.streaming import fit_files, prepare_files


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
    where: dict[str, Any] = {"memory_limit": options.memory_limit, "cache": options.cache}
    found = prepare_files(options.data, options=read_options, **where)
    n_rows, n_features = found.shape
    console.note(f"{options.data}: {n_rows} rows, {n_features} features")
    own = {"noise": noise, "C": options.C, "verbose": int(options.verbose)}
    classifier = training.make_classifier(options, None, console, **own)
    watched = {"checkpoint": options.checkpoint, "progress": not console.quiet}
    fit_files(classifier, options.data, options=read_options, **where, **watched)
    saved = classifier.converged_ or not options.strict
    facts = {
        "command": "train",
        "rows": n_rows,
        "features": n_features,
        "target": options.target,
        "zero_based": found.zero_based,
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
        f"{wording.plural(n_rows, 'row')}, {wording.plural(n_features, 'feature')}, "
        f"{facts['classes']} classes: {'converged' if facts['converged'] else 'not converged'} in "
        f"{wording.plural(facts['iterations'], 'iteration')}, {facts['seconds']:.2f} s\n"
        + (f"saved {options.model}" if saved else "nothing is saved (--strict)"),
    )
    return saved
