r"""The noise of a multinomial objective through its moment generating function (MCF-logistic).

Jensen's inequality alone, without a normal score, gives the bound with the exponents::

    e_k = sum_d K_d(d_kd; x_d) + b_k - b_y        K_d(t; x) = log E exp(t x~)

of the differences ``d_k = w_k - w_y``. A log-MGF is convex, so the bound is. In the formulas of
`objective.multinomial`, ``X + V d_k`` becomes ``K'`` at ``d_k``, and ``V`` becomes ``K''``. For groups of features,
``K`` is a sum over groups (`objective.grouped_mgf`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, FeatureGroups, Rows
from dropmargin.noise import Noise, Variance
from dropmargin.objective.grouped_mgf import group_log_mgf
from dropmargin.objective.multinomial_rows import ClassPart, HessianTerms
from dropmargin.typing import Array


class FeatureExpansion(NamedTuple):
    """The log-MGF of rows at one coefficient vector, and its derivatives.

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

    def forward(self, direction: Array) -> Array:
        """Return the derivative along a direction."""
        return self.jacobian.times(direction) + self.slope_of_zero @ direction

    def backward(self, left: Array) -> Array:
        """Return the gradient of the weighted sum over the rows."""
        return self.jacobian.transposed_times(left) + left.sum() * self.slope_of_zero

    def diagonal(self, left: Array) -> Array:
        """Return the diagonal of the second derivative of the weighted sum over the rows."""
        return self.second.transposed_times(left) + left.sum() * self.second_of_zero

    def curvature(self, left: Array, direction: Array) -> Array:
        """Return the second derivative of the weighted sum over the rows, times a direction."""
        return self.diagonal(left) * direction


class GroupExpansion(NamedTuple):
    """The same for groups of features; derivatives by the score of each row and group."""

    value: Array
    slope: Array
    second: Array
    block: Block
    groups: FeatureGroups

    @classmethod
    def of(cls, block: Block, noise: Noise, groups: FeatureGroups, coef: Array) -> GroupExpansion:
        value, slope, second = group_log_mgf(noise, groups, block.group_scores(coef, groups))
        return cls(value.sum(axis=1) + coef @ groups.reference, slope, second, block, groups)

    def forward(self, direction: Array) -> Array:
        along = self.block.group_scores(direction, self.groups)
        return (self.slope * along).sum(axis=1) + self.groups.reference @ direction

    def backward(self, left: Array) -> Array:
        product = self.block.group_transposed(left[:, None] * self.slope, self.groups)
        return product + self.groups.reference * left.sum()

    def diagonal(self, left: Array) -> Array:
        """Return roughly the diagonal, with the mean over the groups of each row."""
        return self.block.squares_transposed((left * self.second.mean(axis=1))[:, None])[:, 0]

    def curvature(self, left: Array, direction: Array) -> Array:
        along = self.block.group_scores(direction, self.groups)
        return self.block.group_transposed(left[:, None] * self.second * along, self.groups)


class LogMGF(NamedTuple):
    """The exponents of a multinomial objective through the log-MGF of the noise; a `ScoreVariance`."""

    noise: Noise
    groups: FeatureGroups | None

    @property
    def variance(self) -> Variance:
        return self.noise.variance()

    @property
    def floor(self) -> float:
        return 0.0

    @property
    def is_diagonal(self) -> bool:
        return self.groups is None

    def take(self, features: Array | slice) -> LogMGF:
        return self

    def exponents(self, block: Block, coef: Array) -> Array:
        return np.stack([own.value for own in self.expand(block, coef)], axis=1)

    def gradient(self, block: Block, left: Array, coef: Array) -> tuple[Array, Array | float]:
        image, second = np.empty(coef.shape), np.zeros(coef.shape)
        for k, own in enumerate(self.expand(block, coef)):
            image[:, k] = own.backward(left[:, k])
            if self.is_diagonal:
                second[:, k] = own.diagonal(left[:, k])
        return image, second

    def hessian(self, block: Block, terms: HessianTerms, with_noise: bool) -> tuple[Array, Array]:
        expanded = list(self.expand(block, terms.at))
        change = np.stack([own.forward(terms.along[:, k]) for k, own in enumerate(expanded)], axis=1)
        left = terms.weigh(slice(None), change)
        image = np.stack([own.backward(left[:, k]) for k, own in enumerate(expanded)], axis=1)
        if with_noise:
            for k, own in enumerate(expanded):
                image[:, k] += own.curvature(terms.weighted[:, k], terms.along[:, k])
        return image, left.sum(axis=0)

    def diagonal(self, block: Block, left: Array, coef: Array) -> Array:
        return np.stack([own.diagonal(left[:, k]) for k, own in enumerate(self.expand(block, coef))], axis=1)

    def expand(self, block: Block | list[Any], coef: Array) -> Iterator[FeatureExpansion | GroupExpansion]:
        """Yield the expansion of each column of coefficients, computed here unless it is known."""
        if isinstance(block, list):
            yield from block
            return
        for own in np.ascontiguousarray(coef.T):
            if self.groups is None:
                yield FeatureExpansion.of(block, self.noise, own)
            else:
                yield GroupExpansion.of(block, self.noise, self.groups, own)


# Functions of one partition ---------------------------------------------------------------------------------------


def count_entries(part: Rows) -> tuple[Array]:
    """Return the number of stored entries."""
    return (np.array([part.X.entries().size]),)


def expand_parts(part: Rows, noise: LogMGF, coef: Array, parts: list[ClassPart]) -> list[ClassPart]:
    """Return the rows of each class with their expansions in place of the block."""
    return [own._replace(block=list(noise.expand(own.block, own.differences(coef)))) for own in parts]  # type: ignore[arg-type]
