r"""The log-MGF of the noisy scores of rows at one coefficient vector, and its derivatives.

For independent features, and for features that are dropped in groups with the scores ``s_ig`` of `data.groups`, the
rates ``q_g`` and the references ``r_d``::

    K_i = sum_d K_d(w_d; x_id)                 K_d(t; x) = log E exp(t x~)
    K_i = w.r + sum_g k_g(s_ig)                k_g(u) = log(q_g + (1 - q_g) exp(u / (1 - q_g)))

The Jacobian is ``K_d'(w_d; x_id)``, or ``k_g'(s_ig) (x_id - r_d) + r_d``. The second derivative of a row is diagonal
for independent features, and of rank one for each group.

A feature that is zero may still have a ``K``, the same for every row. Sums over features run over the stored entries
with ``K(t; x) - K(t; 0)``, and ``K(t; 0)`` is added once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dropmargin.data import Block, FeatureGroups
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.typing import Array


class FeatureExpansion(NamedTuple):
    """The expansion for independent features.

    ``jacobian`` and ``second`` have the derivatives of the stored entries, less those of a zero in their place, which
    ``slope_of_zero`` and ``second_of_zero`` have for each feature.
    """

    value: Array
    jacobian: Block
    second: Block
    slope_of_zero: Array
    second_of_zero: Array

    @classmethod
    def of(cls, block: Block, noise: Noise, coef: Array) -> FeatureExpansion:
        """Return the expansion of the rows of a block."""
        entries = np.asarray(block.entries(), dtype=np.float64)
        features = block.spread(np.arange(block.n_features))
        arguments = np.broadcast_to(block.spread(coef), entries.shape)
        at_zero = noise.log_mgf(coef, np.zeros_like(coef))
        with np.errstate(invalid="ignore"):
            value, slope, second = (
                own - block.spread(zero)
                for own, zero in zip(noise.take(features).log_mgf(arguments, entries), at_zero, strict=True)
            )
            total = block.row_sums(value) + at_zero[0].sum()
        # inf - inf is outside the noise's domain
        total = np.where(np.isnan(total), np.inf, total)
        return cls(total, block.with_entries(slope), block.with_entries(second), at_zero[1], at_zero[2])

    def forward(self, direction: Array) -> tuple[Array, Array]:
        """Return the derivative along a direction, and the direction in the form that `backward` needs."""
        return self.jacobian.times(direction) + self.slope_of_zero @ direction, direction

    def backward(self, left: Array, second: Array | None = None, along: Array | None = None) -> Array:
        """Return the gradient of the sum over the rows, weighted by ``left``.

        With ``second``, plus the second derivative of the sum weighted by that, times a direction of `forward`.
        """
        gradient = self.jacobian.transposed_times(left) + left.sum() * self.slope_of_zero
        return gradient if second is None else gradient + self.diagonal(second) * along

    def diagonal(self, left: Array) -> Array:
        """Return the second derivative of the weighted sum over the rows, which is diagonal."""
        return self.second.transposed_times(left) + left.sum() * self.second_of_zero

    def squares(self, left: Array) -> Array:
        """Return the weighted sum over the rows of the squared Jacobian, of the stored entries alone."""
        return self.jacobian.squares_transposed(left[:, None])[:, 0]


class GroupExpansion(NamedTuple):
    """The same for groups of features: ``slope`` and ``second`` have ``k'`` and ``k''`` of each row and group."""

    value: Array
    slope: Array
    second: Array
    block: Block
    groups: FeatureGroups

    @classmethod
    def of(cls, block: Block, noise: Noise, groups: FeatureGroups, coef: Array) -> GroupExpansion:
        """Return the expansion of the rows of a block."""
        assert isinstance(noise, DropoutNoise)
        rates = np.zeros(groups.n_groups)
        rates[groups.numbers] = noise.rate
        # k is the log-MGF of a feature 1
        of_one, ones = DropoutNoise(rates, reference="zero"), np.ones(groups.n_groups)
        value, slope, second = of_one.log_mgf(block.group_scores(coef, groups), ones)
        return cls(value.sum(axis=1) + coef @ groups.reference, slope, second, block, groups)

    def forward(self, direction: Array) -> tuple[Array, Array]:
        along = self.block.group_scores(direction, self.groups)
        return (self.slope * along).sum(axis=1) + self.groups.reference @ direction, along

    def backward(self, left: Array, second: Array | None = None, along: Array | None = None) -> Array:
        by_group = left[:, None] * self.slope
        if second is not None:
            by_group += second[:, None] * self.second * along
        return self.block.group_transposed(by_group, self.groups) + self.groups.reference * left.sum()

    def diagonal(self, left: Array) -> Array:
        """Return roughly the diagonal of the second derivative, with the mean over the groups of each row."""
        return self._squares(left * self.second.mean(axis=1))

    def squares(self, left: Array) -> Array:
        """Return roughly the weighted sum of the squared Jacobian, with the mean over the groups of each row."""
        return self._squares(left * np.square(self.slope).mean(axis=1))

    def _squares(self, left: Array) -> Array:
        return self.block.squares_transposed(left[:, None])[:, 0]


Expansion = FeatureExpansion | GroupExpansion


def expand(block: Block, noise: Noise, groups: FeatureGroups | None, coef: Array) -> Expansion:
    """Return the expansion of the rows of a block at one coefficient vector."""
    if groups is None:
        return FeatureExpansion.of(block, noise, coef)
    return GroupExpansion.of(block, noise, groups, coef)
