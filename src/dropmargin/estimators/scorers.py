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
from dropmargin.estimators.deleted import ScoredRows
from dropmargin.estimators.fitting import coefficients
from dropmargin.estimators.regression import MarginalisedRegressor, expected_errors
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.typing import Array


class CheckedScorer(ABC):
    """A scorer of rows that have been checked; NaN is a missing entry."""

    #: The name of the same score in scikit-learn, if it has one.
    name: str
    #: Whether complete rows are scored as incomplete ones, so that the statistics of the features are needed.
    deletes = False

    def prepare(self, model: Any, X: Any, index: Array) -> Any:
        """Return some rows as the scorer needs them for all coefficients; ``index`` are their places in the data."""
        return X

    @abstractmethod
    def __call__(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> float:
        """Return the score of a model; ``X`` is what `prepare` returns."""


class MeanScorer(CheckedScorer):
    """A scorer whose score is a weighted mean over the rows."""

    @abstractmethod
    def of_rows(self, model: Any, X: Any, y: Array) -> Array:
        """Return the score of each row."""

    def smallest_change(self, n_rows: int) -> float:
        """Return the smallest difference between two scores of so many rows; 0 if it may be any."""
        return 0.0

    def __call__(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> float:
        return float(np.average(self.of_rows(model, X, y), weights=sample_weight))


class PredictionScorer(MeanScorer):
    """A scorer that needs no more than the scores of a model."""

    @abstractmethod
    def of_scores(self, model: Any, scores: Array, y: Array) -> Array:
        """Return the score of each row."""

    def of_rows(self, model: MarginalisedModel, X: Any, y: Array) -> Array:
        return self.of_scores(model, model._scores(X), y)


class Accuracy(PredictionScorer):
    """Whether the label is predicted."""

    name = "accuracy"

    def smallest_change(self, n_rows: int) -> float:
        return 1.0 / n_rows

    def of_scores(self, model: MarginalisedClassifier, scores: Array, y: Array) -> Array:
        return model._labels_of(scores) == y


class Error(PredictionScorer):
    """Minus the error of the prediction."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def of_scores(self, model: MarginalisedRegressor, scores: Array, y: Array) -> Array:
        return -expected_errors(y - scores[:, 0], np.zeros(len(y)), self.metric)


class OfDeletedCopies(MeanScorer):
    """The mean score of copies of a row with deleted features, which are missing features to the model."""

    deletes = True

    def __init__(self, scorer: PredictionScorer, copies: DeletedCopies) -> None:
        self.scorer, self.copies = scorer, copies

    def prepare(self, model: MarginalisedModel, X: Any, index: Array) -> ScoredRows:
        return model._deleted_rows(self.copies.of_rows(X, index))

    def smallest_change(self, n_rows: int) -> float:
        return self.scorer.smallest_change(n_rows * self.copies.n_copies)

    def of_rows(self, model: MarginalisedModel, X: ScoredRows, y: Array) -> Array:
        n_copies = self.copies.n_copies
        scores = self.scorer.of_scores(model, X.scores(*coefficients(model)), np.tile(y, n_copies))
        return scores.reshape(n_copies, len(y)).mean(axis=0)


class ExpectedAccuracy(MeanScorer):
    """The probability that the label is predicted if the features are corrupted by noise, in closed form."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def of_rows(self, model: MarginalisedClassifier, X: Any, y: Array) -> Array:
        return model._label_probabilities(X, y, model._resolved_noise(self.noise))


class ExpectedError(MeanScorer):
    """Minus the expected error if the features are corrupted by noise, in closed form."""

    def __init__(self, noise: Noise, metric: str) -> None:
        self.noise, self.metric = noise, metric

    def of_rows(self, model: MarginalisedRegressor, X: Any, y: Array) -> Array:
        return -model._errors(X, y, model._resolved_noise(self.noise), self.metric)


class OfGivenRows:
    """A scorer of rows as they are passed to `predict`; they must be the same in each call."""

    def __init__(self, scorer: MeanScorer) -> None:
        self.scorer, self.prepared = scorer, None

    def __call__(self, model: MarginalisedModel, X: Any, y: Any) -> float:
        if self.prepared is None:
            rows = canonical(model._check_rows(X))
            self.prepared = self.scorer.prepare(model, rows, np.arange(rows.shape[0]))
        return self.scorer(model, self.prepared, column_or_1d(y))


def target_scorer(
    noise: Noise, missing: str, shape: tuple[int, int], names: Any, scorer: PredictionScorer, expected: MeanScorer
) -> MeanScorer:
    """Return the scorer of rows under a noise: of deleted copies if dropped features are missing, else ``expected``.

    Parameters
    ----------
    noise : Noise
    missing : str
        The parameter of the model.
    shape : tuple of int
        Numbers of rows and features of the whole table.
    names : sequence of str or None
        The feature names.
    scorer : PredictionScorer
        The score of a copy.
    expected : MeanScorer
        The expected score of a row whose features are corrupted, and not missing.
    """
    if missing == "error" or not isinstance(noise, DropoutNoise):
        return expected
    known = noise.resolve(shape[1], names)
    return OfDeletedCopies(scorer, DeletedCopies(known.rate, known.groups, *shape))


class R2(CheckedScorer):
    name = "r2"

    def __call__(self, model: MarginalisedRegressor, X: Any, y: Array, sample_weight: Any = None) -> float:
        if len(y) < 2:
            return float("nan")
        error = np.average(np.square(y - model._scores(X)[:, 0]), weights=sample_weight)
        spread = np.average(np.square(y - np.average(y, weights=sample_weight)), weights=sample_weight)
        # Equal targets have no R^2: 1 or 0, as in scikit-learn.
        return float(1.0 - error / spread) if spread > 0.0 else float(error == 0.0)


def scores_of_rows(model: MarginalisedModel, X: Any) -> Array:
    """Return predictions or what `decision_function` returns for checked rows, as columns."""
    scores = model._scores(X)
    return model._combine(scores).reshape(len(scores), -1) if isinstance(model, MarginalisedClassifier) else scores
