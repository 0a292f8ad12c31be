r"""The probability that noise does not change a label, exactly or by sampling; `stability` describes the methods.

Dropout is a set of independent Bernoulli variables, one per feature, or one per group of features that are dropped
together. Variable ``v`` is 1, with probability ``p_v``, if its features are not dropped, and then adds the vector
``c_v`` to the scores of a row. A pattern is the set of variables that are 1::

    scores = base + sum over v in the pattern of c_v

With reference values ``r_d``, ``c_v = factor * sum over the features d of v of (x_d - r_d) w_d / p_v``, and ``base`` is
the score of the row with ``r_d`` in place of each feature that can be dropped. A variable is a variable of a row if one
of its features has a coefficient, and a value or a reference that is not zero.

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
from functools import cache
from itertools import pairwise

import numpy as np

from dropmargin.data import nonzero_entries
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import chunks, fill_missing
from dropmargin.estimators.missing import AffineRows
from dropmargin.noise import DropoutNoise, Noise
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
        self.reference = np.where(self.varies, noise.reference_values, 0.0)
        self.variable = np.arange(n_features) if noise.groups is None else np.asarray(noise.groups)
        self.keep = np.ones(int(self.variable.max()) + 1)
        self.keep[self.variable] = 1.0 - rate
        self.n_draws, self.seed = n_draws, seed
        self.max_variables = int(np.log2(max(1, min(_PATTERNS_PER_DRAW * n_draws, _MAX_SCORES // n_outputs))))
        self.draws = cache(self._draws)

    def unchanged(self, rows: AffineRows, predict: PredictIndex) -> Array:
        """Return, for each row, the probability that its predicted class does not change."""
        before = predict(rows.scores(self.coef))
        base = rows.scores(np.where(self.varies, 0.0, self.coef))
        base = base + rows.factor * rows.observed_sums(self.reference * self.coef)
        out, sampled, used = np.empty(len(before)), [], self.reference != 0.0
        everywhere = np.flatnonzero(used)  # features that all rows have in common
        is_few = len(np.unique(self.variable[everywhere])) <= self.max_variables
        given = fill_missing(rows.given, self.reference, np.isnan)  # a missing feature does not deviate
        for i, features, values in _row_entries(*nonzero_entries(given), len(before)):
            features, values = features[self.varies[features]], values[self.varies[features]]
            own = np.union1d(features, everywhere) if is_few else everywhere
            variables, index = np.unique(self.variable[own], return_inverse=True)
            if len(variables) > self.max_variables:
                sampled.append(i)
                used[features] = True
                continue
            x = np.zeros(len(own))
            x[np.searchsorted(own, features)] = values
            contribution = np.zeros((len(variables), len(self.coef)))
            np.add.at(contribution, index, (x - self.reference[own])[:, None] * self.coef.T[own])
            out[i] = _enumerated(base[i], rows.factor[i] * contribution, self.keep[variables], before[i], predict)
        if sampled:
            out[sampled] = self._sampled(rows.take(sampled), np.flatnonzero(used), base[sampled], predict)
        return out

    def _sampled(self, rows: AffineRows, features: Array, base: Array, predict: PredictIndex) -> Array:
        """Return the share of the draws that do not change each label; ``features`` are those that vary."""
        n_rows, n_outputs = base.shape
        before, n_unchanged = predict(rows.scores(self.coef)), np.zeros(n_rows)
        deviations = Deviations(rows.given[:, features], self.reference[features], np.isnan)
        variables, index = np.unique(self.variable[features], return_inverse=True)
        bits = np.stack([self.draws(variable) for variable in variables.tolist()])
        n_numbers = 8 * max(len(features), n_rows * n_outputs)
        for where in chunks(bits.shape[1], n_numbers, _BLOCK):  # of bytes, of eight draws each
            count = min(8 * where.stop, self.n_draws) - 8 * where.start
            is_kept = np.unpackbits(bits[:, where], axis=1, count=count)
            kept = (is_kept / self.keep[variables, None])[index]
            scores = np.empty((n_rows, kept.shape[1], n_outputs))
            for output, coef in enumerate(self.coef[:, features]):
                scores[:, :, output] = deviations.times(coef[:, None] * kept)
            scores = base[:, None, :] + rows.factor[:, None, :] * scores
            winners = predict(scores.reshape(-1, n_outputs)).reshape(n_rows, -1)
            n_unchanged += np.count_nonzero(winners == before[:, None], axis=1)
        return n_unchanged / self.n_draws

    def _draws(self, variable: int) -> Array:
        """Return the draws of a variable as packed bits."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, variable]))
        dropped = (1.0 - self.keep[variable]) * self.n_draws
        return np.packbits(rng.permutation(self.n_draws) + rng.random() >= dropped)


def _enumerated(base: Array, contribution: Array, keep: Array, before: int, predict: PredictIndex) -> float:
    """Return the total probability of the patterns that do not change the predicted class of a row.

    ``contribution`` has the shape (n_variables, n_outputs), and ``keep`` (n_variables,).
    """
    patterns = (np.arange(2 ** len(keep)) >> np.arange(len(keep))[:, None] & 1).astype(np.float64)
    unchanged = predict(base + patterns.T @ (contribution / keep[:, None])) == before
    log_odds = np.log(keep) - np.log1p(-keep)
    return min(1.0, np.exp(log_odds @ patterns + np.log1p(-keep).sum()).sum(where=unchanged))


def survives_draws(
    rows: AffineRows, coef: Array, noise: Noise, predict: PredictIndex, n_draws: int, seed: int
) -> Array:
    """Return the share of ``n_draws`` independent draws from the noise that do not change each label.

    Every row has its own draws, from the same seed. A noise that corrupts zeros needs rows with all entries stored.
    """
    before, coef = predict(rows.scores(coef)), coef.astype(np.float64)
    out, entries = np.empty(len(before)), nonzero_entries(rows.filled)
    if noise.corrupts_zeros:
        places = np.nonzero(~np.isnan(rows.given))
        entries = places[0], places[1], rows.given[places]
    for i, features, values in _row_entries(*entries, len(before)):
        own, rng, n_unchanged = noise.take(features), np.random.RandomState(seed), 0
        for where in chunks(n_draws, max(len(features), len(coef)), _BLOCK):
            drawn = own.draw(np.broadcast_to(values, (where.stop - where.start, len(features))), rng)
            scores = rows.factor[i] * (drawn @ coef[:, features].T) + rows.shift[i]
            n_unchanged += int((predict(scores) == before[i]).sum())
        out[i] = n_unchanged / n_draws
    return out


def _row_entries(row: Array, feature: Array, value: Array, n_rows: int) -> Iterator[tuple[int, Array, Array]]:
    """Yield the index of each row, and the features and values of its entries, which are sorted by row."""
    ends = np.searchsorted(row, np.arange(n_rows + 1))
    for i, (begin, end) in enumerate(pairwise(ends)):
        yield i, feature[begin:end], value[begin:end].astype(np.float64)
