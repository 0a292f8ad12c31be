"""``dropmargin cv DATA``: choose noise and C by cross-validation, and save the best model."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, closest, noise_text, table_text
from dropmargin.cli.files import check_can_read, check_output, more_inputs
from dropmargin.cli.program import NOT_CONVERGED, Command

_PARAMS = [
    shared.file_argument("data"),
    shared.path_option("-o", "--out", metavar="MODEL", help="Fit the best model to all rows and save it here."),
    shared.FORCE,
    shared.list_option("--noises", parse=shared.noise_grid, default=["10"], help=shared.NOISES_HELP),
    shared.list_option("--cs", "--Cs", parse=shared.number_grid, default=["13"], help=shared.CS_HELP),
    shared.option("--folds", type=shared.integer(2, 9999), default=5, metavar="N", help="Folds, stratified by class."),
    shared.option(
        "--seed", type=shared.seed, default=0, metavar="N", help="Seed of the shuffle before rows are split."
    ),
    shared.option("--scoring", type=str, metavar="NAME", help="Score of scikit-learn; by default accuracy, or r2."),
    shared.option("--missing-rate", type=shared.rate, metavar="R", help="Choose for rows with this share missing."),
    shared.option("--rule", choices=["best", "one-se"], default="best", help="one-se: smallest C near the best score."),
    *shared.DATA_OPTIONS,
    *shared.FEATURE_OPTIONS,
    *shared.LEARNING_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Choose noise and C by cross-validation.")
def cv(options: SimpleNamespace, console: Console) -> int:
    """Choose noise and C for the file DATA by cross-validation.

    DATA may be - for standard input (with --format).
    """
    inputs = (options.data, *more_inputs(options))
    check_can_read(*inputs)
    if options.out is not None:
        check_output("--out", options.out, inputs, options, "a model")
    from dropmargin.cli import groups, training

    groups.check_dropout(options, [noise.kind for noise in options.noises])
    training.check_loss(options)
    _check_scoring(options.scoring)
    if options.missing_rate is not None and (options.scoring is not None or options.multi_class == "ovo"):
        raise UsageError("--missing-rate is a score of its own: it excludes --scoring, and --multi-class ovo")
    started = time.perf_counter()
    data = training.read_training_data(options.data, options, console)
    folds = training.make_folds(options, data.y)
    together = groups.feature_groups(data, options)
    own = {
        "noises": [groups.with_groups(noise.make(), together) for noise in options.noises],
        "Cs": options.cs,
        "target_noise": None if options.missing_rate is None else groups.with_groups(options.missing_rate, together),
        "cv": folds,
        "verbose": 0 if console.quiet else 1,
    }
    if options.missing_rate is not None and options.missing is None and training.has_cells(data):
        options.missing = "rescale"
        console.note("--missing-rate: the model is trained with --missing rescale (--missing conditional is the other)")
    search = training.make_model(options, data.X, console, **own)
    search.fit(data.X, data.y)
    facts = _facts(search, options) | {"seconds": round(time.perf_counter() - started, 3)}
    saved = options.out is not None and (facts["converged"] or not options.strict)
    if saved:
        settings = {name: facts[name] for name in ("noise", "C", "score", "standard_error", "seconds", "converged")}
        summary = {"command": "cv", "loss": options.loss, "classes": training.n_classes(search), "folds": options.folds}
        training.save_model(search.best_estimator_, data, options.out, summary | settings)
    facts |= {"model": options.out if saved else None, "data_hash": data.data_hash}
    console.result(data.summary | facts, _text(facts))
    return NOT_CONVERGED if options.strict and not facts["converged"] else 0


def _check_scoring(scoring: str | None) -> None:
    if scoring is None or scoring == "accuracy":
        return
    from sklearn.metrics import get_scorer_names

    known = get_scorer_names()
    if scoring not in known:
        raise UsageError(f"--scoring: scikit-learn has no score {scoring!r}{closest(scoring, known)}")


def _score_name(options: SimpleNamespace) -> str:
    from dropmargin.cli.training import learns_numbers

    plain, expected = "accuracy", "expected accuracy"
    if learns_numbers(options.loss):
        plain, expected = "r2", f"neg_expected_{'absolute' if options.loss == 'svr' else 'squared'}_error"
    return expected if options.missing_rate is not None else options.scoring or plain


def _facts(search: Any, options: SimpleNamespace) -> dict[str, Any]:
    """Return the chosen values, and the best score of each noise."""
    from dropmargin.plotting.score_grid import ScoreGrid

    grid = ScoreGrid.of_estimator(search)
    mean, error, best = grid.mean, grid.standard_error, grid.best_columns().tolist()
    assert error is not None  # there are at least two folds
    return {
        "loss": options.loss,
        "noise": noise_text(search.noise_),
        "C": search.C_,
        "scoring": _score_name(options),
        "score": search.best_score_,
        "standard_error": float(error[search.best_index_]),
        "rule": options.rule,
        "folds": len(search.scores_),
        "Cs": search.Cs_,
        "noises": [
            {"noise": noise_text(noise), "C": search.Cs_[j], "score": mean[i, j], "standard_error": error[i, j]}
            for i, (noise, j) in enumerate(zip(search.noises_, best, strict=True))
        ],
        "converged": bool(search.best_estimator_.converged_),
        "classes": getattr(search, "classes_", None),
    }


def _text(facts: dict[str, Any]) -> str:
    rows = [
        [level["noise"], f"{level['C']:g}", f"{level['score']:.4f}", f"{level['standard_error']:.4f}"]
        for level in facts["noises"]
    ]
    columns = ["noise", "best C", facts["scoring"], "+/-"]
    lines = [
        table_text(columns, rows),
        "",
        f"chosen: --noise {facts['noise']} --C {facts['C']:g}",
        f"{facts['scoring']} {facts['score']:.4f} +/- {facts['standard_error']:.4f} over {facts['folds']} folds, "
        f"{facts['seconds']:.1f} s",
    ]
    return "\n".join(lines) + (f"\nsaved {facts['model']}" if facts["model"] else "")
