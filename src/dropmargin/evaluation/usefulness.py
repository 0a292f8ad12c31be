"""The usefulness of each column to a fitted model: the decrease of its mean margin if the column is deleted.

The margin of a row is the response for its own class minus the largest response for another class; responses are
decision values, or else probabilities. A classifier that only predicts has the margin 1 for a correct label and 0 for
another. The margin of a regressor is minus the squared error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

    It is computed on at most 1,000 rows. A linear model takes one prediction, any other one per column.
    """
    n_samples, n_features = case.values.shape
    rows = np.arange(n_samples)
    if n_samples > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n_samples, _MAX_ROWS, replace=False))
    values, respond = _safe_indexing(case.values, rows), _responses(case.estimator)
    responses = np.asarray(respond(case.in_container(values, rows)))

    def without(column: int) -> tuple[slice, Array]:
        """Return rows and their responses without a column."""
        deleted = delete_columns(values, np.array([column]), fill, 1.0)
        return slice(None), np.asarray(respond(case.in_container(deleted, rows)))

    changes: Iterable[tuple[Any, Array]] = map(without, range(n_features))
    if np.isfinite(fill).all() and _is_linear(case.estimator, values, responses):
        changes = _linear_changes(case.estimator.coef_, values, responses.reshape(len(rows), -1), fill)
    margins = _margins_of(case.estimator, np.asarray(case.y)[rows])
    before, losses = margins(responses, slice(None)), []
    with Progress(n_features, "ranking columns", verbose=verbose) as progress:
        for where, after in changes:
            losses.append(np.sum(before[where] - margins(after, where)) / len(rows))
            progress.advance()
    return np.array(losses)


def _is_linear(estimator: Any, values: Any, responses: Array) -> bool:
    """Return whether the responses are ``X @ coef_.T + intercept_``, by a comparison on these rows."""
    coef, intercept = (getattr(estimator, name, None) for name in ("coef_", "intercept_"))
    if not isinstance(coef, np.ndarray) or intercept is None or responses.dtype.kind != "f":
        return False
    coef = np.atleast_2d(coef)
    if coef.shape[1] != values.shape[1] or coef.shape[0] * len(responses) != responses.size:
        return False
    expected = linear_scores(values, coef, np.atleast_1d(intercept))
    return np.allclose(responses.reshape(expected.shape), expected, rtol=1e-3)


def _linear_changes(coef: Array, values: Any, scores: Array, fill: Any) -> Iterator[tuple[Any, Array]]:
    """Yield, for each column, the rows that depend on it, and their scores ``S - (x_d - fill_d) w_d`` without it."""
    coef, fills = np.atleast_2d(coef).astype(np.float64), np.broadcast_to(fill, values.shape[1])
    for column, (where, entries) in enumerate(column_entries(values)):
        yield where, scores[where] - np.multiply.outer(entries - fills[column], coef[:, column])


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
