"""Options that several commands share; nothing here imports more than argparse does."""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dropmargin.cli.console import UsageError

FORMATS = ("svmlight", "csv", "tsv", "jsonl", "parquet", "arrow", "npz", "text")
LOSSES = ("hinge", "logistic", "quadratic", "exponential", "mcf-logistic")
_STANDARD = "-"
_LARGEST_SCALE = 1e100
# Of noises or values of C, and of words in a term.
_MOST_VALUES, _MOST_WORDS = 1000, 20
_NOISES = {"dropout": "DropoutNoise", "gaussian": "GaussianNoise", "laplace": "LaplaceNoise", "poisson": "PoissonNoise"}
_NOISE_FORMS = "none, a dropout rate such as 0.5, dropout=0.5, gaussian=0.1, laplace=0.1 or poisson"


class NoiseName(NamedTuple):
    """A noise as it was written: its class in `dropmargin.noise` (None: no noise) and its parameter."""

    kind: str | None
    value: float | None

    def make(self) -> Any:
        """Return the noise itself."""
        from dropmargin import noise

        if self.kind is None:
            return None
        cls = getattr(noise, self.kind)
        return cls() if self.value is None else cls(self.value)


# Kinds of values ------------------------------------------------------------------------------------------------------


def noise_name(text: str) -> NoiseName:
    """Return the noise that a text such as ``dropout=0.5`` stands for."""
    name, equals, value = text.strip().lower().partition("=")
    if not equals and name == "none":
        return NoiseName(None, None)
    if not equals and name == "poisson":
        return NoiseName("PoissonNoise", None)
    if not equals and name not in _NOISES:
        name, value = "dropout", name
    number = _number(value)
    if name not in _NOISES or name == "poisson" or number is None:
        raise argparse.ArgumentTypeError(f"the noise is {_NOISE_FORMS}, got {text!r}")
    limit = 1.0 if name == "dropout" else _LARGEST_SCALE
    if not 0.0 <= number < limit:
        what = "a dropout rate is from 0 to below 1" if name == "dropout" else "a scale is from 0 to below 1e100"
        raise argparse.ArgumentTypeError(f"{what}, got {text!r}")
    return NoiseName(_NOISES[name], number)


def _number(text: str) -> float | None:
    """Return a number, which may be infinite or NaN; None if the text is none."""
    try:
        return float(text)
    except ValueError:
        return None


