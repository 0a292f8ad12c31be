r"""The probability that a label survives noise, exactly or by draws; see `survival` for which method does what.

Dropout is a set of independent Bernoulli variables. Variable ``v`` adds the vector ``c_v`` to the scores of a row if it
is kept, with probability ``p_v``; a pattern says which variables are kept::

    scores = base + sum over kept v of c_v

A feature is a variable of a row if it can be dropped and its entry and a coefficient are not zero. Then
``c_v = factor * x_d w_d / (1 - rate_d)``, and ``base`` is the intercept and all other features.

A row with few variables is exact: all patterns are enumerated, with their probabilities. For a row with more, patterns
are drawn as a Latin hypercube (McKay et al. 1979): in ``n_draws`` patterns each feature is dropped ``rate * n_draws``
times (rounded up or down at random), at random places. The variance of the estimate is at most ``n / (n - 1)`` times
that of ``n`` independent draws (Owen 1997), so its standard error is at most ``sqrt(p (1 - p) / (n_draws - 1))``.

A feature's random numbers depend on the seed and on its column alone: all rows meet the same patterns, and the result
for a row does not depend on the other rows.

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

from dropmargin.data import nonzero_entries
from dropmargin.estimators.missing import Rows
from dropmargin.noise import Noise
from dropmargin.threads import one_blas_thread
from dropmargin.typing import Array

#: Returns the index of the predicted class for every row of scores.
Winner = Callable[[Array], Array]

# A row with at most this many patterns for each draw is exact. (A pattern costs about half as much as a draw.)
_PATTERNS_PER_DRAW = 4
# All the same, the scores of all patterns of a row are at most this many numbers, so that they fit into memory.
_MOST_SCORES = 2**22
# Scores and coefficients are computed in blocks of about this many numbers.
_BLOCK = 2**20


class Variables(NamedTuple):
    """The variables of rows that have equally many, see the module's docstring.

    Parameters
    ----------
    base : ndarray of shape (n_rows, n_outputs)
    contribution : ndarray of shape (n_rows, n_variables, n_outputs)
    keep : ndarray of shape (n_rows, n_variables)
        Probabilities.
    column : ndarray of shape (n_rows, n_variables)
    """

    base: Array
    contribution: Array
    keep: Array
    column: Array


def survives_dropout(rows: Rows, coef: Array, rate: Array, winner: Winner, n_draws: int, seed: int) -> Array:
    """Return the probability that each label survives when features are dropped with the probabilities ``rate``."""
    before = winner(rows.scores(coef))
    coef, rate = coef.astype(np.float64), np.broadcast_to(rate, coef.shape[1])
    varies = (rate > 0.0) & coef.any(axis=0)
    base = rows.scores(np.where(varies, 0.0, coef))
    row, column, value = nonzero_entries(rows.filled)
    row, column, value = (part[varies[column]] for part in (row, column, value))
    most = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MOST_SCORES // len(coef)))))
    draw = LatinPatterns(np.unique(column), rate, n_draws, seed)
    out = np.ones(len(before))  # without a variable nothing changes
    with one_blas_thread():  # products are small: several threads would wait for each other
        for own, where in _rows_by_count(row, len(before), len(coef)):
            keep = 1.0 - rate[column[where]]
            contribution = rows.factor[own, None, :] * (value[where] / keep)[:, :, None] * coef.T[column[where]]
            variables = Variables(base[own], contribution, keep, column[where])
            if where.shape[1] <= most:
                out[own] = _enumerated(variables, before[own], winner)
            else:
                out[own] = _sampled(variables, before[own], winner, draw)
    return out


def _rows_by_count(row: Array, n_rows: int, n_outputs: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows with equally many entries, and the indices of their entries, shape (n_rows, n_entries).

    ``row`` is the row of each entry, ascending. Rows without entries are left out.
    """
    count = np.bincount(row, minlength=n_rows)
    for n_entries in np.unique(count[count > 0]):
        members = np.flatnonzero(count == n_entries)
        entries = np.flatnonzero(count[row] == n_entries).reshape(len(members), n_entries)
        step = max(1, _BLOCK // (n_entries * n_outputs))
        for begin in range(0, len(members), step):
            yield members[begin : begin + step], entries[begin : begin + step]


def _enumerated(variables: Variables, before: Array, winner: Winner) -> Array:
    """Return the total probability of the patterns that leave the winner as it is."""
    n_rows, n_variables, n_outputs = variables.contribution.shape
    out = np.empty(n_rows)
    step = max(1, _BLOCK // (2**n_variables * n_outputs))
    for begin in range(0, n_rows, step):
        part = slice(begin, min(begin + step, n_rows))
        contribution, keep = variables.contribution[part], variables.keep[part]
        scores = np.empty((len(keep), n_outputs, 2**n_variables))
        probability = np.ones((len(keep), 2**n_variables))
        scores[:, :, 0] = variables.base[part]
        for v in range(n_variables):  # each variable doubles the patterns: those without it, then those with it
            without, with_it = slice(0, 2**v), slice(2**v, 2 ** (v + 1))
            np.add(scores[:, :, without], contribution[:, v, :, None], out=scores[:, :, with_it])
            np.multiply(probability[:, without], keep[:, v, None], out=probability[:, with_it])
            probability[:, without] *= 1.0 - keep[:, v, None]
        stays = _winners(scores, winner) == before[part, None]
        out[part] = np.minimum(np.sum(probability, axis=1, where=stays), 1.0)
    return out


def _winners(scores: Array, winner: Winner) -> Array:
    """Return the winner for each row and pattern, from scores of shape (n_rows, n_outputs, n_patterns)."""
    n_rows, n_outputs, n_patterns = scores.shape
    return winner(scores.swapaxes(1, 2).reshape(-1, n_outputs)).reshape(n_rows, n_patterns)


def _sampled(variables: Variables, before: Array, winner: Winner, draw: LatinPatterns) -> Array:
    """Return the share of drawn patterns that leave the winner as it is."""
    n_kept = np.zeros(len(before))
    _, n_variables, n_outputs = variables.contribution.shape
    step = 8 * max(1, _BLOCK // (8 * max(n_variables, n_outputs)))
    for i, (base, contribution, _, column) in enumerate(zip(*variables, strict=True)):
        bits = draw(column)
        for begin in range(0, draw.n_draws, step):
            end = min(begin + step, draw.n_draws)
            mask = np.unpackbits(bits[:, begin // 8 : (end + 7) // 8], axis=1, count=end - begin)
            scores = base[:, None] + contribution.T @ mask.astype(np.float64)
            n_kept[i] += (winner(scores.T) == before[i]).sum()
    return n_kept / draw.n_draws


class LatinPatterns:
    """Which of ``n_draws`` draws keep each column: a Latin hypercube, see the module's docstring.

    Parameters
    ----------
    columns : ndarray
        The columns that may be asked for, ascending.
    rate : ndarray of shape (n_features,)
        With what probability each column of all is dropped.
    n_draws, seed : int
    """

    def __init__(self, columns: Array, rate: Array, n_draws: int, seed: int) -> None:
        self.n_draws = n_draws
        self._columns, self._rate, self._seed = columns, rate, seed

    def __call__(self, columns: Array) -> Array:
        """Return the draws as bits, a row of bytes for each column, 1 where it is kept."""
        return self._bits[np.searchsorted(self._columns, columns)]

    @cached_property
    def _bits(self) -> Array:
        kept = np.empty((len(self._columns), (self.n_draws + 7) // 8), dtype=np.uint8)
        for bits, column in zip(kept, self._columns.tolist(), strict=True):
            rng = np.random.Generator(np.random.Philox(key=[self._seed, column]))
            bits[:] = np.packbits(rng.permutation(self.n_draws) + rng.random() >= self._rate[column] * self.n_draws)
        return kept


def survives_draws(rows: Rows, coef: Array, noise: Noise, winner: Winner, n_draws: int, seed: int) -> Array:
    """Return the share of ``n_draws`` independent draws from the noise that leave each label as it is.

    Every row has its own draws, from the same seed. Noise that reaches zeros needs rows with all entries stored.
    """
    before = winner(rows.scores(coef))
    coef = coef.astype(np.float64)
    out = np.ones(len(before))
    for i, columns, values in _struck_entries(rows, noise.variance().moves_zeros):
        own, rng = noise.take(columns), np.random.RandomState(seed)
        step, kept = max(1, _BLOCK // max(len(columns), len(coef))), 0
        for begin in range(0, n_draws, step):
            shape = min(step, n_draws - begin), len(columns)
            drawn = own.draw(np.broadcast_to(values, shape), rng)
            scores = rows.factor[i] * (drawn @ coef[:, columns].T) + rows.shift[i]
            kept += int((winner(scores) == before[i]).sum())
        out[i] = kept / n_draws
    return out


def _struck_entries(rows: Rows, zeros_too: bool) -> Iterator[tuple[int, Array, Array]]:
    """Yield the columns and values that noise reaches in each row: none that is missing; zeros if it reaches them."""
    if zeros_too:
        observed = np.ones(rows.filled.shape, dtype=bool) if rows.missing is None else rows.missing == 0.0
        row, column = np.nonzero(observed)
        value = rows.filled[row, column]
    else:
        row, column, value = nonzero_entries(rows.filled)
    ends = np.searchsorted(row, np.arange(len(rows.factor) + 1))
    for i, (begin, end) in enumerate(pairwise(ends)):
        if begin < end:
            yield i, column[begin:end], value[begin:end].astype(np.float64)
