"""``dropmargin predict``, ``evaluate`` and ``explain``: a model file and the rows of a data file."""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from dropmargin.cli.options import DATA_OPTIONS, FORCE, TARGET, read_options
from dropmargin.cli.program import Console, check_files, command, table_text

if TYPE_CHECKING:
    from dropmargin.typing import Array

_METHODS = {"label": "predict", "decision": "decision_function", "probability": "predict_proba"}
_METHODS |= {"prediction": "predict", "interval": "predict_interval", "stability": "predict_stability"}
# First characters of a formula, or white space that spreadsheets skip before one; also as full-width characters.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_MAX_CONFUSION = 10
_IDS = click.option("--ids", metavar="COLUMN", help="Write this column first, with all its digits.")
_SAFE = click.option("--safe-csv", is_flag=True, help="Quote labels that a spreadsheet would run as a formula.")


class SavedModel:
    """A model file: the model, and how the rows of a data file are read for it."""

    def __init__(self, path: str) -> None:
        from dropmargin.io.model import load_described

        self.path = path
        self.model, description = load_described(path)
        self.summary = description["summary"] or {}
        self.is_table = hasattr(self.model, "encoder_")
        self.is_numbers = not hasattr(self.model, "classes_")

    def parts(self, path: str, options: SimpleNamespace, console: Console, labels: bool = False) -> Iterator[Any]:
        """Yield the rows of a data file in parts, as the model takes them; with labels, all of them as one."""
        from dropmargin.io.data import MATRICES, find_format, read_chunks, read_data

        form = find_format(path, options.format_)
        if (form in MATRICES) == self.is_table and (form != "parquet" or self.is_table):
            kind = "tables or text" if self.is_table else "svmlight or npz files"
            raise ValueError(f"{path}: {self.path} is a model of {kind}, and the data are read as {form}")
        target = getattr(options, "target", None) or self.summary.get("target") if labels else None
        more: dict[str, Any] = {"target": target}
        if form not in MATRICES and form != "text":
            more["columns"] = tuple(getattr(self.model, "feature_names_in_", ()))
        if form == "svmlight":
            first = options.zero_based if options.zero_based is not None else self.summary.get("zero_based")
            more |= {"n_features": self.model.n_features_in_, "zero_based": bool(first)}
        given = read_options(options, form, **more)
        seen: set[str] = set()
        for part in [read_data(path, given)] if labels else read_chunks(path, given):
            for note in [note for note in part.notes if note not in seen]:
                console.note(f"{path}: {note}")
                seen.add(note)
            yield part


@command(
    click.argument("data"),
    click.argument("model"),
    click.option("-o", "--out", default="-", metavar="FILE", help="*.csv or *.tsv, also with .gz; by default stdout."),
    click.option("--output", metavar="COLUMNS", help=f"With commas between them: {', '.join(_METHODS)}."),
    click.option("--interval", is_flag=True, help="Add the ends of an interval that contains the number."),
    click.option("--coverage", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.9),
    _IDS,
    click.option("--no-header", is_flag=True, help="No line with the names of the columns."),
    _SAFE,
    FORCE,
    *DATA_OPTIONS,
    short_help="Write the predictions of a model for a data file.",
)
def predict(options: SimpleNamespace, console: Console) -> None:
    """Write the predictions of the model file MODEL for the rows of the file DATA.

    DATA may be - for standard input (with --format). Missing cells and absent columns are missing values.
    """
    check_files([options.data, options.model], {"--out": options.out}, force=options.force)
    from dropmargin.io.atomic import write_atomically

    saved = SavedModel(options.model)
    outputs = [part.strip() for part in options.output.split(",")] if options.output else []
    outputs = outputs or ["prediction" if saved.is_numbers else "label"]
    outputs += ["interval"] if options.interval and "interval" not in outputs else []
    for output in outputs:
        _check_output(output, saved)
    lines = _lines(saved, outputs, options, console)
    if options.out == "-":
        for block in lines:
            sys.stdout.write(block)
        return
    blocks = (block.encode() for block in lines)
    if options.out.lower().endswith(".gz"):  # a member per block, without a time stamp
        blocks = (gzip.compress(block, mtime=0) for block in blocks)
    write_atomically(options.out, blocks)
    console.note(f"saved {options.out}")


