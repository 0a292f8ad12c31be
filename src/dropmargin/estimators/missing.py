"""NaN as a missing feature, for ``missing="rescale"``.

In training a missing entry has neither mean nor variance: ``w_d x~_id = 0``, whatever the noise. It is stored as minus
zero, the one number that multiplies as zero does and can still be told from it; all other zeros are made plus zeros.

At prediction the score is anchored at the training mean ``mu``, and what is observed stands for what is not::

    score = b + w.mu + factor * sum over observed d of w_d (x_d - mu_d)
    factor = 1 / max(share, (1 - delta) / 2)
    share = sum over observed d of |w_d| sd_d / sum over all d of |w_d| sd_d

``delta`` is the row's own missing share of the features, ``sd`` the training deviations: a feature counts by how far it
moves the score. That beats ``factor = 1 / (1 - delta)``, to which it falls back if no feature moves the score, and of
which it is never more than the double: then the few features seen are of little weight. Written as
``shift + factor * w.x``, with zeros for what is missing, it never makes a sparse row dense. A complete row has
``factor = 1`` and ``shift = b``: its plain score. A row with every feature missing has the score ``b + w.mu``, that of
the mean training row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from dropmargin.data import Block, entry_range, linear_scores, map_entries, row_blocks
from dropmargin.data.inputs import column_names
from dropmargin.noise import Noise, Variance
from dropmargin.typing import Array

CHOICES = ("error", "rescale")
# Rows are worked on in chunks of about this many entries and results.
_CHUNK_ENTRIES = 2**18


def has_missing(X: Any) -> bool:
    """Return whether any entry is NaN; no temporary array is made."""
    return bool(np.isnan(entry_range(X)[0]))


def restore_columns(X: Any, names: Array | None) -> Any:
    """Return a data frame that lacks columns of the training data as an array with NaN in their place.

    Everything else is returned as it is: a frame with other names, for example, for scikit-learn to complain of.
    """
    present = column_names(X)
    if names is None or present is None:
        return X
    position = {name: d for d, name in enumerate(names)}
    if len(set(present)) < len(present) or not set(present) < set(position):
        return X
    if not present:
        return np.full((len(X), len(names)), np.nan)
    positions = [position[name] for name in present]
    if positions != sorted(positions):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit; absent columns count as missing."
        )
    observed = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    whole = np.full((len(observed), len(names)), np.nan, dtype=observed.dtype)
    whole[:, positions] = observed
    return whole


# Training -----------------------------------------------------------------------------------------------------------


def nan_to_negative_zero(X: Any) -> Any:
    """Return a copy of ``X`` with minus zeros for NaN."""

    def blank(values: Array, columns: Any) -> Array:
        blanked = values + 0.0  # a copy, in which -0 has become +0
        blanked[np.isnan(values)] = -0.0
        return blanked

    return map_entries(X, blank, zeros_stay=True, what="X without NaN")


def exclude_missing_from_noise(X: Any, noise: Noise | None) -> Noise | None:
    """Return a noise that leaves the missing entries of ``X`` alone."""
    return exclude_entries_from_noise(X.size < X.shape[0] * X.shape[1], noise)


def exclude_entries_from_noise(has_implicit: bool, noise: Noise | None) -> Noise | None:
    """Return a noise that leaves missing entries alone; ``has_implicit``: there are zeros that are not stored."""
    if noise is None or not noise.variance().has_floor:
        return noise
    _check_floor(has_implicit, noise)
    return _ObservedOnly(noise)


#: Total weight, and by column: sums of the entries, weight of what is stored, weight of what is missing.
Sums = tuple[float, Array, Array, Array]


class Columns(NamedTuple):
    """What prediction needs to know of the training data: mean and standard deviation of each feature."""

    mean: Array
    deviation: Array


def describe_columns(X: Any, weights: Array, blanked: bool) -> Columns:
    """Return weighted mean and deviation of each column's observed entries, 0 if there are none.

    Zeros that a sparse ``X`` does not store are observed; nothing is made dense. ``blanked`` says whether ``X`` has
    minus zeros for missing entries.
    """
    return columns_by_sums(partial(column_sums, X, weights, blanked), partial(column_squares, X, weights, blanked))


def columns_by_sums(sum_up: Callable[[], Sums], square: Callable[[Array], tuple[Array]]) -> Columns:
    """Return mean and deviation of the columns from sums over the rows: `column_sums`, and then `column_squares`."""
    total, sums, stored, missing = sum_up()
    mean = _ratio(sums, total - missing)
    (squares,) = square(mean)
    implicit = total - stored  # the weight of zeros that are not stored, or what rounding leaves of none
    squares = squares + np.where(implicit > 1e-12 * total, implicit, 0.0) * np.square(mean)
    return Columns(mean, np.sqrt(_ratio(squares, total - missing)))


def column_sums(X: Any, weights: Array, blanked: bool) -> Sums:
    """Return the sum of the weights, and by column the sums of the entries, of the stored and of the missing weight."""
    sums, stored, missing = (np.zeros(X.shape[1]) for _ in range(3))
    for block, own in _weighted_blocks(X, weights):
        entries = block.entries()
        sums += block.transposed_times(own)
        stored += block.with_entries(np.ones(entries.shape)).transposed_times(own)
        if blanked:
            missing += block.with_entries(_is_blank(entries).astype(np.float64)).transposed_times(own)
    return float(weights.sum()), sums, stored, missing


def column_squares(X: Any, weights: Array, blanked: bool, mean: Array) -> tuple[Array]:
    """Return the sums of the squares of the stored entries, less their column's mean."""
    squares = np.zeros(X.shape[1])
    for block, own in _weighted_blocks(X, weights):
        # Centred before squaring: a column far from zero keeps its digits.
        centred = np.square(block.entries() - block.spread(mean))
        if blanked:
            centred[_is_blank(block.entries())] = 0.0
        squares += block.with_entries(centred).transposed_times(own)
    return (squares,)


