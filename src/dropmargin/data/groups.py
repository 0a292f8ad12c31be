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
    def members(self) -> list[Any]:
        """The features of each group: a slice if they are neighbours, else their indices."""
        order = np.argsort(self.numbers, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(self.numbers[order])) + 1)
        return [slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part for part in parts]

    def at_reference(self, coef: Array) -> Array:
        """Return ``sum over the features d of g of w_d r_d``, of shape (n_groups, n_outputs)."""
        out = np.zeros((self.n_groups, coef.shape[1]))
        np.add.at(out, self.numbers, self.reference[:, None] * coef)
        return out


def row_weights(weights: Array, a: Array, t: Array, n: int) -> tuple[Array, Array, Array]:
    """Return ``alpha``, ``beta`` and ``h`` of `Block.group_products`, from weights and the products ``a`` and ``t``."""
    A, B, D, h = (weights[:, k * n : (k + 1) * n] for k in range(4))
    return A * a + B * t, B * a + D * t, h


def outputs_of(weights: Array, n: int) -> Iterator[Array]:
    """Yield the weights of each output."""
    for k in range(n):
        yield weights[:, k::n]
