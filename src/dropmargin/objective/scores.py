r"""What a loss needs of the noisy score of each row, as a differentiable function of the coefficients.

For rows that share their coefficients ``W``, one column of scores each::

    z_i = m_i + v_i / 2                        mean and variance of the score: its log-MGF if it is normal
    z_i = K_i(w) = log E exp(w.x~_i)           its log-MGF

A class holds the rows at given coefficients, with ``value`` of shape (n_rows, n_columns), and answers four questions:

    jvp(p)               the derivative of z along a direction p, and ``along``, what `vjp` needs of p
    vjp(u)               the gradient of sum_i u_i z_i
    vjp(u, h, along)     that, plus the second derivative of sum_i h_i z_i times p, by the same pass over the rows
    diagonal(h)          the diagonal of that second derivative (of groups, where zeros are not stored, without them)

and ``squares(u)``, the diagonal of ``sum_i u_i z_i' z_i'^T`` of the stored entries, for a preconditioner.

For independent features with the variances ``V_d(x) = slope_d f(x) + floor_d`` and the log-MGFs ``K_d(t; x)``::

    z_i = sum_d w_d x_id + V_d(x_id) w_d^2 / 2          z_i = sum_d K_d(w_d; x_id)

For groups ``g`` that are dropped together with the rates ``q_g``, references ``r_d`` and ``c_g = q_g / (1 - q_g)``::

    z_i = w.r + sum_g k_g(s_ig)        s_ig = sum over the features d of g of w_d (x_id - r_d)
    k_g(u) = u + c_g u^2 / 2           k_g(u) = log(q_g + (1 - q_g) exp(u / (1 - q_g)))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from dropmargin.data import Block, Cells, FeatureGroups
from dropmargin.noise import DropoutNoise, Noise, Variance
from dropmargin.objective.curvature import as_column
from dropmargin.typing import Array

#: ``k_g``, ``k_g'`` and ``k_g''`` of numbers, given the group of each.
Curve = Callable[[Array, Array], tuple[Array, Array, Array]]


class Scores(Protocol):
    """See the module's docstring."""

    value: Array

    def jvp(self, direction: Array) -> tuple[Array, Any]: ...

    def vjp(self, left: Array, second: Array | None = None, along: Any = None) -> Array: ...

    def diagonal(self, left: Array) -> Array: ...

    def squares(self, left: Array) -> Array: ...


class MomentScores:
    """Mean plus half the variance, for independent features; without ``floor``, which all rows share."""

    def __init__(self, block: Block, variance: Variance, coef: Array) -> None:
        self.block, self.slope = block, as_column(variance.slope) if variance.moves_entries else None
        self.scaled = None if self.slope is None else self.slope * coef
        self.value = self._forward(coef, 0.5)

    def _forward(self, direction: Array, factor: float) -> Array:
        """Return ``X p`` plus a factor times ``V (w * p)``."""
        n = direction.shape[1]
        if self.scaled is None:
            return self.block.forward(direction, n)
        found = self.block.forward(np.hstack([direction, factor * self.scaled * direction]), n)
        return found[:, :n] + found[:, n:]

    def jvp(self, direction: Array) -> tuple[Array, Array]:
        return self._forward(direction, 1.0), direction

    def vjp(self, left: Array, second: Array | None = None, along: Any = None) -> Array:
        n = left.shape[1]
        if self.scaled is None:
            return self.block.backward(left, n)
        back = self.block.backward(np.hstack([left, left] if second is None else [left, left, second]), n)
        out = back[:, :n] + self.scaled * back[:, n : 2 * n]
        return out if second is None else out + self.slope * back[:, 2 * n :] * along

    def diagonal(self, left: Array) -> Array:
        if self.slope is None:
            return np.zeros((self.block.n_features, left.shape[1]))
        return self.slope * self.block.backward(left, 0)

    def squares(self, left: Array) -> Array:
        return self.block.squares_transposed(left)


class LogMGFScores:
    """The log-MGF for independent features.

    A feature that is zero may still have a ``K``, the same for every row. Sums over features run over the stored
    entries with ``K(t; x) - K(t; 0)``, and ``K(t; 0)`` is added once.
    """

    def __init__(self, block: Block, noise: Noise, coef: Array) -> None:
        self.columns = [_LogMGFColumn.of(block, noise, own) for own in np.ascontiguousarray(coef.T)]
        self.value = np.stack([own.value for own in self.columns], axis=1)

    def jvp(self, direction: Array) -> tuple[Array, Array]:
        changes = [
            own.jacobian.times(p) + own.slope_of_zero @ p for own, p in zip(self.columns, direction.T, strict=True)
        ]
        return np.stack(changes, axis=1), direction

    def vjp(self, left: Array, second: Array | None = None, along: Any = None) -> Array:
        out = self._transposed(left, lambda own: (own.jacobian, own.slope_of_zero))
        return out if second is None else out + self.diagonal(second) * along

    def diagonal(self, left: Array) -> Array:
        return self._transposed(left, lambda own: (own.second, own.second_of_zero))

    def squares(self, left: Array) -> Array:
        found = [own.jacobian.squares_transposed(u[:, None]) for own, u in zip(self.columns, left.T, strict=True)]
        return np.hstack(found)

    def _transposed(self, left: Array, of: Callable[[_LogMGFColumn], tuple[Block, Array]]) -> Array:
        out = []
        for own, u in zip(self.columns, left.T, strict=True):
            block, of_zero = of(own)
            out.append(block.transposed_times(u) + u.sum() * of_zero)
        return np.stack(out, axis=1)


