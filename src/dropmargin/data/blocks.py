"""Blocks of rows of the data matrix, dense or CSR, behind one interface.

A block holds its rows ``X`` and an element-wise function ``f``, with ``f(0) = 0`` if the rows are sparse; the variance
of the noise is ``slope_d * f(x_d) + floor_d``. It offers two kinds of operations:

- products with ``X`` and ``f(X)``, with their transposes, or with both, in one pass over the rows;
- access to the stored values and their features, for computations that are not products (moment generating functions).

The operands for ``X`` and ``f(X)`` are side by side in one array, and so are the results: the first ``n_x`` columns
belong to ``X``, the others to ``f(X)``. Results are in double precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dropmargin.data.groups import GroupSums
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.data.groups import Cells, FeatureGroups, GroupDirection, GroupOperand

EntryFunction = Callable[[Array], Array]


class SquaredDeviation:
    """The entry function ``(x_d - r_d)^2``, the squared deviation from a reference value per feature.

    Parameters
    ----------
    reference : ndarray of shape (n_features,)
    less_zero : bool, default=False
        Whether the value of a zero, ``r_d^2``, is subtracted: ``x_d (x_d - 2 r_d)``, for rows that do not store zeros.
    """

    def __init__(self, reference: Array, less_zero: bool = False) -> None:
        self.reference = reference
        self.less_zero = less_zero

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SquaredDeviation) or self.less_zero != other.less_zero:
            return False
        return np.array_equal(self.reference, other.reference)

    def __hash__(self) -> int:
        return hash((self.less_zero, self.reference.tobytes()))

    def __call__(self, rows: Array, out: Array | None = None) -> Array:
        """Return the function of rows with all features, in their precision."""
        reference = self.reference.astype(rows.dtype, copy=False)
        if self.less_zero:
            return np.multiply(rows, np.subtract(rows, 2.0 * reference, out=out), out=out)
        deviation = np.subtract(rows, reference, out=out)
        return np.square(deviation, out=deviation)

    def of_entries(self, values: Array, features: Array | slice) -> Array:
        """Return the function of stored entries, given the feature of each, or a slice if rows have all features."""
        reference = self.reference.astype(values.dtype, copy=False)[features]
        return values * (values - 2.0 * reference) if self.less_zero else np.square(values - reference)


def apply_entry(entry: EntryFunction, values: Array, features: Array | slice) -> Array:
    """Return an entry function of stored entries, given the feature of each, or a slice if rows have all features."""
    return entry.of_entries(values, features) if isinstance(entry, SquaredDeviation) else entry(values)


class Block(ABC):
    """Rows of the data matrix: the interface of `DenseBlock` and `SparseBlock`."""

    rows: Any
    entry: EntryFunction | None
    n_rows: int
    n_features: int

    @abstractmethod
    def forward(self, right: Array, n_x: int) -> Array:
        """Return ``X @ right[:, :n_x]`` and ``f(X) @ right[:, n_x:]``, side by side."""

    @abstractmethod
    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X' @ left[:, :n_x]`` and ``f(X)' @ left[:, n_x:]``, side by side."""

    @abstractmethod
    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        """Return the Hessian products of ``n`` outputs, in one pass over the rows.

        With ``right = (p, u)``, ``(a, t) = (X p, f(X) u) + shift`` and ``curvature_weight = (A, B, D)``, one value per
        row and output: ``X'(A a + B t)`` and ``f(X)'(B a + D t)`` side by side, and the sums over the rows of
        ``A a + B t`` and ``B a + D t``. If ``right`` is ``p`` alone and ``curvature_weight`` is ``A`` alone:
        ``X'(A a)`` and the sum of ``A a``.
        """

    @abstractmethod
    def group_moments(self, operand: GroupOperand) -> tuple[Array, Array]:
        """Return ``X @ coef`` and the variances ``v`` of `data.groups`, of shape (n_rows, n_outputs)."""

    @abstractmethod
    def cells(self, groups: FeatureGroups) -> Cells:
        """Return the scores of the groups in each row, as functions of the coefficients."""

    @abstractmethod
    def group_products(
        self, weights: Array, coef: Array, direction: Array | None, shift: Array | None, groups: FeatureGroups
    ) -> tuple[Array, Array]:
        """Return the Hessian products of groups of features, in one pass over the rows.

        With ``weights = (A, B, D, h)``, one value per row and output, ``a = X @ direction + shift``, and ``t`` of
        `data.groups` along ``coef`` and ``direction``: ``alpha = A a + B t`` and ``beta = B a + D t``. With
        ``weights = (alpha, beta)`` and no direction, ``h = 0``. The results are, by feature and output,
        ``sum_i x_id alpha_i + (x_id - r_d) c_g (beta_i s_ig(coef) + h_i s_ig(direction))``, and the sums of ``alpha``.
        """

    @abstractmethod
    def squares_transposed(self, left: Array) -> Array:
        """Return ``(X * X)' @ left``."""

    @abstractmethod
    def weighted_gram(self, curvature_weight: Array) -> Array:
        """Return ``X' diag(curvature_weight) X``, a dense matrix."""

    @abstractmethod
    def outer_gram(self, scale: Array) -> Array:
        """Return ``X diag(scale) X'``, a dense matrix."""

    @abstractmethod
    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows and the rows themselves as dense arrays in double precision."""

    @abstractmethod
    def take_rows(self, mask: Array) -> Block:
        """Return a copy of the rows where ``mask`` is true."""

    def with_rows(self, index: Array) -> Block:
        """Return some of the rows, with the same function ``f``; a view where the rows are dense and neighbours."""
        is_range = len(index) > 0 and index[-1] - index[0] + 1 == len(index)
        chosen = slice(int(index[0]), int(index[-1]) + 1) if is_range else index
        return type(self)(self.rows[chosen], self.entry)  # type: ignore[call-arg]

    def without_empty_features(self) -> tuple[Block, Array | None]:
        """Return the block without its empty features, and the others' numbers; or itself if few are empty."""
        return self, None

    @abstractmethod
    def entries(self) -> Array:
        """Return the stored values: a matrix if the block is dense, a vector if it is sparse."""

    @abstractmethod
    def spread(self, values: Array) -> Array:
        """Return one value per feature, repeated to a shape that broadcasts with `entries`."""

    @abstractmethod
    def spread_rows(self, values: Array) -> Array:
        """Return one value per row, repeated to a shape that broadcasts with `entries`."""

    @abstractmethod
    def with_entries(self, entries: Array) -> Block:
        """Return a block with the same sparsity pattern and other stored values."""

    @abstractmethod
    def row_sums(self, entries: Array) -> Array:
        """Return the sum of ``entries`` in each row."""

    def coupled_product(
        self, direction: Array, scale: Array, shift: Array, curvature_weight: Array
    ) -> tuple[Array, Array]:
        """Return the Hessian products of mean and variance, in one pass over the rows.

        With ``p = direction``, ``u = scale * p`` and the rest as in `sandwich`:
        ``X'(A a + B t) + scale * f(X)'(B a + D t)``, and the same sums.
        """
        n = len(shift) // 2
        back, sums = self.sandwich(np.hstack([direction, scale * direction]), shift, curvature_weight, n)
        return back[:, :n] + scale * back[:, n:], sums

    def images(self, left: Array, scale: Array | None, squared: Array | None) -> tuple[Array, Array | None]:
        """Return the Hessian times two directions whose products with the rows are known, and ``(X * X)' squared``.

        With ``left = (a, b, c, d)``, one value per row and output, and a scale of shape (n_features, n_outputs):
        ``X'a + scale * f(X)'c`` beside ``X'b + scale * f(X)'d``. Without a scale, ``left`` is ``(a, b)`` alone.
        """
        n_x = left.shape[1] if scale is None else left.shape[1] // 2
        if squared is None:
            back, squares = self.backward(left, n_x), None
        else:
            back, squares = self.backward_and_squares(left, n_x, squared)
        if scale is None:
            return back, squares
        return back[:, :n_x] + np.hstack([scale, scale]) * back[:, n_x:], squares

    def group_curvature(self, along: GroupDirection, weights: Array, shift: Array) -> tuple[GroupSums, Array]:
        """Return `group_products` along a direction, as `GroupSums`, and the sums of ``alpha``.

        A block whose `group_gradient` returns ``alone`` leaves the part of ``h`` that has one entry to
        `GroupDirection.complete`.
        """
        operand = along.operand
        product, sums = self.group_products(weights, operand.coef, along.direction, shift, operand.groups)
        return GroupSums(product, np.zeros_like(product), np.zeros_like(sums)), sums

    def group_images(self, operand: GroupOperand, left: Array) -> tuple[GroupSums, Array]:
        """Return `group_products` without a direction, for one or two pairs of weights, and ``(X * X)' A``.

        ``left`` has all ``alpha``, then all ``beta``, one value per row and output; ``A`` is its second part.
        """
        half, n = left.shape[1] // 2, operand.coef.shape[1]
        parts = (np.hstack([left[:, k : k + n], left[:, half + k : half + k + n]]) for k in range(0, half, n))
        images = np.hstack([self.group_products(own, operand.coef, None, None, operand.groups)[0] for own in parts])
        return GroupSums(images, np.zeros_like(images), np.zeros(half)), self.squares_transposed(left[:, n : 2 * n])

    def group_gradient(self, operand: GroupOperand, by_mean: Array, h: Array) -> tuple[GroupSums, Array, Array]:
        """Return `group_images` for ``alpha = by_mean`` and ``beta = h``, ``f(X)' h``, and ``alone``.

        That is ``c_g (X * X)' h``, or zero.
        """
        product, _ = self.group_products(np.hstack([by_mean, h]), operand.coef, None, None, operand.groups)
        nothing = np.zeros_like(product)
        return GroupSums(product, nothing, np.zeros(h.shape[1])), self.backward(h, 0), nothing

    def backward_and_squares(self, left: Array, n_x: int, squared: Array) -> tuple[Array, Array]:
        """Return `backward` of ``left`` and ``(X * X)' squared``, in one pass over the rows if ``f`` is the square."""
        if self.entry is not np.square:
            return self.backward(left, n_x), self.squares_transposed(squared)
        product = self.backward(np.hstack([left, squared]), n_x)
        return product[:, : left.shape[1]], product[:, left.shape[1] :]

    def times(self, vector: Array) -> Array:
        """Return ``X @ vector``."""
        return self.forward(vector[:, None], 1)[:, 0]

    def transposed_times(self, vector: Array) -> Array:
        """Return ``X' @ vector``."""
        return self.backward(vector[:, None], 1)[:, 0]


def apply_curvature(scores: Array, curvature_weight: Array, n: int) -> Array:
    """Return ``(A a + B t, B a + D t)`` of `Block.sandwich`, or ``A a`` if there is no ``t``."""
    if scores.shape[1] == n:
        return curvature_weight * scores
    a, t = scores[:, :n], scores[:, n:]
    by_mean, mixed, by_variance = (curvature_weight[:, k * n : (k + 1) * n] for k in range(3))
    return np.hstack([by_mean * a + mixed * t, mixed * a + by_variance * t])


def chunks(n_rows: int, n_features: int, n_entries: int, min_rows: int = 16) -> Iterator[slice]:
    """Yield slices of about ``n_entries`` entries and at least ``min_rows`` rows."""
    step = max(min_rows, n_entries // max(1, n_features))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))
