"""What several test files share: small data, the losses and noises of the library, its formulas written out plainly.

The plain formulas are those of the design, with no call into the library but to read a noise's parameter.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr

from dropmargin.data import LocalPartitions, Rows, canonical, row_blocks
from dropmargin.losses import (
    Exponential,
    GaussianHinge,
    GaussianLogistic,
    Hinge,
    Logistic,
    MCFLogistic,
    MGFLoss,
    Quadratic,
)
from dropmargin.noise import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise, Variance
from dropmargin.objective import ClassObjective, MomentObjective
from dropmargin.objective.scores import NoiseOfScores
from dropmargin.penalties import Penalty
from dropmargin.solvers import SOLVERS, Options
from dropmargin.solvers.solve import choose_method

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
PROBLEM_C = 0.7
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


def make_objective(X, labels, weights, loss, noise, *, C=1.0, fit_intercept=True, l2=1.0, column=0):
    """Return the objective of a loss and a noise, on two partitions; of one column if it is through the MGF."""
    X = canonical(X)
    through_mgf = isinstance(loss, MGFLoss)
    noise = noise and noise.resolve(X.shape[1])
    variance = Variance() if noise is None else noise.variance()
    variance = variance.of_stored_entries() if sparse.issparse(X) else variance
    groups = {} if variance.groups is None else {"groups": variance.feature_groups(X.shape[1])}
    entry = variance.entry if variance.moves_entries and not through_mgf else None
    labels = labels[:, [column]] if through_mgf else labels
    parts = []
    for rows in (slice(0, len(labels) // 3), slice(len(labels) // 3, None)):
        (block,) = row_blocks(canonical(X[rows]), entry)
        parts.append(Rows(block, labels[rows], C * weights[rows]))
    data = LocalPartitions(parts)
    if through_mgf:
        of_scores = NoiseOfScores(variance, None if variance.is_zero else noise, groups.get("groups"))
        return ClassObjective(data, of_scores, loss, Penalty(l2=l2), fit_intercept, X.shape[1])
    columns = np.arange(labels.shape[1])
    return MomentObjective(data, loss, variance, Penalty(l2=l2), fit_intercept, X.shape[1], columns, **groups)


def solve(solver, objective, coef, *, tol, max_iter):
    """Return the result of a solver by its name, started at coefficients."""
    method = choose_method(SOLVERS[solver], objective)
    return method(objective, objective.at(coef), Options(tol, max_iter))


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


def make_problem(loss, noise, layout="dense", n_columns=3, fit_intercept=True, seed=0):
    """Return an objective, its data, and coefficients to ask it at; a loss through the MGF has one column."""
    X, labels, weights = make_data(n_columns=n_columns, seed=seed)
    column = n_columns // 2
    options = {"C": PROBLEM_C, "fit_intercept": fit_intercept, "column": column}
    objective = make_objective(as_format(X, layout), labels, weights, LOSSES[loss], NOISES[noise], **options)
    if loss in MGF_LOSSES:  # exponentials grow fast: smaller weights
        return objective, X, labels[:, [column]], weights, make_coefficients(1, fit_intercept, seed, scale=0.2)
    return objective, X, labels, weights, make_coefficients(n_columns, fit_intercept, seed)


def make_coefficients(n_columns, fit_intercept=True, seed=0, scale=0.6):
    coef = scale * np.random.default_rng([seed, 1]).normal(size=(N_FEATURES + 1, n_columns))
    coef[-1] *= fit_intercept
    return coef


def as_matrix(curvature, column, n_columns):
    """Return the matrix of a curvature, by its products with the unit vectors."""
    out = np.empty((N_FEATURES + 1, N_FEATURES + 1))
    for d in range(N_FEATURES + 1):
        unit = np.zeros((N_FEATURES + 1, n_columns))
        unit[d] = 1.0
        out[:, d] = curvature.product(unit)[:, column]
    return out


each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])
