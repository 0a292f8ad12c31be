"""``dropmargin nightmare TRAIN TEST``: Dropout-SVM and its peers when features of the test rows are deleted."""

from __future__ import annotations

import argparse
import math
import os
import re
from typing import TYPE_CHECKING, Any

from dropmargin.cli import options as shared
from dropmargin.cli.console import Console, UsageError

if TYPE_CHECKING:
    from dropmargin.cli.training import TrainingData
    from dropmargin.evaluation.stress import MethodResult, Plan

_MOST_LEVELS = 1000
# Deleted zeros of a sparse matrix have to be stored if they are to be missing: about 12 bytes each.
_MOST_STORED = 10**8
_DELETIONS = {
    "entries": "Each entry of each test row was deleted with the given probability, independently of all others.",
    "columns": "Random columns were deleted, the same for all test rows, as if sensors had died.",
    "worst": "Columns were deleted, those first whose loss alone costs the method the most margin.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("train", help="the data file to learn from")
    add("test", help="the data file whose features are deleted")
    group = parser.add_argument_group("deletion")
    add = group.add_argument
    levels = "shares to delete: 0:0.9:10 are ten from 0 to 0.9; or 0,0.5,0.9 (default: 0:0.9:10)"
    add("--delete", type=levels_of, default=levels_of("0:0.9:10"), metavar="LEVELS", help=levels)
    add("--strategy", choices=tuple(_DELETIONS), default="entries", help="what is deleted (default: entries)")
    add(
        "--treatment",
        choices=("zero", "missing", "both"),
        help="a deleted feature reads as zero, or is known to be missing",
    )
    add("--repeats", type=shared.at_least_one, default=5, metavar="N", help="random deletions per level (default: 5)")
    add("--seed", type=shared.seed_of, default=0, metavar="N", help="of the deletions and folds (default: 0)")
    add("--html", metavar="FILE", help="write a page with pictures and tables, which needs no network")
    group = parser.add_argument_group("settings")
    add = group.add_argument
    add("--noise", type=shared.noise_name, help="noise of Dropout-SVM (default: chosen by cross-validation)")
    add("-c", "--C", type=shared.positive, help="C of Dropout-SVM (default: chosen by cross-validation)")
    add(
        "--noises", type=shared.noise_names, metavar="A,B", help="noises to choose from (default: 0.05,0.1,0.3,0.5,0.7)"
    )
    add("--cs", type=shared.numbers, metavar="A,B", help="values of C to choose from, or how many (default: 5)")
    add("--folds", type=shared.at_least_two, default=3, metavar="N", help="of the cross-validation (default: 3)")
    add(
        "--choose-at",
        type=levels_of,
        metavar="LEVELS",
        help="deletion to choose settings at (default: the middle of --delete)",
    )
    add("--n-jobs", type=shared.n_jobs_of, metavar="N", help="threads, -1 for all; the result is the same")
    add("--ignore-extra", action="store_true", help="svmlight: leave out features of the test file that training lacks")
    shared.add_data_options(parser)
    shared.add_training_data_options(parser)


def levels_of(text: str) -> list[float]:
    """Return the shares that ``0:0.9:10`` (first, last, how many) or ``0,0.5,0.9`` stands for, in ascending order."""
    wrong = f"expected shares such as 0:0.9:10 (first, last, how many) or 0,0.5,0.9, got {text!r}"
    parts = text.split(":")
    try:
        if len(parts) == 3:
            if not re.fullmatch(r"[0-9]{1,6}", parts[2].strip()):
                raise ValueError
            first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
            if not 2 <= count <= _MOST_LEVELS:
                raise argparse.ArgumentTypeError(f"{wrong}: from 2 to {_MOST_LEVELS} levels are possible")
            values = [round(first + (last - first) * i / (count - 1), 12) for i in range(count)]
        else:
            values = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(wrong) from None
    if not all(0.0 <= value <= 1.0 for value in values):  # NaN is refused, too
        raise argparse.ArgumentTypeError(f"{wrong}: a share is from 0 to 1, 0.3 stands for 30 %")
    if len(set(values)) < len(values) or len(values) > _MOST_LEVELS:
        raise argparse.ArgumentTypeError(f"{wrong}: each level once, and at most {_MOST_LEVELS} of them")
    return sorted(values)


def run(options: argparse.Namespace, console: Console) -> int:
    """Train, delete, measure, and say what came out."""
    if options.noise is not None and options.noises is not None:
        raise UsageError("--noise is the noise to use and --noises are those to choose from: give one of the two")
    if options.html is not None:
        shared.check_can_write("--html", options.html, (options.train, options.test, options.feature_names))
    from dropmargin.cli.main import SUCCESS
    from dropmargin.cli.training import check_folds, read_training_data
    from dropmargin.evaluation.stress import stress_test
    from dropmargin.report.stress import findings

    data = read_training_data(options.train, options, console)
    check_folds(options.folds, data.y)
    test = _read_test_data(data, options, console)
    plan = _make_plan(options, data, test[0], console)
    contestants = stress_test((data.X, data.y), test, plan, console.note)
    for one in contestants:
        if not one.converged:
            console.warn(f"{one.method} (deleted = {one.treatment}) ended at its limit of iterations")
    n_test = int(test[0].shape[0])
    sentences = findings(contestants, n_test)
    if options.html is not None:
        _write_html(options, data, n_test, plan, contestants)
    text = "\n\n".join([*_tables(contestants), *sentences])
    saved = "" if options.html is None else f"\n\nsaved {options.html}"
    console.result(_facts(options, data, n_test, plan, contestants, sentences), text + saved)
    return SUCCESS


# Data and plan ------------------------------------------------------------------------------------------------------


def _read_test_data(data: TrainingData, options: argparse.Namespace, console: Console) -> tuple[Any, Any]:
    """Return the rows and labels of the test file, encoded as the training file was."""
    from types import SimpleNamespace

    import numpy as np

    from dropmargin.cli.reading import SavedModel, read_parts
    from dropmargin.io.data import Dataset
    from dropmargin.io.data.dataset import concatenate

    # What the readers for saved models need to know of one.
    kind = SimpleNamespace(classes_=np.unique(data.y), n_features_in_=data.X.shape[1], missing="rescale")
    if data.feature_names is not None:
        kind.feature_names_in_ = data.feature_names
    model = SavedModel(options.train, data.encoder, kind, data.summary)
    parts = list(read_parts(options.test, model, options, console, labels=True))
    test = concatenate([Dataset(part.X, part.y) for part in parts])
    assert test.y is not None  # labels were asked for
    unknown = sorted(set(test.y.tolist()) - set(kind.classes_.tolist()), key=str)
    if unknown:
        console.warn(f"{options.test} has labels that {options.train} has not, such as {unknown[0]!r}: always wrong")
    return test.X, test.y


def _make_plan(options: argparse.Namespace, data: TrainingData, X_test: Any, console: Console) -> Plan:
    from dropmargin.evaluation.stress import TREATMENTS, Plan

    treatments: tuple[str, ...] = TREATMENTS if options.treatment in (None, "both") else (options.treatment,)
    if options.treatment is None and X_test.size < math.prod(X_test.shape) and math.prod(X_test.shape) > _MOST_STORED:
        console.note("the test file is too wide for deleted zeros to be stored as missing: --treatment zero")
        treatments = ("zero",)
    noises = options.noises if options.noise is None else [options.noise]
    if noises is None:
        noises = [shared.noise_name(rate) for rate in ("0.05", "0.1", "0.3", "0.5", "0.7")]
    return Plan(
        levels=options.delete,
        choose_at=options.choose_at or [options.delete[len(options.delete) // 2]],
        treatments=treatments,
        strategy=options.strategy,
        noises=noises if isinstance(noises, int) else [name.make() for name in noises],
        Cs=options.cs,
        own_c=options.C,
        n_folds=options.folds,
        n_repeats=options.repeats,
        random_state=options.seed,
        n_jobs=options.n_jobs,
    )


# What came out ------------------------------------------------------------------------------------------------------


def _tables(contestants: list[MethodResult]) -> list[str]:
    """Return a table of errors in percent per treatment."""
    from dropmargin.cli.wording import table_text
    from dropmargin.report.stress import by_treatment, percent

    texts = []
    for treatment, group in by_treatment(contestants).items():
        header = ["features deleted", *(one.method for one in group)]
        rows = [
            [percent(level), *(f"{100.0 * one.error[at]:.1f}" for one in group)]
            for at, level in enumerate(group[0].curve.levels.tolist())
        ]
        how = {"zero": "reads as zero", "missing": "is known to be missing"}[treatment]
        texts.append(f"error in percent; a deleted feature {how}\n{table_text(header, rows, left=0)}")
    return texts


def _facts(
    options: argparse.Namespace,
    data: TrainingData,
    n_test: int,
    plan: Plan,
    contestants: list[MethodResult],
    sentences: list[str],
) -> dict[str, Any]:
    from dropmargin.cli.wording import noise_text

    return {
        "command": "nightmare",
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
                "noise": noise_text(one.noise),
                "C": one.C,
                "converged": one.converged,
                "accuracy": one.curve.mean,
                "accuracy_std": one.curve.std,
            }
            for one in contestants
        ],
        "summary": sentences,
        "html": options.html,
    }


def _write_html(
    options: argparse.Namespace, data: TrainingData, n_test: int, plan: Plan, contestants: list[MethodResult]
) -> None:
    from dropmargin.cli.wording import plural
    from dropmargin.io.model.files import versions
    from dropmargin.report import write_page
    from dropmargin.report.stress import findings, percent, stress_sections

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
        contestants,
        n_test=n_test,
        chosen_at=f"with {', '.join(map(percent, plan.choose_at))} of the features deleted",
        deletion=_DELETIONS[plan.strategy],
        facts=facts,
        command=options.command_line,
    )
    title = f"When features go missing: {os.path.basename(options.train)}"
    write_page(options.html, title, findings(contestants, n_test)[0], sections)
