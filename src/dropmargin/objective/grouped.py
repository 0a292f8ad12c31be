r"""The moments of the scores if features are corrupted in groups.

The noise has one random variable per group, so the variance of a score is ``v_i = sum_g c_g s_ig^2`` (`data.groups`)::

    gradient     R'(w) + X'(s phi_m) + sum_i h_i c_g s_ig(w) (x_id - r_d)                     h = 2 s phi_v
    Hessian p    R''(w) p + X'(alpha) + sum_i c_g (beta_i s_ig(w) + h_i s_ig(p)) (x_id - r_d)
                 alpha = s (phi_mm a + 2 phi_mv t),  beta = s (2 phi_mv a + 4 phi_vv t)

with ``a = X p + p_b`` and ``t_i = sum_g c_g s_ig(w) s_ig(p)``. The majoriser has ``alpha = s gamma a``, ``beta = 0``.
The preconditioners take the diagonal of the noise's part, that of independent features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.data import Block, GroupDirection, GroupOperand, GroupSums, Rows, products
from dropmargin.noise import Variance
from dropmargin.objective.curvature import CurvatureWeights
from dropmargin.objective.score_moments import ScoreMoments, Sums
from dropmargin.typing import Array


@dataclass(frozen=True, eq=False)
class GroupMoments(GroupOperand, ScoreMoments):
    """See the module's docstring; ``groups`` has the groups of ``variance`` in the form that blocks need."""

    variance: Variance
    is_diagonal = False
    n_gradient_sums = 5

    def scores(self, block: Block) -> tuple[Array, Array]:
        return block.group_moments(self)

    def gradient_sums(self, block: Block, by_mean: Array, h: Array) -> Sums:
        sums, by_entries, alone = block.group_gradient(self, by_mean, h)
        return *sums, by_entries, alone

    def gradient(self, h_total: Array, *sums: Any) -> tuple[Array, ...]:
        product, transposed, total, by_entries, alone = sums
        gradient = self.complete(GroupSums(product, transposed, total))
        return gradient, self.of_noise(by_entries, h_total), alone, transposed, total

    def image_sums(self, block: Block, left: Array, squared: Array | None) -> Sums:
        images, squares = block.group_images(self, left)
        return squares, *images

    def images(self, totals: Array, *sums: Any) -> Array:
        halves = zip(*(np.split(array, 2, axis=-1) for array in sums), strict=True)
        return np.hstack([self.complete(GroupSums(*half)) for half in halves])

    def along(self, direction: Array) -> tuple[GroupDirection, Array]:
        return GroupDirection(self, direction[:-1]), direction[-1]

    @staticmethod
    @products(2)
    def row_product(part: Rows, weights: CurvatureWeights, along: GroupDirection, shift: Array) -> Sums:
        """Return the rows' part of a product, as `GroupSums`, and the sums of what ``X'`` multiplies."""
        product, totals = part.X.group_curvature(along, weights.values, shift)
        return *product, totals

    def product(self, sums: Sums, of_noise: Sums, along: tuple[Any, ...]) -> tuple[Array, Array]:
        *found, totals = sums
        return along[0].complete(GroupSums(*found), GroupSums(*of_noise)), totals

    def half_slope(self, rows: Array, k: int) -> Array:
        groups, deviations = self.groups, rows - self.groups.reference
        scores = np.zeros((len(rows), groups.n_groups))
        for g, members in enumerate(groups.members):
            scores[:, g] = deviations[:, members] @ self.coef[members, k]
        return (groups.slope * scores)[:, groups.numbers] * deviations

    def noise_matrix(self, rows: Array, h: Array) -> Array:
        groups, deviations = self.groups, rows - self.groups.reference
        same_group = groups.numbers[:, None] == groups.numbers
        return np.where(same_group, groups.slope_by_feature * ((deviations * h[:, None]).T @ deviations), 0.0)
