"""What the tests of regression share: a small table, and the losses without noise written out plainly."""

from __future__ import annotations

import numpy as np

from dropmargin.losses import EpsilonInsensitive, Quadratic
from helpers import N_FEATURES


def plain_loss(loss, residual):
    """Return the loss without noise."""
    if isinstance(loss, Quadratic):
        return residual**2
    if isinstance(loss, EpsilonInsensitive):
        return np.maximum(np.abs(residual) - loss.epsilon, 0.0)
    size = np.abs(residual)
    return np.where(size <= loss.delta, 0.5 * size**2, loss.delta * (size - 0.5 * loss.delta))


def make_table(n_rows=60, seed=0):
    """Return non-negative rows with many zeros, numbers far from zero with heavy tails, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_rows, N_FEATURES)) * rng.uniform(0.3, 1.2, (n_rows, N_FEATURES))
    y = 100.0 + 5.0 * X @ rng.normal(size=N_FEATURES) + rng.standard_t(3, size=n_rows)
    return X, y, rng.uniform(0.5, 2.0, n_rows)
