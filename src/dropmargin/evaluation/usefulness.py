"""The usefulness of each column to a fitted model: the decrease of its mean margin if the column is deleted.

The margin of a row is the response for its own class minus the largest response for another class; responses are
decision values, or else probabilities. A classifier that only predicts has the margin 1 for a correct label and 0 for
another. The margin of a regressor is minus the squared error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils import _safe_indexing

from dropmargin.data import linear_scores
from dropmargin.data.deletion import column_entries, delete_columns
from dropmargin.evaluation.scoring import ScoringCase
from dropmargin.progress import Progress
from dropmargin.typing import Array

# Number of rows on which margins are computed.
_MAX_ROWS = 1000


def column_losses(case: ScoringCase, fill: Any, seed: int, verbose: int) -> Array:
    """Return the decrease of the mean margin if each column alone is deleted, of shape (n_features,).

    It is computed on at most 1,000 rows. A linear model takes a few predictions, any other one per column.
    """
    n_samples = case.values.shape[0]
    rows = np.arange(n_samples)
    if n_samples > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n_samples, _MAX_ROWS, replace=False))
    if np.isfinite(fill).all():
        scores = _linear_responses(case, rows)
        if scores is not None:
            return _linear_losses(case, rows, fill, scores)
    return _losses_one_by_one(case, rows, fill, verbose)


def _losses_one_by_one(case: ScoringCase, rows: Array, fill: Any, verbose: int) -> Array:
    values, y = _safe_indexing(case.values, rows), np.asarray(case.y)[rows]
    respond, margins = _responses(case.estimator), _margins_of(case.estimator, y)

    def mean_margin(values: Any) -> float:
        return float(np.mean(margins(np.asarray(respond(case.in_container(values, rows))), slice(None))))

    losses = np.empty(values.shape[1])
    with Progress(len(losses), "ranking columns", verbose=verbose) as progress:
        before = mean_margin(values)
        for column in range(len(losses)):
            losses[column] = before - mean_margin(delete_columns(values, np.array([column]), fill, 1.0))
            progress.advance()
    return losses


def _linear_responses(case: ScoringCase, rows: Array) -> Array | None:
    """Return the responses if they are ``X @ coef_.T + intercept_``, by a comparison on these rows, else None."""
    estimator, values = case.estimator, case.values[rows]
    coef, intercept = (getattr(estimator, name, None) for name in ("coef_", "intercept_"))
    has_scores = is_regressor(estimator) or hasattr(estimator, "decision_function")
    if not (has_scores and isinstance(coef, np.ndarray) and intercept is not None):
        return None
    n_classes = len(getattr(estimator, "classes_", ()))
    if np.atleast_2d(coef).shape != (n_classes if n_classes > 2 else 1, values.shape[1]):
        return None
    expected = linear_scores(values, np.atleast_2d(coef), np.atleast_1d(intercept))
    given = np.asarray(_responses(estimator)(case.in_container(values, rows)), dtype=np.float64)
    is_equal = given.size == expected.size and np.allclose(given.reshape(expected.shape), expected, rtol=1e-3)
    return expected if is_equal else None


def _linear_losses(case: ScoringCase, rows: Array, fill: Any, scores: Array) -> Array:
    """Return the decrease for a linear model: without column ``d`` the scores are ``S - (x_d - fill_d) w_d``."""
    values, coef = case.values[rows], np.atleast_2d(np.asarray(case.estimator.coef_, dtype=np.float64))
    margins = _margins_of(case.estimator, np.asarray(case.y)[rows])
    before = margins(scores, slice(None))
    fills = np.broadcast_to(fill, values.shape[1])
    losses = np.empty(values.shape[1])
    for column, (where, entries) in enumerate(column_entries(values)):
        after = scores[where] - np.multiply.outer(entries - fills[column], coef[:, column])
        losses[column] = np.sum(before[where] - margins(after, where)) / len(rows)
    return losses


def _responses(estimator: Any) -> Callable[[Any], Any]:
    """Return the method that gives a value per class, or ``predict``."""
    if isinstance(getattr(estimator, "classes_", None), np.ndarray):
        for name in ("decision_function", "predict_proba"):
            if hasattr(estimator, name):
                return getattr(estimator, name)
    return estimator.predict


def _margins_of(estimator: Any, y: Array) -> Callable[[Array, Any], Array]:
    """Return the function of the responses for some of the rows, and of these rows, that gives their margins."""
    if is_regressor(estimator):
        return lambda responses, rows: -np.square(y[rows] - responses.reshape(len(responses)))
    if _responses(estimator) == estimator.predict:
        return lambda responses, rows: (responses == y[rows]).astype(float)
    index = {label: position for position, label in enumerate(estimator.classes_.tolist())}
    own = np.array([index.get(label, -1) for label in y.tolist()])  # -1 for an unknown label
    return lambda responses, rows: _margins(responses, own[rows])


def _margins(responses: Array, own: Array) -> Array:
    """Return the margin of each row; 0 where the label is unknown."""
    responses = np.array(responses, dtype=np.float64).reshape(len(own), -1)
    if responses.shape[1] == 1:
        responses = np.hstack([-responses, responses])
    rows = np.arange(len(own))
    best = responses[rows, own]
    responses[rows, own] = -np.inf
    return np.where(own >= 0, best - responses.max(axis=1), 0.0)
