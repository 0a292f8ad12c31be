"""``dropmargin stress``: our model beside others when columns of the test rows are lost."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli.options import LEARNING_OPTIONS, Levels
from dropmargin.cli.program import Console, check_files, command, table_text

if TYPE_CHECKING:
    from dropmargin.cli.train import Training

OURS = "dropmargin"
_DELETED = {"columns": "whole columns, the same in all rows", "entries": "cells, each by itself"}


@command(
    click.argument("train"),
    click.argument("test"),
    click.option("--delete", type=Levels(), default="0,0.2,0.4,0.5,0.6,0.8", help="Shares to delete, or 0:0.9:10."),
    click.option("--strategy", type=click.Choice(["columns", "entries"]), default="columns", help="What is deleted."),
    click.option("--repeats", type=click.IntRange(1), default=5, help="Random deletions of each share."),
    click.option("--html", metavar="FILE", help="Write a report."),
    *LEARNING_OPTIONS,
    short_help="Compare models when columns are lost.",
)
def stress(options: SimpleNamespace, console: Console) -> None:
    """Train our model and others on the file TRAIN, and delete columns or cells of the file TEST.

    The others are gradient boosting that is trained on deleted cells, and logistic or ridge regression with imputed
    means. The error of each is printed for each share that is deleted.
    """
    check_files([options.train, options.test], {"--html": options.html}, force=options.force)
    from dropmargin.cli.train import read_training

    train = read_training(options.train, options, console)
    options.task = "numbers" if train.numbers else "classes"
    test = read_training(options.test, options, console)
    result = compare(train, test, options, console)
    facts = {"command": "stress", "verdict": result["verdict"], "levels": options.delete, "results": result["errors"]}
    if options.html is not None:
        write_report(options.html, result, options)
    header = ["deleted", *(f"{level:.0%}" for level in options.delete)]
    first = f"{result['what']}; deleted: {_DELETED[options.strategy]}"
    lines = [first, table_text(header, _error_rows(result)), "", result["verdict"]]
    lines += [f"saved {options.html}"] if options.html else []
    console.result(facts | {"html": options.html, "seconds": result["seconds"]}, "\n".join(lines))


def _error_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return the name and the errors of each method as text."""
    return [[name, *(f"{error:.3f}" for error in errors)] for name, errors in result["errors"].items()]


def compare(train: Training, test: Training, options: SimpleNamespace, console: Console) -> dict[str, Any]:
    """Return curves, errors, seconds and the verdict of all methods."""
    from threadpoolctl import threadpool_limits

    from dropmargin import deletion_curve

    given = {"levels": options.delete, "strategy": options.strategy, "n_repeats": options.repeats, "verbose": 0}
    given |= {"fill": 0.0 if hasattr(train.X, "tocsr") else float("nan"), "random_state": options.seed}
    given["scoring"] = "neg_root_mean_squared_error" if train.numbers else "accuracy"
    curves, seconds, models = {}, {}, []
    for name, fit in _methods(train, options, console).items():
        console.note(f"{name}: fitting and measuring")
        begin = time.perf_counter()
        with threadpool_limits(1, user_api="blas"):  # the matrices are small: more threads of BLAS wait for each other
            model = fit()
        models.append(model)
        seconds[name] = round(time.perf_counter() - begin, 3)
        curves[name] = deletion_curve(model, test.X, test.y, **given)
    errors = {name: [float(e) for e in ((-c.mean) if train.numbers else 1.0 - c.mean)] for name, c in curves.items()}
    at = min(range(len(options.delete)), key=lambda k: abs(options.delete[k] - 0.5))
    what = "RMSE" if train.numbers else "error"
    listed = ", ".join(f"{name} {own[at]:.3f}" for name, own in errors.items())
    lost = "cells" if options.strategy == "entries" else "columns"
    verdict = f"With {options.delete[at]:.0%} of the {lost} lost, the {what} is: {listed}."
    facts = {"what": what, "lost": lost, "verdict": verdict}
    return {"curves": curves, "errors": errors, "seconds": seconds, "models": models, **facts}