def positive(text: str) -> float:
    """Return a number above 0."""
    value = _number(text)
    if value is None or not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def share(text: str) -> float:
    """Return a number from 0 to 1."""
    value = _number(text)
    if value is None or not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def at_least_one(text: str) -> int:
    """Return a whole number of at least 1."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def at_least_two(text: str) -> int:
    """Return a whole number of at least 2, and of at most four digits."""
    if not re.fullmatch(r"[0-9]{1,4}", text.strip()) or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a whole number from 2 to 9999, got {text!r}")
    return int(text)


def n_jobs_of(text: str) -> int:
    """Return a number of threads, or -1 for all."""
    if not re.fullmatch(r"-?[0-9]{1,6}", text.strip()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of threads of at least 1, or -1 for all, got {text!r}")
    return int(text)


def noise_names(text: str) -> int | list[NoiseName]:
    """Return noises of a list, or a number of dropout rates."""
    if _is_count(text):
        return _count(text)
    names = [noise_name(part) for part in text.split(",")]
    # A noise of size 0 is none, of whatever kind.
    _refuse_twice(text, [NoiseName(None, None) if name.value == 0.0 else name for name in names])
    return names


def numbers(text: str) -> int | list[float]:
    """Return the positive numbers of a list, or how many of them are wanted."""
    if _is_count(text):
        return _count(text)
    values = [_number(part) for part in text.split(",")]
    found = [value for value in values if value is not None and 0.0 < value < float("inf")]
    if len(found) < len(values):
        raise argparse.ArgumentTypeError(f"expected numbers above 0 with commas between them, got {text!r}")
    _refuse_twice(text, found)
    return found


def _is_count(text: str) -> bool:
    """Return whether a text is a whole number of at least 2: one of 0 or 1 is a value to try, and not a count."""
    return bool(re.fullmatch(r"[0-9]+", text.strip())) and text.strip().lstrip("0") not in ("", "1")


def _count(text: str) -> int:
    digits = text.strip().lstrip("0")
    if len(digits) > len(str(_MOST_VALUES)) or int(digits) > _MOST_VALUES:
        raise argparse.ArgumentTypeError(f"expected at most {_MOST_VALUES} values, got {text!r}")
    return int(digits)


def _refuse_twice(text: str, values: Sequence[Any]) -> None:
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"expected each value once, got {text!r}")


def ngram_range(text: str) -> tuple[int, int]:
    """Return the fewest and the most words of a term: ``1,2``, or ``1``."""
    found = re.fullmatch(r"([0-9]{1,4})(?:,([0-9]{1,4}))?", text.strip())
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= _MOST_WORDS:
        what = f"expected a number of words from 1 to {_MOST_WORDS}, or two that go up as in 1,2"
        raise argparse.ArgumentTypeError(f"{what}, got {text!r}")
    return low, high


def count_or_share(text: str) -> int | float:
    """Return a whole number of at least 1, or a share if there is a decimal point."""
    if re.fullmatch(r"[0-9]{1,18}", text.strip()) and int(text) >= 1:
        return int(text)
    value = _number(text)
    if value is None or not 0.0 <= value <= 1.0 or re.fullmatch(r"[0-9]+", text.strip()):
        what = "expected a number of documents of at least 1, or a share from 0.0 to 1.0"
        raise argparse.ArgumentTypeError(f"{what}, got {text!r}")
    return value


def column_name(text: str) -> str:
    """Return the name of a column."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected the name of a column, got {text!r}")
    return text


def separator_of(text: str) -> str:
    """Return what is between cells."""
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character, not a quote or a line's end, got {text!r}")
    return text


def size_of(text: str) -> str:
    """Return a size in bytes, as it is written."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:[KMGT]I?)?B?\s*", text.upper())
    if found is None or float(found[1]) == 0.0:
        raise argparse.ArgumentTypeError(f"expected a size such as 2GB or 500MB, got {text!r}")
    return text


def seed_of(text: str) -> int:
    """Return a whole number that can seed the random numbers."""
    if not re.fullmatch(r"[0-9]{1,10}", text.strip()) or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}, got {text!r}")
    return int(text)


# Groups of options ----------------------------------------------------------------------------------------------------


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how a data file is read, for training and for predicting."""
    group = parser.add_argument_group("data")
    add = group.add_argument
    add("--format", choices=FORMATS, help="of the data, if the file's name does not tell it")
    add("--target", type=column_name, metavar="COLUMN", help="the column of the labels (npz: the array, y by default)")
    add("--text", type=column_name, metavar="COLUMN", help="a column of documents; the other columns are not read")
    base = group.add_mutually_exclusive_group()
    base.add_argument("--zero-based", action="store_true", default=None, help="svmlight: features are counted from 0")
    base.add_argument("--one-based", dest="zero_based", action="store_false", help="svmlight: they are counted from 1")
    add("--separator", type=separator_of, metavar="CHAR", help="csv, tsv: what is between cells")
    add("--missing-values", metavar="A,B", help="csv, tsv: cells that stand for a missing value, besides empty ones")
    add(
        "--max-ratio",
        type=at_least_one,
        default=200,
        metavar="N",
        help="most growth of compressed files (default: 200)",
    )


