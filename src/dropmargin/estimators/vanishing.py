r"""The scores of a row when some of its features vanish, by the model's own rule for missing features.

Features vanish in units: single features, groups, or the features of one column of a table. Under every rule the scores
are a function of sums over the features that are left, so each unit has one vector of sums, and the scores after any
removal take one vector per removal::

    missing="error"        sum of w_d (x_d - r_d): a vanished feature has the reference value r_d of the dropout
    missing="rescale"      sums of w_d (x_d - mu_d), of |w_d| sd_d, and the number of features; see `missing`
    missing="conditional"  sums of w_d (x_d - mu_d), u_d (x_d - mu_d) / psi_d, u_d u_d' / psi_d, u_d w_d';
                           see `conditional`

Without dropout noise, the reference value is 0. Sums over the features that are left are added up from the last one to
vanish, so that without features they are exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin

from dropmargin.data import canonical, is_dense_matrix, row_entries
from dropmargin.data.missing_values import chunks
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.conditional import Conditional
from dropmargin.estimators.missing import Rescaled, Rule
from dropmargin.noise import DropoutNoise
from dropmargin.typing import Array

_CHUNK = 2**20


def _rule_of(model: MarginalisedModel) -> Rule:
    own = model._coefficients()
    if model.missing == "rescale":
        return Rescaled(*own, model.feature_means_, model.feature_deviations_)
    if model.missing == "conditional":
        return Conditional(*own, model._factor_model())
    noise = model._resolved_noise(None)
    return Rule(*own, noise.reference_values if isinstance(noise, DropoutNoise) else 0.0)


class PresentUnits(NamedTuple):
    """The units of a row that can vanish, and the sums of each; ``rest`` are those of the features that cannot."""

    units: Array
    sums: Array
    rest: Array


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
        #: Whether the difference of the scores of two classes is a sum over the features that are left.

    @cached_property
    def _rule(self) -> Rule:
        return _rule_of(self._model)

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
        direction, n_classes = np.zeros(len(self._rule.coef)), len(self.labels)
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
        is_dense, row = is_dense_matrix(X), np.zeros(len(self._units))
        zeros = self._sums_of_zeros()
        for stored, values in row_entries(X):
            row[stored] = values
            members = self._order if is_dense else self._members(stored[~np.isnan(values)])
            own = row[members]
            row[stored] = 0.0
            rest = np.zeros_like(zeros)
            if not is_dense:  # the zeros that are not stored stay
                rest = zeros - self._rule.terms(np.union1d(members, stored), 0.0).sum(axis=0)
            observed = members[~np.isnan(own)]
            entries = self._rule.terms(observed, own[~np.isnan(own)])
            units, first = np.unique(self._units[observed], return_index=True)
            yield PresentUnits(units, np.add.reduceat(entries, first) if len(units) else entries, rest)

    def _members(self, stored: Array) -> Array:
        """Return the features, sorted by unit, of the units that can vanish from a sparse row."""
        units = np.union1d(self._units[stored], self._always)
        if len(self._starts) > len(self._units):  # every feature is a unit
            return self._order[units]
        parts = [self._order[self._starts[unit] : self._starts[unit + 1]] for unit in units.tolist()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=int)

    def _sums_of_zeros(self) -> Array:
        """Return the sums of a row of zeros."""
        features, width = np.arange(len(self._units)), self._rule.terms(np.zeros(1, dtype=int), 0.0).shape[1]
        parts = chunks(len(features), width, _CHUNK)
        return np.sum([self._rule.terms(features[where], 0.0).sum(axis=0) for where in parts], axis=0)

    def empty(self, row: PresentUnits) -> Array:
        """Return the scores of a row from which all that can vanish has vanished."""
        return self._rule.scores(row.rest[None])[0]

    def complete(self, row: PresentUnits) -> Array:
        """Return the scores of a row from which nothing vanishes."""
        return self._rule.scores((row.rest + row.sums.sum(axis=0))[None])[0]

    def without_each(self, row: PresentUnits) -> Array:
        """Return the scores of a row without each of its units, one row per unit."""
        return self._rule.scores(row.rest + row.sums.sum(axis=0) - row.sums)

    def without_first(self, row: PresentUnits, order: Array) -> Array:
        """Return the scores of a row after each removal, if its units vanish in this order."""
        left = np.zeros_like(row.sums)
        left[:-1] = np.cumsum(row.sums[order[:0:-1]], axis=0)[::-1]
        return self._rule.scores(row.rest + left)
