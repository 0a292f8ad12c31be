"""Groups of features that share a random variable, and the products that they need.

With groups ``g``, references ``r_d`` and the variance factor ``c_g`` of a group, the score of a row has the variance::

    v_i = sum_g c_g s_ig^2              s_ig(w) = sum over the features d of g of w_d (x_id - r_d)

Its derivative by ``w_d`` is ``2 c_g s_ig(w) (x_id - r_d)``, and half its second derivative along ``w`` and ``p`` is
``t_i = sum_g c_g s_ig(w) s_ig(p)``. Blocks compute these in one pass; what sparse rows leave out, the references and a
diagonal, is the same function of sums over all rows, and is added once for all blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

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
    def slope_by_feature(self) -> Array:
        """The variance factor of each feature's group, of shape (n_features, 1)."""
        return self.slope[self.numbers, None]

    @cached_property
    def scaled_reference(self) -> Array:
        """``c_g r_d``, of shape (n_features, 1)."""
        return self.slope_by_feature * self.reference[:, None]

    @cached_property
    def has_reference(self) -> bool:
        return bool(self.reference.any())

    @cached_property
    def _adding(self) -> sparse.csr_array:
        """The matrix that adds up the features of each group."""
        ones = np.ones(len(self.numbers))
        return sparse.csr_array((ones, (self.numbers, np.arange(len(ones)))), shape=(self.n_groups, len(ones)))

    @cached_property
    def members(self) -> list[Any]:
        """The features of each group: a slice if they are neighbours, else their indices."""
        order = np.argsort(self.numbers, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(self.numbers[order])) + 1)
        return [slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part for part in parts]

    def take(self, features: Array) -> FeatureGroups:
        """Return the groups of some features."""
        groups, numbers = np.unique(self.numbers[features], return_inverse=True)
        return FeatureGroups(numbers, self.slope[groups], self.reference[features])

    def by_group(self, values: Array) -> Array:
        """Return the sums of values over the features of each group, of shape (n_groups, n_outputs)."""
        return self._adding @ values

    def by_feature(self, values: Array) -> Array:
        """Return the value of each feature's group, of shape (n_features, n_outputs)."""
        return values.take(self.numbers, axis=0)

    def at_reference(self, coef: Array) -> Array:
        """Return ``sum over the features d of g of w_d r_d``, of shape (n_groups, n_outputs)."""
        if not self.has_reference:
            return np.zeros((self.n_groups, coef.shape[1]))
        return self.by_group(self.reference[:, None] * coef)


class GroupSums(NamedTuple):
    """Transposed products ``sum_i x_id alpha_i + (x_id - r_d) c_g beta_i s_ig(w)`` of a block, by feature and output.

    A block of sparse rows has ``x_id`` in place of ``x_id - r_d`` in its ``product``; ``transposed`` and ``total`` are
    the sums of ``x_id beta_i`` and of ``beta_i``, from which `GroupOperand.complete` computes the rest, for all blocks
    together. They are zero if nothing is left out.
    """

    product: Array
    transposed: Array
    total: Array


@dataclass(frozen=True, eq=False)
class GroupOperand:
    """Coefficients ``w`` as the operand of products with groups of features.

    All partitions share what is derived from them.

    Parameters
    ----------
    groups : FeatureGroups
    coef : ndarray of shape (n_features, n_outputs)
    """

    groups: FeatureGroups
    coef: Array

    @cached_property
    def at(self) -> Array:
        """See `FeatureGroups.at_reference`."""
        return self.groups.at_reference(self.coef)

    @cached_property
    def scaled(self) -> Array:
        """``c_g w_d``."""
        return self.groups.slope_by_feature * self.coef

    @cached_property
    def scaled_at(self) -> Array:
        """``c_g at_g``, by feature."""
        return self.groups.by_feature(self.groups.slope[:, None] * self.at)

    @cached_property
    def scaled_deviation(self) -> Array:
        """``c_g (w_d - at_g)``."""
        return self.scaled - self.scaled_at

    @cached_property
    def own_direction(self) -> GroupDirection:
        """The coefficients as the direction."""
        return GroupDirection(self, self.coef)

    def complete(self, sums: GroupSums) -> Array:
        """Return the products of all blocks, with the references."""
        groups = self.groups
        if not groups.has_reference:
            return sums.product
        by_group = groups.by_group(self.coef * sums.transposed) - self.at * sums.total
        return sums.product - groups.scaled_reference * groups.by_feature(by_group)


