"""Options that several commands share, and the types of their values. Nothing here imports NumPy."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from dropmargin.cli.console import closest

_MAX_INTEGER = 2**31 - 1
_MAX_SCALE = 1e100
_MAX_VALUES = 1000
_MAX_WORDS = 20
_NOISES = {"dropout": "DropoutNoise", "gaussian": "GaussianNoise", "laplace": "LaplaceNoise", "poisson": "PoissonNoise"}
NOISE_FORMS = "none, 0.5 or dropout=0.5, gaussian=0.1, laplace=0.1, poisson"


class NoiseSpec(NamedTuple):
    """A noise as an option names it: its class in `dropmargin.noise` (None for no noise) and its parameter."""

    kind: str | None
    value: float | None

    def make(self) -> Any:
        from dropmargin import noise

        if self.kind is None:
            return None
        cls = getattr(noise, self.kind)
        return cls() if self.value is None else cls(self.value)


# Types of values ------------------------------------------------------------------------------------------------------


class Choice(click.Choice):
    """`click.Choice` with a suggestion in the error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = error.message.rstrip(".") + closest(str(value), self.choices)
            raise click.BadParameter(message, ctx, param) from None


def checked(convert: Callable[[Any], Any], expected: str, is_right: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a converter of text to a value, whose error says what is expected."""

    def parse(text: Any) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not is_right(value):
            raise click.BadParameter(f"expected {expected}, got {text!r}")
        return value

    return parse


def integer(low: int, high: int = _MAX_INTEGER, *, extra: int | None = None) -> Callable[[Any], int]:
    """Return a converter to an integer from ``low`` to ``high``, or equal to ``extra``."""
    expected = f"an integer of at least {low}" if high == _MAX_INTEGER else f"an integer from {low} to {high}"
    expected += "" if extra is None else f", or {extra} for all"
    return checked(int, expected, lambda value: low <= value <= high or value == extra)


count = integer(1)
seed = integer(0, 2**32 - 1)
rate = checked(float, "a number above 0 and below 1, such as 0.3", lambda value: 0.0 < value < 1.0)
positive_number = checked(float, "a number above 0", lambda value: 0.0 < value < math.inf)
_epsilon = checked(float, "a number of at least 0", lambda value: 0.0 <= value < math.inf)
_ratio = checked(float, "a number from 0 to 1", lambda value: 0.0 <= value <= 1.0)
_document_frequency = checked(
    lambda text: int(text) if re.fullmatch(r"[0-9]{1,18}", str(text).strip()) else float(text),
    "a number of documents of at least 1, or a fraction from 0.0 to 1.0",
    lambda value: value >= 1 if isinstance(value, int) else 0.0 <= value <= 1.0,
)
_SIZE = re.compile(r"\s*(?=[0-9.]*[1-9])[0-9]+(\.[0-9]+)?\s*(?:[KMGT]I?)?B?\s*", re.IGNORECASE)
_memory_size = checked(str, "a size such as 2GB or 500MB", _SIZE.fullmatch)
column_name = checked(str, "the name of a column", str.strip)
_some_text = checked(str, "some text", str.strip)
_separator = checked(str, "one character, no quote or line end", lambda text: len(text) == 1 and text not in '"\r\n')


def noise_spec(text: str) -> NoiseSpec:
    """Return the noise of a text such as ``dropout=0.5``."""
    name, equals, value = text.strip().lower().partition("=")
    if not equals and name in ("none", "poisson"):
        return NoiseSpec(_NOISES.get(name), None)
    if not equals and name not in _NOISES:
        name, value = "dropout", name
    try:
        size = float(value)
    except ValueError:
        size = math.nan
    if name not in _NOISES or name == "poisson" or math.isnan(size):
        raise click.BadParameter(f"expected a noise ({NOISE_FORMS}), got {text!r}")
    limit = 1.0 if name == "dropout" else _MAX_SCALE
    if not 0.0 <= size < limit:
        what = "a dropout rate" if name == "dropout" else "a scale"
        raise click.BadParameter(f"{what} is at least 0 and below {limit:g}, got {text!r}")
    return NoiseSpec(_NOISES[name], size)


def noise_grid(text: str) -> list[NoiseSpec]:
    """Return the noises of a list, or of a number of grid points so many dropout rates from 0 to 0.9."""
    if n_points := _grid_points(text):
        rates = [round(0.9 * i / (n_points - 1), 6) for i in range(n_points)]
        return [NoiseSpec(_NOISES["dropout"], rate) for rate in rates]
    noises = [noise_spec(part) for part in text.split(",")]
    # A noise of size 0 is no noise, of whatever kind.
    _check_unique(text, [NoiseSpec(None, None) if noise.value == 0.0 else noise for noise in noises])
    return noises


def number_grid(text: str) -> int | list[float]:
    """Return the positive numbers of a list, or the number of grid points."""
    if n_points := _grid_points(text):
        return n_points
    values = [positive_number(part) for part in text.split(",")]
    _check_unique(text, values)
    return values


def _grid_points(text: str) -> int | None:
    """Return the number of grid points if the text is an integer of at least 2: 0 and 1 are values of the grid."""
    n_points = int(text) if re.fullmatch(r" *[0-9]{1,99} *", text) else 0
    if n_points > _MAX_VALUES:
        raise click.BadParameter(f"expected at most {_MAX_VALUES} grid points, got {text!r}")
    return n_points if n_points >= 2 else None


def _check_unique(text: str, values: Sequence[Any]) -> None:
    if len(set(values)) < len(values):
        raise click.BadParameter(f"a value occurs twice in {text!r}")


def column_names(text: str) -> tuple[str, ...]:
    """Return the names of columns, separated by commas; a name with a comma is in double quotes."""
    return tuple(dict.fromkeys(map(column_name, next(csv.reader([text]), []) or [""])))


def _ngram_range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,4})(?:,([0-9]{1,4}))?", text.strip())
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= _MAX_WORDS:
        expected = f"a number of words or characters from 1 to {_MAX_WORDS}, or a range such as 1,2"
        raise click.BadParameter(f"expected {expected}, got {text!r}")
    return low, high


# Options --------------------------------------------------------------------------------------------------------------


def option(*names: str, choices: list[str] | None = None, **settings: Any) -> click.Option:
    """Return an option; a flag if it has neither choices nor a type nor a default."""
    if choices is not None:
        settings["type"] = Choice(choices)
    elif "type" not in settings and "default" not in settings:
        settings["is_flag"] = True
    return click.Option(list(names), **settings)


def list_option(*names: str, parse: Callable[[str], Any], empty: Any = None, **settings: Any) -> click.Option:
    """Return an option that takes a comma list and may be repeated; ``parse`` converts all its values at once."""

    def callback(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Any:
        return parse(",".join(values)) if values else empty

    return click.Option(list(names), multiple=True, callback=callback, metavar="A,B", **settings)


def path_option(*names: str, metavar: str = "FILE", **settings: Any) -> click.Option:
    return click.Option(list(names), type=click.Path(), metavar=metavar, **settings)


def file_argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], type=click.Path(), **settings)


def section(title: str, *options: click.Option) -> list[click.Parameter]:
    """Return options that the help lists under a title."""
    for one in options:
        one.section = title  # type: ignore[attr-defined]
    return list(options)


def n_jobs_option() -> click.Option:
    number = integer(1, 10**6, extra=-1)
    return option("--n-jobs", type=number, metavar="N", help="Threads, -1 for all; they do not change the result.")


FORCE = option("--force", help="Replace an existing file of any kind.")
SAFE_CSV = option("--safe-csv", help="Put a single quote before text that a spreadsheet would run as a formula.")
IGNORE_EXTRA = option("--ignore-extra", help="svmlight: ignore features that the training data lack.")
NOISE_HELP = f"One of {NOISE_FORMS}."
LOSS_DEFAULT = "hinge, or ridge for numbers"
NOISES_HELP = "Noises such as 0,0.1,gaussian=1, or a number of dropout rates."
CS_HELP = "Values of C such as 0.1,1,10, or a number of values."
WEIGHTINGS = ["presence", "counts", "tfidf"]
_FORMATS = ["svmlight", "csv", "tsv", "jsonl", "parquet", "arrow", "npz", "text"]
_LOSSES = ["hinge", "logistic", "quadratic", "exponential", "mcf-logistic", "ridge", "svr"]

#: How a data file is read, in training and at prediction.
DATA_OPTIONS = section(
    "Data",
    option("--format", choices=_FORMATS, help="Format of the data; by default the file name tells it."),
    option("--target", type=column_name, metavar="COLUMN", help="Column to predict (npz: array, by default y)."),
    list_option("--text", parse=column_names, empty=(), help="Columns of documents; the others are a table."),
    option("--zero-based/--one-based", default=None, help="svmlight: the first feature has index 0 or 1."),
    option("--separator", type=_separator, metavar="CHAR", help="csv, tsv: the character between cells."),
    option("--decimal", choices=[".", ","], help="csv, tsv: decimal mark; by default a point, or that of the model."),
    option("--skip-unlabelled", help="Leave out rows without a label."),
    list_option("--missing-values", parse=lambda text: text.split(","), help="csv, tsv: besides empty cells."),
    option("--max-ratio", type=count, default=200, metavar="N", help="Largest ratio of compression that is read."),
)

#: How features are made of a data file in training; the model file stores them.
FEATURE_OPTIONS = section(
    "Features",
    list_option("--categorical", parse=column_names, empty=(), help="Columns to treat as categorical."),
    list_option("--ignore", parse=column_names, empty=(), help="Columns to ignore."),
    list_option("--keep", parse=column_names, empty=(), help="Columns that are not left out, whatever they hold."),
    option("--max-categories", type=count, default=1000, metavar="N", help="Leave out columns with more categories."),
    option("--scale/--no-scale", default=True, help="Tables: standardise numbers."),
    option("--analyzer", choices=["word", "char", "char_wb"], default="word", help="Text: what terms are made of."),
    option("--ngrams", type=_ngram_range, metavar="A,B", show_default="1,1; char: 2,5", help="Text: sizes of terms."),
    path_option("--stop-words", help="Text: english, or a file of words that are left out."),
    option("--min-df", type=_document_frequency, default=1, metavar="N", help="Text: ignore terms of fewer documents."),
    option("--max-features", type=count, metavar="N", help="Text: most frequent terms. Else: limit, 2^22."),
    path_option("--feature-names", help="svmlight, npz: file with the name of a feature per line."),
    option("--weighting", choices=WEIGHTINGS, default=WEIGHTINGS[0], help="Text: weighting of terms."),
    path_option("--groups", help="File of columns that are lost together: name: column, column, prefix_*"),
    option("--group-by", type=_some_text, metavar="SEP", help="Columns that are equal before SEP are lost together."),
)

#: Parameters of the models, except noise and C; an option has the name of its parameter (`make_model`).
LEARNING_OPTIONS = section(
    "Learning",
    option("--loss", choices=_LOSSES, show_default=LOSS_DEFAULT, help="hinge: an SVM; ridge and svr predict numbers."),
    option("--approximation", choices=["bound", "gaussian"], show_default="bound", help="Of the expected loss."),
    option("--epsilon", type=_epsilon, metavar="R", show_default="0.1", help="svr: smaller residuals have no loss."),
    option("--l1-ratio", type=_ratio, default=0.0, metavar="R", help="0 is an l2 penalty, 1 is l1."),
    option("--multi-class", choices=["ovr", "ovo", "multinomial"], show_default="ovr", help="For several classes."),
    option("--class-weight", choices=["balanced"], help="Weights that make classes equally important."),
    option("--missing", choices=["error", "rescale", "conditional"], help="By default rescale if values are missing."),
    option("--intercept/--no-intercept", "fit_intercept", default=True, help="Whether to fit an intercept."),
    option("--tol", type=positive_number, default=1e-4, metavar="R", help="Relative gap of the objective to stop at."),
    option("--max-iter", type=count, default=1000, metavar="N", help="Most iterations."),
    n_jobs_option(),
    option("--strict", help="Exit with code 3 and save nothing if the fit does not converge."),
)

#: Training from files that do not fit into memory.
STREAMING_OPTIONS = section(
    "Data larger than memory",
    option("--memory-limit", type=_memory_size, metavar="SIZE", help="Train from disk within a limit, such as 2GB."),
    path_option("--checkpoint", help="File to resume from after a crash; written if it does not exist."),
    path_option("--cache", metavar="FOLDER", help="Folder of the converted files; by default beside the data."),
)
