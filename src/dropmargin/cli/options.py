"""Options that several commands share, and what they mean for the readers of data files."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import Any

import click

FORMATS = ("svmlight", "csv", "tsv", "jsonl", "parquet", "arrow", "npz", "text")
BASES = ("auto", "linear", "spline", "fourier")
LOSSES = ("logistic", "hinge", "squared", "epsilon_insensitive")


class Names(click.ParamType):
    """Column names with commas between them; a name with a comma is in double quotes."""

    name = "names"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a list of names."""
        try:
            found = next(csv.reader([value], skipinitialspace=True, strict=True), [])
        except csv.Error as error:
            self.fail(f"{value!r} is not a list of names: {error}", param, ctx)
        return [name.strip() for name in found if name.strip()]


class Levels(click.ParamType):
    """Shares with commas between them, or START:STOP:COUNT."""

    name = "levels"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a list of shares in [0, 1]."""
        try:
            if ":" in value:
                import numpy as np

                start, stop, count = value.split(":")
                found = np.linspace(float(start), float(stop), int(count)).tolist()
            else:
                found = [float(part) for part in value.split(",")]
        except ValueError:
            found = []
        if not found or not all(0.0 <= level <= 1.0 for level in found):
            self.fail(f"give shares from 0 to 1, such as 0,0.5,0.9 or 0:0.9:10, got {value!r}", param, ctx)
        return [round(level, 10) for level in found]


def names_option(name: str, text: str) -> Any:
    """Return an option that takes column names, with commas or repeated."""
    return click.option(name, type=Names(), multiple=True, metavar="COLUMNS", help=text, callback=_flat)


def _flat(ctx: Any, param: Any, value: Any) -> list[str]:
    return [name for names in value for name in names]


def rate(upper: float = 1.0) -> click.FloatRange:
    """Return the type of a share from 0 to below ``upper``."""
    return click.FloatRange(0.0, upper, max_open=True)


TARGET = click.option("--target", metavar="COLUMN", help="Column of the labels (npz: array, by default y).")
FORCE = click.option("--force", is_flag=True, help="Replace existing output files.")
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of folds and deletions.")


def _check_jobs(context: click.Context, parameter: click.Parameter, value: int) -> int:
    if value == 0:
        raise click.BadParameter("expected a number of threads from 1, or -1 for all cores", context, parameter)
    return value


N_JOBS = click.option("--n-jobs", type=int, default=-1, callback=_check_jobs, help="Threads, -1 for all cores.")
DATA_OPTIONS = [
    click.option("--format", "format_", type=click.Choice(FORMATS), help="Format, if the file name does not tell it."),
    click.option("--separator", metavar="CHAR", help="csv: by default found in the first rows."),
    click.option("--encoding", metavar="NAME", help="csv, tsv, jsonl, text: such as latin-1; by default UTF-8."),
    click.option("--skip-unlabelled", is_flag=True, help="Leave out rows without a label."),
    click.option("--zero-based/--one-based", default=None, help="svmlight: the first index, by default as in DATA."),
    click.option("--ignore-extra", is_flag=True, help="svmlight: leave out features that the model lacks."),
    click.option("--max-features", type=click.IntRange(1), help="svmlight, npz: more features are an error."),
]
LEARNING_OPTIONS = [
    TARGET,
    click.option("--task", type=click.Choice(["auto", "classes", "numbers"]), default="auto", help="What to predict."),
    click.option("--loss", type=click.Choice(LOSSES), help="By default logistic for classes, squared for numbers."),
    click.option("--basis", type=click.Choice(BASES), default="auto", help="Tables: features of a number."),
    click.option("--noise", type=rate(), metavar="RATE", help="Dropout rate of a column; by default chosen."),
    click.option("-c", "--C", "C", type=click.FloatRange(0.0, min_open=True), help="By default chosen."),
    click.option("--target-noise", type=rate(), default=0.3, help="Share of columns missing later, to choose for."),
    names_option("--text", "Columns of text, whose words are features."),
    names_option("--categorical", "Columns of categories, even if they are numbers."),
    names_option("--keep", "Columns that are not left out."),
    names_option("--ignore", "Columns that are not read."),
    click.option("--folds", type=click.IntRange(2, 1000), default=3, help="Folds of the cross-validation."),
    SEED,
    N_JOBS,
    FORCE,
    *DATA_OPTIONS,
]


def read_options(options: SimpleNamespace, form: str, **more: Any) -> Any:
    """Return the options of a reader; those that were not given keep their defaults."""
    from dropmargin.io.data import ReadOptions

    given = {name: getattr(options, name, None) for name in ("separator", "encoding", "zero_based", "max_features")}
    given |= {"ids": getattr(options, "ids", None), "ignore": tuple(getattr(options, "ignore", ()))}
    given |= {"skip_unlabelled": options.skip_unlabelled, "ignore_extra": options.ignore_extra} | more
    return ReadOptions(form, **{name: value for name, value in given.items() if value not in (None, ())})
