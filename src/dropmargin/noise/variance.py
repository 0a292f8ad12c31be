"""The variance of a corrupted feature as a function of its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dropmargin.data import FeatureGroups, SquaredDeviation
from dropmargin.typing import Array


@dataclass(frozen=True)
class Variance:
    """The variance of a corrupted feature, ``V_id = slope_d * entry(x_id) + floor_d``.

    Parameters
    ----------
    entry : callable or None, default=None
        An element-wise function of the entries; ``None`` if the variance does not depend on ``x``. If ``entry(0)`` is
        not 0, all entries of a row must be stored, also zeros, unless it is a `SquaredDeviation`.
    slope : float or ndarray of shape (n_features,), default=0.0
        The factor of ``entry``.
    floor : float or ndarray of shape (n_features,), default=0.0
        The variance of a feature that is zero.
    groups : ndarray of int, of shape (n_features,), default=None
        The groups of features that share their random variable; ``None`` if all features are independent. ``V`` is the
        variance of one feature also if there are groups.

    Examples
    --------
    >>> from dropmargin import DropoutNoise, GaussianNoise
    >>> DropoutNoise(rate=0.5).variance().has_floor
    False
    >>> GaussianNoise(scale=0.1).variance().has_floor
    True
    """

    entry: Callable[[Array], Array] | None = None
    slope: float | Array = 0.0
    floor: float | Array = 0.0
    groups: Array | None = None

    @cached_property
    def is_zero(self) -> bool:
        """Whether the variance of every feature is zero."""
        return not (self.moves_entries or self.has_floor)

    @cached_property
    def moves_entries(self) -> bool:
        """Whether the variance depends on the entries of ``X``."""
        return self.entry is not None and bool(np.any(self.slope))

    @cached_property
    def has_floor(self) -> bool:
        """Whether the noise corrupts zeros by ``floor``."""
        return bool(np.any(self.floor))

    @cached_property
    def moves_zeros(self) -> bool:
        """Whether the noise corrupts zeros, by ``floor`` or by ``entry(0)``."""
        if self.entry is None or not self.moves_entries or isinstance(self.entry, SquaredDeviation):
            return self.has_floor or self.moves_entries
        return self.has_floor or bool(self.entry(np.zeros(1))[0])

    def feature_groups(self, n_features: int) -> FeatureGroups:
        """Return the groups in the form that products with the data need.

        Parameters
        ----------
        n_features : int
            The number of features.

        Returns
        -------
        FeatureGroups
            The groups, with their variance factors and reference values.
        """
        assert self.groups is not None
        reference = self.entry.reference if isinstance(self.entry, SquaredDeviation) else np.zeros(n_features)
        slope = np.zeros(int(self.groups.max()) + 1)
        slope[self.groups] = self.slope
        return FeatureGroups(self.groups, slope, reference)

    def take(self, features: Array) -> Variance:
        """Return the variance of some features.

        Parameters
        ----------
        features : ndarray of int
            The indices of the features.

        Returns
        -------
        Variance
            The variance, with one value for each of these features where there was one per feature.
        """
        entry = self.entry
        if isinstance(entry, SquaredDeviation):
            entry = SquaredDeviation(entry.reference[features], entry.less_zero)
        slope, floor = (own if np.ndim(own) == 0 else np.asarray(own)[features] for own in (self.slope, self.floor))
        groups = None if self.groups is None else np.unique(self.groups[features], return_inverse=True)[1]
        return replace(self, entry=entry, slope=slope, floor=floor, groups=groups)

    def of_stored_entries(self) -> Variance:
        """Return the same variance for rows that do not store zeros.

        Returns
        -------
        Variance
            ``entry`` is less its value for zero, and ``floor`` has that value.
        """
        if not isinstance(self.entry, SquaredDeviation) or not self.moves_entries or self.entry.less_zero:
            return self
        reference = self.entry.reference
        return replace(
            self,
            entry=SquaredDeviation(reference, less_zero=True),
            floor=self.floor + self.slope * np.square(reference),
        )
