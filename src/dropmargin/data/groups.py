"""Groups of features that share a random variable, and the products that they need.

With groups ``g``, references ``r_d`` and the variance factor ``c_g`` of a group, the score of a row has the variance::

    v_i = sum_g c_g s_ig^2              s_ig(w) = sum over the features d of g of w_d (x_id - r_d)

Its derivative by ``w_d`` is ``2 c_g s_ig(w) (x_id - r_d)``, and half its second derivative along ``w`` and ``p`` is
``t_i = sum_g c_g s_ig(w) s_ig(p)``. `Block.group_moments` and `Block.group_products` compute these in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class FeatureGroups:
    """Groups of the features of a block.

    Parameters
    ----------
    numbers : ndarray of int, of shape (n_features,)
        The group of each feature; all numbers below ``n_groups`` occur.
    slope : ndarray of shape (n_groups,)
        The variance factors ``c_g``.
    reference : ndarray of shape (n_features,)
    """

    numbers: Array
    slope: Array
    reference: Array

    @property
    def n_groups(self) -> int:
        return len(self.slope)

    @cached_property
    def short_numbers(self) -> Array:
        """``numbers`` as 32-bit integers."""
        return self.numbers.astype(np.int32)

    @cached_property
    def are_adjacent(self) -> bool:
        """Whether the features of every group are neighbours."""
        return int(np.count_nonzero(np.diff(self.numbers))) == self.n_groups - 1

    @cached_property
    def members(self) -> list[Any]:
        """The features of each group: a slice if they are neighbours, else their indices."""
        order = np.argsort(self.numbers, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(self.numbers[order])) + 1)
        return [slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part for part in parts]

    def at_reference(self, coef: Array) -> Array:
        """Return ``sum over the features d of g of w_d r_d``, of shape (n_groups, n_outputs)."""
        by_feature = (self.reference * coef[:, k] for k in range(coef.shape[1]))
        return np.stack([np.bincount(self.numbers, own, self.n_groups) for own in by_feature], axis=1)


@dataclass(frozen=True, eq=False)
class GroupOperand:
    """Coefficients, and a direction if there is one, as the operand of products with groups of features.

    All partitions share what is derived from them.
    """

    groups: FeatureGroups
    coef: Array
    direction: Array | None = None

    @cached_property
    def by_output(self) -> list[tuple[Array, Array]]:
        """For each output, the rows ``(w)`` or ``(w, p)`` by feature and ``(c_g, at_g(w), at_g(p))`` by group.

        ``at_g`` is what a group has where all features are zero; see `FeatureGroups.at_reference`.
        """
        groups, given = self.groups, [self.coef] if self.direction is None else [self.coef, self.direction]
        at = [groups.at_reference(array) for array in given]
        nothing = np.zeros(groups.n_groups)
        return [
            (
                np.stack([array[:, k] for array in given], axis=1),
                np.stack([groups.slope, at[0][:, k], at[1][:, k] if len(at) > 1 else nothing], axis=1),
            )
            for k in range(self.coef.shape[1])
        ]


def row_weights(weights: Array, a: Array, t: Array, n: int) -> tuple[Array, Array, Array]:
    """Return ``alpha``, ``beta`` and ``h`` of `Block.group_products`, from weights and the products ``a`` and ``t``."""
    A, B, D, h = (weights[:, k * n : (k + 1) * n] for k in range(4))
    return A * a + B * t, B * a + D * t, h


def outputs_of(weights: Array, n: int) -> Iterator[Array]:
    """Yield the weights of each output."""
    for k in range(n):
        yield weights[:, k::n]
