"""What several test files share: small data, the losses and noises of the library, its formulas written out plainly.

The plain formulas are those of the design, with no call into the library but to read a noise's parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from dropmargin.data import Columns, LocalPartitions, Output, TrainingData, canonical
from dropmargin.data.blocks import cut, slice_rows
from dropmargin.losses import (
    EpsilonInsensitive,
    Exponential,
    GaussianHinge,
    GaussianLogistic,
    Hinge,
    Logistic,
    MCFLogistic,
    Quadratic,
)
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise
from dropmargin.objective import Objective
from dropmargin.penalties import Penalty
from dropmargin.solvers import SOLVERS, Problem, prepare, solve_outputs, with_means
from dropmargin.solvers import make_objective as inner_objective

N_FEATURES = 6

MOMENT_LOSSES = {
    "hinge": Hinge(),
    "logistic": Logistic(),
    "quadratic": Quadratic(),
    "gaussian-hinge": GaussianHinge(),
    "gaussian-logistic": GaussianLogistic(),
}
MGF_LOSSES = {"exponential": Exponential(), "mcf-logistic": MCFLogistic()}
LOSSES = MOMENT_LOSSES | MGF_LOSSES
RADIAL = ("hinge", "logistic", "quadratic")

NOISES = {
    "none": None,
    "dropout": DropoutNoise(0.4, reference="zero"),
    "dropout per feature": DropoutNoise([0.0, 0.1, 0.3, 0.5, 0.7, 0.9], reference="zero"),
    "dropout to a reference": DropoutNoise(0.3, reference=[0.5, 1.0, -0.3, 0.0, 0.2, 0.7]),
    "dropout in groups": DropoutNoise(
        [0.4, 0.2, 0.4, 0.5, 0.2, 0.4], reference=[0.5, 1.0, -0.3, 0.0, 0.2, 0.7], groups=[0, 1, 0, 2, 1, 0]
    ),
    "gaussian": GaussianNoise(0.3),
    "gaussian per feature": GaussianNoise([0.0, 0.1, 0.5, 1.0, 0.2, 0.3]),
    "laplace": LaplaceNoise(0.2),
    "laplace per feature": LaplaceNoise([0.2, 0.0, 0.1, 0.3, 0.25, 0.05]),
    "poisson": PoissonNoise(),
}
#: The noises of independent features.
INDEPENDENT = [name for name in NOISES if name != "dropout in groups"]
SOME_NOISES = INDEPENDENT[1:]


def make_data(n_samples: int = 40, n_columns: int = 1, seed: int = 0):
    """Return non-negative rows with many zeros, labels in {-1, +1} (one column per problem) and sample weights."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_samples, N_FEATURES)) * rng.uniform(0.3, 1.2, (n_samples, N_FEATURES))
    scores = (X - X.mean(axis=0)) @ rng.normal(size=(N_FEATURES, n_columns)) + 0.5 * rng.normal(
        size=(n_samples, n_columns)
    )
    return X, np.where(scores > 0.0, 1.0, -1.0), rng.uniform(0.5, 2.0, n_samples)


def make_table(n_rows=60, seed=0):
    """Return non-negative rows with many zeros, numbers far from zero with heavy tails, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_rows, N_FEATURES)) * rng.uniform(0.3, 1.2, (n_rows, N_FEATURES))
    y = 100.0 + 5.0 * X @ rng.normal(size=N_FEATURES) + rng.standard_t(3, size=n_rows)
    return X, y, rng.uniform(0.5, 2.0, n_rows)


@dataclass
class GivenObjective:
    """An objective as a function of the coefficients of the features as they were given: not centred, not sorted."""

    problem: Problem
    data: TrainingData
    outputs: list[Output]
    objective: Objective
    columns: Columns
    means: np.ndarray | None

    def at(self, coef):
        return GivenPoint(self, self.objective.at(self.inside(coef)))

    def value(self, coef):
        return self.objective.value(self.inside(coef))

    def inside(self, coef):
        """Return the coefficients of the features that the solvers see."""
        coef = np.array(self.columns.select(coef))
        if self.means is not None:
            coef[-1] += self.means[self.columns.features] @ coef[:-1]
        return coef

    def outside(self, gradient):
        """Return a gradient by those as one by the coefficients of the features as they were given."""
        gradient = gradient.copy()
        if self.means is not None:
            gradient[:-1] += np.outer(self.means[self.columns.features], gradient[-1])
        return self.columns.restore(gradient)


class GivenPoint:
    """Value, gradient and products of a `GivenObjective` at some coefficients."""

    def __init__(self, given, point):
        self.given, self.point = given, point
        self.value, self.gradient = point.value, given.outside(point.gradient)

    def product(self, direction, is_majoriser=False):
        """Return the Hessian, with the penalty's part, times a direction."""
        objective, direction = self.point.objective, self.given.inside(direction)
        image = self.point.product(direction, is_majoriser)
        image[:-1] += objective.penalty.curvature(self.point.coef) * direction[:-1]
        image[-1] *= objective.fit_intercept
        return self.given.outside(image)


