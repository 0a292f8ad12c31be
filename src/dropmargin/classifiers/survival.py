r"""How sure is a prediction? The probability that noise on the features leaves the predicted label as it is.

The noise is unbiased, so a score's mean is the plain score. The winner ``k`` stays the winner if every gap
``G_j = S_k - S_j`` to a rival ``j`` stays above zero; with two classes there is one gap, ``|S|``. Its mean ``g_j`` and
variance ``v_j = sum_d (w_k - w_j)_d^2 V_d`` are closed forms.

``normal``
    One rival: ``Phi(g / sqrt(v))``. More: the gaps hang together through the winner's own score. Given that score,
    ``S_k = E S_k + sd_k z``, they are taken as independent normal variables::

        P = integral phi(z) prod_j Phi((g_j + a_j z) / sqrt(v_j - a_j^2)) dz      a_j = cov(G_j, S_k) / sd_k

``guaranteed``
    ``max(0, 1 - sum_j v_j / (g_j^2 + v_j))``: Cantelli's inequality for each rival, and a union bound. It holds for
    every distribution with these variances. With two classes it is ``g^2 / (g^2 + v)``.

``monte-carlo``
    The share of the draws from the noise that leave the label as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from dropmargin.classifiers.missing import Rows
from dropmargin.noise import Noise, Variance
from dropmargin.typing import Array

METHODS = ("normal", "guaranteed", "monte-carlo")
# Midpoints of intervals of equal probability: a step, which a rival without noise makes, costs at most 1/256.
_N_NODES = 128


class Gaps(NamedTuple):
    """The gaps between the winner's score and its rivals', ``(n_rows, n_rivals)`` each.

    ``slope`` is ``a_j`` of the module's docstring.
    """

    mean: Array
    variance: Array
    slope: Array


def closed_form(rows: Rows, coef: Array, variance: Variance, method: str) -> Array:
    """Return the probability of survival of each row by ``method="normal"`` or ``"guaranteed"``."""
    gaps = _binary_gaps(rows, coef, variance) if len(coef) == 1 else _multiclass_gaps(rows, coef, variance)
    return guaranteed(gaps) if method == "guaranteed" else normal(gaps)


def normal(gaps: Gaps) -> Array:
    """Return the probability that all gaps stay above zero, if scores are normal."""
    if gaps.mean.shape[1] == 1:
        return _stays_positive(gaps.mean, np.sqrt(gaps.variance))[:, 0]
    rest = np.sqrt(np.maximum(gaps.variance - np.square(gaps.slope), 0.0))
    rest[rest < 1e-7 * np.sqrt(gaps.variance)] = 0.0  # what rounding leaves of a rival without noise
    total = np.zeros(len(gaps.mean))
    for node in ndtri((np.arange(_N_NODES) + 0.5) / _N_NODES):
        total += np.prod(_stays_positive(gaps.mean + gaps.slope * node, rest), axis=1)
    return total / _N_NODES


def guaranteed(gaps: Gaps) -> Array:
    """Return a lower bound on the probability that all gaps stay above zero, whatever the distribution."""
    total = np.square(gaps.mean) + gaps.variance
    fails = np.divide(gaps.variance, total, out=np.zeros_like(total), where=gaps.variance > 0.0)
    return np.maximum(0.0, 1.0 - fails.sum(axis=1))


def monte_carlo(
    rows: Rows, coef: Array, noise: Noise, winner: Callable[[Array], Array], n_draws: int, rng: np.random.RandomState
) -> Array:
    """Return the share of draws in which the winner, an index per row of scores, is the one without noise."""
    before = winner(rows.scores(coef))
    # Noise that reaches zeros must not reach what is missing; it comes with dense rows only.
    observed = 1.0 - rows.missing if noise.variance().has_floor and rows.missing is not None else None
    kept = np.zeros(len(before))
    for _ in range(n_draws):
        drawn = noise.sample(rows.filled, rng)
        kept += winner(rows.scores(coef, drawn if observed is None else drawn * observed)) == before
    return kept / n_draws


def _stays_positive(mean: Array, deviation: Array) -> Array:
    """Return ``Phi(mean / deviation)``; without deviation, whether the mean is at least zero (the winner wins ties)."""
    moves = deviation > 0.0
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=moves)
    return np.where(moves, ndtr(ratio), mean >= 0.0)


def _binary_gaps(rows: Rows, coef: Array, variance: Variance) -> Gaps:
    members = np.arange(len(rows.factor))
    spread = rows.covariances(members, variance, np.square(coef, dtype=np.float64))
    return Gaps(np.abs(rows.scores(coef)), np.maximum(spread, 0.0), np.zeros_like(spread))


def _multiclass_gaps(rows: Rows, coef: Array, variance: Variance) -> Gaps:
    """Return the gaps of each row to the other classes, winner by winner: two products per rival."""
    scores = rows.scores(coef)
    winners, n_rivals = scores.argmax(axis=1), len(coef) - 1
    coef = coef.astype(np.float64)
    mean, spread, slope = (np.empty((len(scores), n_rivals)) for _ in range(3))
    for k in np.unique(winners):
        members, rivals = np.flatnonzero(winners == k), np.delete(np.arange(n_rivals + 1), k)
        ahead = coef[k] - coef[rivals]
        products = np.vstack([np.square(ahead), ahead * coef[k], np.square(coef[[k]])])
        out = rows.covariances(members, variance, products)
        deviation = np.sqrt(np.maximum(out[:, -1:], 0.0))
        mean[members] = scores[members][:, [k]] - scores[members][:, rivals]
        spread[members] = np.maximum(out[:, :n_rivals], 0.0)
        slope[members] = _ratio(out[:, n_rivals:-1], deviation)
    return Gaps(mean, spread, slope)


def _ratio(above: Array, below: Array) -> Array:
    below = np.broadcast_to(below, above.shape)
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0.0)


def check_scores(multi_class: str, n_classes: int, method: str) -> None:
    """Raise a `ValueError` if a closed form does not exist for the votes of pairs."""
    if method != "monte-carlo" and multi_class == "ovo" and n_classes > 2:
        raise ValueError(
            f"survival_probability(method={method!r}) needs multi_class='ovr', got multi_class='ovo', whose votes have "
            "no closed form. Choose method='monte-carlo', or fit with multi_class='ovr'."
        )
