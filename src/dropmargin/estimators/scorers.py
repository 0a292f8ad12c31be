"""Scores of checked rows, for searches: without the checks of `predict`, which take longer than a small fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from dropmargin.data import canonical
from dropmargin.data.deletion import DeletedCopies
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.deleted import scores_of_deleted
from dropmargin.estimators.fitting import coefficients
from dropmargin.estimators.regression import MarginalisedRegressor, expected_errors
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.typing import Array


class RowScorer(ABC):
    """A score that is the weighted mean over rows that have been checked; NaN is a missing entry."""

    #: The name of the same score in scikit-learn, if it has one.
    name: str
    #: Whether complete rows are scored as incomplete ones, so that the statistics of the features are needed.
    deletes = False

    def prepare(self, model: Any, X: Any, index: Array) -> Any:
        """Return some rows as the scorer needs them for all coefficients; ``index`` are their places in the data."""
        return X

    @abstractmethod
    def of_rows(self, model: Any, X: Any, y: Array) -> Array:
        """Return the score of each row; ``X`` is what `prepare` returns."""

    def total(self, mean: float, y: Array, sample_weight: Any) -> float:
        """Return the score from the mean over the rows, and from the targets of all of them."""
        return mean

    def smallest_change(self, n_rows: int) -> float:
        """Return the smallest difference between two scores of so many rows; 0 if it may be any."""
        return 0.0


class PredictionScorer(RowScorer):
    """A scorer that needs no more than the scores of a model."""

    @abstractmethod
    def of_scores(self, model: Any, scores: Array, y: Array) -> Array:
        """Return the score of each row."""

    def of_rows(self, model: MarginalisedModel, X: Any, y: Array) -> Array:
        return self.of_scores(model, model._scores(X), y)

    def expected(self, model: Any, X: Any, y: Array, noise: Noise) -> Array:
        """Return the expected score of each row under a resolved noise, if it has a closed form."""
        raise NotImplementedError


class Accuracy(PredictionScorer):
    """Whether the label is predicted."""

    name = "accuracy"

    def smallest_change(self, n_rows: int) -> float:
        return 1.0 / n_rows

    def of_scores(self, model: MarginalisedClassifier, scores: Array, y: Array) -> Array:
        return model._labels_of(scores) == y

    def expected(self, model: MarginalisedClassifier, X: Any, y: Array, noise: Noise) -> Array:
        return model._label_probabilities(X, y, noise)


class Error(PredictionScorer):
    """Minus the error of the prediction."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def of_scores(self, model: MarginalisedRegressor, scores: Array, y: Array) -> Array:
        return -expected_errors(y - scores[:, 0], np.zeros(len(y)), self.metric)

    def expected(self, model: MarginalisedRegressor, X: Any, y: Array, noise: Noise) -> Array:
        return -model._errors(X, y, noise, self.metric)


class OfDeletedCopies(RowScorer):
    """The mean score of copies of a row with deleted features, which are missing features to the model."""

    deletes = True

    def __init__(self, scorer: PredictionScorer, copies: DeletedCopies) -> None:
        self.scorer, self.copies = scorer, copies

    def prepare(self, model: MarginalisedModel, X: Any, index: Array) -> Any:
        return scores_of_deleted(self.copies.of_rows(X, index), model._rule())

    def smallest_change(self, n_rows: int) -> float:
        return self.scorer.smallest_change(n_rows * self.copies.n_copies)

    def of_rows(self, model: MarginalisedModel, X: Any, y: Array) -> Array:
        n_copies = self.copies.n_copies
        scores = self.scorer.of_scores(model, X(*coefficients(model)), np.tile(y, n_copies))
        return scores.reshape(n_copies, len(y)).mean(axis=0)


class Expected(RowScorer):
    """The expected score of a row if the features are corrupted by noise, in closed form."""

    def __init__(self, scorer: PredictionScorer, noise: Noise) -> None:
        self.scorer, self.noise = scorer, noise

    def of_rows(self, model: MarginalisedModel, X: Any, y: Array) -> Array:
        return self.scorer.expected(model, X, y, model._resolved_noise(self.noise))


class OfGivenRows:
    """A scorer of rows as they are passed to `predict`; they must be the same in each call."""

    def __init__(self, scorer: RowScorer) -> None:
        self.scorer, self.prepared = scorer, None

    def __call__(self, model: MarginalisedModel, X: Any, y: Any) -> float:
        if self.prepared is None:
            rows = canonical(model._check_rows(X))
            self.prepared = self.scorer.prepare(model, rows, np.arange(rows.shape[0]))
        return float(np.mean(self.scorer.of_rows(model, self.prepared, column_or_1d(y))))


def target_scorer(
    noise: Noise, missing: str, shape: tuple[int, int], names: Any, scorer: PredictionScorer
) -> RowScorer:
    """Return the scorer of rows under a noise: of deleted copies if dropped features are missing, else the expectation.

    ``missing`` is the parameter of the model; ``shape`` that of the whole table, with the feature ``names``; ``scorer``
    the score of a row.
    """
    if missing == "error" or not isinstance(noise, DropoutNoise):
        return Expected(scorer, noise)
    known = noise.resolve(shape[1], names)
    return OfDeletedCopies(scorer, DeletedCopies(known.rate, known.groups, *shape))


class R2(PredictionScorer):
    """The coefficient of determination, from the mean of the squared errors."""

    name = "r2"

    def of_scores(self, model: MarginalisedRegressor, scores: Array, y: Array) -> Array:
        return np.square(y - scores[:, 0])

    def total(self, mean: float, y: Array, sample_weight: Any) -> float:
        if len(y) < 2:
            return float("nan")
        spread = np.average(np.square(y - np.average(y, weights=sample_weight)), weights=sample_weight)
        # Equal targets have no R^2: 1 or 0, as in scikit-learn.
        return float(1.0 - mean / spread) if spread > 0.0 else float(mean == 0.0)


def scores_of_rows(model: MarginalisedModel, X: Any) -> Array:
    """Return predictions or what `decision_function` returns for checked rows, as columns."""
    scores = model._scores(X)
    return model._combine(scores).reshape(len(scores), -1) if isinstance(model, MarginalisedClassifier) else scores
