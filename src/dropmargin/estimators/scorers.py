"""Scores of checked rows, for searches: without the checks of `predict`, which take longer than a small fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.estimators.regression import MarginalisedRegressor
from dropmargin.noise import Noise
from dropmargin.typing import Array


class CheckedScorer(ABC):
    """A scorer of rows that have been checked; NaN is a missing entry."""

    #: The name of the same score in scikit-learn, if it has one.
    name: str

    @abstractmethod
    def __call__(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> float:
        """Return the score of a model."""


class MeanScorer(CheckedScorer):
    """A scorer whose score is a weighted mean over the rows."""

    @abstractmethod
    def of_rows(self, model: Any, X: Any, y: Array) -> Array:
        """Return the score of each row."""

    def __call__(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> float:
        return float(np.average(self.of_rows(model, X, y), weights=sample_weight))


class Accuracy(MeanScorer):
    """Whether the label is predicted."""

    name = "accuracy"

    def of_rows(self, model: MarginalisedClassifier, X: Any, y: Array) -> Array:
        return model._predicted_labels(X) == y


class ExpectedAccuracy(MeanScorer):
    """The probability that the label is predicted if the features are corrupted by noise."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def of_rows(self, model: MarginalisedClassifier, X: Any, y: Array) -> Array:
        return model._label_probabilities(X, y, model._resolved_noise(self.noise))


class ExpectedError(MeanScorer):
    """Minus the expected error if the features are corrupted by noise."""

    def __init__(self, noise: Noise, metric: str) -> None:
        self.noise, self.metric = noise, metric

    def of_rows(self, model: MarginalisedRegressor, X: Any, y: Array) -> Array:
        return -model._errors(X, y, model._resolved_noise(self.noise), self.metric)


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
