r"""The probability that noise does not change a label, exactly or by sampling; `stability` describes the methods.

Dropout is a set of independent Bernoulli variables, one per feature, or one per group of features that are dropped
together. Variable ``v`` is 1, with probability ``p_v``, if its features are not dropped, and then adds the vector
``c_v`` to the scores of a row. A pattern is the set of variables that are 1::

    scores = base + sum over v in the pattern of c_v

With reference values ``r_d``, ``c_v = factor * sum over the features d of v of (x_d - r_d) w_d / p_v``, and ``base`` is
the score of the row with ``r_d`` in place of each feature that can be dropped. A variable is a variable of a row if
``c_v`` is not zero. If the references are not zero, nearly all are; then the sums are split into ``x_d w_d``, of the
entries that are not zero, and ``r_d w_d``, which all rows have in common.

For a row with few variables the result is exact: all patterns are enumerated, with their probabilities. For other rows,
patterns are drawn as a Latin hypercube (McKay et al. 1979): in ``n_draws`` patterns each variable is 0
``rate * n_draws`` times (rounded up or down at random), in random draws. The variance of the estimate is at most
``n / (n - 1)`` times that of ``n`` independent draws (Owen 1997), so its standard error is at most
``sqrt(p (1 - p) / (n_draws - 1))``.

The random numbers of a variable depend on the seed and on its index alone: all rows have the same patterns, and the
result for a row does not depend on the other rows.

References
----------
M. D. McKay, R. J. Beckman, W. J. Conover (1979). A comparison of three methods for selecting values of input variables
in the analysis of output from a computer code. Technometrics 21, 239-245.

A. B. Owen (1997). Monte Carlo variance of scrambled net quadrature. SIAM Journal on Numerical Analysis 34, 1884-1910.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from dropmargin.data import nonzero_entries
from dropmargin.data.blocks import chunks
from dropmargin.estimators.missing import IncompleteRows
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

#: Returns the index of the predicted class for every row of scores.
PredictIndex = Callable[[Array], Array]

# Patterns are enumerated for a row with at most this many per draw. (A pattern costs about half as much as a draw.)
_PATTERNS_PER_DRAW = 4
# The scores of all enumerated patterns of a row are at most this many numbers, so that they fit into memory.
_MAX_SCORES = 2**22
# Scores and coefficients are computed in blocks of about this many numbers.
_BLOCK = 2**20


class DropoutPatterns:
    """The probability that dropout, with resolved groups, does not change a label; see the module's docstring."""

    def __init__(self, coef: Array, noise: DropoutNoise, n_draws: int, seed: int) -> None:
        n_outputs, n_features = coef.shape
        rate = np.broadcast_to(np.asarray(noise.rate, dtype=np.float64), n_features)
        self.coef = coef.astype(np.float64)
        self.varies = (rate > 0.0) & coef.any(axis=0)
        self.reference = np.broadcast_to(noise.reference_values, n_features)
        self.variable = np.arange(n_features) if noise.groups is None else np.asarray(noise.groups)
        self.keep = np.ones(int(self.variable.max()) + 1)
        self.keep[self.variable] = 1.0 - rate
        self.at_reference = np.zeros((len(self.keep), n_outputs))  # sum of r_d w_d of each variable
        np.add.at(self.at_reference, self.variable[self.varies], (self.reference * self.coef).T[self.varies])
        self.n_draws, self.seed = n_draws, seed
        self.max_variables = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MAX_SCORES // n_outputs))))
        self.everywhere = np.flatnonzero(self.at_reference.any(axis=1))  # the variables that all rows have in common
        self.all_sampled = len(self.everywhere) > self.max_variables
        self._bits: dict[int, Array] = {}

    def unchanged(self, rows: IncompleteRows, predict: PredictIndex) -> Array:
        """Return, for each row, the probability that its predicted class does not change."""
        before = predict(rows.scores(self.coef))
        at_reference = rows.observed_sums(np.where(self.varies, self.reference * self.coef, 0.0))
        base = rows.scores(np.where(self.varies, 0.0, self.coef)) + rows.factor * at_reference
        row, variable, products = self._entries(rows)
        out = np.empty(len(before))
        with one_blas_thread():  # the products are too small for several threads
            for own, where in _rows_by_count(row, len(before), len(self.coef)):
                scaled = rows.factor[own, None, :] * products[where] / self.keep[variable[where], None]
                if where.shape[1] <= self.max_variables and not self.all_sampled:
                    out[own] = _enumerated(base[own], scaled, self.keep[variable[where]], before[own], predict)
                    continue
                for i, own_variables, contribution in zip(own, variable[where], scaled, strict=True):
                    scores = base[i, :, None] + self._sums_of_draws(own_variables, contribution)
                    if self.all_sampled:
                        scores += rows.factor[i, :, None] * self._common_draws
                    out[i] = np.mean(predict(scores.T) == before[i])
        return out

    def _entries(self, rows: IncompleteRows) -> tuple[Array, Array, Array]:
        """Return row, variable and ``c_v p_v / factor`` of the entries that are not zero, sorted by row.

        If all rows are sampled, the part of the references is in `_common_draws`. A missing feature counts as one with
        its reference value, whose deviation is zero.
        """
        row, feature, value = nonzero_entries(rows.filled)
        if rows.missing is not None:
            at, missing, _ = nonzero_entries(rows.missing)
            row, feature = np.concatenate([row, at]), np.concatenate([feature, missing])
            value = np.concatenate([value, self.reference[missing]])
        row, feature, value = (part[self.varies[feature] & (value != 0.0)] for part in (row, feature, value))
        variable, products = self.variable[feature], value[:, None] * self.coef.T[feature]
        if not self.all_sampled:
            n_rows = len(rows.factor)
            row = np.concatenate([row, np.repeat(np.arange(n_rows), len(self.everywhere))])
            variable = np.concatenate([variable, np.tile(self.everywhere, n_rows)])
            products = np.concatenate([products, np.tile(-self.at_reference[self.everywhere], (n_rows, 1))])
        pairs, index = np.unique(row * len(self.keep) + variable, return_inverse=True)
        sums = np.zeros((len(pairs), len(self.coef)))
        np.add.at(sums, index, products)
        return pairs // len(self.keep), pairs % len(self.keep), sums

    @cached_property
    def _common_draws(self) -> Array:
        """The part of the references in the scores of each draw, a column each; all rows have it in common."""
        return -self._sums_of_draws(self.everywhere, (self.at_reference / self.keep[:, None])[self.everywhere])

    def _sums_of_draws(self, variables: Array, values: Array) -> Array:
        """Return the sum of ``values`` over the variables that are 1 in each draw, of shape (n_outputs, n_draws)."""
        total = np.zeros((values.shape[1], self.n_draws))
        for where in chunks(len(variables), self.n_draws, _BLOCK, min_rows=1):
            bits = np.stack([self._draws(variable) for variable in variables[where].tolist()])
            total += values[where].T @ np.unpackbits(bits, axis=1, count=self.n_draws).astype(np.float64)
        return total

    def _draws(self, variable: int) -> Array:
        """Return the draws of a variable as packed bits."""
        if variable not in self._bits:
            rng = np.random.Generator(np.random.Philox(key=[self.seed, variable]))
            dropped = (1.0 - self.keep[variable]) * self.n_draws
            self._bits[variable] = np.packbits(rng.permutation(self.n_draws) + rng.random() >= dropped)
        return self._bits[variable]