def _methods(train: Training, options: SimpleNamespace, console: Console) -> dict[str, Any]:
    """Return functions that fit each method."""
    from dropmargin.cli.train import fit_model

    found: dict[str, Any] = {OURS: lambda: fit_model(train, options, console)}
    if not (train.summary["text"] or hasattr(train.X, "tocsr")):
        found["boosting trained on deleted cells"] = lambda: _boosting(train, options.seed)
    name = "ridge regression with imputation" if train.numbers else "logistic regression with imputation"
    return found | {name: lambda: _imputed(train)}


def _encoder(train: Training) -> Any:
    """Return the encoder of the other methods, fitted: of a table one feature per number, of a matrix none."""
    from sklearn.preprocessing import FunctionTransformer

    from dropmargin.tables import TableEncoder

    if not train.is_table:
        return FunctionTransformer().fit(train.X)
    return TableEncoder(basis="linear", text=train.summary["text"]).fit(train.X)


def _boosting(train: Training, seed: int) -> Any:
    """Return gradient boosting that is fitted to the rows, and to copies that have lost random columns."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.pipeline import Pipeline

    encoder = _encoder(train)
    X = np.asarray(encoder.transform(train.X), dtype=np.float64)
    groups = getattr(encoder, "feature_columns_", np.arange(X.shape[1]))
    _, place = np.unique(groups, return_inverse=True)
    rng, copies = np.random.default_rng(seed), [X]
    for rate in (0.25, 0.5, 0.75):
        lost = rng.uniform(size=(len(X), place.max() + 1)) < rate
        copies.append(np.where(lost[:, place], np.nan, X))
    cls = HistGradientBoostingRegressor if train.numbers else HistGradientBoostingClassifier
    model = cls(random_state=seed).fit(np.vstack(copies), np.tile(train.y, len(copies)))
    return Pipeline([("encoder", encoder), ("model", model)])


def _imputed(train: Training) -> Any:
    """Return logistic or ridge regression with imputed means, its C chosen by cross-validation."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    encoder = _encoder(train)
    means = hasattr(train.X, "tocsr") or bool(train.summary["text"])
    model: Any = RidgeCV()
    if not train.numbers:
        model = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}, cv=3)
    steps = [SimpleImputer(keep_empty_features=True), StandardScaler(with_mean=not means), model]
    fitted = make_pipeline(*steps).fit(encoder.transform(train.X), train.y)
    return make_pipeline(encoder, *[step for _, step in fitted.steps])


def write_report(path: str, result: dict[str, Any], options: SimpleNamespace) -> None:
    """Write the page: the verdict, the curves, the errors, and the command."""
    from dropmargin import DeletionCurveDisplay, __version__
    from dropmargin.report import Plot, Section, Table, draw_svg, write_page

    lost = result["lost"]
    title = f"Test {result['what']} by the share of {lost} lost"
    display = DeletionCurveDisplay(result["curves"])
    about = {"title": title, "description": result["verdict"]}
    svg = draw_svg(lambda figure: display.plot(figure.subplots()), **about)
    header = [f"{lost} lost", *(f"{level:.0%}" for level in options.delete), "seconds to fit"]
    seconds, errors = result["seconds"], list(result["errors"].values())
    rows = [
        [name, *(f"{error:.3f}" for error in own), f"{seconds[name]:.1f}"] for name, own in result["errors"].items()
    ]
    lowest = [min(level) for level in zip(*errors, strict=True)]
    bold = {(r, k + 1) for r, own in enumerate(errors) for k, error in enumerate(own) if error == lowest[k]}
    table = Table("The lowest of each share is bold.", header, rows, frozenset(bold))
    facts = {
        "training file": options.train,
        "test file": options.test,
        "deleted": f"{_DELETED[options.strategy]}, {options.repeats} times, seed {options.seed}",
        "dropmargin": __version__,
    }
    plot = Plot(svg, title, "Means over the deletions; bands are one standard deviation.")
    sections = [Section("Result", plots=[plot], tables=[table]), Section("Measurement", facts=facts)]
    sections.append(Section("Command", command=options.command_line or ""))
    write_page(path, f"When {lost} are lost", result["verdict"], sections)
