r"""The probability that noise does not change a label, exactly or by sampling; `stability` describes the methods.

Dropout is a set of independent Bernoulli variables. Variable ``v`` is 1, with probability ``p_v``, if the feature is
not dropped, and then adds the vector ``c_v`` to the scores of a row. A pattern is the set of variables that are 1::

    scores = base + sum over v in the pattern of c_v

A feature is a variable of a row if it can be dropped and its entry and a coefficient are not zero. Then
``c_v = factor * x_d w_d / (1 - rate_d)``, and ``base`` is the intercept and the contribution of all other features.

For a row with few variables the result is exact: all patterns are enumerated, with their probabilities. For other rows,
patterns are drawn as a Latin hypercube (McKay et al. 1979): in ``n_draws`` patterns each feature is dropped
``rate * n_draws`` times (rounded up or down at random), in random draws. The variance of the estimate is at most
``n / (n - 1)`` times that of ``n`` independent draws (Owen 1997), so its standard error is at most
``sqrt(p (1 - p) / (n_draws - 1))``.

The random numbers of a feature depend on the seed and on its index alone: all rows have the same patterns, and the
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

from dropmargin.data import nonzero_entries
from dropmargin.estimators.missing import IncompleteRows
from dropmargin.noise import Noise
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
    """The variables of rows that have the same number of variables; see the module's docstring.

    Parameters
    ----------
    base : ndarray of shape (n_rows, n_outputs)
    contribution : ndarray of shape (n_rows, n_variables, n_outputs)
        The vectors ``c_v``.
    keep : ndarray of shape (n_rows, n_variables)
        The probabilities ``p_v``.
    feature : ndarray of shape (n_rows, n_variables)
    """

    base: Array
    contribution: Array
    keep: Array
    feature: Array


def survives_dropout(
    rows: IncompleteRows, coef: Array, rate: Array, predict: PredictIndex, n_draws: int, seed: int
) -> Array:
    """Return the probability that each label is unchanged if features are dropped with probabilities ``rate``."""
    before = predict(rows.scores(coef))
    coef, rate = coef.astype(np.float64), np.broadcast_to(rate, coef.shape[1])
    varies = (rate > 0.0) & coef.any(axis=0)
    base = rows.scores(np.where(varies, 0.0, coef))
    row, feature, value = nonzero_entries(rows.filled)
    row, feature, value = (part[varies[feature]] for part in (row, feature, value))
    max_variables = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MAX_SCORES // len(coef)))))
    draw = LatinPatterns(np.unique(feature), rate, n_draws, seed)
    out = np.ones(len(before))  # the label of a row without variables does not change
    with one_blas_thread():  # the products are too small for several threads
        for own, where in _rows_by_count(row, len(before), len(coef)):
            keep = 1.0 - rate[feature[where]]
            contribution = rows.factor[own, None, :] * (value[where] / keep)[:, :, None] * coef.T[feature[where]]
            variables = Variables(base[own], contribution, keep, feature[where])
            if where.shape[1] <= max_variables:
                out[own] = _enumerated(variables, before[own], predict)
            else:
                out[own] = _sampled(variables, before[own], predict, draw)
    return out


def _rows_by_count(row: Array, n_rows: int, n_outputs: int) -> Iterator[tuple[Array, Array]]:
    """Yield rows with the same number of entries, and the indices of their entries, of shape (n_rows, n_entries).

    ``row`` is the row of each entry, in ascending order. IncompleteRows without entries are skipped.
    """
    count = np.bincount(row, minlength=n_rows)
    for n_entries in np.unique(count[count > 0]):
        members = np.flatnonzero(count == n_entries)
        entries = np.flatnonzero(count[row] == n_entries).reshape(len(members), n_entries)
        step = max(1, _BLOCK // (n_entries * n_outputs))
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
        unchanged = _predicted(scores, predict) == before[part, None]
        out[part] = np.minimum(np.sum(probability, axis=1, where=unchanged), 1.0)
    return out


def _predicted(scores: Array, predict: PredictIndex) -> Array:
    """Return the predicted class of each row and pattern, from scores of shape (n_rows, n_outputs, n_patterns)."""
    n_rows, n_outputs, n_patterns = scores.shape
    return predict(scores.swapaxes(1, 2).reshape(-1, n_outputs)).reshape(n_rows, n_patterns)


def _sampled(variables: Variables, before: Array, predict: PredictIndex, draw: LatinPatterns) -> Array:
    """Return the share of drawn patterns that do not change the predicted class."""
    n_unchanged = np.zeros(len(before))
    _, n_variables, n_outputs = variables.contribution.shape
    step = 8 * max(1, _BLOCK // (8 * max(n_variables, n_outputs)))
    for i, (base, contribution, _, feature) in enumerate(zip(*variables, strict=True)):
        bits = draw(feature)
        for begin in range(0, draw.n_draws, step):
            end = min(begin + step, draw.n_draws)
            mask = np.unpackbits(bits[:, begin // 8 : (end + 7) // 8], axis=1, count=end - begin)
            scores = base[:, None] + contribution.T @ mask.astype(np.float64)
            n_unchanged[i] += (predict(scores.T) == before[i]).sum()
    return n_unchanged / draw.n_draws


class LatinPatterns:
    """Dropout patterns of a Latin hypercube; see the module's docstring.

    Parameters
    ----------
    features : ndarray
        The features of the patterns, in ascending order.
    rate : ndarray of shape (n_features,)
        The dropout rate of every feature of the data.
    n_draws, seed : int
    """

    def __init__(self, features: Array, rate: Array, n_draws: int, seed: int) -> None:
        self.n_draws = n_draws
        self._features, self._rate, self._seed = features, rate, seed

    def __call__(self, features: Array) -> Array:
        """Return the draws as packed bits, one row of bytes per feature, 1 where the feature is not dropped."""
        return self._bits[np.searchsorted(self._features, features)]

    @cached_property
    def _bits(self) -> Array:
        observed = np.empty((len(self._features), (self.n_draws + 7) // 8), dtype=np.uint8)
        for bits, feature in zip(observed, self._features.tolist(), strict=True):
            rng = np.random.Generator(np.random.Philox(key=[self._seed, feature]))
            bits[:] = np.packbits(rng.permutation(self.n_draws) + rng.random() >= self._rate[feature] * self.n_draws)
        return observed


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
