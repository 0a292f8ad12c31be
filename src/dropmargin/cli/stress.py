"""``dropmargin stress TRAIN TEST``: errors of models when features of the test rows are deleted."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError, noise_text, plural, table_text
from dropmargin.cli.files import check_can_read, check_output, more_inputs
from dropmargin.cli.program import Command

if TYPE_CHECKING:
    from dropmargin.cli.training import TrainingData
    from dropmargin.evaluation.stress import MethodResult, Plan

_MAX_LEVELS = 1000
_LOSSES, _NOISES, _MIDDLE = ["hinge", "logistic", "ridge", "svr"], "0.05,0.1,0.3,0.5,0.7", "middle of --delete"
# Deleted zeros of a sparse matrix are stored if they are missing values: about 12 bytes each.
_MAX_STORED = 10**8
_DELETIONS = {
    "entries": "Each {one} of each test row was deleted with the given probability, independently of all others.",
    "columns": "Random {many} were deleted, the same for all test rows, as if sensors had died.",
    "worst": "{many} were deleted, the same for all test rows: those first that a method needs most.",
}


def levels_of(text: str) -> list[float]:
    """Return the fractions of ``0:0.9:10`` (first, last, number) or ``0,0.5,0.9`` in ascending order."""
    expected = f"expected fractions such as 0:0.9:10 (first, last, number) or 0,0.5,0.9, got {text!r}"
    parts = text.split(":")
    try:
        if len(parts) == 3:
            first, last, n_levels = float(parts[0]), float(parts[1]), int(parts[2])
            if not 2 <= n_levels <= _MAX_LEVELS:
                raise click.BadParameter(f"{expected}: the number of levels is from 2 to {_MAX_LEVELS}")
            values = [round(first + (last - first) * i / (n_levels - 1), 12) for i in range(n_levels)]
        else:
            values = [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(expected) from None
    if not all(0.0 <= value <= 1.0 for value in values):  # also refuses NaN
        raise click.BadParameter(f"{expected}: a fraction is from 0 to 1, 0.3 is 30 %")
    if len(set(values)) < len(values) or len(values) > _MAX_LEVELS:
        raise click.BadParameter(f"{expected}: at most {_MAX_LEVELS} levels, each once")
    return sorted(values)


_PARAMS = [
    shared.file_argument("train"),
    shared.file_argument("test"),
    *shared.section(
        "Deletion",
        shared.list_option("--delete", parse=levels_of, default=["0:0.9:10"], help="Fractions; A:B:N: N from A to B."),
        shared.option("--strategy", choices=list(_DELETIONS), default="entries", help="What is deleted."),
        shared.option("--treatment", choices=["zero", "missing", "both"], help="By default both, for tables missing."),
        shared.option("--repeats", type=shared.count, default=5, metavar="N", help="Random deletions per level."),
        shared.option("--seed", type=shared.seed, default=0, metavar="N", help="Seed of the deletions and the folds."),
        shared.path_option("--html", help="Write a report with plots and tables."),
    ),
    shared.FORCE,
    *shared.section(
        "Settings of the models; by default noise and C are cross-validated",
        shared.option("--loss", choices=_LOSSES, show_default=shared.LOSS_DEFAULT, help="Loss of our model."),
        shared.option("--noise", type=shared.noise_spec, metavar="NOISE", help="Noise of our model."),
        shared.option("-c", "--C", "C", type=shared.positive_number, metavar="R", help="C of our model."),
        shared.list_option("--noises", parse=shared.noise_grid, show_default=_NOISES, help=shared.NOISES_HELP),
        shared.list_option("--cs", "--Cs", parse=shared.number_grid, show_default="5", help=shared.CS_HELP),
        shared.option("--folds", type=shared.integer(2, 9999), default=3, metavar="N", help="Of the cross-validation."),
        shared.list_option("--choose-at", parse=levels_of, show_default=_MIDDLE, help="Fractions to choose at."),
    ),
    shared.n_jobs_option(),
    shared.IGNORE_EXTRA,
    *shared.DATA_OPTIONS,
    *shared.FEATURE_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Compare models when features are deleted.")
def stress(options: SimpleNamespace, console: Console) -> None:
    """Train DropoutSVC and other classifiers on the file TRAIN, and delete features of the file TEST.

    Labels that are many different numbers train DropoutRidge and other regressors. The error of each is printed for
    each fraction of deleted features. Of a table, cells and columns are deleted.
    """
    if options.noise is not None and options.noises is not None:
        raise UsageError("--noise and --noises cannot be combined: --noises is the list to choose the noise from")
    inputs = (options.train, options.test, *more_inputs(options))
    check_can_read(*inputs)
    if options.html is not None:
        check_output("--html", options.html, inputs, options, "a report of dropmargin")
    from dropmargin.cli.training import make_folds, read_training_data
    from dropmargin.evaluation.stress import stress_test
    from dropmargin.report.stress import error_tables, verdict

    data = read_training_data(options.train, options, console)
    make_folds(options, data.y)
    test = _read_test_data(data, options, console)
    plan = _make_plan(options, data, test[0], console)
    results = stress_test((data.X, data.y), test, plan, console.note)
    for result in results:
        if not result.converged:
            console.warn(f"{result.method} (deleted = {result.treatment}) did not converge within its iterations")
    facts = _facts(options, data, len(test[1]), plan) | {"results": list(map(_result_facts, results))}
    facts |= {"verdict": verdict(results), "html": options.html}
    # A terminal shows no bold, so the caption ends before its explanation.
    lines = [f"{one.caption.partition(';')[0]}\n{table_text(one.header, one.rows)}" for one in error_tables(results)]
    lines.append(facts["verdict"])
    if options.html is not None:
        _write_html(options, data, plan, results, facts)
        lines.append(f"saved {options.html}")
    console.result(facts, "\n\n".join(lines))


# Data and plan ------------------------------------------------------------------------------------------------------


def _read_test_data(data: TrainingData, options: SimpleNamespace, console: Console) -> tuple[Any, Any]:
    """Return the rows and labels of the test file, encoded like the training file."""
    import numpy as np

    from dropmargin.cli.reading import SavedModel, read_parts
    from dropmargin.cli.training import learns_numbers
    from dropmargin.io.data.dataset import concatenate

    # The attributes of a fitted model that `read_parts` uses.
    kind = SimpleNamespace(n_features_in_=data.X.shape[1], missing="rescale")
    if not learns_numbers(options.loss):
        kind.classes_ = np.unique(data.y)
    if data.feature_names is not None:
        kind.feature_names_in_ = data.feature_names
    model = SavedModel(options.train, data.encoder, kind, data.summary)
    test = concatenate(list(read_parts(options.test, model, options, console, labels=True)))
    assert test.y is not None  # as labels=True
    if model.predicts_numbers:
        if test.y.dtype.kind not in "iuf" or not np.isfinite(test.y).all():
            raise ValueError(f"{options.test}: the labels are such as {test.y[:3].tolist()}, not numbers")
        return test.X, test.y.astype(np.float64)
    unknown = sorted(set(test.y.tolist()) - set(kind.classes_.tolist()), key=str)
    if unknown:
        lacks = f"labels that {options.train} lacks, such as {unknown[0]!r}"
        console.warn(f"{options.test} has {lacks}: they count as errors")
    return test.X, test.y


def _make_plan(options: SimpleNamespace, data: TrainingData, X_test: Any, console: Console) -> Plan:
    from dropmargin.cli.groups import feature_groups
    from dropmargin.evaluation.stress import TREATMENTS, Plan

    treatments: tuple[str, ...] = TREATMENTS if options.treatment in (None, "both") else (options.treatment,)
    if options.treatment is None and _is_table(data):
        treatments = ("missing",)
    elif options.treatment is None and X_test.size < math.prod(X_test.shape) > _MAX_STORED:
        console.note("the test file is too large to store deleted zeros as missing values: --treatment zero is used")
        treatments = ("zero",)
    noises = options.noises if options.noise is None else [options.noise]
    given = {} if noises is None else {"noises": [name.make() for name in noises]}
    return Plan(
        levels=options.delete,
        choose_at=options.choose_at or [options.delete[len(options.delete) // 2]],
        treatments=treatments,
        strategy=options.strategy,
        groups=feature_groups(data, options),
        loss=options.loss,
        Cs=options.cs,
        own_c=options.C,
        n_folds=options.folds,
        n_repeats=options.repeats,
        random_state=options.seed,
        n_jobs=options.n_jobs,
        verbose=0 if console.quiet else 1,
        **given,
    )


# Output -------------------------------------------------------------------------------------------------------------


def _facts(options: SimpleNamespace, data: TrainingData, n_test: int, plan: Plan) -> dict[str, Any]:
    return {
        "command": "stress",
        "loss": plan.loss,
        "train": options.train,
        "test": options.test,
        "train_rows": data.summary["rows"],
        "test_rows": n_test,
        "features": data.summary["features"],
        "levels": plan.levels,
        "chosen_at": plan.choose_at,
        "strategy": plan.strategy,
        "repeats": plan.n_repeats,
        "seed": plan.random_state,
    }


def _result_facts(one: MethodResult) -> dict[str, Any]:
    scores = {"accuracy": one.curve.mean, "accuracy_std": one.curve.std}
    if one.target_deviation is not None:
        scores = {"rmse": one.error, "rmse_std": one.curve.std}
    return {
        "method": one.method,
        "treatment": one.treatment,
        "parameters": {name: noise_text(value) if name == "noise" else value for name, value in one.parameters.items()},
        "seconds": [round(spent, 3) for spent in one.seconds],
        "converged": one.converged,
        "standard_error": one.standard_error,
        **scores,
        **({} if one.r2 is None else {"r2": one.r2}),
    }


def _write_html(
    options: SimpleNamespace, data: TrainingData, plan: Plan, results: list[MethodResult], found: dict[str, Any]
) -> None:
    from dropmargin.io.model.files import versions
    from dropmargin.report import write_page
    from dropmargin.report.stress import percent, stress_sections

    facts = {
        "training file": f"{options.train}: {plural(found['train_rows'], 'row')}",
        "test file": f"{options.test}: {plural(found['test_rows'], 'row')}",
        "features": str(found["features"]),
        "targets" if "rmse" in found["results"][0] else "classes": str(len({*data.y.tolist()})),
        "deleted": ", ".join(map(percent, plan.levels)),
        "deletions": f"{plan.strategy}, {plan.n_repeats} times, seed {plan.random_state}",
        "cross-validation": f"{plan.n_folds} folds",
        "hash of the training file": str(data.data_hash),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    sections = stress_sections(
        results,
        chosen_at=f"with {', '.join(map(percent, plan.choose_at))} of the features deleted",
        deletion=_deletion_text(plan, options, data),
        facts=facts,
        command=options.command_line,
    )
    title = f"When features go missing: {os.path.basename(options.train)}"
    write_page(options.html, title, found["verdict"], sections)


def _is_table(data: TrainingData) -> bool:
    return hasattr(data.encoder, "feature_columns_")


def _deletion_text(plan: Plan, options: SimpleNamespace, data: TrainingData) -> str:
    one, many = ("cell", "columns of the file") if _is_table(data) else ("entry", "features")
    if options.groups is not None or options.group_by is not None:
        one, many = "group of columns", "groups of columns"
    text = _DELETIONS[plan.strategy].format(one=one, many=many)
    return text[0].upper() + text[1:]