def given_objective(X, y, weights, loss, noise, n_classes, *, n_parts=2, multi_class="ovr", **options):
    """Return the objective of rows with the index of their class, or with numbers (one class), in so many blocks."""
    own = {"C": 1.0, "fit_intercept": True, "penalty": Penalty(), **options}
    noise = noise and noise.resolve(X.shape[1])
    problem = Problem(loss, noise, multi_class=multi_class, solver=SOLVERS["newton"], tol=1e-6, max_iter=100, **own)
    data = TrainingData.of_matrix(canonical(X), y, weights, n_classes)
    if n_parts > 1:
        rows = data.rows.single()
        data = replace(data, rows=LocalPartitions([slice_rows(rows, *ends) for ends in cut(rows.X, n_parts)]))
    problem, data = with_means(problem, data)
    outputs = data.outputs(multi_class)
    features = prepare(problem, data)
    objective = inner_objective(problem, data, outputs, features)
    return GivenObjective(problem, data, outputs, objective, features.columns, features.means)


def make_objective(X, labels, weights, loss, noise, *, l2=1.0, **options):
    """Return the objective of labels in {-1, +1}; of several columns, one in each row is +1."""
    n_classes = max(2, labels.shape[1])
    y = labels.argmax(axis=1) if labels.shape[1] > 1 else (labels[:, 0] > 0.0).astype(int)
    return given_objective(X, y, weights, loss, noise, n_classes, penalty=Penalty(l2=l2), **options)


def solve(solver, given, coef, *, tol, max_iter):
    """Return the result of a solver by its name, started at coefficients."""
    problem = replace(given.problem, solver=SOLVERS[solver], tol=tol, max_iter=max_iter)
    return solve_outputs(problem, given.data, given.outputs, coef)


def as_format(X, layout):
    return sparse.csr_array(X) if layout == "sparse" else X


# The formulas of the design -----------------------------------------------------------------------------------------


def plain_reference(noise):
    return 0.0 if isinstance(noise.reference, str) else np.asarray(noise.reference)


def plain_score_variance(noise, X, w):
    """Return the variance of the score of each row."""
    if getattr(noise, "groups", None) is None:
        return plain_variance(noise, X) @ w**2
    return sum(q / (1.0 - q) * scores**2 for q, scores in plain_group_scores(noise, X, w))


def plain_group_scores(noise, X, w):
    """Yield the rate of each group, and the scores of its features."""
    deviations, groups = X - plain_reference(noise), np.asarray(noise.groups)
    for g in np.unique(groups):
        own = groups == g
        yield np.broadcast_to(noise.rate, len(w))[own][0], deviations[:, own] @ w[own]


def plain_variance(noise, X):
    """Return ``V_id``, the variance of each corrupted entry."""
    if noise is None:
        return np.zeros_like(X)
    if isinstance(noise, DropoutNoise):
        q = np.asarray(noise.rate, dtype=float)
        return q / (1.0 - q) * (X - plain_reference(noise)) ** 2
    if isinstance(noise, GaussianNoise):
        return np.asarray(noise.scale, dtype=float) ** 2 + np.zeros_like(X)
    if isinstance(noise, LaplaceNoise):
        return 2.0 * np.asarray(noise.scale, dtype=float) ** 2 + np.zeros_like(X)
    assert isinstance(noise, PoissonNoise)
    return X.copy()


