"""What a noise is: an unbiased distribution ``x~`` around each row, independent per feature, ``E[x~] = x``.

To add one, subclass `Noise` and define `variance`; define `log_mgf` as well for the losses that need the moment
generating function, and `draw` to sample. Parameters are stored by the constructor as given, a number or one number
per feature, and checked by `check`, as scikit-learn does it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from dropmargin.data import entry_range, map_entries
from dropmargin.data.inputs import check_rows
from dropmargin.typing import Array


@dataclass(frozen=True)
class Variance:
    """The variance of a corrupted feature, ``V_id = slope_d * entry(x_id) + floor_d``.

    Parameters
    ----------
    entry : callable or None
        An element-wise function; ``None`` if the variance does not depend on ``x``. Where ``entry(0)`` is not 0, rows
        must have all their entries stored, zeros too.
    slope, floor : float or ndarray of shape (n_features,)
        Its factor, and the variance of a feature that is zero.
    """

    entry: Callable[[Array], Array] | None = None
    slope: float | Array = 0.0
    floor: float | Array = 0.0

    @cached_property
    def is_zero(self) -> bool:
        """Whether no feature is ever corrupted."""
        return not (self.moves_entries or self.has_floor)

    @cached_property
    def moves_entries(self) -> bool:
        """Whether the variance depends on the entries of ``X``."""
        return self.entry is not None and bool(np.any(self.slope))

    @cached_property
    def has_floor(self) -> bool:
        """Whether a feature that is zero is corrupted, too."""
        return bool(np.any(self.floor))

    @cached_property
    def moves_zeros(self) -> bool:
        """Whether an entry that is zero becomes noisy."""
        return self.has_floor or (self.entry is not None and self.moves_entries and bool(self.entry(np.zeros(1))[0]))


class Noise(BaseEstimator):
    """Base class of the noise distributions."""

    #: Whether the distribution is defined for negative values.
    allows_negative = True

    def variance(self) -> Variance:
        """Return the variance of a corrupted feature, as a function of its value."""
        raise NotImplementedError(f"{type(self).__name__} must define variance().")

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Return ``K(t) = log E exp(t x~)`` and its first and second derivative by ``t``, element by element."""
        raise NotImplementedError(f"{type(self).__name__} has no log_mgf().")

    def draw(self, x: Array, rng: np.random.RandomState) -> Array:
        """Return one corrupted copy of the values ``x``."""
        raise NotImplementedError(f"{type(self).__name__} has no draw().")

    def check(self, n_features: int) -> None:
        """Raise a `ValueError` if a parameter is out of range or has the wrong length."""

    @property
    def has_log_mgf(self) -> bool:
        """Whether the class defines `log_mgf`."""
        return type(self).log_mgf is not Noise.log_mgf

    @property
    def has_draw(self) -> bool:
        """Whether the class defines `draw`."""
        return type(self).draw is not Noise.draw

    def take(self, columns: Any) -> Noise:
        """Return the noise of these columns: each per-feature parameter is indexed, each scalar kept."""
        taken = copy.copy(self)
        for name, value in self.get_params(deep=False).items():
            if np.ndim(value):
                setattr(taken, name, np.asarray(value, dtype=np.float64)[columns])
        return taken

    def sample(self, X: Any, random_state: Any = None) -> Any:
        """Return a corrupted copy of ``X``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        random_state : int, RandomState instance or None

        Returns
        -------
        ndarray or sparse array of the shape of ``X``; sparse if ``X`` is.
        """
        X = check_rows(X)
        self.check(X.shape[1])
        if not self.allows_negative and entry_range(X)[0] < 0.0:
            raise ValueError(
                f"{type(self).__name__} needs X >= 0, but X has {entry_range(X)[0]:g}. "
                "Negative values in data: choose DropoutNoise or GaussianNoise."
            )
        rng = check_random_state(random_state)

        def corrupt(values: Array, columns: Any) -> Array:
            return self.take(columns).draw(values, rng).astype(values.dtype)

        sampled = map_entries(X, corrupt, zeros_stay=not self.variance().has_floor, what=f"A sample of {self!r}")
        return sampled.copy()  # with a pattern of its own: the caller may take the zeros out of it

    def _parameter(self, name: str, n_features: int, low: float, high: float, range_: str) -> Array:
        """Return a parameter as an array after checking its length, its finiteness and its range."""
        given = getattr(self, name)
        label = f"{name} of {type(self).__name__}"
        try:
            value = np.asarray(given)
        except ValueError:  # a ragged list
            value = np.asarray(None)
        if value.dtype.kind not in "fiu":
            raise ValueError(f"{label} must be a number or one number per feature, got {given!r}.")
        value = value.astype(np.float64)
        if value.ndim > 1 or (value.ndim == 1 and value.shape != (n_features,)):
            raise ValueError(
                f"{label} must be a number or one number per feature: "
                f"X has {n_features} features, {name} has shape {value.shape}."
            )
        wrong = ~((value >= low) & (value < high))  # catches NaN, too
        if wrong.any():
            where = "" if value.ndim == 0 else f" at feature {int(np.argmax(wrong))}"
            got = float(value if value.ndim == 0 else value[np.argmax(wrong)])
            raise ValueError(f"{label} must be in {range_}, got {got!r}{where}.")
        return value


def as_noise(noise: Any) -> Noise | None:
    """Return the noise that a user meant: ``None``, a dropout rate, or a `Noise`."""
    from dropmargin.noise.distributions import DropoutNoise

    if noise is None or isinstance(noise, Noise):
        return noise
    if isinstance(noise, Real) and not isinstance(noise, bool):
        return DropoutNoise(rate=float(noise))
    raise ValueError(
        f"noise must be None, a dropout rate in [0, 1), or a noise such as DropoutNoise(rate=0.5) or "
        f"GaussianNoise(scale=0.1); got {noise!r}. For one rate per feature, write DropoutNoise(rate=rates)."
    )