def _rows_by_count(row: Array, n_rows: int, n_outputs: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows with the same number of entries, and the indices of their entries, of shape (n_rows, n_entries).

    ``row`` is the row of each entry, in ascending order.
    """
    count = np.bincount(row, minlength=n_rows)
    for n_entries in np.unique(count):
        members = np.flatnonzero(count == n_entries)
        entries = np.flatnonzero(count[row] == n_entries).reshape(len(members), n_entries)
        for where in chunks(len(members), n_entries * n_outputs, _BLOCK, min_rows=1):
            yield members[where], entries[where]


def _enumerated(base: Array, contribution: Array, keep: Array, before: Array, predict: PredictIndex) -> Array:
    """Return the total probability of the patterns that do not change the predicted class.

    The rows have the same number of variables: ``contribution`` has the shape (n_rows, n_variables, n_outputs), and
    ``keep`` (n_rows, n_variables).
    """
    n_rows, n_variables, n_outputs = contribution.shape
    patterns = (np.arange(2**n_variables) >> np.arange(n_variables)[:, None] & 1).astype(np.float64)
    out = np.empty(n_rows)
    for where in chunks(n_rows, n_outputs * 2**n_variables, _BLOCK, min_rows=1):
        scores = base[where, None, :] + patterns.T @ contribution[where]
        unchanged = predict(scores.reshape(-1, n_outputs)).reshape(len(scores), -1) == before[where, None]
        log_odds = np.log(keep[where]) - np.log1p(-keep[where])
        probability = np.exp(log_odds @ patterns + np.log1p(-keep[where]).sum(axis=1, keepdims=True))
        out[where] = np.minimum(np.sum(probability, axis=1, where=unchanged), 1.0)
    return out


def survives_draws(
    rows: IncompleteRows, coef: Array, noise: Noise, predict: PredictIndex, n_draws: int, seed: int
) -> Array:
    """Return the share of ``n_draws`` independent draws from the noise that do not change each label.

    Every row has its own draws, from the same seed. A noise that corrupts zeros needs rows with all entries stored.
    """
    before = predict(rows.scores(coef))
    coef = coef.astype(np.float64)
    out = np.ones(len(before))
    for i, features, values in _corrupted_entries(rows, noise.variance().moves_zeros):
        own, rng = noise.take(features), np.random.RandomState(seed)
        n_unchanged = 0
        for where in chunks(n_draws, max(len(features), len(coef)), _BLOCK, min_rows=1):
            drawn = own.draw(np.broadcast_to(values, (where.stop - where.start, len(features))), rng)
            scores = rows.factor[i] * (drawn @ coef[:, features].T) + rows.shift[i]
            n_unchanged += int((predict(scores) == before[i]).sum())
        out[i] = n_unchanged / n_draws
    return out


def _corrupted_entries(rows: IncompleteRows, with_zeros: bool) -> Iterator[tuple[int, Array, Array]]:
    """Yield, for each row, its index and the features and values of the observed entries; without zeros by default."""
    if with_zeros:
        observed = np.ones(rows.filled.shape, dtype=bool) if rows.missing is None else rows.missing == 0.0
        row, feature = np.nonzero(observed)
        value = rows.filled[row, feature]
    else:
        row, feature, value = nonzero_entries(rows.filled)
    ends = np.searchsorted(row, np.arange(len(rows.factor) + 1))
    for i, (begin, end) in enumerate(pairwise(ends)):
        if begin < end:
            yield i, feature[begin:end], value[begin:end].astype(np.float64)
