"""``dropmargin stress TRAIN TEST``: accuracy of classifiers when features of the test rows are deleted."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError
from dropmargin.cli.files import check_can_read, check_can_write, check_replaces_report, more_inputs
from dropmargin.cli.program import SUCCESS, Command

if TYPE_CHECKING:
    from dropmargin.cli.training import TrainingData
    from dropmargin.evaluation.stress import MethodResult, Plan

_MAX_LEVELS = 1000
# Deleted zeros of a sparse matrix are stored if they are missing values: about 12 bytes each.
_MAX_STORED = 10**8
_DELETIONS = {
    "entries": "Each {one} of each test row was deleted with the given probability, independently of all others.",
    "columns": "Random {many} were deleted, the same for all test rows, as if sensors had died.",
    "worst": "{many} were deleted, the same for all test rows: those first whose deletion decreases the margin most.",
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
        shared.list_option(
            "--delete", parse=levels_of, default=["0:0.9:10"], help="Fractions; A:B:N are N from A to B."
        ),
        shared.option("--strategy", choices=list(_DELETIONS), default="entries", help="What is deleted."),
        shared.option(
            "--treatment",
            choices=["zero", "missing", "both"],
            help="Of deleted features; by default both, for tables missing.",
        ),
        shared.option("--repeats", type=shared.count, default=5, metavar="N", help="Random deletions per level."),
        shared.option("--seed", type=shared.seed, default=0, metavar="N", help="Seed of the deletions and the folds."),
        shared.path_option("--html", help="Write a report with plots and tables."),
    ),
    shared.FORCE,
    *shared.section(
        "Settings of the classifiers; by default noise and C are cross-validated",
        shared.option("--noise", type=shared.noise_spec, metavar="NOISE", help="Noise of DropoutSVC."),
        shared.option("-c", "--C", "C", type=shared.positive_number, metavar="R", help="C of DropoutSVC."),
        shared.list_option(
            "--noises", parse=shared.noise_grid, show_default="0.05,0.1,0.3,0.5,0.7", help=shared.NOISES_HELP
        ),
        shared.list_option("--cs", "--Cs", parse=shared.number_grid, show_default="5", help=shared.CS_HELP),
        shared.option("--folds", type=shared.integer(2, 9999), default=3, metavar="N", help="Of the cross-validation."),
        shared.list_option(
            "--choose-at", parse=levels_of, show_default="middle of --delete", help="Fractions to choose at."
        ),
    ),
    shared.n_jobs_option(),
    shared.IGNORE_EXTRA,
    *shared.DATA_OPTIONS,
    *shared.FEATURE_OPTIONS,
    *shared.WEIGHTING,
    *shared.GROUP_OPTIONS,
]


@click.command(cls=Command, params=_PARAMS, short_help="Compare classifiers when features are deleted.")
def stress(options: SimpleNamespace, console: Console) -> int:
    """Train DropoutSVC and other classifiers on the file TRAIN, and delete features of the file TEST.

    The error of each is printed for each fraction of deleted features. Of a table, cells and columns are deleted.
    """
    if options.noise is not None and options.noises is not None:
        raise UsageError("--noise and --noises cannot be combined: --noises is the list to choose the noise from")
    inputs = (options.train, options.test, *more_inputs(options))
    check_can_read(*inputs)
    if options.html is not None:
        check_can_write("--html", options.html, inputs)
        check_replaces_report("--html", options.html, options)
    from dropmargin.cli.training import make_folds, read_training_data
    from dropmargin.evaluation.stress import stress_test
    from dropmargin.report.stress import verdict

    data = read_training_data(options.train, options, console)
    make_folds(options.folds, data.y, numbers=False)
    test = _read_test_data(data, options, console)
    plan = _make_plan(options, data, test[0], console)
    results = stress_test((data.X, data.y), test, plan, console.note)
    for result in results:
        if not result.converged:
            console.warn(f"{result.method} (deleted = {result.treatment}) did not converge within its iterations")
    n_test = int(test[0].shape[0])
    sentence = verdict(results, n_test)
    if options.html is not None:
        _write_html(options, data, n_test, plan, results, sentence)
    text = "\n\n".join([*_tables(results), sentence])
    saved = "" if options.html is None else f"\n\nsaved {options.html}"
    console.result(_facts(options, data, n_test, plan, results, sentence), text + saved)
    return SUCCESS


# Data and plan ------------------------------------------------------------------------------------------------------


def _read_test_data(data: TrainingData, options: SimpleNamespace, console: Console) -> tuple[Any, Any]:
    """Return the rows and labels of the test file, encoded like the training file."""
    import numpy as np

    from dropmargin.cli.reading import SavedModel, read_parts
    from dropmargin.io.data import Dataset
    from dropmargin.io.data.dataset import concatenate

    # The attributes of a classifier that `read_parts` uses.
    kind = SimpleNamespace(classes_=np.unique(data.y), n_features_in_=data.X.shape[1], missing="rescale")
    if data.feature_names is not None:
        kind.feature_names_in_ = data.feature_names
    model = SavedModel(options.train, data.encoder, kind, data.summary)
    parts = list(read_parts(options.test, model, options, console, labels=True))
    test = concatenate([Dataset(part.X, part.y) for part in parts])
    assert test.y is not None  # as labels=True
    unknown = sorted(set(test.y.tolist()) - set(kind.classes_.tolist()), key=str)
    if unknown:
        console.warn(
            f"{options.test} has labels that {options.train} lacks, such as {unknown[0]!r}: they count as errors"
        )
    return test.X, test.y


def _make_plan(options: SimpleNamespace, data: TrainingData, X_test: Any, console: Console) -> Plan:
    from dropmargin.cli.groups import feature_groups
    from dropmargin.evaluation.stress import TREATMENTS, Plan

    treatments: tuple[str, ...] = TREATMENTS if options.treatment in (None, "both") else (options.treatment,)
    if options.treatment is None and _is_table(data):
        treatments = ("missing",)
    elif options.treatment is None and X_test.size < math.prod(X_test.shape) > _MAX_STORED:
        console.note(
            "the test file has too many features to store deleted zeros as missing values: --treatment zero is used"
        )
        treatments = ("zero",)
    noises = options.noises if options.noise is None else [options.noise]
    if noises is None:
        noises = [shared.noise_spec(rate) for rate in ("0.05", "0.1", "0.3", "0.5", "0.7")]
    return Plan(
        levels=options.delete,
        choose_at=options.choose_at or [options.delete[len(options.delete) // 2]],
        treatments=treatments,
        strategy=options.strategy,
        groups=feature_groups(data, options),
        noises=noises if isinstance(noises, int) else [name.make() for name in noises],
        Cs=options.cs,
        own_c=options.C,
        n_folds=options.folds,
        n_repeats=options.repeats,
        random_state=options.seed,
        n_jobs=options.n_jobs,
    )


# Output -------------------------------------------------------------------------------------------------------------


def _tables(results: list[MethodResult]) -> list[str]:
    """Return a table of the errors in percent for each treatment."""
    from dropmargin.cli.formatting import table_text
    from dropmargin.report.stress import by_treatment, percent

    texts = []
    for treatment, group in by_treatment(results).items():
        header = ["deleted", *map(percent, group[0].curve.levels.tolist())]
        rows = [[one.method, *(f"{100.0 * error:.1f}" for error in one.error)] for one in group]
        how = {"zero": "is zero", "missing": "is a missing value"}[treatment]
        texts.append(f"error in percent; a deleted feature {how}\n{table_text(header, rows)}")
    return texts


def _facts(
    options: SimpleNamespace,
    data: TrainingData,
    n_test: int,
    plan: Plan,
    results: list[MethodResult],
    sentence: str,
) -> dict[str, Any]:
    from dropmargin.cli.formatting import noise_text

    return {
        "command": "stress",
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
        "results": [
            {
                "method": one.method,
                "treatment": one.treatment,
                "parameters": {
                    name: noise_text(value) if name == "noise" else value for name, value in one.parameters.items()
                },
                "seconds": [round(spent, 3) for spent in one.seconds],
                "converged": one.converged,
                "accuracy": one.curve.mean,
                "accuracy_std": one.curve.std,
            }
            for one in results
        ],
        "verdict": sentence,
        "html": options.html,
    }


def _write_html(
    options: SimpleNamespace,
    data: TrainingData,
    n_test: int,
    plan: Plan,
    results: list[MethodResult],
    sentence: str,
) -> None:
    from dropmargin.cli.formatting import plural
    from dropmargin.io.model.files import versions
    from dropmargin.report import write_page
    from dropmargin.report.stress import percent, stress_sections

    facts = {
        "training file": f"{options.train}: {plural(data.summary['rows'], 'row')}",
        "test file": f"{options.test}: {plural(n_test, 'row')}",
        "features": str(data.summary["features"]),
        "classes": str(len({*data.y.tolist()})),
        "deleted": ", ".join(map(percent, plan.levels)),
        "deletions": f"{plan.strategy}, {plan.n_repeats} times, seed {plan.random_state}",
        "cross-validation": f"{plan.n_folds} folds",
        "hash of the training file": str(data.data_hash),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    sections = stress_sections(
        results,
        n_test=n_test,
        chosen_at=f"with {', '.join(map(percent, plan.choose_at))} of the features deleted",
        deletion=_deletion_text(plan, options, data),
        facts=facts,
        command=options.command_line,
    )
    title = f"When features go missing: {os.path.basename(options.train)}"
    write_page(options.html, title, sentence, sections)


def _is_table(data: TrainingData) -> bool:
    return hasattr(data.encoder, "feature_columns_")


def _deletion_text(plan: Plan, options: SimpleNamespace, data: TrainingData) -> str:
    """Return what was deleted."""
    one, many = ("cell", "columns of the file") if _is_table(data) else ("entry", "features")
    if options.groups is not None or options.group_by is not None:
        one, many = "group of columns", "groups of columns"
    text = _DELETIONS[plan.strategy].format(one=one, many=many)
    return text[0].upper() + text[1:]
