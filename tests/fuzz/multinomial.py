r"""The independent optimiser of `reference` for a multinomial problem: one softmax over all classes.

With the log-MGF ``K_d`` of a feature, or that of a normal feature of the same variance if the loss is "logistic", and
``d_k = w_k - w_y`` for a row of class ``y``::

    phi_i = log sum_k exp(e_ik)        e_ik = sum_d K_d(d_kd; x_id) + b_k - b_y

Coefficients are one vector, class by class, the intercept of a class after its coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from .reference import BinaryProblem


@dataclass(frozen=True)
class MultinomialProblem(BinaryProblem):
    """A multinomial problem; ``y`` has the index of the class of each row. ``loss`` is "logistic" or "mcf-logistic"."""

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def n_coef(self) -> int:
        return self.n_classes * (self.X.shape[1] + 1)

    @property
    def is_centred(self) -> bool:
        return self.fit_intercept

    def centred(self) -> _CentredClasses:
        return _CentredClasses(self)

    def shifted(self, coef: np.ndarray, sign: float) -> np.ndarray:
        out = coef.astype(np.float64).reshape(self.n_classes, -1)
        out[:, -1] += sign * out[:, :-1] @ self.means()
        return out.ravel()

    def rounding(self, coef: np.ndarray) -> float:
        """Return how much ``J`` changes if the first intercept is off by the rounding error of the largest."""
        own = coef.reshape(self.n_classes, -1)
        error = (
            8.0 * np.finfo(float).eps * float((np.abs(own[:, -1]) + np.abs(own[:, :-1] * self.means()).sum(1)).max())
        )
        change = np.zeros(len(coef))
        change[self.X.shape[1]] = error
        here = self.value(coef)
        return max(abs(self.value(coef + sign * change) - here) for sign in (-1.0, 1.0))


class _CentredClasses:
    """The objective as a function of the coefficients of centred features."""

    deviation_per_barrier = 0.0
    constraints = None

    def __init__(self, problem: MultinomialProblem) -> None:
        self.p = problem
        self.shape = problem.n_classes, problem.X.shape[1] + 1
        self.rows = [np.flatnonzero(problem.y == k) for k in range(problem.n_classes)]
        self.noisy = [problem.noisy_rows().take(rows) for rows in self.rows]
        self.variances = [noisy.variance() for noisy in self.noisy]

    def value(self, coef: np.ndarray, barrier: float) -> float:
        p, W = self.p, coef.reshape(self.shape)
        with np.errstate(all="ignore"):
            total = 0.5 * p.l2 * (W[:, :-1] ** 2).sum()
            if p.l1:
                s = barrier / p.l1 + np.hypot(barrier / p.l1, W[:, :-1])
                total += p.l1 * s.sum() - (barrier * np.log(barrier * s).sum() if barrier else 0.0)
            for label, rows in enumerate(self.rows):
                e = np.stack([self._exponent(label, d)[0] for d in W - W[label]], axis=1)
                total += p.weight[rows] @ logsumexp(e, axis=1)
        return float(total) if np.isfinite(total) else np.inf

    def derivatives(self, coef: np.ndarray, barrier: float) -> tuple[np.ndarray, np.ndarray]:
        p, W, (n_classes, size) = self.p, coef.reshape(self.shape), self.shape
        gradient, hessian = np.zeros(coef.size), np.zeros((coef.size, coef.size))
        for label, rows in enumerate(self.rows):
            parts = [self._exponent(label, d) for d in W - W[label]]
            e, jacobian = np.stack([part[0] for part in parts], axis=1), np.stack([part[1] for part in parts], axis=1)
            share = np.exp(e - logsumexp(e, axis=1, keepdims=True))
            left = p.weight[rows, None] * share
            # By the differences first: the gradient of each row, the mean of the Jacobians, and the diagonal.
            mean = (share[:, :, None] * jacobian).reshape(len(rows), -1)
            by_difference = p.weight[rows] @ mean
            of_both = -(p.weight[rows, None] * mean).T @ mean
            for k in range(n_classes):
                own = slice(k * size, (k + 1) * size)
                of_both[own, own] += (left[:, [k]] * jacobian[:, k]).T @ jacobian[:, k]
                inner = slice(k * size, (k + 1) * size - 1)
                of_both[inner, inner] += parts[k][2](left[:, k])
            # A change of ``w_y`` changes all differences.
            slopes, blocks = by_difference.reshape(self.shape), of_both.reshape(*self.shape, *self.shape)
            slopes[label] -= slopes.sum(axis=0)
            blocks[label] -= blocks.sum(axis=0)
            blocks[:, :, label] -= blocks.sum(axis=2)
            gradient += by_difference
            hessian += of_both
        self._add_penalty(W, barrier, gradient, hessian)
        return gradient, hessian

    def _add_penalty(self, W: np.ndarray, barrier: float, gradient: np.ndarray, hessian: np.ndarray) -> None:
        p, w = self.p, W[:, :-1]
        slope, second = p.l2 * w, np.full(w.shape, p.l2)
        if p.l1:
            root = np.maximum(np.hypot(barrier / p.l1, w), 1e-300)
            s = barrier / p.l1 + root
            slope, second = slope + p.l1 * w / s, second + p.l1 * (s - w * w / root) / s**2
        gradient += np.hstack([slope, np.zeros((len(W), 1))]).ravel()
        index = np.arange(len(gradient))
        hessian[index, index] += np.hstack([second, np.zeros((len(W), 1))]).ravel()
        is_fixed = index % self.shape[1] == self.shape[1] - 1
        if p.fit_intercept:
            is_fixed[:-1] = False  # only differences of the intercepts matter: the last one is fixed
        gradient[is_fixed], hessian[is_fixed], hessian[:, is_fixed] = 0.0, 0.0, 0.0
        hessian[index[is_fixed], index[is_fixed]] = 1.0

    def _exponent(self, label: int, d: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Return ``e`` of the rows of a class for one class, its Jacobian, and its weighted second derivatives."""
        p, noisy = self.p, self.noisy[label]
        if p.loss == "logistic":
            v, half_slope = self.variances[label].at(d[:-1])
            value, slope, second = noisy.X @ d[:-1] + 0.5 * v, noisy.X + half_slope, self.variances[label].second
        else:
            value, slope, second = noisy.log_mgf(np.broadcast_to(d[:-1], noisy.X.shape))
        means, one = p.means(), np.full((len(value), 1), float(p.fit_intercept))
        return value - d[:-1] @ means + one[:, 0] * d[-1], np.hstack([slope - means, one]), second
