"""The noise distributions of the paper: dropout (blankout), Gaussian, Laplace, Poisson.

Formulas in the docstrings are per feature; ``K`` is ``log E exp(t x~)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dropmargin.data.variance import Variance
from dropmargin.noise.base import Noise
from dropmargin.noise.groups import group_features, group_rates
from dropmargin.typing import Array

_LARGEST = 1e100


class DropoutNoise(Noise):
    """Dropout (blankout) noise: with probability ``rate`` a feature takes its reference value.

    With the reference ``r`` of a feature, ``x~ = r`` with probability ``q``, else ``r + (x - r) / (1 - q)``. The
    variance is ``q / (1 - q) (x - r)^2`` and the log moment generating function
    ``K(t) = t r + log(q + (1 - q) exp(t (x - r) / (1 - q)))``. Sparse data are not made dense in training.

    Features of one group are dropped together, as those of a sensor that fails: there is one random variable per group.

    Parameters
    ----------
    rate : float, array-like or mapping, default=0.5
        The probability ``q`` that a feature is dropped, in [0, 1): one number, or one per feature. With ``groups``: one
        number, one per group, or a mapping of groups to rates, where a group that is not named is not dropped.
    reference : {"mean", "zero"} or array-like of shape (n_features,), default="mean"
        The value of a dropped feature: its weighted mean in the training data, zero (the paper's blankout), or one
        value per feature. With ``"mean"`` a fit does not depend on the origin of the features. Samples (`sample`) of a
        sparse ``X`` need ``"zero"``.
    groups : array-like of shape (n_features,) or mapping, default=None
        The group of each feature, or a mapping of names of groups to features: indices, names of columns, or patterns
        such as ``"sensor1_*"``. Features in no group of a mapping are dropped independently, and all are by default.

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
    >>> model = DropoutSVC(noise=DropoutNoise(rate=0.1, groups=[0, 0, 0, 1, 1]))  # two sensors
    """

    def __init__(self, rate: Any = 0.5, *, reference: Any = "mean", groups: Any = None) -> None:
        self.rate = rate
        self.reference = reference
        self.groups = groups

    @property
    def needs_means(self) -> bool:
        return isinstance(self.reference, str) and self.reference == "mean"

    def resolve(self, n_features: int, feature_names: Sequence[str] | None = None) -> DropoutNoise:
        rate, numbers = self.rate, None
        if self.groups is not None:
            numbers, names = group_features(self.groups, n_features, feature_names)
            rate = group_rates(rate, numbers, names)
            if len(names) == n_features:
                numbers = None  # every feature is dropped independently
        elif isinstance(rate, Mapping):
            allowed = "a number or one number per feature; a mapping of groups to rates needs groups="
            raise ValueError(f"rate of DropoutNoise must be {allowed}, got {rate!r}.")
        resolved = DropoutNoise(rate, reference=self.reference, groups=numbers)
        resolved._parameter("rate", n_features, 0.0, 1.0, "[0, 1)")
        if isinstance(self.reference, str):
            if self.reference not in ("mean", "zero"):
                allowed = "'mean', 'zero' or one number per feature"
                raise ValueError(f"reference of DropoutNoise must be {allowed}, got {self.reference!r}.")
        else:
            reference = resolved._parameter("reference", n_features, -_LARGEST, _LARGEST, "finite numbers below 1e100")
            resolved.reference = np.broadcast_to(reference, n_features) if reference.any() else "zero"
        return resolved

    def check(self, n_features: int) -> None:
        self.resolve(n_features)

    def with_means(self, feature_means: Array) -> DropoutNoise:
        return DropoutNoise(self.rate, reference=feature_means, groups=self.groups) if self.needs_means else self

    def shifted(self, feature_means: Array) -> DropoutNoise | None:
        if isinstance(self.reference, str):  # zero: the usual case, which needs no reference values
            return None
        return DropoutNoise(self.rate, reference=self.reference_values - feature_means, groups=self.groups)

    def take(self, features: Any, rows: Array | None = None) -> Noise:
        taken: Any = super().take(features)
        if self.groups is not None:  # entries of one row and one group are dropped together
            groups = np.asarray(self.groups)[features]
            groups = groups if rows is None else np.stack([rows, groups])
            taken.groups = np.unique(groups, axis=-1, return_inverse=True)[1].ravel()
        return taken

    def variance(self) -> Variance:
        # Until `resolve` turns a mapping of groups to rates into rates per feature, its rates tell the strength.
        given = list(self.rate.values()) if isinstance(self.rate, Mapping) else self.rate
        rate = np.asarray(given, dtype=np.float64)
        slope = rate / (1.0 - rate)
        if isinstance(self.reference, str):  # without feature means, that of deviations from the reference
            return Variance(quadratic=slope, groups=self.groups)
        scaled = slope * self.reference_values
        return Variance(-2.0 * scaled, slope, scaled * self.reference_values, groups=self.groups)

    @property
    def reference_values(self) -> Any:
        """The reference of each feature: zero, or an array."""
        if self.needs_means:
            raise ValueError("DropoutNoise(reference='mean') needs feature means: use with_means(X.mean(axis=0)).")
        return 0.0 if isinstance(self.reference, str) else np.asarray(self.reference, dtype=np.float64)

    @property
    def missing_values(self) -> Array | None:
        return None if isinstance(self.reference, str) else self.reference_values

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        rate, reference = np.asarray(self.rate, dtype=np.float64), self.reference_values
        scaled = (x - reference) / (1.0 - rate)
        with np.errstate(divide="ignore"):
            log_dropped, log_observed = np.log(rate), np.log1p(-rate) + t * scaled
        # The odds of the less likely of the two cases under the tilted distribution give all three results.
        odds = np.exp(-np.abs(log_observed - log_dropped))
        p_observed = np.where(log_observed > log_dropped, 1.0, odds) / (1.0 + odds)
        return (
            t * reference + np.maximum(log_dropped, log_observed) + np.log1p(odds),
            reference + p_observed * scaled,
            odds / np.square(1.0 + odds) * np.square(scaled),
        )

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        rate, reference = np.asarray(self.rate, dtype=np.float64), self.reference_values
        if self.groups is None:
            is_dropped = rng.uniform(size=x.shape) < rate
        else:  # one random number per row and group
            groups = np.asarray(self.groups)
            drawn = rng.uniform(size=(*x.shape[:-1], int(groups.max()) + 1))
            is_dropped = drawn[..., groups] < rate
        return np.where(is_dropped, reference, reference + (x - reference) / (1.0 - rate))


class _AdditiveNoise(Noise):
    def __init__(self, scale: Any = 0.1) -> None:
        self.scale = scale

    def check(self, n_features: int) -> None:
        self._parameter("scale", n_features, 0.0, 1e100, "[0, 1e100)")


class GaussianNoise(_AdditiveNoise):
    """Additive normal noise with mean 0.

    The variance is ``scale^2`` and the log moment generating function ``K(t) = t x + scale^2 t^2 / 2``. Sparse data
    are not made dense in training.

    Parameters
    ----------
    scale : float or array-like of shape (n_features,), default=0.1
        The standard deviation, at least 0.

    See Also
    --------
    LaplaceNoise : Additive noise with heavier tails.

    Examples
    --------
    >>> from dropmargin import GaussianNoise
    >>> float(GaussianNoise(scale=2.0).variance().constant)
    4.0
    """

    def variance(self) -> Variance:
        return Variance(constant=np.square(np.asarray(self.scale, dtype=np.float64)))

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        variance = np.square(np.asarray(self.scale, dtype=np.float64))
        return t * x + 0.5 * variance * np.square(t), x + variance * t, variance + np.zeros_like(t * x)

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        return x + np.asarray(self.scale, dtype=np.float64) * rng.standard_normal(x.shape)


class LaplaceNoise(_AdditiveNoise):
    """Additive Laplace noise with mean 0.

    The variance is ``2 scale^2`` and the log moment generating function ``K(t) = t x - log(1 - scale^2 t^2)`` for
    ``|t| < 1 / scale``. Outside that interval the expectation is infinite, so a loss through the moment generating
    function keeps the coefficients below ``1 / scale``.

    Parameters
    ----------
    scale : float or array-like of shape (n_features,), default=0.1
        The scale of the Laplace distribution, at least 0.

    See Also
    --------
    GaussianNoise : Additive normal noise.

    Examples
    --------
    >>> from dropmargin import LaplaceNoise
    >>> float(LaplaceNoise(scale=2.0).variance().constant)
    8.0
    """

    def variance(self) -> Variance:
        return Variance(constant=2.0 * np.square(np.asarray(self.scale, dtype=np.float64)))

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

    See Also
    --------
    DropoutNoise : Features that are lost.

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
        return Variance(linear=1.0)

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(t)
            # 0 * inf is 0 here: a feature of value 0 stays 0
            slope = np.where(x == 0.0, 0.0, x * growth)
            return np.where(x == 0.0, 0.0, x * np.expm1(t)), slope, slope

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        return rng.poisson(x).astype(np.float64)