def _check_output(output: str, saved: SavedModel) -> None:
    """Refuse an output that the model does not have, before any data are read."""
    model = saved.model
    if output not in _METHODS:
        raise click.UsageError(f"--output: {output!r} is none of {', '.join(_METHODS)}")
    if (output in ("prediction", "interval")) != saved.is_numbers:
        kind = "numbers" if saved.is_numbers else "classes"
        raise click.UsageError(f"--output {output}: {saved.path} predicts {kind}")
    if output == "probability" and not hasattr(model, "predict_proba"):
        raise click.UsageError(f"--output probability: {saved.path} has none (train with --loss logistic)")
    inner = getattr(model, "model_", model)
    if output == "interval" and not hasattr(inner, "residual_deviation_"):
        raise click.UsageError(f"--output interval: {saved.path} does not know its residuals (train with more rows)")


def label_texts(labels: Any) -> list[str]:
    """Return labels as text; numbers have all their digits."""
    return [label if isinstance(label, str) else repr(label) for label in labels.tolist()]


def _lines(saved: SavedModel, outputs: list[str], options: SimpleNamespace, console: Console) -> Iterator[str]:
    """Yield the lines of each part of a file, the header with the first of them."""
    names = [] if saved.is_numbers else label_texts(saved.model.classes_)
    several = {"probability": names, "decision": names if len(names) > 2 else (), "interval": ("low", "high")}
    separator = "\t" if options.out.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","
    columns = [options.ids] if options.ids else []
    for output in outputs:
        columns += [f"{output}_{name}" for name in several.get(output, ())] or [output]
    rows: list[list[str]] = [] if options.no_header else [columns]
    for part in saved.parts(options.data, options, console):
        cells = [column for output in outputs for column in _cells(saved, output, part.X, options)]
        if options.ids:
            cells.insert(0, part.ids)
        rows += [[_safe(cell) if options.safe_csv else cell for cell in row] for row in zip(*cells, strict=True)]
        stream = io.StringIO()
        csv.writer(stream, delimiter=separator, lineterminator="\n").writerows(rows)
        yield stream.getvalue()
        rows = []


def _cells(saved: SavedModel, output: str, X: Any, options: SimpleNamespace) -> list[list[str]]:
    """Return the columns of an output; reading a number back gives the same value."""
    import numpy as np

    given = (options.coverage,) if output == "interval" else ()
    values = getattr(saved.model, _METHODS[output])(X, *given)
    if output == "label":
        return [label_texts(values)]
    return [list(map(repr, column)) for column in np.atleast_2d(values.T.astype(np.float64)).tolist()]


