r"""The plain models of a fold at all grid points of a search: their objectives and their scores on the held-out rows.

Scores are those of scikit-learn on what `predict` and other public methods return, or, under a target noise:

- dropout, and a model with a rule for missing features: the mean score of copies of the rows whose dropped features are
  NaN. The copies are drawn here, the same for all points of a fold.
- else the closed form for normal scores, with their means ``m_k`` and covariances ``S_kl`` under the noise. The
  label ``k`` is predicted if all differences ``m_k - m_j`` to other labels are positive; these are taken as independent
  given the score of ``k``. Of ``n`` labels whose scores are equal whatever the noise, each has a share ``1 / n``.
"""

from __future__ import annotations

import copy
import warnings
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer

from dropmargin import DropoutNoise, LaplaceNoise, PoissonNoise
from dropmargin.noise import as_noise

from . import optima
from .searches import Case

Point = tuple[int, int]
#: Copies of each held-out row, if its features are deleted.
N_COPIES = 100
_NODES = ndtri((np.arange(1000) + 0.5) / 1000)


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

    def score(self, model: Any) -> np.ndarray:
        """Return the score of a model on the test rows: one number, or one for each copy with deleted features."""
        case, test = self.case, self.test
        if case.target_noise is not None:
            return (
                self._deleted_scores(model, self._copies) if case.deletes else np.array([self._expected_score(model)])
            )
        weights = {} if case.sample_weight is None else {"sample_weight": case.sample_weight[test]}
        scorer = get_scorer(case.scoring or ("r2" if case.is_regression else "accuracy"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes that are not predicted
            return np.array([scorer(model, case.rows(test), case.y[test], **weights)])

    def documented_score(self, model: Any) -> float:
        """Return the score of a model on the copies that the documentation of ``target_noise`` names."""
        n, groups, rate = len(self.case.y), self._groups, as_noise(self.case.target_noise).rate
        n_copies = -(-8192 // n)
        m = min(n * n_copies, max(64, 2**22 // len(groups)))
        dropped = np.random.default_rng(0).random((m, groups.max() + 1))[:, groups] < rate
        places = (np.arange(n_copies)[:, None] * n + self.test) % m
        X = np.where(dropped[places], np.nan, self.case.X[self.test]).reshape(-1, len(groups))
        return float(self._deleted_scores(model, self.case.in_layout(X)).mean())

    def _deleted_scores(self, model: Any, copies: Any) -> np.ndarray:
        """Return the score of each copy of the test rows."""
        y, weight = self.case.y[self.test], self.case.weight(self.test)
        predicted = model.predict(copies).reshape(-1, len(y))
        if not self.case.is_regression:
            own = (predicted == y).astype(float)
        else:
            own = -(np.square if self.case.target_metric == "squared" else np.abs)(predicted - y)
        return np.average(own, axis=1, weights=weight)

    @cached_property
    def _groups(self) -> np.ndarray:
        """The group of each feature of the target noise."""
        groups = as_noise(self.case.target_noise).groups
        return np.arange(self.case.X.shape[1]) if groups is None else np.asarray(groups)

    @cached_property
    def _copies(self) -> Any:
        """The copies of the test rows, one after the other, with NaN for features that are deleted."""
        rng = np.random.default_rng([len(self.test), *self.test[:5]])
        X = np.tile(self.case.X[self.test], (N_COPIES, 1))
        uniform = rng.uniform(size=(len(X), self._groups.max() + 1))[:, self._groups]
        X[uniform < as_noise(self.case.target_noise).rate] = np.nan
        return self.case.in_layout(X)

    def _expected_score(self, model: Any) -> float:
        """Return the expected score under a target noise, in closed form."""
        case, coef = self.case, coefficients(model)
        noise, scores = as_noise(case.target_noise), []
        for x, label in zip(case.X[self.test], case.y[self.test], strict=True):
            own, mean = _incomplete_row(model, coef, x)
            root = own @ _noise_root(noise, x, model.feature_means_)
            covariance = root @ root.T
            if case.is_regression:
                scores.append(-_expected_error(label - mean[0], covariance[0, 0], case.target_metric))
            else:
                if len(mean) == 1:  # two classes
                    mean, covariance = np.append(-mean, mean), np.kron(covariance, [[1.0, -1.0], [-1.0, 1.0]])
                    mean, covariance = 0.5 * mean, 0.25 * covariance
                scores.append(_label_probability(mean, covariance, int(np.searchsorted(model.classes_, label))))
        return float(np.average(scores, weights=case.weight(self.test)))

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


# Scores under noise ---------------------------------------------------------------------------------------------------


def _noise_root(noise: Any, x: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return a matrix ``A`` such that the covariance of a row under a noise is ``A A'``; missing features have none."""
    observed = ~np.isnan(x)
    if isinstance(noise, DropoutNoise):
        reference = (
            {"zero": 0.0, "mean": means}[noise.reference] if isinstance(noise.reference, str) else noise.reference
        )
        groups = np.arange(len(x)) if noise.groups is None else np.asarray(noise.groups)
        deviation = np.where(observed, np.sqrt(noise.rate / (1.0 - np.asarray(noise.rate))) * (x - reference), 0.0)
        return deviation[:, None] * np.eye(groups.max() + 1)[groups]
    if isinstance(noise, PoissonNoise):
        return np.diag(np.sqrt(np.where(observed, x, 0.0)))
    factor = np.sqrt(2.0) if isinstance(noise, LaplaceNoise) else 1.0
    return np.diag(factor * noise.scale * observed)


def _incomplete_row(model: Any, coef: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of the observed features of a row in its scores, and the scores, of all outputs."""
    W, missing = coef[:, :-1], np.isnan(x)
    if not missing.any():
        return W, W @ x + coef[:, -1]
    observed, mu = ~missing, model.feature_means_
    own = np.where(observed, W, 0.0)
    if model.missing == "conditional":
        S = model.feature_factors_ @ model.feature_factors_.T + np.diag(model.residual_variances_)
        rule = S[np.ix_(missing, observed)] @ np.linalg.pinv(S[np.ix_(observed, observed)])
        own[:, observed] += W[:, missing] @ rule
    else:
        contribution = np.abs(W) * model.feature_deviations_
        total, share = contribution.sum(axis=1), np.full(len(W), observed.mean())
        np.divide(contribution[:, observed].sum(axis=1), total, out=share, where=total > 0.0)
        share = np.maximum(share, 0.5 * observed.mean())[:, None]
        own = np.divide(own, share, out=np.zeros_like(W), where=share > 0.0)
    return own, coef[:, -1] + W @ mu + own @ np.where(observed, x - mu, 0.0)


def _label_probability(mean: np.ndarray, covariance: np.ndarray, label: int) -> float:
    """Return the probability that a label has the highest of normal scores."""
    others = np.flatnonzero(np.arange(len(mean)) != label)
    gap = mean[label] - mean[others]
    variance = covariance[label, label] + np.diagonal(covariance)[others] - 2.0 * covariance[label, others]
    variance[variance < 1e-12 * np.trace(covariance)] = 0.0
    is_tie = (variance == 0.0) & (np.abs(gap) <= 1e-12 * np.abs(mean).max())
    deviation = np.sqrt(max(covariance[label, label], 0.0))
    slope = (covariance[label, label] - covariance[label, others]) / (deviation if deviation > 0.0 else 1.0)
    if len(others) == 1:
        slope = np.zeros(1)
    rest = np.maximum(variance - slope**2, 0.0)
    rest[rest < 1e-12 * variance] = 0.0
    total = np.ones(len(_NODES))
    for k in np.flatnonzero(~is_tie):
        shifted = gap[k] + slope[k] * _NODES
        total *= ndtr(shifted / np.sqrt(rest[k])) if rest[k] > 0.0 else shifted > 0.0
    return float(total.mean()) / (1 + is_tie.sum())


def _expected_error(residual: float, variance: float, metric: str) -> float:
    if metric == "squared":
        return residual**2 + variance
    sd = np.sqrt(max(variance, 1e-300))
    density = np.exp(-0.5 * (residual / sd) ** 2) / np.sqrt(2.0 * np.pi)
    return float(residual * (2.0 * ndtr(residual / sd) - 1.0) + 2.0 * sd * density)
