"""Split-conformal intervals and sets that hold for each number of missing features (``conformal``).

The error of a held-out row, relative to what is expected given its observed features, is ``|y - m| / sqrt(s^2 + v)``
for a number, with the mean ``m`` and the variance ``v`` of its score and the mean squared residual ``s^2`` of complete
rows; for a label it is ``-log p``, with its probability of `calibration`. Of ``n`` held-out rows, the error number
``ceil((n + 1) coverage)`` is one that a new row exceeds with a probability of at most ``1 - coverage``. It is taken
among copies that lack the same share of their features, and interpolated between these shares: so the coverage holds
for each share, whatever the distribution of the features.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dropmargin.data.missing_values import has_missing, mark_missing
from dropmargin.estimators.calibration import log_sigmoids
from dropmargin.estimators.missing import times
from dropmargin.typing import Array

#: The fitted attributes.
ATTRIBUTES = ("conformal_scores_", "conformal_shares_")
# The variance of the residuals of complete rows is at least this share of that of all residuals.
_LEAST = 1e-2


def check_coverage(coverage: Any) -> float:
    """Return a coverage after checking that it is a number between 0 and 1."""
    if isinstance(coverage, Real) and 0.0 < float(coverage) < 1.0:
        return float(coverage)
    raise ValueError(f"coverage must be a number in (0, 1), such as 0.9, got {coverage!r}.")


def missing_shares(X: Any) -> Array:
    """Return the share of the features that are missing in each row."""
    if not has_missing(X):
        return np.zeros(X.shape[0])
    return times(mark_missing(X), np.ones((1, X.shape[1])))[:, 0] / X.shape[1]


def of_numbers(mean: Array, variance: Array, y: Array) -> tuple[float, Array]:
    """Return the standard deviation of the residuals of complete rows, and the relative errors of all copies."""
    squares = np.square(y - mean)
    of_complete = max(float(np.mean(squares[0] - variance[0])), _LEAST * float(np.mean(squares[0])))
    expected = of_complete + variance
    errors = np.sqrt(np.divide(squares, expected, out=np.zeros_like(squares), where=expected > 0.0))
    return float(np.sqrt(of_complete)), errors


def of_labels(model: Any, mean: Array, variance: Array, y: Array) -> Array:
    """Return ``-log p`` of the labels of all copies."""
    return -np.take_along_axis(log_sigmoids(model, mean, variance), y[None, :, None], axis=-1)[..., 0]


def thresholds(model: Any, X: Any, coverage: float) -> Array:
    """Return the error that each checked row exceeds with a probability of at most ``1 - coverage``."""
    if not hasattr(model, "conformal_scores_"):
        raise ValueError("conformal=True is needed before fit, which then holds rows out: set it and fit again.")
    number = int(np.ceil((model.conformal_scores_.shape[1] + 1) * coverage))
    if number > model.conformal_scores_.shape[1]:
        return np.full(X.shape[0], np.inf)
    return np.interp(missing_shares(X), model.conformal_shares_, model.conformal_scores_[:, number - 1])


def label_sets(model: Any, X: Any, coverage: float, allow_empty: bool) -> Array:
    """Return which labels are in the set of each checked row; the predicted label always is, unless sets may be empty.

    A set that is never empty covers at least as often as the predicted label is right, whatever the wanted coverage.
    """
    most, (mean, variance) = thresholds(model, X, coverage), model._score_moments(X)
    sets = -log_sigmoids(model, mean, variance) <= most[:, None]
    if not allow_empty:
        sets[np.arange(len(sets)), model._winners(mean)] = True
    return sets