def _safe(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula: a single quote is before what begins as one."""
    try:
        is_number = math.isfinite(float(text))
    except ValueError:
        is_number = False
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not is_number else text


# Evaluate -------------------------------------------------------------------------------------------------------------


@command(
    click.argument("data"), click.argument("model"), TARGET, *DATA_OPTIONS, short_help="Score a model on a data file."
)
def evaluate(options: SimpleNamespace, console: Console) -> None:
    """Score the model file MODEL on the rows and labels of the file DATA."""
    check_files([options.data, options.model], {}, force=False)
    saved = SavedModel(options.model)
    (part,) = saved.parts(options.data, options, console, labels=True)
    if part.y is None:
        raise ValueError(f"{options.data}: there are no labels (--target)")
    score = _score_numbers if saved.is_numbers else _score_classes
    facts, text = score(saved, part.X, part.y, options, console)
    console.result(facts | {"command": "evaluate", "rows": len(part.y)}, text)


def _score_numbers(saved: SavedModel, X: Any, y: Array, options: Any, console: Console) -> tuple[dict[str, Any], str]:
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    from dropmargin.cli.train import as_numbers

    numbers = as_numbers(y)
    if numbers is None:
        raise ValueError(f"{options.data}: the labels are such as {y[:3].tolist()}, but the model predicts numbers")
    found = saved.model.predict(X)
    rmse, mae = root_mean_squared_error(numbers, found), mean_absolute_error(numbers, found)
    r2 = r2_score(numbers, found, force_finite=False) if len(y) > 1 else math.nan
    facts = {"rmse": rmse, "mae": mae, "r2": r2}
    return facts, f"RMSE  {rmse:.6g}  ({len(y)} rows)\nMAE   {mae:.6g}\nR2    {r2:.4f}"


def _score_classes(saved: SavedModel, X: Any, y: Array, options: Any, console: Console) -> tuple[dict[str, Any], str]:
    import numpy as np
    from sklearn.metrics import classification_report, confusion_matrix

    classes = saved.model.classes_
    if classes.dtype.kind in "OU":
        y = y.astype(str)
    elif y.dtype.kind in "OU":
        raise ValueError(f"{options.data}: labels such as {y[0]!r}, but those of the model are {classes[:3].tolist()}")
    unknown = sorted(set(y.tolist()) - set(classes.tolist()), key=str)
    if unknown:
        console.warn(f"{options.data} has labels that the model does not know, such as {unknown[0]!r}: errors")
    found = saved.model.predict(X)
    accuracy = float(np.mean(found == y))
    facts: dict[str, Any] = {"accuracy": accuracy, "error": 1.0 - accuracy, "unknown_labels": len(unknown)}
    lines = [f"accuracy  {accuracy:.4f}  ({int((found == y).sum())} of {len(y)} rows)", f"error     {1 - accuracy:.4f}"]
    if hasattr(saved.model, "predict_log_proba") and not unknown:
        codes = np.searchsorted(classes, y)
        facts["log_loss"] = -float(saved.model.predict_log_proba(X)[np.arange(len(y)), codes].mean())
        lines.append(f"log loss  {facts['log_loss']:.4f}")
    names = label_texts(classes)
    listed = {"labels": classes, "target_names": names, "zero_division": np.nan}
    facts["classes"] = {name: classification_report(y, found, output_dict=True, **listed)[name] for name in names}
    lines += ["", classification_report(y, found, digits=4, **listed).rstrip()]
    if len(names) <= _MAX_CONFUSION and not unknown:
        facts["confusion"] = confusion_matrix(y, found, labels=classes)
        cells = [[name, *map(str, own)] for name, own in zip(names, facts["confusion"].tolist(), strict=True)]
        lines += ["", table_text(["label \\ predicted", *names], cells)]
    return facts, "\n".join(lines)


# Explain --------------------------------------------------------------------------------------------------------------


@command(
    click.argument("data"),
    click.argument("model"),
    click.option("--rows", type=click.IntRange(1), default=10, help="Rows to print, from the first on."),
    click.option("--top", type=click.IntRange(1), default=5, help="Columns or features to list for a row."),
    click.option("-o", "--output", metavar="FILE", help="Write all rows: *.csv."),
    _SAFE,
    FORCE,
    *DATA_OPTIONS,
    short_help="Show what the predictions for a data file lean on.",
)
def explain(options: SimpleNamespace, console: Console) -> None:
    """Show what the predictions of the model file MODEL for the rows of the file DATA lean on.

    The contribution of a column, a word or a feature is how much the score of the label, against that of the
    runner-up, decreases when it vanishes. A label flips when as many of the strongest ones vanish as "flips after"
    tells.
    """
    check_files([options.data, options.model], {"--output": options.output}, force=options.force)
    import dropmargin
    from dropmargin.evaluation import Explanation
    from dropmargin.io.atomic import write_atomically

    saved = SavedModel(options.model)
    rows: list[Any] = []
    for part in saved.parts(options.data, options, console):
        some = part.X if options.output else part.X[: options.rows - len(rows)]
        rows += dropmargin.explain(saved.model, some, n=options.top, verbose=0)
        if not options.output and len(rows) >= options.rows:
            break
    if options.output:
        frame = Explanation(rows).to_frame()
        if options.safe_csv:
            frame = frame.map(lambda cell: _safe(cell) if isinstance(cell, str) else cell)
        write_atomically(options.output, [frame.to_csv(index_label="row").encode()])
        console.note(f"saved {options.output}")
    shown = rows[: options.rows]
    lines = [f"row {number}: {row!r}" for number, row in enumerate(shown, 1)]
    console.result({"command": "explain", "rows": [row.to_dict() for row in shown]}, "\n".join(lines))
