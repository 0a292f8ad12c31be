"""The plain models of a fold at all grid points of a search: their objectives and their scores on the held-out rows."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer

from dropmargin import DropoutNoise, PoissonNoise

from . import optima
from .searches import Case

Point = tuple[int, int]


class Fold:
    """The plain models of a fold.

    Parameters
    ----------
    case : Case
    train, test : ndarray of int
    noises, Cs
        Those of the fitted search.
    tol : float
        The tolerance of the models.
    """

    def __init__(
        self, case: Case, train: np.ndarray, test: np.ndarray, noises: Any, Cs: np.ndarray, tol: float
    ) -> None:
        self.case, self.train, self.test, self.noises, self.Cs = case, train, test, noises, Cs
        self.models = {(i, j): self.fit((i, j), tol) for i in range(len(noises)) for j in range(len(Cs))}

    def fit(self, point: Point, tol: float) -> Any:
        """Return the plain model of a point, fitted to the training rows."""
        case, train = self.case, self.train
        model = case.plain(self.noises[point[0]], float(self.Cs[point[1]]), tol)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what counts is the gap to the better solution
            return model.fit(case.rows(train), case.y[train], sample_weight=case.weight(train))

    def with_coefficients(self, point: Point, coef: np.ndarray) -> Any:
        """Return the plain model of a point with other coefficients; the intercept is the last column."""
        model = copy.copy(self.models[point])
        model.coef_, model.intercept_ = coef[:, :-1].copy(), coef[:, -1].copy()
        if self.case.is_regression:
            model.coef_, model.intercept_ = model.coef_[0], model.intercept_[0]
        return model

    def score(self, model: Any) -> float:
        """Return the score of a model on the test rows."""
        case, test = self.case, self.test
        weights = {} if case.sample_weight is None else {"sample_weight": case.sample_weight[test]}
        scorer = get_scorer(case.scoring or ("r2" if case.is_regression else "accuracy"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes that are not predicted
            return float(scorer(model, case.rows(test), case.y[test], **weights))

    def gap(self, point: Point, coef: np.ndarray) -> tuple[float, float]:
        """Return the largest relative gap of an output at some coefficients, and the error of the formulas.

        The gap is that to the plain model, by the formulas of `reference`. Their error is the relative difference of
        the sum over the outputs to ``objective_`` of the plain model.
        """
        model = self.models[point]
        problems = self._problems(point)
        own, there = (
            np.array([p.value(c) for p, c in zip(problems, at.reshape(len(problems), -1), strict=True)])
            for at in (coefficients(model), coef)
        )
        best = np.maximum(np.minimum(own, there), np.finfo(float).tiny)
        return float(((there - best) / best).max()), abs(own.sum() / model.objective_ - 1.0)

    def _problems(self, point: Point) -> list[Any]:
        """Return the problems of a point, one per output or one for a softmax."""
        case, model, C = self.case, self.models[point], float(self.Cs[point[1]])
        used = self.train if case.sample_weight is None else self.train[case.sample_weight[self.train] > 0.0]
        X, y = case.X[used], case.y[used]
        if case.missing == "conditional":
            X = conditional_means(X, model)
        weight = np.ones(len(used)) if case.sample_weight is None else case.sample_weight[used]
        if case.parameters.get("class_weight") == "balanced":
            totals = np.bincount(y, weight)
            weight = weight * (totals.sum() / (len(totals) * totals))[y]
        noise, groups = as_tuple(self.noises[point[0]])
        loss = {"ridge": "quadratic", "svr": "epsilon-insensitive"}.get(case.loss, case.loss)
        multi_class = "regression" if case.is_regression else case.multi_class
        given = case.parameters["fit_intercept"], multi_class, case.layout, None, "", groups, case.epsilon
        problem = optima.Case(X, y, weight, loss, noise, C, case.l1_ratio, case.tol, *given)
        return problem.problems(None if case.is_regression else model.classes_)


def coefficients(model: Any) -> np.ndarray:
    """Return the coefficients of a model, one row per output, with the intercept last."""
    return np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])


def as_tuple(noise: Any) -> tuple[tuple[Any, ...], np.ndarray | None]:
    """Return a noise of the package as the tuple of `noises.NoisyRows`, and its groups."""
    if noise is None:
        return ("none",), None
    if isinstance(noise, PoissonNoise):
        return ("poisson",), None
    if isinstance(noise, DropoutNoise):
        return ("dropout", noise.rate, noise.reference), noise.groups
    return (type(noise).__name__.removesuffix("Noise").lower(), noise.scale), None


def conditional_means(X: np.ndarray, model: Any) -> np.ndarray:
    """Return the rows with the conditional mean, by the Gaussian of a fitted model, in place of NaN."""
    covariance = model.feature_factors_ @ model.feature_factors_.T + np.diag(model.residual_variances_)
    filled = np.where(np.isnan(X), model.feature_means_, X)
    for row, missing in zip(filled, np.isnan(X), strict=True):
        if missing.any() and not missing.all():
            deviation = (row - model.feature_means_)[~missing]
            observed = covariance[np.ix_(~missing, ~missing)]
            row[missing] += covariance[np.ix_(missing, ~missing)] @ np.linalg.pinv(observed) @ deviation
    return filled
