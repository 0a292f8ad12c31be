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
from typing import NamedTuple

import numpy as np

from dropmargin.data import linear_scores, nonzero_entries
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


class Variables(NamedTuple):
    """The variables of rows that have the same number of variables; see the module's docstring."""

    base: Array  # (n_rows, n_outputs)
    contribution: Array  # c_v, (n_rows, n_variables, n_outputs)
    keep: Array  # p_v, (n_rows, n_variables)
    variable: Array  # (n_rows, n_variables)


class DropoutPatterns:
    """The probability that dropout, with resolved groups, does not change a label; see the module's docstring."""

    def __init__(self, coef: Array, noise: DropoutNoise, n_draws: int, seed: int) -> None:
        n_outputs, n_features = coef.shape
        self.coef = coef.astype(np.float64)
        rate = np.broadcast_to(np.asarray(noise.rate, dtype=np.float64), n_features)
        self.varies = (rate > 0.0) & coef.any(axis=0)
        self.reference = np.broadcast_to(noise.reference_values, n_features)
        self.variable = np.arange(n_features) if noise.groups is None else np.asarray(noise.groups)
        self.keep = np.ones(int(self.variable.max()) + 1)
        self.keep[self.variable] = 1.0 - rate
        self.at_reference = np.zeros((len(self.keep), n_outputs))  # r_d w_d of each variable
        np.add.at(self.at_reference, self.variable[self.varies], (self.reference * self.coef).T[self.varies])
        self.has_reference = bool(self.at_reference.any())
        self.max_variables = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MAX_SCORES // n_outputs))))
        self.draw = LatinPatterns(np.unique(self.variable[self.varies]), 1.0 - self.keep, n_draws, seed)

    def unchanged(self, rows: IncompleteRows, predict: PredictIndex) -> Array:
        """Return, for each row, the probability that its predicted class does not change."""
        before = predict(rows.scores(self.coef))
        base = rows.scores(np.where(self.varies, 0.0, self.coef))
        row, variable, products = self._entries(rows)
        out = np.empty(len(before))
        common = None
        if self.has_reference:
            if rows.missing is not None:
                at_reference = np.where(self.varies, self.reference * self.coef, 0.0)
                base = base - rows.factor * linear_scores(rows.missing, at_reference, np.zeros(1))
            all_variables = self.draw.variables
            if len(all_variables) <= self.max_variables:
                row, variable, products = self._all_entries(row, variable, products, all_variables, len(before))
                base = base + rows.factor * self.at_reference.sum(axis=0)
            else:
                common = self._common_draws
        with one_blas_thread():  # the products are too small for several threads
            for own, where in _rows_by_count(row, len(before), len(self.coef)):
                keep = self.keep[variable[where]]
                contribution = rows.factor[own, None, :] * products[where] / keep[:, :, None]
                variables = Variables(base[own], contribution, keep, variable[where])
                if common is None and where.shape[1] <= self.max_variables:
                    out[own] = _enumerated(variables, before[own], predict)
                else:
                    out[own] = _sampled(variables, before[own], predict, self.draw, common, rows.factor[own])
        return out

    def _entries(self, rows: IncompleteRows) -> tuple[Array, Array, Array]:
        """Return row, variable and ``sum x_d w_d`` of the entries that are not zero, sorted by row.

        A missing feature counts as one with its reference value, whose deviation is zero.
        """
        row, feature, value = nonzero_entries(rows.filled)
        if rows.missing is not None and self.has_reference:
            at, missing, _ = nonzero_entries(rows.missing)
            row, feature = np.concatenate([row, at]), np.concatenate([feature, missing])
            value = np.concatenate([value, self.reference[missing]])
        row, feature, value = (part[self.varies[feature]] for part in (row, feature, value))
        pairs, index = np.unique(row * len(self.keep) + self.variable[feature], return_inverse=True)
        products = np.zeros((len(pairs), len(self.coef)))
        np.add.at(products, index, value[:, None] * self.coef.T[feature])
        return pairs // len(self.keep), pairs % len(self.keep), products

    def _all_entries(
        self, row: Array, variable: Array, products: Array, variables: Array, n_rows: int
    ) -> tuple[Array, Array, Array]:
        """Return the same with an entry for every variable, less ``r_d w_d``."""
        whole = np.tile(-self.at_reference[variables], (n_rows, 1, 1))
        whole[row, np.searchsorted(variables, variable)] += products
        return (
            np.repeat(np.arange(n_rows), len(variables)),
            np.tile(variables, n_rows),
            whole.reshape(-1, len(self.coef)),
        )

    @cached_property
    def _common_draws(self) -> Array:
        """The draws of ``sum r_d w_d (1 - [observed] / p_v)``, which all rows have in common, a column each."""
        total = np.zeros((len(self.coef), self.draw.n_draws))
        variables = self.draw.variables
        step = max(1, _BLOCK // self.draw.n_draws)
        for begin in range(0, len(variables), step):
            own = variables[begin : begin + step]
            mask = np.unpackbits(self.draw(own), axis=1, count=self.draw.n_draws)
            total += self.at_reference[own].T @ (1.0 - mask / self.keep[own, None])
        return total


def _rows_by_count(row: Array, n_rows: int, n_outputs: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows with the same number of entries, and the indices of their entries, of shape (n_rows, n_entries).

    ``row`` is the row of each entry, in ascending order.
    """
    count = np.bincount(row, minlength=n_rows)
    for n_entries in np.unique(count):
        members = np.flatnonzero(count == n_entries)
        entries = np.flatnonzero(count[row] == n_entries).reshape(len(members), n_entries)
        step = max(1, _BLOCK // max(1, n_entries * n_outputs))
        for begin in range(0, len(members), step):
            yield members[begin : begin + step], entries[begin : begin + step]


def _enumerated(variables: Variables, before: Array, predict: PredictIndex) -> Array:
    """Return the total probability of the patterns that do not change the predicted class."""
    n_rows, n_variables, n_outputs = variables.contribution.shape
    out = np.empty(n_rows)
    step = max(1, _BLOCK // (2**n_variables * n_outputs))
    for begin in range(0, n_rows, step):
        part = slice(begin, min(begin + step, n_rows))
        contribution, keep = variables.contribution[part], variables.keep[part]
        scores = np.empty((len(keep), n_outputs, 2**n_variables))
        probability = np.ones((len(keep), 2**n_variables))
        scores[:, :, 0] = variables.base[part]
        for v in range(n_variables):  # each variable doubles the number of patterns: v dropped, then v observed
            dropped, observed = slice(0, 2**v), slice(2**v, 2 ** (v + 1))
            np.add(scores[:, :, dropped], contribution[:, v, :, None], out=scores[:, :, observed])
            np.multiply(probability[:, dropped], keep[:, v, None], out=probability[:, observed])
            probability[:, dropped] *= 1.0 - keep[:, v, None]
        predicted = predict(scores.swapaxes(1, 2).reshape(-1, n_outputs)).reshape(len(keep), -1)
        unchanged = predicted == before[part, None]
        out[part] = np.minimum(np.sum(probability, axis=1, where=unchanged), 1.0)
    return out


def _sampled(
    variables: Variables,
    before: Array,
    predict: PredictIndex,
    draw: LatinPatterns,
    common: Array | None = None,
    factor: Array | None = None,
) -> Array:
    """Return the share of drawn patterns that do not change the predicted class.

    ``common`` times ``factor`` is added to the scores of each draw.
    """
    n_unchanged = np.zeros(len(before))
    _, n_variables, n_outputs = variables.contribution.shape
    step = 8 * max(1, _BLOCK // (8 * max(n_variables, n_outputs)))
    for i, (base, contribution, _, variable) in enumerate(zip(*variables, strict=True)):
        bits = draw(variable)
        for begin in range(0, draw.n_draws, step):
            end = min(begin + step, draw.n_draws)
            mask = np.unpackbits(bits[:, begin // 8 : (end + 7) // 8], axis=1, count=end - begin)
            scores = base[:, None] + contribution.T @ mask.astype(np.float64)
            if common is not None and factor is not None:
                scores += factor[i, :, None] * common[:, begin:end]
            n_unchanged[i] += (predict(scores.T) == before[i]).sum()
    return n_unchanged / draw.n_draws


class LatinPatterns:
    """Dropout patterns of a Latin hypercube for some of the variables; ``rate`` has that of every variable."""

    def __init__(self, variables: Array, rate: Array, n_draws: int, seed: int) -> None:
        self.n_draws = n_draws
        self.variables = variables
        self._rate, self._seed = rate, seed
        self._bits: dict[int, Array] = {}

    def __call__(self, variables: Array) -> Array:
        """Return the draws as packed bits, one row of bytes per variable, 1 where its features are not dropped."""
        found = np.empty((len(variables), (self.n_draws + 7) // 8), dtype=np.uint8)
        for own, variable in zip(found, variables.tolist(), strict=True):
            own[:] = self._draw(variable)
        return found

    def _draw(self, variable: int) -> Array:
        if variable not in self._bits:
            rng = np.random.Generator(np.random.Philox(key=[self._seed, variable]))
            dropped = self._rate[variable] * self.n_draws
            self._bits[variable] = np.packbits(rng.permutation(self.n_draws) + rng.random() >= dropped)
        return self._bits[variable]


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
        step, n_unchanged = max(1, _BLOCK // max(len(features), len(coef))), 0
        for begin in range(0, n_draws, step):
            shape = min(step, n_draws - begin), len(features)
            drawn = own.draw(np.broadcast_to(values, shape), rng)
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
