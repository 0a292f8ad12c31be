r"""How sure is a prediction? The probability that noise on the features leaves the predicted label as it is.

The noise is unbiased, so a score's mean is the plain score. The winner ``k`` stays the winner if every gap
``G_j = S_k - S_j`` to a rival ``j`` stays above zero; with two classes there is one gap, ``|S|``. Its mean ``g_j`` and
variance ``v_j = sum_d (w_k - w_j)_d^2 V_d`` are closed forms (each ``w`` times its factor, if features are missing).

``auto``
    Dropout: exact for rows with few features, else by draws (see `patterns`). Gaussian noise: ``normal``, which is
    exact but for the integration. Any other noise: independent draws; ``normal`` if it cannot be drawn, because it has
    no `draw` or would make a sparse ``X`` dense. Votes of pairs of classes (``multi_class="ovo"``) are always drawn.

``normal``
    One rival: ``Phi(g / sqrt(v))``. More: the probability that normal variables with these means, and covariances
    ``sum_d (w_k - w_j)_d (w_k - w_l)_d V_d``, are all above zero (Genz 1992), on fixed points: nothing is random. The
    covariances take a product with the data per pair of classes. With more than 50 classes, all gaps hang together
    through the winner's score alone, ``S_k = E S_k + sd_k z``; given ``z`` they are taken as independent::

        P = integral phi(z) prod_j Phi((g_j + a_j z) / sqrt(v_j - a_j^2)) dz      a_j = cov(G_j, S_k) / sd_k

``guaranteed``
    ``max(0, 1 - sum_j v_j / (g_j^2 + v_j))``: Cantelli's inequality for each rival, and a union bound. It holds for
    every distribution with these variances. With two classes it is ``g^2 / (g^2 + v)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from dropmargin.data import stores_zeros
from dropmargin.estimators.missing import Rows
from dropmargin.estimators.patterns import Winner, survives_draws, survives_dropout
from dropmargin.noise import DropoutNoise, GaussianNoise, Noise, Variance
from dropmargin.typing import Array

METHODS = ("auto", "normal", "guaranteed")
# Up to so many classes, the covariances of all their pairs are computed.
_MOST_CLASSES = 50
# Points of an integral: within .005 for ten classes, and a step, as from a rival without noise, costs at most 1/256.
_N_POINTS = 128
# A variance below this share of what it is the difference of is none.
_ROUNDING = 1e-13


class Gaps(NamedTuple):
    """The gaps between the winner's score and its rivals', ``(n_rows, n_rivals)`` each.

    ``slope`` is ``a_j`` of the module's docstring.
    """

    mean: Array
    variance: Array
    slope: Array


def exact_or_drawn(
    rows: Rows, coef: Array, noise: Noise, winner: Winner, *, by_pairs: bool, n_draws: int, seed: int
) -> Array:
    """Return the probability of survival of each row by ``method="auto"``."""
    if isinstance(noise, DropoutNoise):
        return survives_dropout(rows, coef, np.asarray(noise.rate, dtype=np.float64), winner, n_draws, seed)
    reaches_zeros = noise.variance().moves_zeros and not stores_zeros(rows.filled)
    is_exact = isinstance(noise, GaussianNoise) and len(coef) <= _MOST_CLASSES
    if not by_pairs and (is_exact or reaches_zeros or not noise.has_draw):
        return closed_form(rows, coef, noise.variance(), "normal")
    if reaches_zeros:
        raise ValueError(
            f"predict_stability with multi_class='ovo' draws from the noise, and a draw of {type(noise).__name__} "
            "noise has no zeros left, so a sparse X would become dense. Pass X.toarray() if that fits into memory, or "
            "fit with multi_class='ovr'."
        )
    return survives_draws(rows, coef, noise, winner, n_draws, seed)


def closed_form(rows: Rows, coef: Array, variance: Variance, method: str) -> Array:
    """Return the probability of survival of each row by ``method="normal"`` or ``"guaranteed"``."""
    coef = coef.astype(np.float64)
    gaps = _binary_gaps(rows, coef, variance) if len(coef) == 1 else _multiclass_gaps(rows, coef, variance)
    if method == "guaranteed":
        return guaranteed(gaps)
    if len(coef) == 1:
        return _stays_positive(gaps.mean, np.sqrt(gaps.variance))[:, 0]
    if len(coef) > _MOST_CLASSES:
        return normal_given_winner(gaps)
    return normal(gaps, _gap_covariances(rows, coef, variance))


def n_results(n_classes: int) -> int:
    """Return how many numbers per row `closed_form` works on at once."""
    return n_classes**2 if n_classes <= _MOST_CLASSES else n_classes


def normal(gaps: Gaps, covariance: Array) -> Array:
    """Return the probability that normal variables of this covariance, a matrix per row, all stay above zero.

    One gap after the other, nearest first: its probability given the gaps before, which are integrated over on the
    points of a lattice (Genz 1992).
    """
    moves = gaps.variance > 0.0
    deviation = np.sqrt(np.where(moves, gaps.variance, 1.0))
    # A gap without noise stays: far above zero, and independent of the others.
    mean = np.where(moves, gaps.mean / deviation, np.inf)
    order = np.argsort(mean, axis=1)
    mean = np.take_along_axis(mean, order, axis=1)
    correlation = covariance / (deviation[:, :, None] * deviation[:, None, :])
    correlation[~(moves[:, :, None] & moves[:, None, :])] = 0.0
    correlation = np.take_along_axis(correlation, order[:, :, None], axis=1)
    correlation = np.take_along_axis(correlation, order[:, None, :], axis=2)
    n_rows, n_rivals = mean.shape
    diagonal = np.arange(n_rivals)
    correlation[:, diagonal, diagonal] = 1.0 + 1e-8  # gaps may be copies of each other
    root = np.linalg.cholesky(correlation)
    points = _lattice(n_rivals)
    product, before = np.ones((n_rows, _N_POINTS)), np.empty((n_rows, n_rivals, _N_POINTS))
    for j in range(n_rivals):
        shifted = mean[:, j, None] + (root[:, j, None, :j] @ before[:, :j])[:, 0]
        stays = ndtr(shifted / root[:, j, j, None])
        product *= stays
        before[:, j] = -ndtri(np.maximum(points[j] * stays, np.finfo(float).tiny))
    return product.mean(axis=1)


def _lattice(n_dimensions: int) -> Array:
    """Return points in the unit cube, one column each: multiples of the roots of primes, folded (Richtmyer)."""
    primes = [n for n in range(2, 10 * n_dimensions + 10) if all(n % d for d in range(2, int(n**0.5) + 1))]
    steps = np.sqrt(np.array(primes[:n_dimensions], dtype=np.float64))
    return np.abs(2.0 * ((steps[:, None] * np.arange(1, _N_POINTS + 1)) % 1.0) - 1.0)


def normal_given_winner(gaps: Gaps) -> Array:
    """Return the probability that normal gaps, independent given the winner's score, all stay above zero."""
    rest = gaps.variance - np.square(gaps.slope)
    rest = np.sqrt(np.where(rest < _ROUNDING * gaps.variance, 0.0, rest))
    total = np.zeros(len(gaps.mean))
    for node in ndtri((np.arange(_N_POINTS) + 0.5) / _N_POINTS):
        total += np.prod(_stays_positive(gaps.mean + gaps.slope * node, rest), axis=1)
    return total / _N_POINTS