def plain_log_mgf(noise, t, X):
    """Return ``K_d(t) = log E exp(t x~_d)`` of each entry."""
    if noise is None:
        return t * X
    if isinstance(noise, DropoutNoise):
        q, reference = np.asarray(noise.rate, dtype=float), plain_reference(noise)
        return t * reference + np.log(q + (1.0 - q) * np.exp(t * (X - reference) / (1.0 - q)))
    if isinstance(noise, GaussianNoise):
        return t * X + np.asarray(noise.scale, dtype=float) ** 2 * t**2 / 2.0
    if isinstance(noise, LaplaceNoise):
        rest = 1.0 - np.asarray(noise.scale, dtype=float) ** 2 * t**2
        return np.where(rest > 0.0, t * X - np.log(np.where(rest > 0.0, rest, 1.0)), np.inf)
    assert isinstance(noise, PoissonNoise)
    return X * (np.exp(t) - 1.0)


_T = np.linspace(-12.0, 12.0, 481)
_NORMAL = np.exp(-0.5 * _T**2) / np.sqrt(2.0 * np.pi) * (_T[1] - _T[0])


def plain_moment_loss(name, y, m, v):
    """Return ``phi(y; m, v)`` of a loss of `MOMENT_LOSSES`."""
    z, sd = 1.0 - y * m, np.sqrt(v)
    if name == "hinge":
        return (z + np.sqrt(z**2 + v)) / 2.0
    if name == "logistic":
        return np.log(2.0 * np.cosh(np.sqrt(m**2 + v) / 2.0)) - y * m / 2.0
    if name == "quadratic":
        return (y - m) ** 2 + v
    if name == "gaussian-hinge":
        ratio = z / np.where(sd > 0.0, sd, 1.0)
        noisy = z * ndtr(ratio) + sd * np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
        return np.where(sd > 0.0, noisy, np.maximum(z, 0.0))
    assert name == "gaussian-logistic"
    # the trapezoidal rule, which is exact to rounding for a function as smooth as this one
    return np.logaddexp(0.0, -(y * m)[..., None] + sd[..., None] * _T) @ _NORMAL


def plain_loss(loss, residual):
    """Return the loss without noise."""
    if isinstance(loss, Quadratic):
        return residual**2
    if isinstance(loss, EpsilonInsensitive):
        return np.maximum(np.abs(residual) - loss.epsilon, 0.0)
    size = np.abs(residual)
    return np.where(size <= loss.delta, 0.5 * size**2, loss.delta * (size - 0.5 * loss.delta))


def plain_score_log_mgf(noise, X, w):
    """Return ``log E exp(score)`` of each row."""
    if getattr(noise, "groups", None) is None:
        return plain_log_mgf(noise, np.broadcast_to(w, X.shape), X).sum(axis=1)
    K = np.broadcast_to(plain_reference(noise), w.shape) @ w
    for q, scores in plain_group_scores(noise, X, w):
        K = K + np.log(q + (1.0 - q) * np.exp(scores / (1.0 - q)))
    return K


def plain_objective(name, noise, X, y, weights, C, coef):
    """Return ``J(w, b)``; ``coef`` is ``w`` with ``b`` last, ``y`` a vector."""
    w, b = coef[:-1], coef[-1]
    if name in MOMENT_LOSSES:
        losses = plain_moment_loss(name, y, X @ w + b, plain_score_variance(noise, X, w))
    else:
        K = np.where(y > 0.0, plain_score_log_mgf(noise, X, -w), plain_score_log_mgf(noise, X, w)) - y * b
        losses = np.exp(K) if name == "exponential" else np.logaddexp(0.0, K)
    return 0.5 * w @ w + C * weights @ losses


def central_difference(function, at, direction, step=1e-6):
    """Return the derivative of a function along a direction."""
    return (function(at + step * direction) - function(at - step * direction)) / (2.0 * step)
