"""NaN as a missing feature, for ``missing="drop"``.

In training a missing entry has neither mean nor variance: ``w_d x~_id = 0``, whatever the noise. It is stored as minus
zero, the one number that multiplies as zero does and can still be told from it; all other zeros are made plus zeros.

At prediction the score is anchored at the training mean ``mu``, and what is observed stands for what is not::

    score = b + w.mu + 1/(1 - delta) * sum over observed d of w_d (x_d - mu_d)      delta: the missing share of the row

which is ``shift + factor * w.x``, with zeros for what is missing, ``factor = 1/(1 - delta)`` and ``shift = b + w.mu -
factor * sum over observed d of w_d mu_d``. A complete row has ``factor = 1`` and ``shift = b``: its plain score. A row
with every feature missing has the score ``b + w.mu``, that of the mean training row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dropmargin.linalg import entry_range, linear_scores, map_entries, row_blocks
from dropmargin.noise import Noise, Variance
from dropmargin.typing import Array

CHOICES = ("error", "drop")
# Rows are worked on in chunks of about this many entries and results.
_CHUNK_ENTRIES = 2**18


def has_missing(X: Any) -> bool:
    """Return whether any entry is NaN; no temporary array is made."""
    return bool(np.isnan(entry_range(X)[0]))


def restore_columns(X: Any, names: Array | None) -> Any:
    """Return a data frame that lacks columns of the training data as an array with NaN in their place.

    Everything else is returned as it is: a frame with other names, for example, for scikit-learn to complain of.
    """
    columns = getattr(X, "columns", None)
    if names is None or columns is None:
        return X
    present, known = list(columns), list(names)
    if set(present) >= set(known) or not set(present) <= set(known) or len(set(present)) < len(present):
        return X
    positions = [known.index(name) for name in present]
    if positions != sorted(positions):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit; absent columns count as missing."
        )
    observed = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    whole = np.full((len(observed), len(known)), np.nan, dtype=observed.dtype)
    whole[:, positions] = observed
    return whole


# Training -----------------------------------------------------------------------------------------------------------


def blank_for_training(X: Any, noise: Noise | None) -> tuple[Any, Noise | None]:
    """Return a copy of ``X`` with minus zeros for NaN, and a noise that leaves them alone."""

    def blank(values: Array, columns: Any) -> Array:
        blanked = values + 0.0  # a copy, in which -0 has become +0
        blanked[np.isnan(values)] = -0.0
        return blanked

    if noise is not None and noise.variance().has_floor:
        _check_floor(X, noise)
        noise = _ObservedOnly(noise)
    return map_entries(X, blank, zeros_stay=True, what="X without NaN"), noise


def column_means(X: Any, weights: Array, blanked: bool) -> Array:
    """Return the weighted mean of each column's observed entries, 0 if there are none.

    Zeros that a sparse ``X`` does not store are observed; nothing is made dense. ``blanked`` says whether ``X`` has
    minus zeros for missing entries.
    """
    sums, missing = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for where in _chunks(X, 1):
        for block in row_blocks(X[where]):
            own = weights[where]
            sums += block.transposed_times(own)
            if blanked:
                marks = _is_blank(block.entries()).astype(np.float64)
                missing += block.with_entries(marks).transposed_times(own)
    observed = weights.sum() - missing
    return np.divide(sums, observed, out=np.zeros_like(sums), where=(sums != 0.0) & (observed > 0.0))


def _is_blank(values: Array) -> Array:
    return (values == 0.0) & np.signbit(values)


def _is_observed(values: Array) -> Array:
    return (~_is_blank(values)).astype(values.dtype)


def _check_floor(X: Any, noise: Noise) -> None:
    name = type(noise).__name__
    if noise.variance().moves_entries:
        raise ValueError(
            f"X has NaN, and the variance of {name} noise depends on the entries and reaches zeros, too: "
            "missing='drop' cannot tell zeros and NaN apart. Impute X first, as with sklearn.impute.SimpleImputer."
        )
    if X.size < X.shape[0] * X.shape[1]:
        raise ValueError(
            f"X is sparse with NaN, and {name} noise reaches the zeros that it does not store: missing='drop' cannot "
            "tell zeros and NaN apart. Pass X.toarray() if that fits into memory, or choose Dropout or Poisson noise."
        )


class _ObservedOnly(Noise):
    """An additive noise that leaves missing entries (minus zeros) alone; every entry must be stored."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    @property
    def has_log_mgf(self) -> bool:
        return self.noise.has_log_mgf

    def variance(self) -> Variance:
        # Not a floor less what is missing: rounding would leave variances below zero.
        return Variance(entry=_is_observed, slope=self.noise.variance().floor)

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        value, first, second = self.noise.log_mgf(t, x)
        blank = _is_blank(x)
        return np.where(blank, 0.0, value), np.where(blank, 0.0, first), np.where(blank, 0.0, second)


