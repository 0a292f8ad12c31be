r"""Noises of the independent optimiser: the moments and the log-MGF of noisy scores, with no call into the package.

Features are corrupted one by one, or by dropout in groups, which share a random variable. An entry that is missing has
no noise. With the deviation ``e_id = x_id - r_d`` from the reference and the rate ``q``, the dropout of a group has::

    v_i = sum_g q / (1 - q) (sum over d in g of w_d e_id)^2
    K_i = sum_g sum over d in g of t_d r_d + log(q + (1 - q) exp(sum over d in g of t_d e_id / (1 - q)))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class NoisyRows:
    """Rows with a noise.

    Parameters
    ----------
    noise : tuple
        ``("none",)``, ``("dropout", rate, reference)``, ``("gaussian", scale)``, ``("laplace", scale)`` or
        ``("poisson",)``; a parameter is a number or one number per feature, and a reference may be ``"zero"``.
    X : ndarray of shape (n_samples, n_features)
    is_missing : boolean ndarray of the same shape
        Entries of ``X`` without noise.
    groups : ndarray of int, of shape (n_features,), default=None
        The group of each feature, for dropout; ``None`` if features are independent.
    """

    noise: tuple[Any, ...]
    X: np.ndarray
    is_missing: np.ndarray
    groups: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Self:
        """Return some of the rows."""
        return replace(self, X=self.X[rows], is_missing=self.is_missing[rows])

    @property
    def _parameter(self) -> Any:
        return np.asarray(self.noise[1], dtype=float) if len(self.noise) > 1 else np.zeros(())

    @property
    def _reference(self) -> Any:
        return 0.0 if isinstance(self.noise[2], str) else self.noise[2]

    @property
    def _deviations(self) -> np.ndarray:
        return np.where(self.is_missing, 0.0, self.X - self._reference)

    def _entry_variance(self) -> np.ndarray:
        name, parameter = self.noise[0], self._parameter
        if name == "dropout":
            return parameter / (1.0 - parameter) * self._deviations**2
        if name == "poisson":
            return np.where(self.is_missing, 0.0, self.X)
        factor = {"none": 0.0, "gaussian": 1.0, "laplace": 2.0}[name]
        return np.where(self.is_missing, 0.0, factor * parameter**2)

    def variance(self) -> ScoreVariance:
        """Return the variance of the scores as a function of the coefficients."""
        if self.groups is None:
            return ScoreVariance(self._entry_variance(), None)
        odds = np.broadcast_to(self._parameter / (1.0 - self._parameter), self.X.shape[1])
        return ScoreVariance(np.sqrt(odds) * self._deviations, self.groups)

    def log_mgf(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Return ``K_i = log E exp(t_i.x~_i)`` and its Jacobian by ``t``.

        The third result is a function of weights of the rows: it returns the weighted sum of the second derivatives.
        """
        if self.groups is None:
            with np.errstate(all="ignore"):
                value, slope, second = self._entry_log_mgf(t)
            plain = t * self.X, self.X, 0.0
            value, slope, second = (
                np.where(self.is_missing, b, a) for a, b in zip((value, slope, second), plain, strict=True)
            )
            return value.sum(axis=1), slope, lambda left: np.diag(second.T @ left)
        rate, adding = np.broadcast_to(self._parameter, self.X.shape[1]), np.eye(self.groups.max() + 1)[self.groups]
        of_group = np.zeros(adding.shape[1])
        of_group[self.groups] = rate
        scaled = self._deviations / (1.0 - rate)
        with np.errstate(all="ignore"):
            kept = np.log1p(-of_group) + (t * scaled) @ adding
            own = np.logaddexp(np.log(of_group), kept)
            share = np.exp(kept - own)
        reference = np.where(self.is_missing, self.X, self._reference)
        spread = (share * (1.0 - share))[:, self.groups]
        same = self.groups[:, None] == self.groups

        def second_derivative(left: np.ndarray) -> np.ndarray:
            return np.where(same, (left[:, None] * spread * scaled).T @ scaled, 0.0)

        value = (t * reference).sum(axis=1) + own.sum(axis=1)
        return value, reference + share[:, self.groups] * scaled, second_derivative

    def _entry_log_mgf(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``K_d(t) = log E exp(t x~_d)`` and its first two derivatives, entry by entry."""
        name, X, parameter = self.noise[0], self.X, self._parameter
        if name == "none":
            return t * X, X, np.zeros_like(X)
        square = parameter**2
        if name == "gaussian":
            return t * X + 0.5 * square * t**2, X + square * t, np.broadcast_to(square, X.shape)
        if name == "laplace":
            rest = 1.0 - square * t**2
            value = np.where(rest > 0.0, t * X - np.log(np.abs(rest)), np.inf)
            return value, X + 2.0 * square * t / rest, 2.0 * square * (1.0 + square * t**2) / rest**2
        if name == "poisson":
            growth = X * np.exp(t)
            return X * np.expm1(t), growth, growth
        scaled = (X - self._reference) / (1.0 - parameter)
        kept = np.log1p(-parameter) + t * scaled
        value = np.logaddexp(np.log(parameter), kept)
        share = np.exp(kept - value)
        return t * self._reference + value, self._reference + share * scaled, share * (1.0 - share) * scaled**2


@dataclass(frozen=True)
class ScoreVariance:
    """``v_i = sum_d V_id w_d^2``; with groups ``sum_g (sum_d E_id w_d)^2``. ``table`` is ``V`` or ``E``."""

    table: np.ndarray
    groups: np.ndarray | None

    def at(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the variances, and half their derivatives by the coefficients."""
        if self.groups is None:
            return self.table @ w**2, self.table * w
        scores = (self.table * w) @ np.eye(self.groups.max() + 1)[self.groups]
        return np.square(scores).sum(axis=1), scores[:, self.groups] * self.table

    def second(self, left: np.ndarray) -> np.ndarray:
        """Return half the weighted sum of the second derivatives, a matrix."""
        if self.groups is None:
            return np.diag(self.table.T @ left)
        same = self.groups[:, None] == self.groups
        return np.where(same, (self.table * left[:, None]).T @ self.table, 0.0)
