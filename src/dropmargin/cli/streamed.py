"""``dropmargin train --memory-limit``: training on files that do not fit into memory."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

from dropmargin import streaming
from dropmargin.cli import training
from dropmargin.cli.console import Console, UsageError
from dropmargin.io.data import ReadOptions, find_format
from dropmargin.io.model import save

_FORMATS = ("svmlight", "parquet", "arrow", "npz")


def train(options: SimpleNamespace, console: Console, noise: Any) -> bool:
    """Fit a model, save it and print the result; return whether a model was saved."""
    started = time.perf_counter()
    _check_format(options)
    read_options = ReadOptions(
        format=options.format,
        target=options.target,
        zero_based=options.zero_based,
        categorical=options.categorical,
        ignore=options.ignore,
        max_ratio=options.max_ratio,
    )
    if options.missing is None:  # the files are not searched for missing values
        options.missing = "error"
    where: dict[str, Any] = {"memory_limit": options.memory_limit, "cache": options.cache}
    shown = not console.quiet
    found = streaming.prepare_files(options.data, options=read_options, progress=shown, **where)
    n_rows, n_features = found.shape
    console.note(f"{options.data}: {n_rows} rows, {n_features} features")
    own = {"noise": noise, "C": options.C, "verbose": int(options.verbose)}
    training.check_labels(found.classes, n_rows, options, console, decimal=None)
    model = training.make_model(options, None, console, **own)
    where |= {"options": read_options, "progress": shown}
    streaming.fit(model, options.data, checkpoint=options.checkpoint, **where)
    saved = options.model if model.converged_ or not options.strict else None
    facts = training.fit_facts(model, options, noise, round(time.perf_counter() - started, 3))
    facts |= {"rows": n_rows, "features": n_features, "target": options.target, "zero_based": found.zero_based}
    if saved is not None:
        save(model, saved, summary=facts)
    console.result(
        facts | {"classes": getattr(model, "classes_", None), "model": saved},
        training.fit_text(n_rows, n_features, facts, saved=saved),
    )
    return saved is not None


def _check_format(options: SimpleNamespace) -> None:
    """Raise an error for formats that cannot be read in blocks, and for options of other formats."""
    path = options.data
    if os.path.isdir(path):  # files of other formats raise an error when they are read
        files = (entry.path for entry in os.scandir(path) if entry.is_file() and entry.name[0] not in "._")
        path = min(files, default=path)
    if not os.path.isfile(path):
        return
    form = find_format(path, options.format)
    if form not in _FORMATS:
        raise UsageError(f"--memory-limit is for {', '.join(_FORMATS)} files; {path} is read as {form} (see --format)")
    if form in ("parquet", "arrow") and options.target is None:
        raise UsageError(f"--target is missing, the column of the labels of {path}")