# Prediction ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Some rows of ``X``, whose scores are ``shift + factor * filled @ coef.T``.

    Parameters
    ----------
    filled : ndarray or sparse array of shape (n_rows, n_features)
        The rows, with 0 for what is missing.
    missing : the same, or None
        1 for what is missing, else 0; ``None`` if nothing is.
    factor : ndarray of shape (n_rows, 1)
    shift : ndarray of shape (n_rows, n_columns)
    """

    filled: Any
    missing: Any
    factor: Array
    shift: Array

    def scores(self, coef: Array, filled: Any = None) -> Array:
        """Return the scores of the rows, or of others that miss the same entries."""
        return self.factor * _times(self.filled if filled is None else filled, coef) + self.shift

    def covariances(self, members: Array, variance: Variance, products: Array) -> Array:
        """Return ``factor^2 sum_d V_id p_d`` of some rows for every row ``p`` of ``products``.

        If ``p = u * w``, that is the covariance of the scores by ``u`` and ``w`` under the noise; missing entries have
        none.
        """
        out = np.zeros((len(members), len(products)))
        entry = variance.entry
        if entry is not None and variance.moves_entries:
            moved = map_entries(self.filled[members], lambda x, _: entry(x), zeros_stay=True, what="The variance")
            out += _times(moved, products * variance.slope)
        if variance.has_floor:
            floored = products * variance.floor
            out += floored.sum(axis=1)
            if self.missing is not None:
                out -= _times(self.missing[members], floored)
        return np.square(self.factor[members]) * out


def anchored_rows(X: Any, coef: Array, intercept: Array, means: Array | None) -> Iterator[tuple[slice, Rows]]:
    """Yield ``X`` in chunks of rows, with what makes scores of them; see the module's docstring.

    Without ``means`` there must be no NaN.
    """
    n_features = X.shape[1]
    for where in _chunks(X, len(coef)):
        rows = X[where]
        n_rows = rows.shape[0]
        if means is None or not has_missing(rows):
            yield where, Rows(rows, None, np.ones((n_rows, 1)), np.tile(intercept, (n_rows, 1)))
            continue
        missing = map_entries(rows, _mark_nan, zeros_stay=True, what="X")
        count = _times(missing, np.ones((1, n_features)))
        at_mean = means * coef.astype(np.float64)
        anchor = at_mean.sum(axis=1)
        factor = np.divide(n_features, n_features - count, out=np.zeros_like(count), where=count < n_features)
        shift = intercept + anchor - factor * (anchor - _times(missing, at_mean))
        yield (
            where,
            Rows(
                map_entries(rows, _zero_nan, zeros_stay=True, what="X"),
                missing,
                factor,
                np.where(count == 0.0, intercept, shift),
            ),
        )


def anchored_scores(X: Any, coef: Array, intercept: Array, means: Array) -> Array:
    """Return the scores of all rows, in the precision of the plain ones."""
    if not has_missing(X):
        return linear_scores(X, coef, intercept)
    scores = np.empty((X.shape[0], len(coef)), dtype=np.result_type(X.dtype, coef.dtype))
    for where, rows in anchored_rows(X, coef, intercept, means):
        scores[where] = rows.scores(coef)
    return scores


def _times(X: Any, factors: Array) -> Array:
    """Return ``X @ factors.T`` as a dense array."""
    return linear_scores(X, factors, np.zeros(1, dtype=factors.dtype))


def _mark_nan(values: Array, columns: Any) -> Array:
    return np.isnan(values).astype(np.float64)


def _zero_nan(values: Array, columns: Any) -> Array:
    return np.where(np.isnan(values), values.dtype.type(0.0), values)


def _chunks(X: Any, n_results: int) -> Iterator[slice]:
    """Yield slices of rows; ``X.size`` counts what is stored, dense or sparse."""
    n_rows = X.shape[0]
    step = max(16, _CHUNK_ENTRIES // (X.size // n_rows + n_results))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))