@dataclass(frozen=True, eq=False)
class GroupDirection:
    """A direction ``p`` from coefficients ``w``, as the operand of products with groups of features."""

    operand: GroupOperand
    direction: Array

    @cached_property
    def at(self) -> Array:
        """See `FeatureGroups.at_reference`."""
        return self.operand.groups.at_reference(self.direction)

    @cached_property
    def at_by_feature(self) -> Array:
        return self.operand.groups.by_feature(self.at)

    @property
    def constant(self) -> Array:
        """``t_i`` of a row of zeros, one number per output."""
        return self.operand.groups.slope @ (self.operand.at * self.at)

    @cached_property
    def factors_of_values(self) -> Array:
        """The factors ``(p, u, v)`` of entries that are the only ones of their groups, output by output.

        ``a_i`` is the sum of ``p_d x_id``, and ``t_i`` less the constant that of ``u_d x_id + v_d p_d x_id^2``.
        """
        operand, p = self.operand, self.direction
        out = np.zeros((p.shape[1], len(p), 3))
        out[:, :, 0], out[:, :, 2] = p.T, operand.scaled.T
        if operand.groups.has_reference:
            out[:, :, 1] = -(operand.scaled_at * p + self.at_by_feature * operand.scaled).T
        return out

    @cached_property
    def factors_of_ones(self) -> Array:
        """The factors ``(p, u + v p)``, for entries that are all one."""
        operand, p = self.operand, self.direction
        factor = operand.scaled_deviation * p
        if operand.groups.has_reference:
            factor -= self.at_by_feature * operand.scaled
        out = np.empty((p.shape[1], len(p), 2))
        out[:, :, 0], out[:, :, 1] = p.T, factor.T
        return out

    @cached_property
    def scaled(self) -> Array:
        """``(c_g w_d, c_g p_d)``, output by output."""
        out = np.empty((*self.direction.T.shape, 2))
        out[:, :, 0] = self.operand.scaled.T
        np.multiply(self.operand.groups.slope_by_feature.T, self.direction.T, out=out[:, :, 1])
        return out

    def complete(self, sums: GroupSums, alone: GroupSums) -> Array:
        """Return the products of all blocks, with the references and with what they leave out of ``h``.

        ``alone`` has ``c_g (X * X)' h``, ``X' h`` and the sum of ``h`` of the blocks that leave something out.
        """
        operand, p, groups = self.operand, self.direction, self.operand.groups
        out = alone.product * p
        out += sums.product
        if groups.has_reference:
            out -= groups.slope_by_feature * alone.transposed * self.at_by_feature
            by_group = groups.by_group(operand.coef * sums.transposed + p * alone.transposed)
            by_group -= operand.at * sums.total + self.at * alone.total
            out -= groups.scaled_reference * groups.by_feature(by_group)
        return out


def row_weights(weights: Array, a: Array, t: Array, n: int) -> tuple[Array, Array, Array]:
    """Return ``alpha``, ``beta`` and ``h`` of `Block.group_products`, from weights and the products ``a`` and ``t``."""
    A, B, D, h = (weights[:, k * n : (k + 1) * n] for k in range(4))
    return A * a + B * t, B * a + D * t, h


def outputs_of(weights: Array, n: int) -> Iterator[Array]:
    """Yield the weights of each output."""
    for k in range(n):
        yield weights[:, k::n]


