r"""An independent optimiser for small problems: dense Newton steps along a barrier path, with no call into the package.

It minimises, for one binary problem with labels in {-1, +1}, or for a regression::

    J(w, b) = l2 / 2 |w|^2 + l1 |w|_1 + sum_i c_i phi_i(w, b)

The formulas are those of docs/how_it_works.md, with their derivatives. Kinks are rounded off by self-concordant
barriers of weight ``mu``, which falls to nothing; each minimum is the start of the next:

- ``l1 |w|`` is the least ``l1 s`` with ``s >= |w|``; with the barrier ``-mu log(s^2 - w^2)`` its
  derivative is ``l1 w / s``, ``s = mu / l1 + sqrt((mu / l1)^2 + w^2)``.
- The hinge bound ``(z + sqrt(z^2 + v)) / 2`` is the least ``xi >= 0`` with ``xi (xi - z) >= v / 4``; with the barrier
  ``-mu log(xi (xi - z) - v / 4)`` its derivatives are ``xi / T`` by ``z`` and ``1 / (4 T)`` by ``v``, with
  ``S = sqrt(z^2 + v + 4 mu^2)``, ``T = 2 mu + S`` and ``xi = (z + T) / 2`` (``mu`` in units of ``c_i``).
- The epsilon-insensitive loss is the sum of two such hinges, with the barrier ``mu`` each.
- The hinge of a normal score takes additional variance; its root is proportional to ``mu``, at first twice the margin.

Features are centred, which the free intercept makes exact, and the Newton systems are scaled to a unit diagonal: the
result does not depend on the shift and the scale of the features, but for rounding. Without an intercept, features far
from zero are centred as well, and the intercept ``b`` of the centred features is bound by ``b = mean.w``: so the Newton
systems of features at 1e8 have no more than the condition number of the centred ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, ndtr

from .noises import NoisyRows

MOMENT_LOSSES = ("hinge", "logistic", "quadratic", "gaussian-hinge", "gaussian-logistic")
MGF_LOSSES = ("exponential", "mcf-logistic")
REGRESSION_LOSSES = ("quadratic", "epsilon-insensitive", "huber")
_HAS_KINK = ("hinge", "gaussian-hinge", "epsilon-insensitive")
# Without an intercept, features are centred if a mean is this many times the standard deviation.
_FAR = 100.0
# The last weight of the barrier, relative to the objective and to the number of terms.
_LAST_BARRIER = 1e-13
_BARRIER_FACTOR = 0.15
_NEWTON_STEPS = 80


@dataclass(frozen=True)
class BinaryProblem:
    """One binary problem.

    Parameters
    ----------
    loss : str
        A name in `MOMENT_LOSSES`, `MGF_LOSSES` or `REGRESSION_LOSSES`.
    noise : tuple
        See `noises.NoisyRows`.
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        -1 or +1; any numbers for a loss of regression.
    weight : ndarray of shape (n_samples,)
        ``C`` times the sample weight, all positive.
    l1, l2 : float
    fit_intercept : bool
    groups : ndarray of int, of shape (n_features,), default=None
        The groups of features that dropout corrupts together.
    is_missing : boolean ndarray of shape (n_samples, n_features), default=None
        Entries without noise.
    parameter : float, default=1.0
        The epsilon or delta of a loss of regression.
    """

    loss: str
    noise: tuple[Any, ...]
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    l1: float
    l2: float
    fit_intercept: bool
    groups: np.ndarray | None = None
    is_missing: np.ndarray | None = None
    parameter: float = 1.0

    def noisy_rows(self) -> NoisyRows:
        """Return the rows with their noise."""
        is_missing = np.zeros(self.X.shape, dtype=bool) if self.is_missing is None else self.is_missing
        return NoisyRows(self.noise, self.X, is_missing, self.groups)

    @property
    def is_centred(self) -> bool:
        """Whether the features are centred: with an intercept, or if they are far from zero."""
        means, deviations = self.X.mean(axis=0), self.X.std(axis=0)
        return self.fit_intercept or bool(np.any((np.abs(means) > _FAR * deviations) & (deviations > 0.0)))

    def means(self) -> np.ndarray:
        """Return what is subtracted from the features: their means, or zeros."""
        return self.X.mean(axis=0) if self.is_centred else np.zeros(self.X.shape[1])

    def constraints(self) -> np.ndarray | None:
        """Return what is orthogonal to all steps, one column each: those that keep ``b = mean.w``."""
        if self.fit_intercept or not self.is_centred:
            return None
        means = self.means()
        return (np.append(means, -1.0) / np.linalg.norm(means))[:, None]

    def value(self, coef: np.ndarray) -> float:
        """Return ``J`` at ``coef``, the coefficients with the intercept last."""
        return self.centred().value(self.shifted(coef, 1.0), 0.0)

    @property
    def n_coef(self) -> int:
        return self.X.shape[1] + 1

    def centred(self) -> Any:
        """Return the objective as a function of the coefficients of centred features."""
        return _Centred(self)

    def shifted(self, coef: np.ndarray, sign: float) -> np.ndarray:
        """Return the coefficients for centred features (``sign`` 1), or back for the given ones (-1)."""
        out = coef.astype(np.float64)
        out[-1] += sign * self.means() @ coef[:-1]
        if not self.fit_intercept and sign < 0.0:
            out[-1] = 0.0
        return out

    def rounding(self, coef: np.ndarray) -> float:
        """Return how much ``J`` changes if the intercept is off by its rounding error, or the scores by theirs."""
        means = self.means()
        error = 8.0 * np.finfo(float).eps * (abs(coef[-1]) + float(np.abs(means * coef[:-1]).sum()))
        centred, here = self.centred(), self.shifted(coef, 1.0)
        value = centred.value(here, 0.0)
        return max(abs(centred.value(here + error * sign * np.eye(len(coef))[-1], 0.0) - value) for sign in (-1.0, 1.0))


def minimise(problem: BinaryProblem, start: np.ndarray | None = None) -> np.ndarray:
    """Return the coefficients that minimise ``J``, intercept last; from zero or from ``start``."""
    centred = problem.centred()
    coef = np.zeros(problem.n_coef) if start is None else problem.shifted(start, 1.0)
    best, best_value = coef, centred.value(coef, 0.0)
    n_terms = len(problem.y) + problem.n_coef - 1
    has_barrier = problem.l1 > 0.0 or problem.loss in _HAS_KINK
    at_zero = centred.value(np.zeros_like(coef), 0.0)
    if not np.isfinite(best_value) or at_zero == 0.0:  # no loss is negative
        return np.zeros_like(coef)
    first = 0.1 * at_zero / n_terms if has_barrier else 0.0
    centred.deviation_per_barrier = 2.0 / first if has_barrier else 0.0
    barrier = first if start is None else min(first, 1e-5 * best_value / n_terms)
    while True:
        coef = _newton(centred, coef, barrier)
        value = centred.value(coef, 0.0)
        if value < best_value:
            best, best_value = coef, value
        if barrier <= _LAST_BARRIER * best_value / n_terms:
            return problem.shifted(best, -1.0)
        barrier *= _BARRIER_FACTOR


def _newton(centred: Any, coef: np.ndarray, barrier: float) -> np.ndarray:
    """Return the minimum for one weight of the barrier, by damped Newton steps."""
    value = centred.value(coef, barrier)
    for _ in range(_NEWTON_STEPS):
        gradient, hessian = centred.derivatives(coef, barrier)
        step = _solve(hessian, -gradient, centred.constraints)
        decrease = -float(gradient @ step)
        if not decrease > 1e-15 * abs(value):
            break
        length = 1.0
        while length > 1e-12:
            trial = centred.value(coef + length * step, barrier)
            if trial <= value - 1e-4 * length * decrease:
                break
            length *= 0.5
        else:
            break
        coef, value = coef + length * step, trial
    return coef


def _solve(matrix: np.ndarray, right: np.ndarray, constraints: np.ndarray | None) -> np.ndarray:
    """Return the minimum of the quadratic model among the steps that are orthogonal to the constraints."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), 1e-200))
    scaled = matrix * scale * scale[:, None]
    ridge = 0.0
    while True:
        try:
            factor = cho_factor(scaled + ridge * np.eye(len(scaled)), check_finite=False)
        except np.linalg.LinAlgError:
            ridge = max(1e-15, 10.0 * ridge)
            continue
        step = scale * cho_solve(factor, scale * right, check_finite=False)
        if constraints is None:
            return step
        away = scale[:, None] * cho_solve(factor, scale[:, None] * constraints, check_finite=False)
        return step - away @ np.linalg.solve(constraints.T @ away, constraints.T @ step)


