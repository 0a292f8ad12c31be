"""Reads training data, makes models from options, and saves fitted ones."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, is_regressor
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from dropmargin import estimators, model_selection
from dropmargin.cli.console import Console, UsageError, plural
from dropmargin.cli.files import read_text
from dropmargin.data import canonical, one_partition, stores_zeros
from dropmargin.data.missing_values import feature_statistics, has_missing, nan_to_negative_zero
from dropmargin.errors import ParameterWarning
from dropmargin.estimators.parameters import specification
from dropmargin.io.data import TABLES, Dataset, ReadOptions, find_format, read_chunks, read_data
from dropmargin.io.data.cells import common_unit, parse_quantity, two_units
from dropmargin.io.data.frame_encoder import FrameEncoder
from dropmargin.io.data.table_encoder import TableEncoder, listed
from dropmargin.io.data.text_encoder import TextEncoder
from dropmargin.io.model import save
from dropmargin.losses import as_loss
from dropmargin.typing import Array

#: Options of the readers that have the same name on the command line; ``--max-features`` is one of text, too.
_READ_OPTIONS = (
    *("target", "text", "zero_based", "separator", "decimal", "skip_unlabelled", "max_ratio"),
    *("categorical", "ignore", "ids"),
)
#: Sizes of terms if ``--ngrams`` is not given.
_NGRAMS = {"word": (1, 1), "char": (2, 5), "char_wb": (2, 5)}
#: The model of a loss; the search over noise and C has the same name and CV.
_MODELS = {
    "hinge": estimators.DropoutSVC,
    "logistic": estimators.DropoutLogisticRegression,
    **dict.fromkeys(("quadratic", "exponential", "mcf-logistic"), estimators.NoisyLinearClassifier),
    "ridge": estimators.DropoutRidge,
    "svr": estimators.DropoutSVR,
}
#: Options that some of the models do not have.
_OPTIONS_OF_SOME = ("multi_class", "class_weight", "approximation", "epsilon")


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Encoded training data."""

    X: Any  # None if rows are read from disk
    y: Any
    summary: dict[str, Any]  # for the model file, such as the target column, which prediction needs
    encoder: Any = None  # fitted
    feature_names: Array | None = None  # of data without an encoder
    data_hash: str | None = None


