"""The variance of a corrupted feature as a function of its value: data, not code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.typing import Array


@dataclass(frozen=True)
class Variance:
    """The variance of a corrupted feature, ``V_d(x) = linear_d x + quadratic_d x^2 + constant_d``.

    Every noise of the paper has this form. A noise of another form gives an element-wise function ``entry``, whose
    values times ``slope`` are added.

    Parameters
    ----------
    linear, quadratic, constant : float or ndarray of shape (n_features,), default=0.0
        The coefficients of the polynomial.
    entry : callable or None, default=None
        An element-wise function of the entries. Unless all entries of a row are stored, also zeros, ``entry(0)`` must
        be 0.
    slope : float or ndarray of shape (n_features,), default=0.0
        The factor of ``entry``.
    groups : ndarray of int, of shape (n_features,), default=None
        The groups of features that share their random variable, numbered from 0; ``None`` if all features are
        independent. ``V`` is the variance of one feature also if there are groups, and must be
        ``quadratic_d (x - reference_d)^2``.

    Examples
    --------
    >>> from dropmargin import DropoutNoise, GaussianNoise
    >>> float(DropoutNoise(rate=0.5, reference="zero").variance().quadratic)
    1.0
    >>> GaussianNoise(scale=0.1).variance().depends_on_x
    False
    """

    linear: Any = 0.0
    quadratic: Any = 0.0
    constant: Any = 0.0
    entry: Callable[[Array], Array] | None = None
    slope: Any = 0.0
    groups: Array | None = None

    @cached_property
    def depends_on_x(self) -> bool:
        """Whether the variance depends on the entries of ``X``."""
        return bool(np.any(self.linear) or np.any(self.quadratic) or (self.entry is not None and np.any(self.slope)))

    @cached_property
    def is_zero(self) -> bool:
        """Whether the variance of every feature is zero."""
        return not (self.depends_on_x or np.any(self.constant))

    @cached_property
    def of_zero(self) -> Any:
        """The variance of an entry that is zero."""
        if self.entry is None:
            return self.constant
        return self.constant + np.multiply(self.slope, self.entry(np.zeros(1))[0])

    @cached_property
    def strength(self) -> Any:
        """What distinguishes noises of one class: the factor of the deviations, or else the variance of an entry 1."""
        if np.any(self.quadratic):
            return self.quadratic
        if self.entry is not None:
            return self.constant + np.multiply(self.slope, self.entry(np.ones(1))[0])
        return self.linear + np.asarray(self.constant)

    @property
    def reference(self) -> Array:
        """The value of each feature at which ``quadratic (x - reference)^2`` is zero."""
        quadratic = np.asarray(self.quadratic, dtype=np.float64)
        return np.where(quadratic > 0.0, -0.5 * self.linear / np.where(quadratic > 0.0, quadratic, 1.0), 0.0)

    def of(self, values: Array, features: Any = slice(None)) -> Array:
        """Return the variance of entries.

        Parameters
        ----------
        values : ndarray
            The entries.
        features : slice or ndarray of int, default=slice(None)
            The feature of each entry, or a slice if the last axis has all features.

        Returns
        -------
        ndarray
            Of the shape of ``values``.
        """
        return self.stored(values, features) + _at(self.constant, features)

    def stored(self, values: Array, features: Any = slice(None)) -> Array:
        """Return ``V(x) - constant`` of entries, the part of the variance that depends on them.

        Parameters
        ----------
        values : ndarray
            The entries.
        features : slice or ndarray of int, default=slice(None)
            The feature of each entry, or a slice if the last axis has all features.

        Returns
        -------
        ndarray
            Of the shape of ``values``.
        """
        out = _at(self.quadratic, features) * values
        out += _at(self.linear, features)
        out *= values
        return out if self.entry is None else out + _at(self.slope, features) * self.entry(values)

    def shifted(self, means: Array) -> Variance:
        """Return the variance as a function of ``x - means``; not for a variance with ``entry``.

        Parameters
        ----------
        means : ndarray of shape (n_features,)
            What is subtracted from the features.

        Returns
        -------
        Variance
            Equal to this one for the same rows.
        """
        linear = self.linear + 2.0 * (self.quadratic * means)
        constant = self.constant + self.linear * means + self.quadratic * means * means
        # Around the reference there is no constant, whatever the rounding.
        is_reference = (linear == 0.0) & (np.asarray(self.quadratic) > 0.0)
        return replace(self, linear=linear, constant=np.where(is_reference, 0.0, constant))

    def take(self, features: Any) -> Variance:
        """Return the variance of some features.

        Parameters
        ----------
        features : slice, array of bool or array of int
            The features.

        Returns
        -------
        Variance
            With one value for each of these features where there was one per feature.
        """
        own = {name: _at(getattr(self, name), features) for name in ("linear", "quadratic", "constant", "slope")}
        groups = None if self.groups is None else np.unique(self.groups[features], return_inverse=True)[1]
        return replace(self, groups=groups, **own)


def _at(value: Any, features: Any) -> Any:
    return value if np.ndim(value) == 0 else np.asarray(value)[features]
