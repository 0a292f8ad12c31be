"""``dropmargin train`` on files that do not fit into memory: the options ``--memory-limit`` and so on."""

from __future__ import annotations

import argparse
from typing import Any

from dropmargin.cli import training
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
    shown = not console.quiet
    found = prepare_files(options.data, options=read_options, progress=shown, **where)
    n_rows, n_features = found.shape
    console.note(f"{options.data}: {n_rows} rows, {n_features} features")
    own = {"noise": noise, "C": options.C, "verbose": int(options.verbose)}
    classifier = training.make_classifier(options, None, console, **own)
    fit_files(classifier, options.data, options=read_options, checkpoint=options.checkpoint, progress=shown, **where)
    saved = options.model if classifier.converged_ or not options.strict else None
    facts = training.fit_facts(classifier, options, noise, watch.seconds)
    facts |= {"rows": n_rows, "features": n_features, "target": options.target, "zero_based": found.zero_based}
    if saved is not None:
        save(classifier, saved, summary=facts)
    console.result(
        facts | {"classes": classifier.classes_, "model": saved},
        training.fit_text(n_rows, n_features, facts, saved=saved),
    )
    return saved is not None
