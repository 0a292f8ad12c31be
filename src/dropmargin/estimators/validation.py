"""Checks of the parameters, labels, sample weights and data of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np

from dropmargin.data import entry_range, worst_column
from dropmargin.data.inputs import check_unmasked
from dropmargin.data.missing_values import has_missing, zero_missing
from dropmargin.noise import Noise
from dropmargin.noise.base import check_sign
from dropmargin.typing import Array

# Weighted sums of squares of larger entries may overflow: in double precision, and in single precision.
LARGEST = 1e100
_SINGLE = 1e15


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Restore the attributes of an estimator if the body of the ``with`` statement fails or is interrupted."""
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


def check_n_jobs(name: str, value: Any) -> int | None:
    """Return ``n_jobs`` after checking that it is None or an integer other than 0; -1 means all cores."""
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value == 0):
        raise ValueError(f"{name} must be None, a number of threads, or -1 for all cores, got {value!r}.")
    return None if value is None else int(value)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return a parameter after checking that it is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}.")
    return value


def check_weights(sample_weight: Any, n_samples: int, *, is_whole: bool = True) -> Array:
    """Return validated sample weights; ``None`` gives ones. Unless ``is_whole``, all may be zero."""
    if sample_weight is None:
        return np.ones(n_samples)
    if isinstance(sample_weight, Real):
        return np.full(n_samples, check_number("sample_weight", sample_weight, 0.0, low_open=True))
    check_unmasked(sample_weight, "sample_weight")
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must hold one number per row of X, got {sample_weight!r}.") from error
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_samples},): sample_weight must be 1D array or "
            "scalar, one weight per row of X."
        )
    wrong = ~np.isfinite(weights) | (weights < 0.0)
    if wrong.any():
        where = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight must be finite and not negative, got {weights[where]} at row {where}. "
            "Set a weight to 0 to ignore its row."
        )
    if is_whole and not weights.any():
        raise ValueError(
            "sample_weight is zero for every row. At least one row of X needs a positive weight; skip batches of "
            "partial_fit without one."
        )
    return weights


def check_targets(y: Any) -> Array:
    """Return the targets of a regression in double precision, after checking their size."""
    y = np.asarray(y, dtype=np.float64)
    largest = float(np.abs(y).max(initial=0.0))
    if largest > LARGEST:
        raise ValueError(f"y has values up to {largest:.1e}, whose squares overflow; scale it.")
    return y


def encode_classes(classes: Array, totals: Array, class_weight: Any, estimator: str) -> tuple[Array, Array, Array]:
    """Return which classes have a positive weight, the index of each among these (-1: none), and its weight factor.

    ``totals`` are the sums of the sample weights of each class.
    """
    factors = class_factors(class_weight, classes, totals)
    present = factors * totals > 0.0
    if present.sum() < 2:
        ignored = "" if present.all() else " after removing rows of weight zero"
        raise ValueError(
            f"{estimator} needs samples of at least 2 classes in the data, but the data contains only "
            f"one class{ignored}: {classes[present].tolist()[0]!r}."
        )
    return present, np.where(present, np.cumsum(present) - 1, -1), factors


def class_factors(class_weight: Any, classes: Array, totals: Array) -> Array:
    """Return one weight factor per class; for ``"balanced"``, rows are counted by their sample weight."""
    factors = np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = totals > 0.0
        factors[present] = totals.sum() / (present.sum() * totals[present])
    elif isinstance(class_weight, Mapping):
        labels = classes.tolist()
        unknown = [label for label in class_weight if label not in labels]
        missing = [label for label in labels if label not in class_weight]
        if unknown and missing:  # probably a typing error; scikit-learn has the same rule
            raise ValueError(
                f"class_weight has the labels {unknown!r}, which are not in y, and lacks {missing!r}, which are in y."
            )
        given = ((f"class_weight[{label!r}]", class_weight.get(label, 1.0)) for label in labels)
        factors = np.array([check_number(name, factor, 0.0) for name, factor in given])
        if not np.any(factors * totals):
            raise ValueError("class_weight is zero for every class of y. At least two classes need a positive weight.")
    elif class_weight is not None:
        raise ValueError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}.")
    return factors


def check_entries(X: Any, noise: Noise | None, names: Any) -> Any:
    """Return ``X`` after `check_range`, in double precision if its squares overflow or underflow in single.

    NaN is neither too large nor negative.
    """
    observed = zero_missing(X) if has_missing(X) else X
    low, high = entry_range(observed)
    largest = max(abs(low), abs(high))
    check_range(low, largest, noise, lambda smallest: feature_label(worst_column(observed, smallest), names))
    return X.astype(np.float64) if X.dtype == np.float32 and not holds_squares(largest) else X


def check_range(low: float, largest: float, noise: Noise | None, where: Callable[[bool], str]) -> None:
    """Raise a `ValueError` if entries are too large, or negative where the noise does not allow it.

    ``low`` is the smallest entry, and ``largest`` the largest absolute value; ``where(smallest)`` returns the name of
    the feature of either.
    """
    if largest > LARGEST:
        raise ValueError(
            f"X has values up to {largest:.1e} in {where(False)}, whose squares overflow; "
            "scale it, for example with sklearn.preprocessing.MaxAbsScaler."
        )
    if noise is not None and low < 0.0 and not noise.allows_negative:
        check_sign(noise, low, f" in {where(True)}")


def holds_squares(largest: float) -> bool:
    """Return whether squares of entries up to this size neither overflow nor underflow in single precision."""
    return 1.0 / _SINGLE <= largest <= _SINGLE or largest == 0.0


def feature_label(index: int, names: Any) -> str:
    """Return how an error text names a feature: by its name if it has one, else by its index."""
    return f"feature {index}" if names is None else f"feature {names[index]!r}"


def holds_out(model: Any) -> str | None:
    """Return the parameter of a model, with its value, that makes its fit learn from held-out rows; else ``None``."""
    given = ((name, getattr(model, name, None)) for name in ("probability", "conformal"))
    return next((f"{name}={value!r}" for name, value in given if value), None)
