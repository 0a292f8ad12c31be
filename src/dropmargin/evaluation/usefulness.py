"""Which columns a fitted classifier would miss most: the margin that it loses, on average, if one of them is deleted.

The margin of a row is the response for its own class less the largest response for another class; responses are
decision values, or else probabilities. A column whose deletion costs the most margin is the most useful one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dropmargin.evaluation.trial import Trial
from dropmargin.linalg import linear_scores
from dropmargin.linalg.deletion import delete_columns
from dropmargin.progress import Progress
from dropmargin.typing import Array

# Rows on which a classifier that is not linear is asked about each column, one column at a time.
_MOST_ROWS = 1000


def margin_losses(trial: Trial, fill: Any, seed: int, verbose: int) -> Array:
    """Return the mean margin that is lost by the deletion of each column alone, of shape (n_features,).

    One product with ``X`` for a linear classifier, whose runner-up classes are taken to stay the same; one prediction
    of at most 1,000 rows per column for any other.
    """
    n_samples, n_features = trial.values.shape
    rows = np.arange(n_samples)
    if n_samples > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n_samples, _MOST_ROWS, replace=False))
    if np.isfinite(fill).all() and _is_linear(trial, rows):
        return _linear_losses(trial, fill)
    values = trial.values[rows]
    respond, own = _responses(trial.estimator), _own_class(trial, rows)

    def mean_margin(values: Any) -> float:
        X = trial.dress(values, rows)
        if respond is None:
            return float(np.mean(trial.estimator.predict(X) == np.asarray(trial.y)[rows]))
        return float(np.mean(_margins(respond(X), own)[0]))

    losses = np.empty(n_features)
    with Progress(n_features, "ranking columns", verbose=verbose) as progress:
        before = mean_margin(values)
        for column in range(n_features):
            losses[column] = before - mean_margin(delete_columns(values, np.array([column]), fill, 1.0))
            progress.advance()
    return losses


def _is_linear(trial: Trial, rows: Array) -> bool:
    """Return whether the decision values are ``X @ coef_.T + intercept_``, by trying it."""
    estimator, values = trial.estimator, trial.values[rows]
    parts = [getattr(estimator, name, None) for name in ("coef_", "intercept_", "classes_")]
    if not (hasattr(estimator, "decision_function") and all(isinstance(part, np.ndarray) for part in parts)):
        return False
    coef, intercept, classes = parts
    if coef.shape != (1 if len(classes) == 2 else len(classes), values.shape[1]):
        return False
    given = np.asarray(estimator.decision_function(trial.dress(values, rows)), dtype=np.float64)
    expected = linear_scores(values, coef, intercept)
    return given.size == expected.size and np.allclose(given.reshape(expected.shape), expected, rtol=1e-3)


def _linear_losses(trial: Trial, fill: Any) -> Array:
    """Return ``mean_i (w_own(i) - w_other(i))_d (x_id - fill_d)``, where ``other`` is the runner-up of the intact row."""
    coef, own = np.asarray(trial.estimator.coef_, dtype=np.float64), _own_class(trial, slice(None))
    scores = linear_scores(trial.values, coef, trial.estimator.intercept_)
    if len(coef) == 1:
        coef, scores = np.vstack([-coef, coef]), np.hstack([-scores, scores])
    _, other = _margins(scores, own)
    known = np.flatnonzero(own >= 0)
    signs = np.zeros_like(scores)
    signs[known, own[known]] = 1.0
    signs[known, other] = -1.0
    moved = np.asarray(trial.values.T @ signs) - np.multiply.outer(np.broadcast_to(fill, coef.shape[1]), signs.sum(0))
    return np.sum(moved * coef.T, axis=1) / max(1, len(known))


def _responses(estimator: Any) -> Callable[[Any], Array] | None:
    """Return the method whose answer has a value per class, or ``None``."""
    if isinstance(getattr(estimator, "classes_", None), np.ndarray):
        for name in ("decision_function", "predict_proba"):
            if hasattr(estimator, name):
                return getattr(estimator, name)
    return None


def _own_class(trial: Trial, rows: Any) -> Array:
    """Return the index of each row's label in the classes of the estimator, -1 for a label that it does not know."""
    index = {label: position for position, label in enumerate(np.asarray(trial.estimator.classes_).tolist())}
    return np.array([index.get(label, -1) for label in np.asarray(trial.y)[rows].tolist()])


def _margins(responses: Array, own: Array) -> tuple[Array, Array]:
    """Return the margins of the rows with a known label, and their runner-up classes."""
    responses = np.array(responses, dtype=np.float64)
    if responses.ndim == 1:
        responses = np.stack([-responses, responses], axis=1)
    known = np.flatnonzero(own >= 0)
    best = responses[known, own[known]]
    responses[known, own[known]] = -np.inf
    other = responses[known].argmax(axis=1)
    return best - responses[known, other], other