class _LogMGFColumn(NamedTuple):
    """The log-MGF at one coefficient vector: its value, and its derivatives by the argument for each stored entry.

    The derivatives are less those of a zero in place of the entry, which the last two have for each feature.
    """

    value: Array
    jacobian: Block
    second: Block
    slope_of_zero: Array
    second_of_zero: Array

    @classmethod
    def of(cls, block: Block, noise: Noise, coef: Array) -> _LogMGFColumn:
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


class GroupScores:
    """Mean plus half the variance, or the log-MGF, for groups of features."""

    def __init__(self, cells: Cells, curve: Curve, coef: Array) -> None:
        self.cells = cells
        score, at = cells.sums(coef), cells.at_zero(coef)
        value, self.slope, self.curvature = curve(score, cells.groups_of_cells)
        self.value = cells.by_row(value) + cells.groups.reference @ coef
        if at is not None:
            of_zero, self.slope_of_zero, self.curvature_of_zero = curve(at, np.arange(cells.groups.n_groups))
            self.value += of_zero.sum(axis=0) - cells.by_row(cells.of_groups(of_zero))

    def jvp(self, direction: Array) -> tuple[Array, tuple[Array, Array | None]]:
        cells = self.cells
        score, at = cells.sums(direction), cells.at_zero(direction)
        change = cells.by_row(self.slope * score) + cells.groups.reference @ direction
        if at is not None:
            of_zero = self.slope_of_zero * at
            change += of_zero.sum(axis=0) - cells.by_row(cells.of_groups(of_zero))
        return change, (score, at)

    def vjp(self, left: Array, second: Array | None = None, along: Any = None) -> Array:
        cells, reference = self.cells, self.cells.groups.reference[:, None]
        weights = cells.of_rows(left)
        values = weights * self.slope
        if second is not None:
            score, at = along
            second_weights = cells.of_rows(second)
            values += second_weights * self.curvature * score
        out = cells.transposed(values)
        if cells.groups.has_reference:
            out += reference * left.sum(axis=0)
        if cells.has_zeros:  # x_id - r_d in place of x_id, also for the cells that rows lack
            of_zero = self.slope_of_zero
            totals = of_zero * left.sum(axis=0) - cells.by_group(weights * cells.of_groups(of_zero))
            if second is not None:
                of_zero = self.curvature_of_zero * at
                totals += of_zero * second.sum(axis=0) - cells.by_group(second_weights * cells.of_groups(of_zero))
            out -= reference * (totals + cells.by_group(values))[cells.groups.numbers]
        return out

    def diagonal(self, left: Array) -> Array:
        return self.cells.squares_transposed(self.cells.of_rows(left) * self.curvature)

    def squares(self, left: Array) -> Array:
        return self.cells.squares_transposed(self.cells.of_rows(left) * np.square(self.slope))


@dataclass(frozen=True)
class NoiseOfScores:
    """The noise as `Scores` need it.

    Parameters
    ----------
    variance : Variance
        For rows that do not store zeros, `Variance.of_stored_entries`.
    noise : Noise or None
        For scores that are log-MGFs; ``None`` for mean and half the variance.
    groups : FeatureGroups or None
    """

    variance: Variance
    noise: Noise | None
    groups: FeatureGroups | None

    @property
    def floor(self) -> Array | float:
        """The variance of each feature that all rows share and `at` leaves out."""
        return self.variance.floor if self.noise is None and self.groups is None else 0.0

    def take(self, features: Array) -> NoiseOfScores:
        """Return the noise of some features."""
        noise = None if self.noise is None else self.noise.take(features)
        groups = None if self.groups is None else self.groups.take(features)
        return NoiseOfScores(self.variance.take(features), noise, groups)

    def rows(self, block: Block) -> Block | Cells:
        """Return the rows of a block in the form that `at` needs, which is the same for all coefficients."""
        return block if self.groups is None else block.cells(self.groups)

    def at(self, rows: Block | Cells, coef: Array, features: Array | None = None) -> Scores:
        """Return the scores of rows that have all features, or some of them, at given coefficients."""
        if isinstance(rows, Cells):
            return GroupScores(rows, self._moment_curve if self.noise is None else self._log_mgf_curve, coef)
        if self.noise is not None:
            return LogMGFScores(rows, self.noise if features is None else self.noise.take(features), coef)
        variance = self.variance
        if features is not None and np.ndim(variance.slope):
            variance = Variance(variance.entry, np.asarray(variance.slope)[features])
        return MomentScores(rows, variance, coef)

    def _moment_curve(self, u: Array, groups: Array) -> tuple[Array, Array, Array]:
        assert self.groups is not None
        c = self.groups.slope[groups][..., None]
        return u + 0.5 * c * np.square(u), 1.0 + c * u, c

    def _log_mgf_curve(self, u: Array, groups: Array) -> tuple[Array, Array, Array]:
        assert self.groups is not None
        assert isinstance(self.noise, DropoutNoise)
        rates = np.zeros(self.groups.n_groups)
        rates[self.groups.numbers] = self.noise.rate
        # k is the log-MGF of a feature 1
        of_one = DropoutNoise(np.broadcast_to(rates[groups][..., None], u.shape), reference="zero")
        return of_one.log_mgf(u, np.ones_like(u))
