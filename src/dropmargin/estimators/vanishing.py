"""The scores of a row when some of its features vanish, by the model's own rule for missing features.

Features vanish in units: single features, groups, or the features of one column of a table. A vanished feature is NaN;
with ``missing="error"`` it has the reference value of the dropout, 0 without dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import RegressorMixin

from dropmargin.data import canonical, is_dense_matrix, row_entries
from dropmargin.data.missing_values import chunks
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.noise import DropoutNoise
from dropmargin.typing import Array

_CHUNK = 2**20


class PresentUnits(NamedTuple):
    """The units of a row that can vanish; its entries, and the place of each entry's unit, the last one for none."""

    units: Array
    features: Array
    values: Array
    place: Array


class VanishingFeatures:
    """The scores and labels of a fitted model for rows of which units of features vanish.

    Parameters
    ----------
    model : MarginalisedModel
        A fitted model.
    units : ndarray of shape (n_features,)
        The number of the unit of each feature.
    always : ndarray of int
        Units that can vanish from every row. Other units can vanish from a sparse row if it stores an observed feature
        of theirs, and from every dense row.
    """

    def __init__(self, model: MarginalisedModel, units: Array, always: Array) -> None:
        self._model, self._units, self._always = model, units, always
        self._order = np.argsort(units, kind="stable")
        self._starts = np.searchsorted(units[self._order], np.arange(units.max() + 2))
        self.is_regression = isinstance(model, RegressorMixin)
        #: The labels of a classifier, by the index of their class.
        self.labels: list[Any] = [] if self.is_regression else model.classes_.tolist()
        #: Whether an output is a pair of classes.
        self.by_pairs = not self.is_regression and model._has_votes()
        noise = model._resolved_noise(None)
        value = noise.reference_values if isinstance(noise, DropoutNoise) else 0.0
        self._vanished = np.broadcast_to(value if model.missing == "error" else np.nan, len(units))

    def check(self, X: Any) -> Any:
        """Return rows after the checks of a prediction."""
        return canonical(self._model._check_rows(X))

    def outputs(self, X: Any) -> Array:
        """Return the scores of checked rows, one column per output."""
        return self._model._scores(X)

    def classes(self, outputs: Array) -> Array:
        """Return the index of the predicted class of each row of scores."""
        return self._model._winners(outputs)

    def direction(self, label: int, other: int) -> Array:
        """Return the vector whose product with the scores of all outputs is the score of a class against another."""
        direction, n_classes = np.zeros(len(self._model._coefficients()[0])), len(self.labels)
        if len(direction) == 1:
            direction[0] = 1.0 if self.is_regression or label == 1 else -1.0
        elif self.by_pairs:
            first, second = sorted((label, other))
            pair = first * (2 * n_classes - first - 1) // 2 + second - first - 1
            direction[pair] = 1.0 if label == second else -1.0
        else:
            direction[label], direction[other] = 1.0, -1.0
        return direction

    def class_scores(self, outputs: Array) -> Array:
        """Return one score per class from the scores of all outputs."""
        scores = self._model._combine(outputs)
        return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores

    def present(self, X: Any) -> Iterator[PresentUnits]:
        """Yield the units of each checked row that can vanish. NaN is a feature that has vanished before."""
        self._is_dense, row = is_dense_matrix(X), np.zeros(len(self._units))
        for stored, values in row_entries(X):
            row[stored] = values
            members = self._order if self._is_dense else self._members(stored[~np.isnan(values)])
            units = np.unique(self._units[members[~np.isnan(row[members])]])
            features = np.arange(len(row)) if self._is_dense else np.union1d(members, stored)
            place = np.searchsorted(units, self._units[features])
            can_vanish = np.isin(features, members) & np.isin(self._units[features], units)
            yield PresentUnits(units, features, row[features], np.where(can_vanish, place, len(units)))
            row[stored] = 0.0

    def _members(self, stored: Array) -> Array:
        """Return the features of the units that can vanish from a sparse row."""
        units = np.union1d(self._units[stored], self._always).tolist()
        parts = [self._order[self._starts[unit] : self._starts[unit + 1]] for unit in units]
        return np.concatenate(parts) if parts else np.empty(0, dtype=int)

    def without(self, row: PresentUnits, is_lost: Array) -> Array:
        """Return the scores of a row without some units, one row for each row of ``is_lost``, 1 for a lost unit."""
        is_lost = np.hstack([is_lost > 0.0, np.zeros((len(is_lost), 1), dtype=bool)])
        width, parts = len(row.features), []
        for where in chunks(len(is_lost), width, _CHUNK):
            rows: Any = np.where(is_lost[where][:, row.place], self._vanished[row.features], row.values)
            if not self._is_dense:
                n, shape = len(rows), (len(rows), len(self._units))
                pointers = np.arange(n + 1) * width
                rows = sparse.csr_array((rows.ravel(), np.tile(row.features, n), pointers), shape=shape)
            parts.append(self.outputs(rows))
        return np.vstack(parts) if parts else np.empty((0, len(np.atleast_2d(self._model.coef_))))