class Cells(ABC):
    """The scores of the groups in each row: a cell is a row and a group of which it has entries.

    Arrays of cells have one column per output; the first axes depend on the rows. ``s_ig`` of a row without entries of
    a group is ``-sum of w_d r_d``, the same for all rows.

    Attributes
    ----------
    groups : FeatureGroups
    groups_of_cells : ndarray of int
        The group of each cell, in a shape that broadcasts with the first axes of arrays of cells.
    has_zeros : bool
        Whether rows may lack cells whose ``s_ig`` is not zero.
    """

    groups: FeatureGroups
    groups_of_cells: Array
    has_zeros = False

    @abstractmethod
    def sums(self, coef: Array) -> Array:
        """Return ``s_ig`` of each cell."""

    @abstractmethod
    def transposed(self, values: Array) -> Array:
        """Return ``sum_i values_ig (x_id - r_d)`` by feature; where rows lack cells, with ``x_id`` alone."""

    @abstractmethod
    def squares_transposed(self, values: Array) -> Array:
        """Return the same with the squares."""

    @abstractmethod
    def by_row(self, values: Array) -> Array:
        """Return the sums over the cells of each row."""

    @abstractmethod
    def of_rows(self, values: Array) -> Array:
        """Return the values of the row of each cell."""

    def at_zero(self, coef: Array) -> Array | None:
        """Return ``s_ig`` of a row without entries, of shape (n_groups, n_outputs), if rows may lack cells."""
        return -self.groups.at_reference(coef) if self.has_zeros else None

    def of_groups(self, values: Array) -> Array:
        """Return the values of the group of each cell."""
        return values[self.groups_of_cells]

    def by_group(self, values: Array) -> Array:
        """Return the sums over the cells of each group."""
        raise NotImplementedError


class DenseCells(Cells):
    """Cells of dense rows, in arrays of shape (n_groups, n_rows, n_outputs)."""

    def __init__(self, rows: Array, groups: FeatureGroups) -> None:
        self.groups, self.groups_of_cells = groups, np.arange(groups.n_groups)[:, None]
        deviations = rows - groups.reference.astype(rows.dtype) if groups.has_reference else rows
        self.parts = [np.ascontiguousarray(deviations[:, members]) for members in groups.members]

    def sums(self, coef: Array) -> Array:
        out = np.empty((len(self.parts), len(self.parts[0]), coef.shape[1]))
        for own, part, members in zip(out, self.parts, self.groups.members, strict=True):
            own[:] = part @ coef[members].astype(part.dtype, copy=False)
        return out

    def transposed(self, values: Array) -> Array:
        return self._transposed(self.parts, values)

    def squares_transposed(self, values: Array) -> Array:
        return self._transposed([np.square(part) for part in self.parts], values)

    def _transposed(self, parts: list[Array], values: Array) -> Array:
        out = np.empty((len(self.groups.numbers), values.shape[2]))
        for own, part, members in zip(values, parts, self.groups.members, strict=True):
            out[members] = (own.T.astype(part.dtype, copy=False) @ part).T
        return out

    def by_row(self, values: Array) -> Array:
        return values.sum(axis=0)

    def of_rows(self, values: Array) -> Array:
        return values


class SparseCells(Cells):
    """Cells of CSR rows, in arrays of shape (n_cells, n_outputs): rows of a finer CSR matrix."""

    def __init__(self, rows: Any, groups: FeatureGroups) -> None:
        numbers, n_rows = groups.numbers[rows.indices], rows.shape[0]
        row = np.repeat(np.arange(n_rows), np.diff(rows.indptr))
        order = np.lexsort((numbers, row))
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (np.diff(row[order]) != 0) | (np.diff(numbers[order]) != 0)
        first = np.flatnonzero(is_first)
        pointers = np.append(first, len(order))
        data, features = rows.data[order].astype(np.float64), rows.indices[order]
        self.groups, self.groups_of_cells, self.has_zeros = groups, numbers[order][first], groups.has_reference
        self.entries = sparse.csr_array((data, features, pointers), shape=(len(first), rows.shape[1]))
        self.rows_of_cells = row[order][first]
        counts = np.bincount(self.rows_of_cells, minlength=n_rows)
        ones, index = np.ones(len(first)), np.arange(len(first))
        self._to_rows = sparse.csr_array((ones, index, np.append(0, np.cumsum(counts))), shape=(n_rows, len(first)))
        shape = groups.n_groups, len(first)
        self._to_groups = sparse.csr_array((ones, (self.groups_of_cells, index)), shape=shape)

    def sums(self, coef: Array) -> Array:
        sums = self.entries @ coef
        return sums - self.of_groups(self.groups.at_reference(coef)) if self.has_zeros else sums

    def transposed(self, values: Array) -> Array:
        return self.entries.T @ values

    def squares_transposed(self, values: Array) -> Array:
        return self.entries.power(2).T @ values

    def by_row(self, values: Array) -> Array:
        return self._to_rows @ values

    def of_rows(self, values: Array) -> Array:
        return values[self.rows_of_cells]

    def by_group(self, values: Array) -> Array:
        return self._to_groups @ values