class _Centred:
    """The objective as a function of the coefficients of centred features."""

    def __init__(self, problem: BinaryProblem) -> None:
        self.p = problem
        self.constraints = problem.constraints()
        self.means, self.noisy = problem.means(), problem.noisy_rows()
        self.X = problem.X - self.means
        self.has_intercept = float(problem.is_centred)
        self.rows = np.hstack([self.X, np.full((len(self.X), 1), self.has_intercept)])
        self.is_moment = problem.loss not in MGF_LOSSES
        self.deviation_per_barrier = 0.0
        if self.is_moment:
            self.variance = self.noisy.variance()

    def value(self, coef: np.ndarray, barrier: float) -> float:
        w, p = coef[:-1], self.p
        with np.errstate(all="ignore"):
            if self.is_moment:
                losses = self._moment(coef, barrier)[0]
            else:
                losses = p.weight * _of_log_mgf(p.loss, self._log_mgf(coef)[0])[0]
            total = 0.5 * p.l2 * w @ w + losses.sum()
            if p.l1:
                s = barrier / p.l1 + np.hypot(barrier / p.l1, w)
                total += p.l1 * s.sum() - (barrier * np.log(barrier * s).sum() if barrier else 0.0)
        return float(total) if np.isfinite(total) else np.inf

    def derivatives(self, coef: np.ndarray, barrier: float) -> tuple[np.ndarray, np.ndarray]:
        w, p = coef[:-1], self.p
        with np.errstate(over="ignore"):
            gradient, hessian = self._moment_derivatives(coef, barrier) if self.is_moment else self._mgf(coef)
        gradient[:-1] += p.l2 * w
        diagonal = np.full(len(w), p.l2)
        if p.l1:
            root = np.maximum(np.hypot(barrier / p.l1, w), 1e-300)
            s = barrier / p.l1 + root
            gradient[:-1] += p.l1 * w / s
            diagonal += p.l1 * (s - w * w / root) / s**2
        hessian[np.arange(len(w)), np.arange(len(w))] += diagonal
        if not self.has_intercept:
            gradient[-1], hessian[-1], hessian[:, -1], hessian[-1, -1] = 0.0, 0.0, 0.0, 1.0
        return gradient, hessian

    def _moment(self, coef: np.ndarray, barrier: float) -> tuple[np.ndarray, ...]:
        """Return the weighted losses and their derivatives by mean and variance: m, v, mm, mv, vv."""
        p = self.p
        m, v = self.rows @ coef, self.variance.at(coef[:-1])[0]
        if p.loss == "hinge":
            return _hinge(p.y, m, v, p.weight, barrier)
        if p.loss == "epsilon-insensitive":
            # two hinges of labels +1 and -1, for scores that are too low and too high
            sides = (_hinge(y, m - p.y + y * (1.0 + p.parameter), v, p.weight, barrier) for y in (1.0, -1.0))
            return tuple(low + high for low, high in zip(*sides, strict=True))
        added = (self.deviation_per_barrier * barrier) ** 2 if p.loss == "gaussian-hinge" else 0.0
        given = (p.parameter,) if p.loss == "huber" else ()
        return tuple(p.weight * part for part in _MOMENT[p.loss](p.y, m, v + added, *given))

    def _moment_derivatives(self, coef: np.ndarray, barrier: float) -> tuple[np.ndarray, np.ndarray]:
        _, m, v, mm, mv, vv = self._moment(coef, barrier)
        spread = np.zeros_like(self.rows)  # half the derivative of the variance by the coefficients
        spread[:, :-1] = self.variance.at(coef[:-1])[1]
        gradient = self.rows.T @ m + 2.0 * spread.T @ v
        cross = (self.rows * (2.0 * mv)[:, None]).T @ spread
        hessian = (self.rows * mm[:, None]).T @ self.rows + cross + cross.T
        hessian += (spread * (4.0 * vv)[:, None]).T @ spread
        hessian[:-1, :-1] += self.variance.second(2.0 * v)
        return gradient, hessian

    def _log_mgf(self, coef: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return ``log E exp(-y score)`` per row, its Jacobian, and its weighted second derivatives."""
        p, w = self.p, coef[:-1]
        t = -p.y[:, None] * w
        value, slope, second = self.noisy.log_mgf(t)
        # Centring moves every entry by the same number: K(t; x) - t mean.
        jacobian = np.hstack([-p.y[:, None] * (slope - self.means), -p.y[:, None] * self.has_intercept])
        return value - t @ self.means - p.y * coef[-1] * self.has_intercept, jacobian, second

    def _mgf(self, coef: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = self.p
        K, jacobian, second = self._log_mgf(coef)
        _, slope, curvature = _of_log_mgf(p.loss, K)
        hessian = (jacobian * (p.weight * curvature)[:, None]).T @ jacobian
        hessian[:-1, :-1] += second(p.weight * slope)
        return jacobian.T @ (p.weight * slope), hessian


# Losses ---------------------------------------------------------------------------------------------------------------


def _hinge(y: np.ndarray, m: np.ndarray, v: np.ndarray, c: np.ndarray, barrier: float) -> tuple[np.ndarray, ...]:
    z, mu = 1.0 - y * m, barrier / c
    S = np.maximum(np.sqrt(z * z + v + 4.0 * mu * mu), 1e-150)
    T = 2.0 * mu + S
    total = np.where(z > 0.0, z + S, (v + 4.0 * mu * mu) / (S - np.minimum(z, 0.0)))  # z + S without cancellation
    xi = 0.5 * (total + 2.0 * mu)
    value = c * xi - (barrier * np.log(mu * T) if barrier else 0.0)
    by_z, by_v = c * xi / T, 0.25 * c / T
    z_twice = c * (0.5 * (1.0 + z / S) / T - xi * (z / S) / T**2)
    return value, -y * by_z, by_v, z_twice, y * by_v * z / S / T, -by_v / (2.0 * S * T)


def _logistic(y: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    r = np.sqrt(m * m + v)
    small = r < 1e-3
    safe = np.where(small, 1.0, r)
    gamma = np.where(small, 0.25 - r * r / 48.0, np.tanh(0.5 * safe) / (2.0 * safe))
    bend = expit(r) * expit(-r)
    kappa = np.where(small, -1.0 / 24.0 + r * r / 120.0, (bend - gamma) / safe**2)
    excess = np.where(y * m > 0.0, v / np.maximum(r + np.abs(m), 1e-300), r - y * m)
    value = 0.5 * excess + np.log1p(np.exp(-r))
    return value, gamma * m - 0.5 * y, 0.5 * gamma, gamma + kappa * m * m, 0.5 * kappa * m, 0.25 * kappa


def _quadratic(y: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    one = np.ones_like(m)
    return (y - m) ** 2 + v, 2.0 * (m - y), one, 2.0 * one, 0.0 * one, 0.0 * one


def _ramp(z: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return ``E max(0, Z)`` of ``Z ~ N(z, v)`` and its derivatives: z, v, zz, zv, vv."""
    sd = np.sqrt(np.maximum(v, 1e-200))
    ratio = np.clip(z / sd, -37.0, 37.0)
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
    value = np.maximum(z * ndtr(ratio) + sd * density, 0.0)
    curvature = density / sd
    return (
        value,
        ndtr(ratio),
        0.5 * curvature,
        curvature,
        -0.5 * curvature * ratio / sd,
        (0.25 * curvature * (ratio**2 - 1.0) / sd**2),
    )


def _gaussian_hinge(y: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    value, z, by_v, zz, zv, vv = _ramp(1.0 - y * m, v)
    return value, -y * z, by_v, zz, -y * zv, vv


# Points of the trapezoidal rule, which is exact to rounding for functions as smooth as these.
_NORMAL = np.linspace(-10.0, 10.0, 201)
_NORMAL_WEIGHTS = np.exp(-0.5 * _NORMAL**2) / np.sqrt(2.0 * np.pi) * (_NORMAL[1] - _NORMAL[0])
_LOGISTIC = np.linspace(-40.0, 40.0, 401)
_LOGISTIC_WEIGHTS = expit(_LOGISTIC) * expit(-_LOGISTIC) * (_LOGISTIC[1] - _LOGISTIC[0])


def _gaussian_logistic(y: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return ``E log(1 + exp(-y S))`` of ``S ~ N(m, v)``, and its derivatives.

    For ``v < 1`` the integral is over the normal score, and derivatives by ``v`` are half the second ones by ``m``.
    Else it is over a logistic variable ``L``: ``log(1 + exp(-s)) = E max(0, L - s)``.
    """
    narrow, out = v < 1.0, np.empty((6, len(m)))
    score = y[narrow, None] * (m[narrow, None] + np.sqrt(v[narrow])[:, None] * _NORMAL)
    p = expit(-score)
    q = p * (1.0 - p)
    third, fourth = -q * (1.0 - 2.0 * p), q * (1.0 - 6.0 * q)
    value, one, two, three, four = (
        part @ _NORMAL_WEIGHTS for part in (np.logaddexp(0.0, -score), -p, q, third, fourth)
    )
    out[:, narrow] = value, y[narrow] * one, 0.5 * two, two, 0.5 * y[narrow] * three, 0.25 * four
    wide = ~narrow
    parts = _ramp(_LOGISTIC - (y * m)[wide, None], np.broadcast_to(v[wide, None], (wide.sum(), len(_LOGISTIC))))
    value, z, by_v, zz, zv, vv = (part @ _LOGISTIC_WEIGHTS for part in parts)
    out[:, wide] = value, -y[wide] * z, by_v, zz, -y[wide] * zv, vv
    return tuple(out)


def _huber(y: np.ndarray, m: np.ndarray, v: np.ndarray, delta: float) -> tuple[np.ndarray, ...]:
    u = m - y
    r = np.sqrt(u * u + v)
    far = r > delta
    safe = np.where(far, r, 1.0)
    gamma = np.where(far, delta / safe, 1.0)  # psi' / r
    kappa = np.where(far, -delta / safe**3, 0.0)  # gamma' / r
    value = np.where(far, delta * (r - 0.5 * delta), 0.5 * r * r)
    return value, gamma * u, 0.5 * gamma, gamma + kappa * u * u, 0.5 * kappa * u, 0.25 * kappa


_MOMENT = {
    "huber": _huber,
    "logistic": _logistic,
    "quadratic": _quadratic,
    "gaussian-hinge": _gaussian_hinge,
    "gaussian-logistic": _gaussian_logistic,
}


def _of_log_mgf(loss: str, K: np.ndarray) -> tuple[np.ndarray, ...]:
    if loss == "exponential":
        value = np.exp(K)
        return value, value, value
    return np.logaddexp(0.0, K), expit(K), expit(K) * expit(-K)
