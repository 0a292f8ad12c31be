r"""The hinge loss under the worst deletion of at most ``K`` features of each row (Globerson and Roweis 2006).

With ``a_id = y_i w_d x_id``, the contribution of feature ``d`` to the margin of row ``i``, the risk is::

    R(w) = min_b sum_i c_i max(0, u_i - y_i b),     u_i = 1 - sum_d a_id + T_K(a_i)
    T_K(a) = max { alpha.a : 0 <= alpha_d <= 1, sum_d alpha_d <= K } = min_{t >= 0} K t + sum_d max(0, a_d - t)

``T_K(a)`` is the sum of the ``K`` largest of ``max(0, a_d)``, and the optimal ``t`` is the ``K``-th largest of them.
The paper deletes exactly ``K`` features. Deleting a zero has no effect, so both are the same for a row with ``K``
zeros, and "at most" does not depend on the number of zeros.

With ``0 <= beta_i <= c_i``, ``sum_i y_i beta_i = 0``, the plane ``sum_i beta_i - w.sum_i beta_i y_i x_i (1 - alpha_i)``
is below ``R`` everywhere, and equal to ``R`` at the ``w`` that ``alpha`` and ``beta`` are optimal for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dropmargin.typing import Array
from reproduction.fdrop.bundle import Plane

# A block has about this many entries, so that its temporary arrays fit into the cache.
_BLOCK_ENTRIES = 2**17
# The longest row of a block has at most about this many times the entries of the shortest.
_LENGTH_RATIO = 1.2
_ROUNDING = 1e-12


class RowBlock(NamedTuple):
    """The non-zero entries of some rows as rectangles of shape (n_rows, width), padded with zeros."""

    rows: Array
    columns: Array
    values: Array


def pad_rows(X: Any) -> list[RowBlock]:
    """Return the rows of ``X``, dense or CSR, in blocks of rows of similar length."""
    X = sparse.csr_array(X)
    lengths = np.diff(X.indptr)
    length_class = np.ceil(np.log(np.maximum(lengths, 1)) / np.log(_LENGTH_RATIO))
    blocks = []
    for number in np.unique(length_class):
        members = np.flatnonzero(length_class == number)
        for index in np.array_split(members, 1 + int(lengths[members].sum()) // _BLOCK_ENTRIES):
            rows, is_used = X[index], np.arange(max(1, lengths[index].max())) < lengths[index, None]
            columns, values = np.zeros(is_used.shape, dtype=np.intp), np.zeros(is_used.shape, dtype=X.dtype)
            columns[is_used], values[is_used] = rows.indices, rows.data
            blocks.append(RowBlock(index, columns, values))
    return blocks


@dataclass(frozen=True)
class WorstCaseRisk:
    """The risk ``R`` of a binary problem, with labels -1 and 1, ``c_i`` in ``weights``, and ``b = 0`` if not fitted."""

    blocks: list[RowBlock]
    labels: Array
    weights: Array
    n_deleted: int
    n_features: int
    fit_intercept: bool

    def __call__(self, coef: Array) -> Plane:
        """Return the risk at ``coef`` and a plane that touches it there."""
        coef = coef.astype(self.blocks[0].values.dtype, copy=False)
        slack, thresholds = np.empty(len(self.labels)), []
        for block in self.blocks:
            slack[block.rows], threshold = self._slack(self._contributions(block, coef))
            thresholds.append(threshold)
        intercept, beta = self._best_intercept(slack)
        slope = np.zeros(self.n_features)
        for block, threshold in zip(self.blocks, thresholds, strict=True):
            active = np.flatnonzero(beta[block.rows])
            part = RowBlock(*(array[active] for array in block))
            factors = beta[part.rows, None] * self.labels[part.rows, None]
            remaining = part.values * factors * self._not_deleted(part, coef, threshold[active])
            slope -= np.bincount(part.columns.ravel(), remaining.ravel(), minlength=self.n_features)
        risk = self.weights @ np.maximum(slack - self.labels * intercept, 0.0)
        return Plane(slope, float(beta.sum()), float(risk), intercept)

    def _contributions(self, block: RowBlock, coef: Array) -> Array:
        """Return ``a_id``."""
        out = coef.take(block.columns)
        out *= block.values
        out *= self.labels[block.rows, None].astype(out.dtype)
        return out

    def _slack(self, contributions: Array) -> tuple[Array, Array]:
        """Return ``u_i`` and the threshold ``t_i`` (infinite for ``K = 0``, where nothing is deleted)."""
        (n_rows, width), K = contributions.shape, self.n_deleted
        slack = 1.0 - contributions.sum(axis=1, dtype=np.float64)
        threshold = np.zeros((n_rows, 1), dtype=contributions.dtype)
        if K == 0:
            return slack, threshold + np.inf
        if width > K:
            kth = np.partition(contributions, width - K, axis=1)[:, width - K, None]
            threshold = np.maximum(kth, 0.0)
        excess = np.maximum(contributions - threshold, 0.0)
        return slack + excess.sum(axis=1, dtype=np.float64) + K * threshold[:, 0].astype(np.float64), threshold

    def _not_deleted(self, block: RowBlock, coef: Array, threshold: Array) -> Any:
        """Return ``1 - alpha``: entries above the threshold are deleted, those equal to it share the rest of ``K``."""
        if self.n_deleted == 0:
            return 1.0
        contributions = self._contributions(block, coef)
        above, tied = contributions > threshold, contributions == threshold
        rest = self.n_deleted - above.sum(axis=1, keepdims=True)
        return 1.0 - above - np.minimum(rest / np.maximum(tied.sum(axis=1, keepdims=True), 1), 1.0) * tied

    def _best_intercept(self, slack: Array) -> tuple[float, Array]:
        """Return the ``b`` that minimises ``sum_i c_i max(0, u_i - y_i b)``, and ``beta``.

        The derivative is ``-sum of c_i with y_i = 1`` for small ``b``, and rises by ``c_i`` at each ``y_i u_i``.
        """
        if not self.fit_intercept:
            return 0.0, np.where(slack > 0.0, self.weights, 0.0)
        kinks = self.labels * slack
        order = np.argsort(kinks, kind="stable")
        derivative = np.cumsum(self.weights[order]) - self.weights[self.labels > 0.0].sum()
        rounding = _ROUNDING * self.weights.sum()
        at = min(int(np.searchsorted(derivative, -rounding)), len(order) - 1)
        intercept = float(kinks[order[at]])
        if derivative[at] <= rounding and at + 1 < len(order):  # all up to the next kink are optimal
            intercept = 0.5 * (intercept + float(kinks[order[at + 1]]))
        beta = np.where(self.labels * (kinks - intercept) > 0.0, self.weights, 0.0)
        # For rows at the kink, beta may be any value in [0, c_i]: the derivative becomes zero.
        surplus = float(self.labels @ beta)
        balancing = (kinks == intercept) & (self.labels * surplus < 0.0)
        if balancing.any():
            beta[balancing] = self.weights[balancing] * min(1.0, abs(surplus) / self.weights[balancing].sum())
        return intercept, beta
