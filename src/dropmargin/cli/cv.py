"""``dropmargin cv DATA``: noise and C by cross-validation, and the model with them if it is wanted."""

from __future__ import annotations

import argparse
from typing import Any

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("data", help="the data file; - is standard input (with --format)")
    add("-o", "--out", metavar="MODEL", help="train the best on all rows and save it here")
    noises = "such as 0,0.1,0.5 or none,gaussian=0.1, or a number of dropout rates (default: 10)"
    add("--noises", type=shared.noise_names, default=10, metavar="LIST", help=noises)
    add("--cs", type=shared.numbers, default=13, metavar="LIST", help="such as 0.1,1,10, or a number (default: 13)")
    add("--folds", type=shared.at_least_two, default=5, metavar="N", help="default: 5, stratified")
    add("--seed", type=shared.seed_of, metavar="N", help="shuffle the rows before they are shared out to folds")
    add("--scoring", metavar="NAME", help="a score of scikit-learn (default: accuracy)")
    rule = "the highest score, or the smallest C within a standard error of it (default: best)"
    add("--rule", choices=("best", "one-se"), default="best", help=rule)
    shared.add_data_options(parser)
    shared.add_training_data_options(parser)
    shared.add_learning_options(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Read, search, say what was found, and save the model if it is wanted."""
    if options.out is not None:
        shared.check_can_write("--out", options.out, (options.data, options.feature_names))
    from dropmargin.cli import training
    from dropmargin.cli.main import NOT_CONVERGED, SUCCESS

    noises = options.noises if isinstance(options.noises, int) else [noise.make() for noise in options.noises]
    training.check_loss(options)
    _check_scoring(options.scoring)
    watch = training.Stopwatch()
    data = training.read_training_data(options.data, options, console)
    training.check_folds(options.folds, data.y)
    search = training.make_classifier(
        options,
        data.X,
        console,
        noises=noises,
        Cs=options.cs,
        cv=_folds(options),
        scoring=options.scoring,
        rule=options.rule,
        verbose=0 if console.quiet else 1,
    )
    search.fit(data.X, data.y)
    facts = _facts(search, options) | {"seconds": watch.seconds}
    saved = options.out is not None and (facts["converged"] or not options.strict)
    if saved:
        settings = {name: facts[name] for name in ("noise", "C", "score", "standard_error", "seconds", "converged")}
        summary = {"command": "cv", "loss": options.loss, "classes": len(search.classes_), "folds": options.folds}
        training.save_model(search.best_estimator_, data, options.out, summary | settings)
    facts |= {"model": options.out if saved else None, "data_hash": data.data_hash}
    console.result(data.summary | facts, _text(facts))
    return SUCCESS if facts["converged"] or not options.strict else NOT_CONVERGED


def _folds(options: argparse.Namespace) -> Any:
    if options.seed is None:
        return options.folds
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)


def _check_scoring(scoring: str | None) -> None:
    if scoring is None or scoring == "accuracy":
        return
    from sklearn.metrics import get_scorer_names

    from dropmargin.cli.main import closest

    known = get_scorer_names()
    if scoring not in known:
        raise UsageError(f"--scoring: scikit-learn has no score {scoring!r}{closest(scoring, known)}")


def _facts(search: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Return what was chosen, and the best score of each noise."""
    import numpy as np

    from dropmargin.cli.wording import noise_text

    mean = search.scores_.mean(axis=0)
    n_folds = len(search.scores_)
    error = search.scores_.std(axis=0, ddof=1) / np.sqrt(n_folds)
    levels = []
    for i, noise in enumerate(search.noises_):
        j = int(np.argmax(np.nan_to_num(mean[i], nan=-np.inf)))
        levels.append(
            {
                "noise": noise_text(noise),
                "C": float(search.Cs_[j]),
                "score": float(mean[i, j]),
                "standard_error": float(error[i, j]),
            }
        )
    return {
        "loss": options.loss,
        "noise": noise_text(search.noise_),
        "C": search.C_,
        "scoring": options.scoring or "accuracy",
        "score": search.best_score_,
        "standard_error": float(error[search.best_index_]),
        "rule": options.rule,
        "folds": n_folds,
        "Cs": search.Cs_,
        "noises": levels,
        "converged": bool(search.best_estimator_.converged_),
        "classes": search.classes_,
    }


def _text(facts: dict[str, Any]) -> str:
    from dropmargin.cli.wording import table_text

    rows = [
        [level["noise"], f"{level['C']:g}", f"{level['score']:.4f}", f"{level['standard_error']:.4f}"]
        for level in facts["noises"]
    ]
    lines = [
        table_text(["noise", "best C", facts["scoring"], "+/-"], rows),
        "",
        f"chosen: --noise {facts['noise']} --C {facts['C']:g}",
        f"{facts['scoring']} {facts['score']:.4f} +/- {facts['standard_error']:.4f} over {facts['folds']} folds, "
        f"{facts['seconds']:.1f} s",
    ]
    return "\n".join(lines) + (f"\nsaved {facts['model']}" if facts["model"] else "")
