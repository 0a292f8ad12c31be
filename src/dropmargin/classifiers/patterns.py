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

All rows meet the same patterns: a feature is dropped by setting its coefficients to zero, and no row becomes dense. A
feature's random numbers depend on the seed and on its column alone, so the result for a row does not depend on the
other rows.

References
----------
M. D. McKay, R. J. Beckman, W. J. Conover (1979). A comparison of three methods for selecting values of input variables
in the analysis of output from a computer code. Technometrics 21, 239-245.

A. B. Owen (1997). Monte Carlo variance of scrambled net quadrature. SIAM Journal on Numerical Analysis 34, 1884-1910.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dropmargin.classifiers.missing import Rows
from dropmargin.linalg import linear_scores, nonzero_entries
from dropmargin.noise import Noise
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
    """

    base: Array
    contribution: Array
    keep: Array


class Drawn(NamedTuple):
    """Patterns of columns: ``kept`` has ``n_draws`` bits in a row of bytes for each column, 1 where it is kept."""

    columns: Array
    kept: Array
    n_draws: int


def survives_dropout(rows: Rows, coef: Array, rate: Array, winner: Winner, n_draws: int, seed: int) -> Array:
    """Return the probability that each label survives when features are dropped with the probabilities ``rate``."""
    before = winner(rows.scores(coef))
    coef, rate = coef.astype(np.float64), np.broadcast_to(rate, coef.shape[1])
    varies = (rate > 0.0) & coef.any(axis=0)
    row, column, value = nonzero_entries(rows.filled)
    row, column, value = (part[varies[column]] for part in (row, column, value))
    count = np.bincount(row, minlength=len(before))
    kept_value = value / (1.0 - rate[column])
    fixed = np.where(varies, 0.0, coef)
    most = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MOST_SCORES // len(coef)))))
    out = np.ones(len(before))  # without a variable nothing happens
    for n_variables in np.unique(count[(count > 0) & (count <= most)]):
        members = np.flatnonzero(count == n_variables)
        shape = len(members), n_variables
        own = count[row] == n_variables
        where = column[own].reshape(shape)
        amount = rows.factor[members, None, :] * kept_value[own].reshape(shape)[:, :, None]
        variables = Variables(rows.take(members).scores(fixed), amount * coef.T[where], 1.0 - rate[where])
        out[members] = _enumerated(variables, before[members], winner)
    members = np.flatnonzero(count > most)
    if len(members):
        used = np.unique(column[count[row] > most])
        drawn = _latin_patterns(used, rate[used], n_draws, seed)
        scaled, rest = coef[:, used] / (1.0 - rate[used]), rows.take(members)
        out[members] = _sampled(rest, rest.scores(fixed), drawn, scaled, before[members], winner)
    return out


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


def _latin_patterns(columns: Array, rate: Array, n_draws: int, seed: int) -> Drawn:
    """Return patterns of columns, each dropped with its rate."""
    kept = np.empty((len(columns), (n_draws + 7) // 8), dtype=np.uint8)
    for bits, column, own_rate in zip(kept, columns.tolist(), rate.tolist(), strict=True):
        rng = np.random.Generator(np.random.Philox(key=[seed, column]))
        bits[:] = np.packbits(rng.permutation(n_draws) + rng.random() >= own_rate * n_draws)
    return Drawn(columns, kept, n_draws)


def _sampled(rows: Rows, base: Array, drawn: Drawn, scaled: Array, before: Array, winner: Winner) -> Array:
    """Return the share of the patterns that leave the winner as it is.

    ``base`` are the scores without the columns that are drawn, ``scaled`` the coefficients of these over the
    probability that they are kept.
    """
    entries = rows.filled[:, drawn.columns].astype(np.float64)
    (n_rows, n_outputs), n_columns = base.shape, len(drawn.columns)
    n_kept = np.zeros(n_rows)
    n_bytes = max(1, _BLOCK // (8 * n_outputs * max(n_rows, n_columns)))
    for begin in range(0, drawn.kept.shape[1], n_bytes):
        n_block = min(8 * n_bytes, drawn.n_draws - 8 * begin)
        mask = np.unpackbits(drawn.kept[:, begin : begin + n_bytes], axis=1, count=n_block)
        coef = (scaled.T[:, :, None] * mask[:, None, :]).reshape(n_columns, -1)
        scores = linear_scores(entries, coef.T, np.zeros(1)).reshape(n_rows, n_outputs, n_block)
        scores *= rows.factor[:, :, None]
        scores += base[:, :, None]
        n_kept += (_winners(scores, winner) == before[:, None]).sum(axis=1)
    return n_kept / drawn.n_draws


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
