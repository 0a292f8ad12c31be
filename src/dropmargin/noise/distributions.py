"""The noise distributions of the paper: dropout (blankout), Gaussian, Laplace, Poisson.

Formulas in the docstrings are per feature; ``K`` is ``log E exp(t x~)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.noise.base import Noise, Variance
from dropmargin.typing import Array


class DropoutNoise(Noise):
    """Dropout (blankout) noise: a feature is set to zero with probability ``rate``, and rescaled otherwise.

    ``x~ = 0`` with probability ``q``, else ``x / (1 - q)``. The variance is ``q / (1 - q) x^2`` and the log moment
    generating function ``K(t) = log(q + (1 - q) exp(t x / (1 - q)))``. Zeros stay zeros, so sparse data stay sparse.

    Parameters
    ----------
    rate : float or array-like of shape (n_features,), default=0.5
        The probability ``q`` that a feature is dropped, in [0, 1).

    See Also
    --------
    estimate_dropout_rates : One rate per feature, from data.

    References
    ----------
    .. [1] N. Chen, J. Zhu, J. Chen and B. Zhang, "Dropout Training for Support Vector Machines", AAAI 2014.

    Examples
    --------
    >>> from dropmargin import DropoutNoise, DropoutSVC
    >>> DropoutNoise()
    DropoutNoise(rate=0.5)
    >>> model = DropoutSVC(noise=DropoutNoise(rate=[0.1, 0.9]))  # one rate per feature
    """

    def __init__(self, rate: Any = 0.5) -> None:
        self.rate = rate

    def check(self, n_features: int) -> None:
        self._parameter("rate", n_features, 0.0, 1.0, "[0, 1)")

    def variance(self) -> Variance:
        rate = np.asarray(self.rate, dtype=np.float64)
        return Variance(entry=np.square, slope=rate / (1.0 - rate))

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        rate = np.asarray(self.rate, dtype=np.float64)
        scaled = x / (1.0 - rate)
        with np.errstate(divide="ignore"):
            log_dropped, log_observed = np.log(rate), np.log1p(-rate) + t * scaled
        # The odds of the less likely of the two cases under the tilted distribution give all three results.
        odds = np.exp(-np.abs(log_observed - log_dropped))
        p_observed = np.where(log_observed > log_dropped, 1.0, odds) / (1.0 + odds)
        return (
            np.maximum(log_dropped, log_observed) + np.log1p(odds),
            p_observed * scaled,
            odds / np.square(1.0 + odds) * np.square(scaled),
        )

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        rate = np.asarray(self.rate, dtype=np.float64)
        return np.where(rng.uniform(size=x.shape) < rate, 0.0, x / (1.0 - rate))


class GaussianNoise(Noise):
    """Additive normal noise with mean 0.

    The variance is ``scale^2`` and the log moment generating function ``K(t) = t x + scale^2 t^2 / 2``. Sparse data
    are not made dense in training.

    Parameters
    ----------
    scale : float or array-like of shape (n_features,), default=0.1
        The standard deviation, at least 0.

    Examples
    --------
    >>> from dropmargin import GaussianNoise
    >>> float(GaussianNoise(scale=2.0).variance().floor)
    4.0
    """

    def __init__(self, scale: Any = 0.1) -> None:
        self.scale = scale

    def check(self, n_features: int) -> None:
        self._parameter("scale", n_features, 0.0, 1e100, "[0, 1e100)")

    def variance(self) -> Variance:
        return Variance(floor=np.square(np.asarray(self.scale, dtype=np.float64)))

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        variance = np.square(np.asarray(self.scale, dtype=np.float64))
        return t * x + 0.5 * variance * np.square(t), x + variance * t, variance + np.zeros_like(t * x)

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        return x + np.asarray(self.scale, dtype=np.float64) * rng.standard_normal(x.shape)


class LaplaceNoise(Noise):
    """Additive Laplace noise with mean 0.

    The variance is ``2 scale^2`` and the log moment generating function ``K(t) = t x - log(1 - scale^2 t^2)`` for
    ``|t| < 1 / scale``. Outside that interval the expectation is infinite, so a loss through the moment generating
    function keeps the coefficients below ``1 / scale``.

    Parameters
    ----------
    scale : float or array-like of shape (n_features,), default=0.1
        The scale of the Laplace distribution, at least 0.

    Examples
    --------
    >>> from dropmargin import LaplaceNoise
    >>> float(LaplaceNoise(scale=2.0).variance().floor)
    8.0
    """

    def __init__(self, scale: Any = 0.1) -> None:
        self.scale = scale

    def check(self, n_features: int) -> None:
        self._parameter("scale", n_features, 0.0, 1e100, "[0, 1e100)")

    def variance(self) -> Variance:
        return Variance(floor=2.0 * np.square(np.asarray(self.scale, dtype=np.float64)))

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        variance = np.square(np.asarray(self.scale, dtype=np.float64))
        rest = 1.0 - variance * np.square(t)
        inside = rest > 0.0
        safe = np.where(inside, rest, 1.0)
        return (
            np.where(inside, t * x - np.log(safe), np.inf),
            x + 2.0 * variance * t / safe,
            2.0 * variance * (1.0 + variance * np.square(t)) / np.square(safe) + np.zeros_like(x),
        )

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        return x + np.asarray(self.scale, dtype=np.float64) * rng.laplace(size=x.shape)


class PoissonNoise(Noise):
    """Poisson noise with mean ``x``, for counts.

    The variance is ``x`` and the log moment generating function ``K(t) = x (exp(t) - 1)``. ``X`` must not be negative.
    Zeros stay zeros, so sparse data stay sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from dropmargin import PoissonNoise
    >>> corrupted = PoissonNoise().sample(np.array([[0.0, 3.0, 100.0]]), random_state=0)
    >>> float(corrupted[0, 0])
    0.0
    """

    allows_negative = False

    def variance(self) -> Variance:
        return Variance(entry=_identity, slope=1.0)

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(t)
            # 0 * inf is 0 here: a feature of value 0 stays 0
            slope = np.where(x == 0.0, 0.0, x * growth)
            return np.where(x == 0.0, 0.0, x * np.expm1(t)), slope, slope

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        return rng.poisson(x).astype(np.float64)


def _identity(x: Array) -> Array:
    return x
