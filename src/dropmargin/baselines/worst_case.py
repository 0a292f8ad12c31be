r"""The hinge loss under the worst deletion of at most ``K`` features of each row (Globerson and Roweis 2006).

With ``a_id = y_i w_d x_id``, what feature ``d`` contributes to the margin of row ``i``, the risk is::

    R(w) = min_b sum_i c_i max(0, u_i - y_i b),     u_i = 1 - sum_d a_id + T_K(a_i)
    T_K(a) = max { alpha.a : 0 <= alpha_d <= 1, sum_d alpha_d <= K } = min_{t >= 0} K t + sum_d max(0, a_d - t)

``T_K(a)`` is the sum of the ``K`` largest of ``max(0, a_d)``, and the best ``t`` the ``K``-th largest of them. The
paper deletes exactly ``K``; to delete a zero changes nothing, so with ``K`` zeros in a row "exactly" and "at most" are
the same, and "at most" does not depend on how many zeros a row happens to have.

``T_K`` does not depend on the offset, so the best offset is found exactly, by sorting. With multipliers ``beta_i`` in
[0, c_i], ``sum_i y_i beta_i = 0``, the plane ``sum_i beta_i - w.sum_i beta_i y_i (x_i * (1 - alpha_i))`` is below ``R``
everywhere and touches it at ``w``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dropmargin.baselines.cutting_planes import Plane
from dropmargin.baselines.stored_rows import RowGroup
from dropmargin.typing import Array

# Selecting some rows of a group costs as much as working on the others, if there are few of those.
_WORTH_SELECTING = 0.8
_ROUNDING = 1e-12


@dataclass(frozen=True)
class WorstCaseRisk:
    """The risk ``R`` of a binary problem.

    Parameters
    ----------
    groups : list of RowGroup
        The rows.
    labels : ndarray of shape (n_rows,)
        -1 or +1.
    weights : ndarray of shape (n_rows,)
        ``c_i > 0``, ``C`` times the sample weight.
    n_deleted : int
        ``K``.
    n_features : int
    fit_intercept : bool
        If not, the offset is 0.
    """

    groups: list[RowGroup]
    labels: Array
    weights: Array
    n_deleted: int
    n_features: int
    fit_intercept: bool

    def __call__(self, coef: Array) -> Plane:
        """Return the risk at ``coef`` and a plane that touches it there."""
        coef = coef.astype(self.groups[0].values.dtype, copy=False)  # once, not in every group
        slack, threshold = self._slacks(coef)
        offset, multipliers = self._best_offset(slack)
        loss = self.weights @ np.maximum(slack - self.labels * offset, 0.0)
        slope = np.zeros(self.n_features)
        for group in self.groups:
            active = multipliers[group.index] > 0.0
            if active.any():
                chosen = group if active.mean() > _WORTH_SELECTING else group.take(active)
                factors = -multipliers[chosen.index] * self.labels[chosen.index]
                slope += chosen.column_sums(self._survivors(chosen, coef, threshold[chosen.index]), factors)
        return Plane(slope, float(multipliers.sum()), float(loss), offset)

    @property
    def is_hopeless(self) -> bool:
        """Whether every row may lose all of its entries: then no weight ever helps, and ``w = 0`` is optimal."""
        return all(self.n_deleted >= group.values.shape[1] for group in self.groups)

    def constant(self) -> tuple[float, float]:
        """Return the risk and the offset at ``w = 0``."""
        slack = np.ones(len(self.labels))
        offset, _ = self._best_offset(slack)
        return float(self.weights @ np.maximum(slack - self.labels * offset, 0.0)), offset

    def _slacks(self, coef: Array) -> tuple[Array, Array]:
        """Return ``u_i`` and the thresholds ``t_i`` above which entries are deleted (infinite for ``K = 0``)."""
        n_rows, K = len(self.labels), self.n_deleted
        slack, threshold = np.empty(n_rows), np.full(n_rows, np.inf)
        for group in self.groups:
            entries = group.contributions(coef, self.labels)
            width = entries.shape[1]
            slack[group.index] = 1.0 - entries.sum(axis=1)
            if K == 0:
                continue
            if width > K:
                kth = np.partition(entries, width - K, axis=1)[:, width - K]
                kth = np.maximum(kth, 0.0, out=kth)
            else:
                kth = np.zeros(len(entries), dtype=entries.dtype)
            threshold[group.index] = kth
            entries -= kth[:, None]
            np.maximum(entries, 0.0, out=entries)
            slack[group.index] += K * kth.astype(np.float64) + entries.sum(axis=1)
        return slack, threshold

    def _survivors(self, group: RowGroup, coef: Array, threshold: Array) -> Array:
        """Return ``x_i * (1 - alpha_i)``: the values without those whose deletion hurts most."""
        if self.n_deleted == 0:
            return group.values
        entries = group.contributions(coef, self.labels)
        threshold = threshold[:, None].astype(entries.dtype)  # exact: it came from there
        deleted = (entries >= threshold) & (entries > 0.0)
        kept = group.values * ~deleted
        # Where more entries than K reach the threshold, those on it share what is left to delete.
        excess = deleted.sum(axis=1) - self.n_deleted
        for row in np.flatnonzero(excess > 0):
            tied = entries[row] == threshold[row]
            kept[row, tied] = group.values[row, tied] * (excess[row] / tied.sum())
        return kept

    def _best_offset(self, slack: Array) -> tuple[float, Array]:
        """Return the ``b`` that minimises ``sum_i c_i max(0, u_i - y_i b)``, and multipliers of zero derivative.

        The derivative by ``b`` is ``-sum of c_i with y_i = 1`` far to the left, and rises by ``c_i`` at ``y_i u_i``.
        """
        if not self.fit_intercept:
            return 0.0, np.where(slack > 0.0, self.weights, 0.0)
        kinks = self.labels * slack
        order = np.argsort(kinks, kind="stable")
        derivative = np.cumsum(self.weights[order]) - self.weights[self.labels > 0.0].sum()
        rounding = _ROUNDING * self.weights.sum()
        at = min(int(np.searchsorted(derivative, -rounding)), len(order) - 1)
        offset = float(kinks[order[at]])
        if derivative[at] <= rounding and at + 1 < len(order):  # flat up to the next kink
            offset = 0.5 * (offset + float(kinks[order[at + 1]]))
        multipliers = np.where(self.labels * (kinks - offset) > 0.0, self.weights, 0.0)
        # Rows at the kink may have any share of their weight: it is what balances the others.
        surplus = float(self.labels @ multipliers)
        balancing = (kinks == offset) & (self.labels * surplus < 0.0)
        if balancing.any():
            multipliers[balancing] = self.weights[balancing] * min(1.0, abs(surplus) / self.weights[balancing].sum())
        return offset, multipliers