def guaranteed(gaps: Gaps) -> Array:
    """Return a lower bound on the probability that all gaps stay above zero, whatever the distribution."""
    total = np.square(gaps.mean) + gaps.variance
    fails = np.divide(gaps.variance, total, out=np.zeros_like(total), where=gaps.variance > 0.0)
    return np.maximum(0.0, 1.0 - fails.sum(axis=1))


def _stays_positive(mean: Array, deviation: Array) -> Array:
    """Return ``Phi(mean / deviation)``; without deviation, whether the mean is at least zero (the winner wins ties)."""
    moves = deviation > 0.0
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=moves)
    return np.where(moves, ndtr(ratio), mean >= 0.0)


def _binary_gaps(rows: Rows, coef: Array, variance: Variance) -> Gaps:
    everyone = np.arange(len(rows.factor))
    spread = np.square(rows.factor) * rows.covariances(everyone, variance, np.square(coef))
    return Gaps(np.abs(rows.scores(coef)), np.maximum(spread, 0.0), np.zeros_like(spread))


def _multiclass_gaps(rows: Rows, coef: Array, variance: Variance) -> Gaps:
    """Return the gaps of each row to the other classes: two products per class, whatever their number."""
    scores = rows.scores(coef)
    winners = scores.argmax(axis=1)
    everyone = np.arange(len(scores))
    with_winner = np.empty_like(scores)
    for k in np.unique(winners):
        members = np.flatnonzero(winners == k)
        with_winner[members] = rows.covariances(members, variance, coef[k] * coef)
    own = np.square(rows.factor) * rows.covariances(everyone, variance, np.square(coef))
    winner = (everyone, winners)
    with_winner *= rows.factor * rows.factor[winner][:, None]
    winner_spread = np.maximum(with_winner[winner], 0.0)[:, None]
    spread = winner_spread + own - 2.0 * with_winner
    spread[spread < _ROUNDING * (winner_spread + own)] = 0.0
    deviation = np.broadcast_to(np.sqrt(winner_spread), spread.shape)
    slope = np.divide(winner_spread - with_winner, deviation, out=np.zeros_like(spread), where=deviation > 0.0)
    mean = scores[winner][:, None] - scores
    return Gaps(*(_without_winner(part, winners) for part in (mean, spread, slope)))


def _gap_covariances(rows: Rows, coef: Array, variance: Variance) -> Array:
    """Return the covariances of the gaps, a matrix for each row: one product per pair of classes."""
    n_rows, n_classes = rows.factor.shape
    everyone = np.arange(n_rows)
    scores = np.empty((n_rows, n_classes, n_classes))
    for k in range(n_classes):
        scores[:, k, k:] = scores[:, k:, k] = rows.covariances(everyone, variance, coef[k] * coef[k:])
    scores *= rows.factor[:, :, None] * rows.factor[:, None, :]
    winners = rows.scores(coef).argmax(axis=1)
    by_winner = scores[everyone, winners]
    gaps = by_winner[everyone, winners][:, None, None] - by_winner[:, :, None] - by_winner[:, None, :] + scores
    rivals = _without_winner(gaps.reshape(n_rows, n_classes, -1), winners)
    return _without_winner(rivals.swapaxes(1, 2), winners)


def _without_winner(values: Array, winners: Array) -> Array:
    """Return an array with a column per class without the column of each row's winner."""
    n_rows, n_classes = values.shape[:2]
    rivals = np.arange(n_classes) != winners[:, None]
    return values[rivals].reshape(n_rows, n_classes - 1, *values.shape[2:])


def check_scores(by_pairs: bool, method: str) -> None:
    """Raise a `ValueError` if a closed form does not exist for the votes of pairs."""
    if by_pairs and method != "auto":
        raise ValueError(
            f"predict_stability(method={method!r}) needs multi_class='ovr', got multi_class='ovo', whose votes have "
            "no closed form. Choose method='auto', or fit with multi_class='ovr'."
        )
