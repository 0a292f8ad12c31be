"""``dropmargin train`` and ``dropmargin cv``: fit a model to a data file, with all that is not given chosen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli.options import LEARNING_OPTIONS, read_options
from dropmargin.cli.program import Console, check_files, command, table_text

if TYPE_CHECKING:
    from dropmargin.typing import Array

# Integers are a quantity if they are more than this many different ones, and more than this share of the rows.
_MANY_INTEGERS, _MANY_SHARE, _MANY_NUMBERS = 50, 0.2, 20
_CLASS_LOSSES = ("logistic", "hinge")


@dataclass(frozen=True)
class Training:
    """Training rows and labels, and what predictions need to know of the file."""

    X: Any
    y: Array
    numbers: bool
    summary: dict[str, Any]
    data_hash: str | None
    is_table: bool  # a matrix with names of features is a data frame, and not a table


@command(
    click.argument("data"),
    click.argument("model", required=False),
    click.option("--stream", is_flag=True, help="svmlight, npz, parquet, csv: for files larger than memory."),
    *LEARNING_OPTIONS,
    short_help="Fit a model to a data file, and save it.",
)
def train(options: SimpleNamespace, console: Console) -> None:
    """Fit a model to the file DATA, and save it as the file MODEL.

    A table trains a TableClassifier, or with many different numbers as labels a TableRegressor; svmlight and npz files
    train the linear models. Noise and C are chosen by cross-validation, unless they are given. DATA may be - for
    standard input (with --format), or a folder of Parquet files or of documents in a folder per label.
    """
    path = options.model or f"{options.data.rstrip('/').rpartition('/')[2].partition('.')[0] or 'model'}.safetensors"
    check_files([options.data], {"MODEL": path}, force=options.force)
    from dropmargin.io.model import save

    begin = time.perf_counter()
    if options.stream:
        model, summary, data_hash = _fit_streamed(options, console)
    else:
        data = read_training(options.data, options, console)
        model, data_hash = fit_model(data, options, console), data.data_hash
        summary = data.summary | {"training_score": float(model.score(data.X, data.y))}
    save(model, path, summary=summary, data_hash=data_hash)
    seconds = time.perf_counter() - begin
    facts = summary | {"command": "train", "model": path, "seconds": round(seconds, 3), **_chosen(model)}
    lines = [
        *_left_out(model),
        f"{summary['rows']} rows, {summary['columns']} columns: {_described(model)}",
        *([f"{summary['score']} on the training rows {summary['training_score']:.4f}"] if "score" in summary else []),
        f"saved {path} ({seconds:.1f} s)",
    ]
    console.result(facts, "\n".join(lines))


@command(
    click.argument("data"),
    click.option("-o", "--output", metavar="MODEL", help="Save the model."),
    *LEARNING_OPTIONS,
    short_help="Choose a model by cross-validation, and show the scores.",
)
def cv(options: SimpleNamespace, console: Console) -> None:
    """Choose basis, noise and C for the file DATA by cross-validation, and show the scores of the candidates.

    Held-out rows are scored with a share --target-noise of their columns missing.
    """
    check_files([options.data], {"--output": options.output}, force=options.force)
    from dropmargin.io.model import save

    begin = time.perf_counter()
    data = read_training(options.data, options, console)
    model = fit_model(data, options, console)
    if hasattr(model, "cv_scores_"):
        scores = {str(name): float(score) for name, score in model.cv_scores_.items()}
    else:
        noises = [f"noise {_rate_of(noise):g}" for noise in getattr(model, "noises_", [])]
        means = model.scores_.mean(axis=0).max(axis=1) if noises else []
        scores = dict(zip(noises, map(float, means), strict=True))
    if options.output is not None:
        save(model, options.output, summary=data.summary, data_hash=data.data_hash)
    seconds = time.perf_counter() - begin
    facts = data.summary | {"command": "cv", "scores": scores, "model": options.output, **_chosen(model)}
    rows = [[name, f"{score:.4f}"] for name, score in scores.items()]
    lines = [table_text(["candidate", "score"], rows), ""] if rows else []
    lines += [*_left_out(model), f"chosen: {_described(model)} ({options.folds} folds, {seconds:.1f} s)"]
    lines += [f"saved {options.output}"] if options.output is not None else []
    console.result(facts, "\n".join(lines))


# Data -----------------------------------------------------------------------------------------------------------------


def read_training(path: str, options: SimpleNamespace, console: Console) -> Training:
    """Return the rows and labels of a file; labels that are many different numbers are a quantity."""
    from dropmargin.io.data import MATRICES, find_format, read_data
    from dropmargin.io.data.sources import hash_of

    form = find_format(path, options.format_)
    target = options.target or ("label" if form == "text" else None)
    if target is None and form not in MATRICES:
        raise click.UsageError(f"--target must name the column of the labels of {path}")
    data = read_data(path, read_options(options, form, target=target, ids=None))
    for note in data.notes:
        console.note(f"{path}: {note}")
    if data.y is None:
        raise ValueError(f"{path}: there are no labels, as there is no array 'y' (--target names another)")
    numbers = _quantity(data.y, options, path)
    is_numbers = numbers is not None
    if is_numbers and options.task == "auto" and options.loss is None:
        console.note("the labels are many different numbers: a regression (--task classes for classes)")
    X = data.X
    if data.feature_names is not None and not hasattr(X, "tocsr"):
        import pandas as pd

        X = pd.DataFrame(X, columns=list(data.feature_names))
    if numbers is None and len(set(data.y.tolist())) < 2:
        raise ValueError(f"{path}: there is one class, {data.y[0]!r}: two or more are needed")
    summary = {
        "data": path,
        "rows": data.n_samples,
        "columns": int(data.X.shape[1]),
        "target": target,
        "text": [*options.text, *(["text"] if form == "text" else [])],
        "zero_based": data.zero_based,
        "score": "R^2" if is_numbers else "accuracy",
    }
    y = data.y if numbers is None else numbers
    return Training(X, y, is_numbers, summary, hash_of(path), data.is_table)


def as_numbers(y: Array) -> Array | None:
    """Return labels as numbers by one rule for all of them (``$1,200.50``, ``12%``), None if they are not numbers."""
    import numpy as np

    from dropmargin.tables.cells import apply_rule, decide, read_cells

    if y.dtype.kind in "iuf":
        return y.astype(float)
    if y.dtype.kind == "b":
        return None
    cells = read_cells("target", y)
    try:
        rule = decide("target", cells)
        return np.asarray(apply_rule(rule, "target", cells)) if rule.kind == "number" else None
    except ValueError:
        return None


def _quantity(y: Array, options: SimpleNamespace, path: str) -> Array | None:
    """Return the numbers of a regression, None for classes."""
    import numpy as np

    wants = options.task == "numbers" or options.loss in LOSSES_OF_NUMBERS
    if options.task == "classes" or options.loss in _CLASS_LOSSES:
        if wants:
            raise click.UsageError(f"--loss {options.loss} does not fit --task {options.task}")
        return None
    numbers = as_numbers(y)
    if wants:
        if numbers is None or not np.isfinite(numbers).all():
            raise ValueError(f"{path}: the labels are such as {y[:3].tolist()}, not numbers")
        return numbers
    if numbers is None or not np.isfinite(numbers).all():
        return None
    n_different, is_whole = len(np.unique(numbers)), bool((numbers == np.floor(numbers)).all())
    is_many = n_different > _MANY_INTEGERS and n_different > _MANY_SHARE * len(y)
    return numbers if is_many or (not is_whole and n_different > min(_MANY_NUMBERS, len(y) / 2)) else None


LOSSES_OF_NUMBERS = ("squared", "epsilon_insensitive")


# Models ---------------------------------------------------------------------------------------------------------------


def fit_model(data: Training, options: SimpleNamespace, console: Console) -> Any:
    """Return the fitted model of the options: of a table, or a linear one of a matrix."""
    return make_model(data.is_table, data.numbers, options, data.summary, console).fit(data.X, data.y)


def make_model(is_table: bool, is_numbers: bool, options: SimpleNamespace, summary: Any, console: Console) -> Any:
    """Return the model of the options, not fitted."""
    import dropmargin

    loss = options.loss or ("squared" if is_numbers else "logistic")
    verbose = 0 if console.quiet else 1
    if is_table:
        from dropmargin.tables import TableEncoder

        cls = dropmargin.TableRegressor if is_numbers else dropmargin.TableClassifier
        encoder = TableEncoder(categorical=list(options.categorical), keep=list(options.keep))
        given = {name: getattr(options, name) for name in ("basis", "C", "target_noise", "n_jobs")}
        given |= {"noise": "auto" if options.noise is None else options.noise, "text": list(summary["text"])}
        given |= {"cv": options.folds, "random_state": options.seed, "verbose": verbose}
        return cls(loss, encoder=encoder if options.categorical or options.keep else None, **given)
    names = {"logistic": "DropoutLogisticRegression", "hinge": "DropoutSVC", "squared": "DropoutRidge"}
    name = names.get(loss, "DropoutSVR")
    shared = {"missing": "rescale", "n_jobs": options.n_jobs, "verbose": verbose}
    if options.noise is not None and options.C is not None:
        return getattr(dropmargin, name)(noise=options.noise, C=options.C, **shared)
    grid: dict[str, Any] = {} if options.noise is None else {"noises": [options.noise]}
    grid |= {} if options.C is None else {"Cs": [options.C]}
    return getattr(dropmargin, f"{name}CV")(**grid, cv=_folds(is_numbers, options), **shared)


def _folds(is_numbers: bool, options: SimpleNamespace) -> Any:
    """Return folds of shuffled rows, because files are often sorted."""
    from sklearn.model_selection import KFold, StratifiedKFold

    return (KFold if is_numbers else StratifiedKFold)(options.folds, shuffle=True, random_state=options.seed)


def _fit_streamed(options: SimpleNamespace, console: Console) -> tuple[Any, dict[str, Any], None]:
    """Return a linear model of files that need not fit into memory, and the summary."""
    from dropmargin import streaming
    from dropmargin.io.data import find_format
    from dropmargin.io.data.sources import files_of

    form = find_format(files_of(options.data)[0], options.format_)
    reading = read_options(options, form, target=options.target, ids=None)
    stored = streaming.prepare_files(options.data, options=reading)
    is_numbers = options.task == "numbers" or options.loss in LOSSES_OF_NUMBERS
    model = make_model(False, is_numbers, options, None, console)
    streaming.fit(model, options.data, options=reading, progress=not console.quiet)
    n_rows, n_columns = stored.shape
    summary = {"data": options.data, "rows": n_rows, "columns": n_columns, "target": options.target, "text": []}
    return model, summary | {"zero_based": stored.zero_based}, None


# Words ----------------------------------------------------------------------------------------------------------------


def _rate_of(noise: Any) -> float:
    level = getattr(noise, "rate", noise)
    return 0.0 if level is None else float(level)


def _chosen(model: Any) -> dict[str, Any]:
    """Return the class and the chosen settings of a model."""
    noise = getattr(model, "noise_", getattr(model, "noise", None))
    return {
        "class": type(model).__name__,
        "basis": getattr(model, "basis_", None),
        "noise": noise if isinstance(noise, dict) else _rate_of(noise),
        "C": float(getattr(model, "C_", getattr(model, "C", 0.0))),
        "left_out": {column.name: column.reason for column in getattr(model, "columns_", ()) if column.reason},
    }


def _described(model: Any) -> str:
    found = _chosen(model)
    basis = f"basis {found['basis']}, " if found["basis"] else ""
    noise = found["noise"] if isinstance(found["noise"], dict) else f"{found['noise']:g}"
    rate = "copies with deleted cells" if found["basis"] == "fourier" else f"noise {noise}"
    return f"{found['class']}, {basis}{rate}, C {found['C']:.3g}"


def _left_out(model: Any) -> list[str]:
    return [f"left out: {name} ({reason})" for name, reason in _chosen(model)["left_out"].items()]
