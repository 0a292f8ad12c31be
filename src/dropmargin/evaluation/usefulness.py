"""The usefulness of each column to a fitted classifier: the decrease of its mean margin if the column is deleted.

The margin of a row is the response for its own class minus the largest response for another class; responses are
decision values, or else probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from dropmargin.data import linear_scores
from dropmargin.data.deletion import column_entries, delete_columns
from dropmargin.evaluation.scoring import ScoringCase
from dropmargin.progress import Progress
from dropmargin.typing import Array

# Number of rows on which margins are computed.
_MAX_ROWS = 1000


def margin_losses(case: ScoringCase, fill: Any, seed: int, verbose: int) -> Array:
    """Return the decrease of the mean margin if each column alone is deleted, of shape (n_features,).

    It is computed on at most 1,000 rows. A linear classifier takes a few predictions, any other one per column.
    """
    n_samples = case.values.shape[0]
    rows = np.arange(n_samples)
    if n_samples > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n_samples, _MAX_ROWS, replace=False))
    if np.isfinite(fill).all() and _is_linear(case, rows):
        return _linear_losses(case, rows, fill)
    return _losses_one_by_one(case, rows, fill, verbose)


def _losses_one_by_one(case: ScoringCase, rows: Array, fill: Any, verbose: int) -> Array:
    values, labels = _safe_indexing(case.values, rows), np.asarray(case.y)[rows]
    respond = _responses(case.estimator)
    own = None if respond is None else _own_class(case.estimator, labels)

    def mean_margin(values: Any) -> float:
        X = case.in_container(values, rows)
        if respond is None or own is None:
            return float(np.mean(np.asarray(case.estimator.predict(X)) == labels))
        return float(np.mean(_margins(respond(X), own)))

    losses = np.empty(values.shape[1])
    with Progress(len(losses), "ranking columns", verbose=verbose) as progress:
        before = mean_margin(values)
        for column in range(len(losses)):
            losses[column] = before - mean_margin(delete_columns(values, np.array([column]), fill, 1.0))
            progress.advance()
    return losses


def _is_linear(case: ScoringCase, rows: Array) -> bool:
    """Return whether the decision values are ``X @ coef_.T + intercept_``, by a comparison on these rows."""
    estimator, values = case.estimator, case.values[rows]
    parts = [getattr(estimator, name, None) for name in ("coef_", "intercept_", "classes_")]
    coef, intercept, classes = (part if isinstance(part, np.ndarray) else np.empty(0) for part in parts)
    if not (hasattr(estimator, "decision_function") and coef.size and intercept.size):
        return False
    if coef.shape != (1 if len(classes) == 2 else len(classes), values.shape[1]):
        return False
    given = np.asarray(estimator.decision_function(case.in_container(values, rows)), dtype=np.float64)
    expected = linear_scores(values, coef, intercept)
    return given.size == expected.size and np.allclose(given.reshape(expected.shape), expected, rtol=1e-3)


def _linear_losses(case: ScoringCase, rows: Array, fill: Any) -> Array:
    """Return the decrease for a linear classifier: without column ``d`` the scores are ``S - (x_d - fill_d) w_d``."""
    estimator, values = case.estimator, case.values[rows]
    coef, intercept = np.asarray(estimator.coef_, dtype=np.float64), estimator.intercept_
    scores = linear_scores(values, coef, intercept)
    if len(coef) == 1:
        coef, scores = np.vstack([-coef, coef]), np.hstack([-scores, scores])
    own = _own_class(estimator, np.asarray(case.y)[rows])
    before = _margins(scores, own)
    fills = np.broadcast_to(fill, values.shape[1])
    losses = np.empty(values.shape[1])
    for column, (where, entries) in enumerate(column_entries(values)):
        after = scores[where] - np.multiply.outer(entries - fills[column], coef[:, column])
        losses[column] = np.sum(before[where] - _margins(after, own[where])) / len(rows)
    return losses


def _responses(estimator: Any) -> Callable[[Any], Array] | None:
    """Return the method that gives a value per class, or ``None``."""
    if isinstance(getattr(estimator, "classes_", None), np.ndarray):
        for name in ("decision_function", "predict_proba"):
            if hasattr(estimator, name):
                return getattr(estimator, name)
    return None


def _own_class(estimator: Any, labels: Array) -> Array:
    """Return the index of each label in the classes of the estimator, -1 for an unknown label."""
    index = {label: position for position, label in enumerate(estimator.classes_.tolist())}
    return np.array([index.get(label, -1) for label in labels.tolist()])


def _margins(responses: Array, own: Array) -> Array:
    """Return the margin of each row; 0 where the label is unknown."""
    responses = np.array(responses, dtype=np.float64)
    if responses.ndim == 1:
        responses = np.stack([-responses, responses], axis=1)
    rows = np.arange(len(own))
    best = responses[rows, own]
    responses[rows, own] = -np.inf
    return np.where(own >= 0, best - responses.max(axis=1), 0.0)