def _weighted_blocks(X: Any, weights: Array) -> Iterator[tuple[Block, Array]]:
    for where in _chunks(X, 1):
        begin = where.start
        for block in row_blocks(X[where]):
            yield block, weights[begin : begin + block.n_rows]
            begin += block.n_rows


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=(above != 0.0) & (below > 0.0))


def _is_blank(values: Array) -> Array:
    return (values == 0.0) & np.signbit(values)


def _is_observed(values: Array) -> Array:
    return (~_is_blank(values)).astype(values.dtype)


def _check_floor(has_implicit: bool, noise: Noise) -> None:
    name = type(noise).__name__
    if noise.variance().moves_entries:
        raise ValueError(
            f"X has NaN, and the variance of {name} depends on the entries and reaches zeros, too: "
            "missing='rescale' cannot tell zeros and NaN apart. Impute X first, as with sklearn.impute.SimpleImputer."
        )
    if has_implicit:
        raise ValueError(
            f"X is sparse with NaN, and {name} reaches the zeros that it does not store: missing='rescale' "
            "cannot tell zeros and NaN apart. Pass X.toarray() if that fits into memory, or choose "
            "DropoutNoise or PoissonNoise."
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
    factor, shift : ndarray of shape (n_rows, n_columns)
    """

    filled: Any
    missing: Any
    factor: Array
    shift: Array

    def take(self, members: Array) -> Rows:
        """Return some of the rows."""
        absent = None if self.missing is None else self.missing[members]
        return Rows(self.filled[members], absent, self.factor[members], self.shift[members])

    def scores(self, coef: Array) -> Array:
        """Return the scores of the rows."""
        return self.factor * _times(self.filled, coef) + self.shift

    def covariances(self, members: Array, variance: Variance, products: Array) -> Array:
        """Return ``sum_d V_id p_d`` of some rows for every row ``p`` of ``products``; what is missing has no variance.

        If ``p = u * w``, that is the covariance of ``u.x~`` and ``w.x~`` under the noise.
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
        return out


def anchored_rows(
    X: Any, coef: Array, intercept: Array, columns: Columns | None, n_results: int
) -> Iterator[tuple[slice, Rows]]:
    """Yield ``X`` in chunks of rows, with what makes scores of them; see the module's docstring.

    Without ``columns`` there must be no NaN. Chunks leave room for ``n_results`` numbers per row.
    """
    for where in _chunks(X, n_results):
        rows = X[where]
        shape = rows.shape[0], len(coef)
        if columns is None or not has_missing(rows):
            yield where, Rows(rows, None, np.ones(shape), np.broadcast_to(intercept, shape))
            continue
        missing = map_entries(rows, _mark_nan, zeros_stay=True, what="X")
        at_mean = columns.mean * coef.astype(np.float64)
        anchor = at_mean.sum(axis=1)
        factor, complete = _factors(missing, np.abs(coef) * columns.deviation)
        shift = intercept + anchor - factor * (anchor - _times(missing, at_mean))
        filled = map_entries(rows, _zero_nan, zeros_stay=True, what="X")
        yield where, Rows(filled, missing, factor, np.where(complete, intercept, shift))


def _factors(missing: Any, moves: Array) -> tuple[Array, Array]:
    """Return the factor of each row and column, 0 if nothing is observed, and whether a row is complete.

    ``moves`` is ``|w_d| sd_d``, one row per column of the scores.
    """
    n_features = missing.shape[1]
    count = _times(missing, np.ones((1, n_features)))
    observed = 1.0 - count / n_features  # 1 - delta
    total = moves.sum(axis=1)
    lost = np.divide(_times(missing, moves), total, out=count / n_features + np.zeros_like(total), where=total > 0.0)
    share = np.maximum(1.0 - lost, 0.5 * observed)
    factor = np.divide(1.0, share, out=np.zeros_like(share), where=count < n_features)
    complete = count == 0.0
    return np.where(complete, 1.0, factor), complete


def anchored_scores(X: Any, coef: Array, intercept: Array, columns: Columns) -> Array:
    """Return the scores of all rows, in the precision of the plain ones."""
    if not has_missing(X):
        return linear_scores(X, coef, intercept)
    scores = np.empty((X.shape[0], len(coef)), dtype=np.result_type(X.dtype, coef.dtype))
    for where, rows in anchored_rows(X, coef, intercept, columns, len(coef)):
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
    step = max(16, _CHUNK_ENTRIES // (X.size // max(1, n_rows) + n_results))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))