def add_training_data_options(parser: argparse.ArgumentParser) -> None:
    """Add what says what to make of a data file, which the model remembers."""
    group = parser.add_argument_group("features")
    add = group.add_argument
    add(
        "--categorical",
        type=column_name,
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of names, though of digits",
    )
    add("--ignore", type=column_name, action="append", default=[], metavar="COLUMN", help="a column to leave out")
    add("--max-categories", type=at_least_one, default=1000, metavar="N", help="most names in a column (default: 1000)")
    add("--weighting", choices=("tfidf", "counts"), default="tfidf", help="of words (default: tfidf)")
    add("--ngrams", type=ngram_range, default=(1, 1), metavar="A,B", help="terms of A to B words (default: 1,1)")
    add("--min-df", type=count_or_share, default=1, metavar="N", help="leave out terms of fewer documents than this")
    add(
        "--max-features",
        type=at_least_one,
        metavar="N",
        help="text: keep the most frequent; else: wider is an error",
    )
    add("--feature-names", metavar="FILE", help="svmlight, npz: names of the features, one a line")


def add_learning_options(parser: argparse.ArgumentParser) -> None:
    """Add the parameters of the classifiers, but for the noise and C."""
    group = parser.add_argument_group("learning")
    add = group.add_argument
    add("--loss", choices=LOSSES, default="hinge", help="default: hinge, a support vector machine")
    add("--approximation", choices=("bound", "gaussian"), default="bound", help="of the expected loss")
    add("--l1-ratio", type=share, default=0.0, metavar="R", help="0 is an l2 penalty, 1 is l1 (default: 0)")
    add("--multi-class", choices=("ovr", "ovo"), default="ovr", help="a problem per class, or per pair of classes")
    add("--class-weight", choices=("balanced",), help="weigh classes as if they were equally frequent")
    add("--missing", choices=("error", "rescale"), help="what a missing value is (default: rescale if there are any)")
    add("--no-intercept", dest="fit_intercept", action="store_false", help="fit no intercept")
    add("--tol", type=positive, default=1e-4, help="relative gap of the objective to stop at (default: 1e-4)")
    add("--max-iter", type=at_least_one, default=1000, metavar="N", help="most iterations (default: 1000)")
    add("--n-jobs", type=n_jobs_of, metavar="N", help="threads, -1 for all; the result is the same")
    add("--strict", action="store_true", help="exit with 3, and save nothing, if the fit does not converge")


def add_streaming_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how to train from disk."""
    add = parser.add_argument_group("data larger than memory").add_argument
    add("--memory-limit", type=size_of, metavar="SIZE", help="train from disk, within so much memory: 2GB, 500MB")
    add("--checkpoint", metavar="FILE", help="go on from here after a crash; written if it is not there")
    add("--cache", metavar="FOLDER", help="where to keep the converted files (default: beside the data)")


def check_streaming_options(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    streamed = options.memory_limit is not None
    for name in ("checkpoint", "cache"):
        if not streamed and getattr(options, name) is not None:
            raise UsageError(f"--{name} is for --memory-limit: without it, data are read into memory")
    for name in ("text", "separator", "missing_values", "feature_names"):  # of formats that are not read in parts
        if streamed and getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --memory-limit")


def check_can_write(option: str, path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that cannot be written or would replace an input, before any work is done.

    ``option`` is the option or argument that names the output; ``inputs`` are the files that are read.
    """
    check_keeps_inputs(option, path, inputs)
    folder = os.path.dirname(os.path.realpath(path))
    if path == _STANDARD:
        raise UsageError("a model cannot be written to standard output; give a file's name")
    if os.path.isdir(path):
        raise IsADirectoryError(21, "cannot write: it is a folder", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, f"cannot write: there is no folder {folder}", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "cannot write: no permission to write in its folder", path)


def check_keeps_inputs(option: str, path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that is one of the inputs, under whatever name."""
    found = _regular_file(path)
    for name in inputs:
        if found is None or name is None:
            continue
        other = _regular_file(name)
        if other is not None and os.path.samestat(found, other):
            read = "standard input" if name == _STANDARD else name
            raise UsageError(
                f"{option} {path}: this command reads that file ({read}) and would replace it; name another output"
            )


def _regular_file(path: str) -> os.stat_result | None:
    """Return what is known of an ordinary file; None if there is none of that name. ``-`` is standard input."""
    try:
        found = os.fstat(0) if path == _STANDARD else os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
