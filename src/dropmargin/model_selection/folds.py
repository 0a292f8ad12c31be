"""The folds of a search: training rows, test rows and their scores, wherever the rows are."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from dropmargin.data import Rows
from dropmargin.data.missing_values import negative_zero_to_nan
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import set_coefficients
from dropmargin.estimators.rows import TrainingRows
from dropmargin.estimators.scorers import RowScorer, scores_of_rows
from dropmargin.typing import Array


class Targets(NamedTuple):
    """The index of the label of each row, its weight, and where the rows of the partitions begin and end."""

    codes: Array
    sample_weight: Array
    edges: Array

    @classmethod
    def of(cls, rows: TrainingRows) -> Targets:
        """Gather the targets of all rows."""
        found = rows.partitions.map(_targets_of)
        codes, weights = zip(*found, strict=True)
        return cls(np.concatenate(codes), np.concatenate(weights), np.cumsum([0, *map(len, codes)]))


@dataclass(eq=False)
class Fold:
    """Training rows and test rows of a search, wherever they are.

    Parameters
    ----------
    rows : TrainingRows
        The training rows.
    given : tuple, default=None
        The test rows and their targets as the caller passed them, if they are in memory.
    params : dict, default={}
        Further arguments of the scorer. A `RowScorer` has weights if these have sample weights.
    scored : Partitions of ScoredRows, default=None
        The test rows after all checks, which a `RowScorer` needs; so does any scorer if the rows are not in memory.
    y, sample_weight : ndarray, default=None
        Targets and weights of the test rows.
    """

    rows: TrainingRows
    given: tuple[Any, Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)
    scored: Any = None
    y: Any = None
    sample_weight: Any = None

    @classmethod
    def load(
        cls, rows: TrainingRows, targets: Targets, given: Any, train: Array, test: Array, params: dict[str, Any]
    ) -> Fold:
        """Return the fold of some training and test rows of all rows.

        Of rows in memory, which are ``given``, the training rows are copied. Elsewhere, the test rows have the weight
        zero in the training rows, so that no rows are copied or moved.
        """
        test = np.sort(test)
        scored = rows.partitions.transformed(_take_test, test, targets.edges, rows.labels, rows.has_missing)
        weights = targets.sample_weight[test] if "sample_weight" in params else None
        rest = scored, rows.labels[targets.codes[test]], weights
        if given is None:
            weights = targets.sample_weight * np.bincount(train, minlength=len(targets.codes))
            training = rows.partitions.transformed(_with_weights, weights, targets.edges)
            totals = np.bincount(targets.codes, weights=weights, minlength=len(rows.labels))
            return cls(replace(rows, partitions=training, totals=totals), None, params, *rest)

        def own(value: Any) -> Any:
            is_per_row = hasattr(value, "__len__") and not isinstance(value, str) and len(value) == rows.n_rows
            return _safe_indexing(value, test) if is_per_row else value

        taken = _safe_indexing(given[0], test), _safe_indexing(given[1], test)
        return cls(rows.take(train), taken, {name: own(value) for name, value in params.items()}, *rest)

    def delete(self, scorer: RowScorer, model: MarginalisedModel) -> None:
        """Delete features of the test rows, as the scorer asks for."""
        self.scored = self.scored.transformed(_prepare_rows, scorer, model)

    def score(self, scorer: Any, model: MarginalisedModel) -> Any:
        """Return the score of a fitted model on the test rows; the scorer is as in `search.Search`."""
        if isinstance(scorer, RowScorer):
            found, total = self.scored.map_sum(_sum_scores, model, scorer, self.sample_weight is not None)
            return scorer.total(found / total, self.y, self.sample_weight)
        if self.given is not None:
            return scorer(model, *self.given, **self.params)
        scores = np.concatenate(self.scored.map(_scores_of, model))
        weights = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        return scorer(_of_scores(model, scores), scores, self.y, **weights)


def _of_scores(model: MarginalisedModel, scores: Array) -> MarginalisedModel:
    """Return a model whose features are the scores of a model: to compute any metric from these."""
    n_columns = scores.shape[1]
    own = copy(model).set_params(missing="error")
    if getattr(model, "multi_class", None) == "ovo":
        own.set_params(multi_class="ovr")
    set_coefficients(own, np.eye(n_columns + 1, n_columns), np.float64)
    own.n_features_in_ = n_columns
    own.__dict__.pop("feature_names_in_", None)
    return own


# Functions of one partition ---------------------------------------------------------------------------------------


class ScoredRows(Rows):
    """The test rows of a partition, and their places in the data."""

    index: Array


def _targets_of(rows: Rows) -> tuple[Array, Array]:
    return rows.y, rows.sample_weight


def _with_weights(rows: Rows, weights: Array, edges: Array) -> Rows:
    begin, end = edges[rows.number : rows.number + 2]
    return Rows(rows.X, rows.y, weights[begin:end], rows.number)


def _take_test(rows: Rows, test: Array, edges: Array, labels: Array, has_missing: bool) -> ScoredRows:
    first, last = np.searchsorted(test, edges[rows.number : rows.number + 2])
    index = test[first:last] - edges[rows.number]
    X = negative_zero_to_nan(rows.X[index]) if has_missing else rows.X[index]
    own = ScoredRows(X, labels[rows.y[index]], rows.sample_weight[index], rows.number)
    own.index = test[first:last]
    return own


def _prepare_rows(rows: ScoredRows, scorer: RowScorer, model: MarginalisedModel) -> ScoredRows:
    rows = copy(rows)
    rows.X = scorer.prepare(model, rows.X, rows.index) if len(rows) else None
    return rows


def _sum_scores(rows: ScoredRows, model: Any, scorer: RowScorer, is_weighted: bool) -> tuple[float, float]:
    """Return the sum of the scores of the test rows, times their weights, and the sum of the weights."""
    if not len(rows):
        return 0.0, 0.0
    weights = rows.sample_weight if is_weighted else np.ones(len(rows))
    return float(weights @ scorer.of_rows(model, rows.X, rows.y)), float(weights.sum())


def _scores_of(rows: ScoredRows, model: MarginalisedModel) -> Array:
    """Return the scores of the test rows, one column per class, or one column for two classes or a regression."""
    if not len(rows):
        n_classes = len(getattr(model, "classes_", ()))
        return np.empty((0, n_classes if n_classes > 2 else 1))
    return scores_of_rows(model, rows.X)
