"""The scores of held-out rows, complete and with missing features: what probabilities, sets and intervals learn from.

Each row is scored by a model that was not trained on it. If the model takes missing features, copies of the row lose 0,
10, ..., 100 % of its features, drawn at random, or of the groups of its noise: what is learnt then holds for each
number of missing features.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import KFold, StratifiedKFold

from dropmargin.data.deletion import delete_entries
from dropmargin.data.missing_values import negative_zero_to_nan
from dropmargin.estimators import calibration, conformal
from dropmargin.estimators.conformal import missing_shares
from dropmargin.estimators.fitting import (
    fit_rows,
    problem_of,
    set_classes,
    set_coefficients,
    training_data,
)
from dropmargin.estimators.rows import TrainingRows, set_or_delete
from dropmargin.typing import Array

# The folds of a fit with a given noise and C, and the levels of missing features.
_N_FOLDS, _N_LEVELS = 5, 11
# At most so many copies of rows are scored, and so many entries of these.
_MOST_COPIES, _MOST_ENTRIES = 20_000, 2**27


def learn(
    model: Any, rows: TrainingRows, splits: Sequence[Any] | None = None, coefs: Any = None, n_threads: int = 1
) -> None:
    """Set the fitted attributes that the parameters ``probability`` and ``conformal`` of a fitted model ask for.

    Parameters
    ----------
    model : MarginalisedModel
    rows : TrainingRows
        Its training rows, in memory.
    splits : list of tuple, default=None
        Training rows and held-out rows of each fold; ``None`` makes folds.
    coefs : ndarray of shape (n_folds, n_outputs, n_features + 1), default=None
        The solutions of the folds, intercept last; ``None`` fits them.
    n_threads : int, default=1
    """
    for name in (*calibration.ATTRIBUTES, *conformal.ATTRIBUTES):
        set_or_delete(model, name, None)
    method = getattr(model, "probability", None)
    if not (method or model.conformal):
        return
    splits = _splits(model, rows) if splits is None else splits
    mean, variance, y, shares = _held_out_scores(model, rows, splits, coefs, n_threads)
    if is_classifier(model):
        calibration.fit(model, mean, variance, y)
        scores = conformal.of_labels(model, mean, variance, y)
    else:
        model.residual_deviation_, scores = conformal.of_numbers(mean[..., 0], variance[..., 0], y)
    if model.conformal:
        model.conformal_scores_, model.conformal_shares_ = np.sort(scores, axis=1), shares


def _splits(model: Any, rows: TrainingRows) -> list[tuple[Array, Array]]:
    """Return training rows and held-out rows of the folds of a fit."""
    own = rows.partitions.single()
    labels, used, folds = rows.labels[own.y], np.flatnonzero(own.sample_weight), KFold
    fewest = len(used)
    if is_classifier(model):
        used, folds = used[np.isin(labels[used], model.classes_)], StratifiedKFold
        fewest = int(np.unique(labels[used], return_counts=True)[1].min())
    if fewest < 2:
        what = " of each class" if is_classifier(model) else ""
        raise ValueError(
            f"probability and conformal need at least two rows{what}, to hold some out, got n_samples={fewest}."
        )
    cv = folds(min(_N_FOLDS, fewest), shuffle=True, random_state=0)
    return [(used[train], used[test]) for train, test in cv.split(np.zeros((len(used), 1)), labels[used])]


def _held_out_scores(
    model: Any, rows: TrainingRows, splits: Sequence[Any], coefs: Any, n_threads: int
) -> tuple[Array, Array, Array, Array]:
    """Return means and variances of the scores of held-out rows, of shape (n_levels, n_rows, n_outputs).

    Then the index of the class, or the number, of each row, and the mean share of missing features of each level, in
    ascending order.
    """
    whole, (levels, groups) = rows.partitions.single(), _levels(model)
    labels, weights = rows.labels[whole.y], whole.sample_weight
    if is_classifier(model):
        weights = weights * np.isin(labels, model.classes_)
        labels = np.searchsorted(model.classes_, labels)
    held_out = np.concatenate([test for _, test in splits])
    fold = np.repeat(np.arange(len(splits)), [len(test) for _, test in splits])
    most = max(100, min(_MOST_COPIES, _MOST_ENTRIES // rows.n_features) // len(levels))
    chosen = _systematic(weights[held_out], most)
    rng, parts = np.random.default_rng(0), []
    for number, (train, _) in enumerate(splits):
        own = held_out[chosen[fold[chosen] == number]]
        if not len(own):
            continue
        fitted = _fitted(model, rows.take(train), None if coefs is None else coefs[number].T, n_threads)
        X = negative_zero_to_nan(whole.X[own]) if rows.has_missing else whole.X[own]
        of_fold = []
        for level in levels:
            copies = delete_entries(X, level, float("nan"), 1.0, rng, groups, is_exact=True) if level else X
            of_fold.append((*fitted._score_moments(copies), missing_shares(copies)))
        parts.append([np.stack(own) for own in zip(*of_fold, strict=True)])
    mean, variance, shares = (np.concatenate(own, axis=1) for own in zip(*parts, strict=True))
    return mean, variance, labels[held_out[chosen]], shares.mean(axis=1)


def _levels(model: Any) -> tuple[Array, Array | None]:
    """Return the shares of the groups of features that copies of a row lose, and the group of each feature."""
    if model.missing == "error":
        return np.zeros(1), None
    groups = getattr(model._resolved_noise(None), "groups", None)
    groups = np.arange(model.n_features_in_) if groups is None else np.asarray(groups)
    n_groups = int(np.max(groups)) + 1
    return np.unique(np.round(np.linspace(0.0, 1.0, _N_LEVELS) * n_groups)) / n_groups, groups


def _systematic(weights: Array, most: int) -> Array:
    """Return the places of a systematic sample in proportion to the weights: all, if they are equal and few enough."""
    total = np.cumsum(weights)
    n_rows = min(int(np.count_nonzero(weights)), most)
    return np.asarray(np.searchsorted(total, (np.arange(n_rows) + 0.5) / n_rows * total[-1]))


def _fitted(model: Any, rows: TrainingRows, coef: Array | None, n_threads: int) -> Any:
    """Return a copy of a model that is fitted to some rows; ``coef`` is the solution, if it is known."""
    own = copy(model)
    if coef is None:
        fit_rows(own, problem_of(own), rows, n_threads)
    else:
        data, statistics = training_data(own, rows)
        set_classes(own, data.classes, statistics)
        set_coefficients(own, coef, rows.dtype)
    return own
