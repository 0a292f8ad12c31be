"""Data as a caller passes it, turned into a dense array or a CSR matrix that is safe to compute with.

Every estimator and function that takes ``X`` gets it through `validate_rows` or `check_rows`: scikit-learn's
validation, after a check of the arrays of a sparse matrix and of the mask of a masked array.
"""

from __future__ import annotations

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
_DROP = "set missing='rescale' on a classifier that has this parameter: then they are missing features"
_NAN = (
    "Input X contains NaN, which {} does not accept with missing='error'. Set missing='rescale' before fit: then NaN "
    "is a missing feature. Or impute X, for example with sklearn.impute.SimpleImputer."
)
_REMEDIES = {
    "y": "Leave these rows out, as with X[~y.mask] and y.compressed()",
    "sample_weight": "Fill them, as with sample_weight.filled(0.0) to leave these rows out",
}


def validate_rows(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = True, ensure_all_finite: Any = True
) -> Any:
    """Return ``X``, or ``X`` and ``y``, after `sklearn.utils.validation.validate_data` with all checks of this module.

    ``ensure_all_finite`` is that of scikit-learn; unless it is True, a masked entry becomes NaN.
    """
    X = _prepared(X, "X", ensure_all_finite)
    check_unmasked(y, "y")
    try:
        return validate_data(estimator, X, y, reset=reset, ensure_all_finite=ensure_all_finite, **_ACCEPTED)
    except ValueError as error:
        # scikit-learn's message recommends another estimator.
        if hasattr(estimator, "missing") and str(error).startswith("Input X contains NaN"):
            raise ValueError(_NAN.format(type(estimator).__name__)) from None
        raise


def check_rows(X: Any, *, input_name: str = "X", ensure_all_finite: Any = True, **options: Any) -> Any:
    """Return ``X`` after `sklearn.utils.check_array` with all checks of this module; see `validate_rows`."""
    X = _prepared(X, input_name, ensure_all_finite)
    return check_array(X, input_name=input_name, ensure_all_finite=ensure_all_finite, **_ACCEPTED, **options)


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame or a pyarrow table, None if ``X`` has none."""
    names = getattr(X, "column_names", None)  # pyarrow, whose .columns are the data
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else list(names)


def fill_masked(X: Any) -> Any:
    """Return a masked array as a plain one: NaN, or None among objects, for what is masked; anything else as it is."""
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
    """Raise a `ValueError` if any entry of ``values`` is masked: NumPy would use it as if it were not."""
    values = _joined(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.count_masked(values))
        remedy = _REMEDIES.get(name, f"Fill them, as with {name}.filled(0.0), or {_DROP}")
        raise ValueError(f"{name} is a masked array with {count} masked entries. {remedy}.")


def _joined(values: Any) -> Any:
    """Return a list of masked arrays as one masked array; anything else as it is."""
    is_list = isinstance(values, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in values)
    return np.ma.array(values) if is_list else values


def _prepared(X: Any, name: str, ensure_all_finite: Any) -> Any:
    if sparse.issparse(X):
        return sound_csr(X, name)
    if ensure_all_finite is True:
        check_unmasked(X, name)
    return fill_masked(X)
