"""Checks of a fit's parameters, labels, weights and data, each with an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import entry_range, worst_column
from dropmargin.data.inputs import check_unmasked
from dropmargin.noise import Noise
from dropmargin.typing import Array

# Beyond this the square of an entry, weighted and summed, may overflow; beyond _SINGLE, already in single precision.
LARGEST = 1e100
_SINGLE = 1e15


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Put an estimator back as it was if what is done to it fails or is interrupted."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def check_number(name: str, value: Any, low: float, *, low_open: bool = False, high: float = np.inf) -> float:
    """Return a real parameter after checking that it is finite and in its range."""
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    inside = is_number and np.isfinite(value) and (low < value if low_open else low <= value) and value <= high
    if not inside:
        bracket = "(" if low_open else "["
        close = "]" if np.isfinite(high) else ")"
        raise ValueError(f"{name} must be a number in {bracket}{low:g}, {high:g}{close}, got {value!r}.")
    return float(value)


def check_integer(name: str, value: Any, low: int) -> int:
    """Return an integer parameter after checking that it is at least ``low``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, got {value!r}.")
    return int(value)


def check_n_jobs(value: Any) -> None:
    """Check that a number of threads is an integer other than 0; -1 stands for all cores, as in scikit-learn."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value == 0:
        raise ValueError(f"n_jobs must be None, a number of threads, or -1 for all cores, got {value!r}.")


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return a parameter after checking that it is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}.")
    return value


def check_weights(sample_weight: Any, n_samples: int, *, is_whole: bool = True) -> Array:
    """Return sample weights, all ones if there are none; those of a part of the data may all be zero."""
    if sample_weight is None:
        return np.ones(n_samples)
    if isinstance(sample_weight, Real):
        return np.full(n_samples, check_number("sample_weight", sample_weight, 0.0, low_open=True))
    check_unmasked(sample_weight, "sample_weight")
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must hold one number per row of X, got {sample_weight!r}.") from error
    if weights.ndim != 1:
        raise ValueError(f"sample_weight must be 1D array or scalar, got an array of shape {weights.shape}.")
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_samples},)! It needs one weight per row of X."
        )
    wrong = ~np.isfinite(weights) | (weights < 0.0)
    if wrong.any():
        where = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight must be finite and not negative, got {weights[where]} at row {where}. "
            "Give a row weight 0 to leave it out."
        )
    if is_whole and not weights.any():
        raise ValueError(
            "sample_weight is zero for every row: there is nothing to learn from. Give a row of X a weight above zero; "
            "leave out a batch of partial_fit that has none."
        )
    return weights


def encode_labels(y: Any, class_weight: Any, weights: Array, estimator: str) -> tuple[Array, Array, Array]:
    """Return the classes that have any weight, each row's index among them (-1 for another), and the rows' weights."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    totals = np.bincount(codes, weights=weights, minlength=len(classes))
    present, renumbered, factors = encode_classes(classes, totals, class_weight, estimator)
    return classes[present], renumbered[codes], weights * factors[codes]


def encode_classes(classes: Array, totals: Array, class_weight: Any, estimator: str) -> tuple[Array, Array, Array]:
    """Return which classes have any weight, each one's index among these (-1 for another), and its factor.

    ``totals`` are the sums of the sample weights, class by class.
    """
    factors = class_factors(class_weight, classes, totals)
    present = factors * totals > 0.0
    if present.sum() < 2:
        left_out = "" if present.all() else " after rows of weight zero were left out"
        raise ValueError(
            f"{estimator} needs samples of at least 2 classes in the data, but the data contains only "
            f"one class{left_out}: {classes[present].tolist()[0]!r}."
        )
    return present, np.where(present, np.cumsum(present) - 1, -1), factors


def class_factors(class_weight: Any, classes: Array, totals: Array) -> Array:
    """Return one factor per class; ``"balanced"`` counts rows by their weight."""
    factors = np.ones(len(classes))
    if class_weight is None:
        return factors
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = totals > 0.0
        factors[present] = totals.sum() / (present.sum() * totals[present])
        return factors
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}.")
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    missing = [label for label in labels if label not in class_weight]
    if unknown and missing:  # more likely a slip than a wish: the same rule as scikit-learn's
        raise ValueError(f"class_weight names {unknown!r}, which are not in y, but not {missing!r}, which are.")
    for index, label in enumerate(labels):
        if label in class_weight:
            factors[index] = check_number(f"class_weight[{label!r}]", class_weight[label], 0.0)
    if not np.any(factors * totals):
        raise ValueError("class_weight is zero for every class: there is nothing to learn from.")
    return factors


def check_entries(X: Any, noise: Noise | None, names: Any) -> Any:
    """Return ``X``, in double precision if single cannot hold its squares; an error names the column at fault."""
    low, high = entry_range(X)
    check_range(low, high, noise, lambda smallest: _column(X, smallest, names))
    if X.dtype == np.float32 and not holds_squares(max(abs(low), abs(high))):
        return X.astype(np.float64)
    return X


def check_range(low: float, high: float, noise: Noise | None, where: Callable[[bool], str]) -> None:
    """Refuse entries that are too large, or negative where the noise is not defined for them.

    ``where`` says in words where the smallest entry is, or else the largest in absolute value.
    """
    largest = max(abs(low), abs(high))
    if largest > LARGEST:
        raise ValueError(
            f"X has values up to {largest:.1e} in {where(False)}, whose squares overflow; "
            "scale it, for example with sklearn.preprocessing.MaxAbsScaler."
        )
    if noise is not None and not noise.allows_negative and low < 0.0:
        raise ValueError(
            f"{type(noise).__name__} needs X >= 0, but X has {low:g} in {where(True)}. "
            "Negative values in data: choose DropoutNoise or GaussianNoise."
        )


def holds_squares(largest: float) -> bool:
    """Return whether single precision holds the squares of entries up to this."""
    return 1.0 / _SINGLE <= largest <= _SINGLE or largest == 0.0


def _column(X: Any, smallest: bool, names: Any) -> str:
    index = worst_column(X, smallest)
    return f"column {index}" if names is None else f"column {names[index]!r}"
