"""Validation of user input: ``X`` becomes a dense array or a CSR matrix with valid indices.

Every estimator and function that takes ``X`` calls `validate_rows` or `check_rows`: the validation of scikit-learn,
after a check of the index arrays of a sparse matrix and of the mask of a masked array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from dropmargin.data.structure import sound_csr

_ACCEPTED: dict[str, Any] = {
    "accept_sparse": "csr",
    "accept_large_sparse": True,
    "dtype": [np.float64, np.float32],
}
_SHOWN_NAMES = 8
_SET_MISSING = "set missing='rescale' on a classifier that has this parameter: it treats them as missing features"
_NAN = (
    "Input X contains NaN, which {} does not accept with missing='error'. Set missing='rescale' before fit to treat "
    "NaN as a missing feature, or impute X, for example with sklearn.impute.SimpleImputer."
)
_REMEDIES = {
    "y": "Remove these rows, for example with X[~y.mask] and y.compressed()",
    "sample_weight": "Fill them, for example with sample_weight.filled(0.0) to ignore these rows",
}


def validate_rows(
    estimator: Any,
    X: Any,
    y: Any = "no_validation",
    *,
    reset: bool = True,
    ensure_all_finite: Any = True,
    **options: Any,
) -> Any:
    """Return ``X``, or ``X`` and ``y``, after the checks of this module and `sklearn.utils.validation.validate_data`.

    ``ensure_all_finite`` and ``options`` have the meaning of scikit-learn; unless the first is True, masked entries
    become NaN.
    """
    X = _prepared(X, "X", ensure_all_finite)
    check_unmasked(y, "y")
    try:
        return validate_data(estimator, X, y, reset=reset, ensure_all_finite=ensure_all_finite, **_ACCEPTED, **options)
    except ValueError as error:
        # The message of scikit-learn recommends another estimator.
        if hasattr(estimator, "missing") and str(error).startswith("Input X contains NaN"):
            raise ValueError(_NAN.format(type(estimator).__name__)) from None
        raise


def check_rows(X: Any, *, input_name: str = "X", ensure_all_finite: Any = True, **options: Any) -> Any:
    """Return ``X`` after the checks of this module and `sklearn.utils.check_array`; see `validate_rows`."""
    X = _prepared(X, input_name, ensure_all_finite)
    return check_array(X, input_name=input_name, ensure_all_finite=ensure_all_finite, **_ACCEPTED, **options)


def column_names(X: Any) -> list[Any] | None:
    """Return the column names of a data frame or a pyarrow table, ``None`` if ``X`` has none."""
    names = getattr(X, "column_names", None)  # pyarrow, whose .columns are the data
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else list(names)


def check_columns(own: Sequence[Any], names: Sequence[Any]) -> None:
    """Raise a `ValueError` unless ``own`` are the column names ``names``, in any order."""
    if len(own) == len(names) and set(own) == set(names):
        return
    lacking, extra = ([name for name in a if name not in b] for a, b in ((names, set(own)), (own, set(names))))
    parts = [f"lacks {_shown(lacking)}"] * bool(lacking) + [f"has {_shown(extra)} in addition"] * bool(extra)
    raise ValueError(f"X {' and '.join(parts) or 'has a column twice'}; its columns must be {_shown(names)}")


def with_columns(X: Any, names: Sequence[Any] | None) -> Any:
    """Return a data frame with its columns in the order of ``names`` (`check_columns`); other input unchanged."""
    own = column_names(X)
    if own is None or names is None or own == list(names):
        return X
    check_columns(own, names)
    return X.select(list(names)) if hasattr(X, "select") else X[list(names)]


def _shown(names: Sequence[Any]) -> str:
    more = "" if len(names) <= _SHOWN_NAMES else f" and {len(names) - _SHOWN_NAMES} more"
    return f"{list(names[:_SHOWN_NAMES])!r}{more}"


def fill_masked(X: Any) -> Any:
    """Return a masked array as an ndarray with NaN (``None`` for objects) in masked entries; other input unchanged."""
    X = _joined(X)
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if not np.ma.is_masked(X):
        return np.asarray(X)
    is_number = X.dtype.kind in "fiub"
    dtype: Any = (X.dtype if X.dtype.kind == "f" else np.float64) if is_number else object
    filled = np.array(X.data, dtype=dtype)
    filled[np.ma.getmaskarray(X)] = np.nan if is_number else None
    return filled


def check_unmasked(values: Any, name: str) -> None:
    """Raise a `ValueError` if any entry of ``values`` is masked: NumPy would use the value under the mask."""
    values = _joined(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.count_masked(values))
        remedy = _REMEDIES.get(name, f"Fill them, for example with {name}.filled(0.0), or {_SET_MISSING}")
        raise ValueError(f"{name} is a masked array with {count} masked entries. {remedy}.")


def _joined(values: Any) -> Any:
    """Return a list of masked arrays as one masked array; other input unchanged."""
    is_list = isinstance(values, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in values)
    return np.ma.array(values) if is_list else values


def _prepared(X: Any, name: str, ensure_all_finite: Any) -> Any:
    if sparse.issparse(X):
        return sound_csr(X, name)
    if ensure_all_finite is True:
        check_unmasked(X, name)
    return fill_masked(X)