def basic_read_options(options: SimpleNamespace, form: str) -> ReadOptions:
    """Return the `ReadOptions` of the data options."""
    if getattr(options, "keep", ()):
        _require_format("--keep", TABLES, form)
    _refuse_conflicts(options)
    names = _READ_OPTIONS if form not in ("svmlight", "npz") else (*_READ_OPTIONS, "max_features")
    given = {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    if options.missing_values is not None:
        given["missing_values"] = ("", *options.missing_values)
    return ReadOptions(format=form if options.format is None and form != "text" else options.format, **given)


def _require_format(option: str, forms: Sequence[str], form: str) -> None:
    """Refuse an option that is for files of other formats."""
    if form not in forms:
        what = f"this is for {', '.join(forms)} files; the data are read as {form} (see --format)"
        raise UsageError(f"{option}: {what}")


def _refuse_conflicts(options: SimpleNamespace) -> None:
    """Refuse a column that two options name."""
    roles = [("--target", options.target)]
    for name in ("text", "categorical", "ignore", "keep"):
        roles += [(f"--{name}", column) for column in getattr(options, name, ())]
    for i, (option, column) in enumerate(roles):
        for other, same in roles[:i]:
            both_keep = {option, other} == {"--categorical", "--keep"}
            if column is not None and column == same and option != other and not both_keep:
                raise UsageError(f"{option} {column}: {other} names this column, too; remove one of the two")


def require_target(path: str, form: str, read_options: ReadOptions) -> ReadOptions:
    """Return the options with a target; raise a `UsageError` with the columns of a table if ``--target`` is missing."""
    if form == "text":
        return replace(read_options, target=read_options.target or "label")
    if form in TABLES and read_options.target is None:
        names = next(iter(read_chunks(path, replace(read_options, text=())))).feature_names or ()
        listed = ", ".join(map(repr, names[:20])) + (" ..." if len(names) > 20 else "")
        raise UsageError(f"--target is missing, the column of the labels; the columns of {path} are {listed}")
    return read_options


def read_training_data(path: str, options: SimpleNamespace, console: Console) -> TrainingData:
    """Read a file with labels into memory, and encode tables and text."""
    form = find_format(path, options.format)
    if options.feature_names is not None:
        _require_format("--feature-names", ("svmlight", "npz"), form)
    read_options = require_target(path, form, basic_read_options(options, form))
    data = read_data(path, read_options, sha256=True)
    if data.y is None:
        raise UsageError(f"{path} has no labels: there is no array 'y'; name the array by --target")
    report_reading(data, path, console)
    labels, codes = np.unique(data.y.astype(str) if data.y.dtype.kind == "O" else data.y, return_inverse=True)
    numbers, unit = check_labels(labels, len(codes), options, console, decimal=read_options.decimal)
    encoder = _make_encoder(data, options)
    X = data.X if encoder is None else _fit_encoder(encoder, data, console)
    names = None if encoder is not None else _feature_names(data, options.feature_names)
    summary = {
        "rows": int(X.shape[0]),
        "features": int(X.shape[1]),
        "format": form,
        "target": read_options.target,
        "target_unit": unit,
        "zero_based": data.zero_based,
        "decimal": options.decimal,
        "missing_values": options.missing_values,
    }
    text = encoder.text_encoder if isinstance(encoder, FrameEncoder) else encoder
    summary["weighting"] = text.weighting if isinstance(text, TextEncoder) else None
    console.note(f"{path}: {plural(X.shape[0], 'row')}, {plural(X.shape[1], 'feature')}")
    if isinstance(encoder, FrameEncoder) and encoder.column_kinds_:
        others = ", ".join(map(repr, encoder.column_kinds_))
        console.note(f"columns besides the text are features of their own (--ignore leaves them out): {others}")
    y = data.y if numbers is None else numbers[codes]
    return TrainingData(X, y, summary, encoder, names, f"sha256:{data.sha256}")


def report_reading(data: Dataset, path: str, console: Console) -> None:
    """Print notes on the separator that was found, and on rows that were left out."""
    if data.separator is not None:
        name = {";": "semicolons", "\t": "tabs"}[data.separator]
        console.note(f"{path}: cells are separated by {name}, as in the header (--separator sets another character)")
    if data.n_unlabelled:
        console.note(f"{path}: {plural(data.n_unlabelled, 'row')} without a label left out (--skip-unlabelled)")


def check_labels(
    labels: Array, n_rows: int, options: SimpleNamespace, console: Console, *, decimal: str | None
) -> tuple[Array | None, str | None]:
    """Set ``options.loss`` if it is not given; return different labels as the numbers of a regression, and their unit.

    Both are None if the labels are classes. ``decimal`` is the decimal mark of numbers in text, None if text is not a
    number.
    """
    numbers, unit = _as_numbers(labels, decimal)
    is_quantity = numbers is not None and _is_quantity(numbers, n_rows, is_text=labels.dtype.kind in "UT")
    target = f"--target {options.target}: " if options.target is not None else ""
    n_labels = f"{len(labels)} different numbers in {plural(n_rows, 'row')}"
    quantity = f"{target}the labels are {n_labels}, a quantity to predict"
    loss = options.loss
    if loss is None:
        loss = options.loss = "ridge" if is_quantity else "hinge"
        if is_quantity:
            console.note(f"{quantity}: the model is trained with --loss ridge (or use --loss svr)")
        check_loss(options)
    if learns_numbers(loss):
        if numbers is None:
            other = next((one for one in labels.tolist() if _as_numbers(np.array([one]), decimal)[0] is None), None)
            what = f"the label {other!r} is none (use --loss hinge)"
            if other is None:
                what = f"the labels {two_units(labels.tolist(), decimal or '.')} are not in one unit"
            raise UsageError(f"{target}--loss {loss} predicts numbers, and {what}")
        return numbers, unit
    if is_quantity:
        raise UsageError(f"{quantity} (regression); --loss {loss} learns classes: use --loss ridge or svr")
    return None, None


def _as_numbers(labels: Array, decimal: str | None) -> tuple[Array | None, str | None]:
    """Return different labels as float64 and their unit; None if some are not numbers, or they have several units."""
    if labels.dtype.kind not in "UT":
        is_number = labels.dtype.kind != "b" and bool(np.isfinite(labels).all())
        return labels.astype(np.float64) if is_number else None, None
    parsed = [None if decimal is None else parse_quantity(label, decimal) for label in labels.tolist()]
    quantities = [quantity for quantity in parsed if quantity is not None]
    unit = common_unit(quantity.unit for quantity in quantities)
    if len(quantities) < len(labels) or unit is None:
        return None, None
    return np.array([quantity.value for quantity in quantities], dtype=np.float64), unit


def _is_quantity(numbers: Array, n_rows: int, *, is_text: bool) -> bool:
    """Return whether different labels are too many for classes, or fractions that are not text, which cannot be any."""
    n_labels = len(numbers)
    if (numbers == np.floor(numbers)).all():
        return (n_labels > 50 and 5 * n_labels > n_rows) or (n_labels > 20 and 2 * n_labels > n_rows)
    return not is_text or n_labels > 20 or (n_labels > 2 and 2 * n_labels > n_rows)


def _fit_encoder(encoder: Any, data: Dataset, console: Console) -> Any:
    """Fit the encoder and return the encoded rows; columns that it leaves out are a note."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ParameterWarning)  # printed as a note below
        X = encoder.fit_transform(data.X)
    if left_out := getattr(encoder, "left_out_", {}):
        console.note(f"left out (--keep COLUMN keeps a column): {listed(left_out)}")
    return X


def _make_encoder(data: Dataset, options: SimpleNamespace) -> Any:
    table = TableEncoder(**{name: getattr(options, name) for name in TableEncoder().get_params()})
    if options.text or isinstance(data.X, list):
        given = {name: getattr(options, name) for name in ("weighting", "min_df", "max_features", "analyzer")}
        text = TextEncoder(**given, ngram_range=options.ngrams or _NGRAMS[options.analyzer])
        text.set_params(stop_words=_stop_words(options.stop_words))
        if data.is_table and data.X.shape[1] > 1:
            return FrameEncoder(options.text, text, table)
        return text.set_params(column=options.text[0] if options.text else None)
    return table if data.is_table else None


def _stop_words(given: str | None) -> str | list[str] | None:
    """Return the words of a file, as documents are split into words; ``english`` is the list of scikit-learn."""
    if given is None or given == "english":
        return given
    words = sorted(set(re.findall(r"\w\w+", read_text("--stop-words", given).lower())))
    if not words:
        raise UsageError(f"--stop-words {given}: there are no words in this file")
    return words


def _feature_names(data: Dataset, path: str | None) -> Array | None:
    names = data.feature_names
    if path is not None:
        names = tuple(line.strip() for line in read_text("--feature-names", path).splitlines())
        if len(names) != data.X.shape[1]:
            what = f"{len(names)} names, but the data have {plural(data.X.shape[1], 'feature')}"
            raise ValueError(f"--feature-names {path}: {what}")
    if names is None:
        return None
    if len(set(names)) < len(names) or not all(names):
        raise ValueError(f"{path or 'feature_names'}: the names of the features must be different and not empty")
    return np.array(names, dtype=object)


# Models ---------------------------------------------------------------------------------------------------------------


def learns_numbers(loss: str) -> bool:
    return issubclass(_MODELS[loss], RegressorMixin)


def make_folds(options: SimpleNamespace, y: Array) -> Any:
    """Return the splitter of the cross-validation; refuse more folds than the rows are enough for.

    Rows are shuffled: files are often sorted by the target or by time.
    """
    n_folds = options.folds
    if learns_numbers(options.loss):
        if 2 * n_folds > len(y):
            raise UsageError(f"--folds {n_folds} is too many: a fold needs two rows, and there are {len(y)}")
        return KFold(n_folds, shuffle=True, random_state=options.seed)
    most = int(np.unique(y, return_counts=True)[1].max())
    if n_folds > most:
        raise UsageError(f"--folds {n_folds} is too many: the most frequent class has {plural(most, 'row')}")
    return StratifiedKFold(n_folds, shuffle=True, random_state=options.seed)


def check_loss(options: SimpleNamespace) -> None:
    """Refuse options that the model of the loss does not have, unless the labels are to determine the loss."""
    if options.loss is None:
        return
    for name in _OPTIONS_OF_SOME:
        if getattr(options, name, None) is not None and name not in specification(_MODELS[options.loss]):
            fitting = [loss for loss, cls in _MODELS.items() if name in specification(cls)]
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for --loss {', '.join(fitting)}; the loss is {options.loss}")
    if getattr(options, "approximation", None) is None:
        return
    try:
        as_loss(options.loss, options.approximation)
    except ValueError:
        raise UsageError(
            f"--approximation {options.approximation} is for --loss hinge and logistic; "
            f"the expected {options.loss} loss needs no approximation"
        ) from None


def has_cells(data: TrainingData) -> bool:
    """Return whether the features of a row may be missing; a lost word, or a lost entry of sparse rows, is a zero."""
    if data.encoder is not None:
        return not isinstance(data.encoder, TextEncoder)
    return stores_zeros(data.X)


def make_model(options: SimpleNamespace, X: Any, console: Console, **own: Any) -> Any:
    """Return the unfitted model of the options, or with ``noises`` in ``own`` the search over noise and C.

    An option with the name of a parameter of the class is its value; ``own`` has the other parameters.
    """
    missing = options.missing
    if missing is None:
        missing = "rescale" if has_missing(canonical(X)) else "error"
        if missing == "rescale":
            console.note("there are missing values: the model is trained with --missing rescale")
    elif missing == "error" and X is not None and has_missing(canonical(X)):
        raise UsageError("--missing error: the data have missing values; use --missing rescale or conditional")
    cls: Any = _MODELS[options.loss]
    cls = getattr(model_selection, f"{cls.__name__}CV") if "noises" in own else cls
    given = {name: value for name, value in vars(options).items() if value is not None} | {"missing": missing} | own
    return cls(**{name: given[name] for name in specification(cls) if name in given})


def save_model(model: Any, data: TrainingData, path: str, summary: dict[str, Any]) -> None:
    """Save a fitted model with its encoder, and the deviations of its features, for `dropmargin info`."""
    if not hasattr(model, "feature_deviations_") and data.X is not None:
        X = canonical(data.X)
        holes = has_missing(X)
        X = nan_to_negative_zero(X) if holes else X
        model.feature_deviations_ = feature_statistics(one_partition(X), holes).deviation
    if data.encoder is not None:
        first = "text" if isinstance(data.encoder, TextEncoder) else "table"
        last = "regressor" if is_regressor(model) else "classifier"
        model = Pipeline([(first, data.encoder), (last, model)])
    elif data.feature_names is not None:
        model.feature_names_in_ = data.feature_names
    save(model, path, summary=data.summary | summary, data_hash=data.data_hash)


def n_classes(model: Any) -> int | None:
    """Return the number of classes of a fitted model, None of a regressor."""
    return None if is_regressor(model) else len(model.classes_)
