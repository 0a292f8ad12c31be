r"""Minimise ``|w|^2 / 2 + R(w)``, ``R`` convex but not smooth, by planes below ``R``: a level bundle method.

Each evaluation of ``R`` gives a plane ``h_j + g_j.w <= R(w)``; the planes' maximum is a model of ``R`` from below.
With ``alpha`` on the simplex, ``h.alpha - |G alpha|^2 / 2`` is below the minimum of the objective: the gap to the best
value seen is proved. The minimum of the model is a poor place for the next evaluation while there are few planes,
so the next point stays near the best one so far, ``p``: it minimises ``|w|^2 / 2 + model(w) + rho / 2 |w - p|^2``,
where ``rho`` is such that the model falls there to a level well between the two bounds. Both minima are small quadratic
programmes::

    max_alpha (h + rho / (1 + rho) G p).alpha - |G alpha|^2 / (2 (1 + rho)),       w = (rho p - G alpha) / (1 + rho)

(Lemarechal, Nemirovskii, Nesterov 1995; without the level: Teo et al. 2010; Franc and Sonnenburg 2009.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dropmargin.solvers import Iteration, Monitor, Result
from dropmargin.typing import Array

# The model's value at the next point, as a share of the way from the lower to the upper bound.
_LOW_LEVEL, _HIGH_LEVEL = 0.2, 0.6
_LEVEL_TRIES = 8
_LEVEL_FACTOR = 4.0
_FIRST_PROX = 1e-2
# The small programmes may leave this share of the gap.
_PROGRAMME_SHARE = 1e-3
# A plane that took no part for so many iterations is forgotten.
_PATIENCE = 40
_WORTH_KEEPING = 0.8
# Gaps below this are rounding.
_PRECISION_GAP = 1e-13
_RIDGE = 1e-13


@dataclass(frozen=True)
class Plane:
    """``height + slope.w <= R(w)``, with equality where it was made; the risk and the best offset there."""

    slope: Array
    height: float
    risk: float
    offset: float


def minimise_by_planes(
    risk: Callable[[Array], Plane], n_features: int, *, tol: float, max_iter: int, monitor: Monitor
) -> Result:
    """Minimise ``|w|^2 / 2 + R(w)`` to a proved relative gap of ``tol``.

    Parameters
    ----------
    risk : callable
        From ``w`` to the `Plane` of ``R`` at ``w``.
    tol : float
        The relative gap ``(J - lower bound) / J`` to stop at.
    max_iter : int
        Most evaluations of the risk.
    """
    model = _Model(n_features)
    point, best, offset, value, lower = np.zeros(n_features), np.zeros(n_features), 0.0, np.inf, 0.0
    history: list[Iteration] = []
    for iteration in range(1, max_iter + 1):
        # 1. The objective, and another plane.
        plane = risk(point)
        there = 0.5 * float(point @ point) + plane.risk
        if there < value:
            best, offset, value = point, plane.offset, there
        model.add(plane)
        # 2. The lower bound: the minimum of the model.
        lower = max(lower, model.minimum(enough=_PROGRAMME_SHARE * max(value - lower, tol * value)))
        history.append(Iteration(iteration, value, value - lower, float(iteration), 1))
        monitor(history[-1])
        if value - lower <= max(tol, _PRECISION_GAP) * value:
            break
        # 3. The next point, near the best one and at a level between the bounds.
        point, bound = model.next_point(best, lower, value)
        lower = max(lower, bound)
        model.forget()
    gap = (value - lower) / value if value > 0.0 else 0.0
    converged = gap <= max(tol, _PRECISION_GAP)
    message = f"stopped after {iteration} iterations at a proved relative gap of {gap:.1e} (tol={tol:g})"
    return Result(np.append(best, offset)[:, None], np.array([value]), iteration, converged, message, history)


class _Model:
    """The planes, their inner products, and the two quadratic programmes on them."""

    def __init__(self, n_features: int) -> None:
        self.slopes = _GrowingRows(n_features)
        self.heights = np.empty(0)
        self.gram = np.empty((0, 0))
        self.idle = np.empty(0, dtype=int)  # iterations since a plane last took part
        self.shares = np.empty(0)  # of the model's minimum
        self.near_shares = np.empty(0)  # of the minimum near the best point
        self.prox = _FIRST_PROX
        self.enough = 0.0

    def add(self, plane: Plane) -> None:
        """Take another plane in."""
        self.slopes.append(plane.slope)
        products = self.slopes.rows @ plane.slope
        gram = np.empty((len(products), len(products)))
        gram[:-1, :-1] = self.gram
        gram[-1, :] = gram[:, -1] = products
        self.gram = gram
        self.heights = np.append(self.heights, plane.height)
        self.idle = np.append(self.idle, 0)
        first = float(len(products) == 1)  # the only plane has all of the simplex
        self.shares = np.append(self.shares, first)
        self.near_shares = np.append(self.near_shares, first)

    def minimum(self, enough: float) -> float:
        """Return a lower bound on the minimum of ``|w|^2 / 2 + model``, at most ``enough`` below it."""
        self.enough = enough
        self.shares = maximise_on_simplex(self.gram, self.heights, self.shares, enough)
        return self._bound(self.shares)

    def next_point(self, centre: Array, lower: float, upper: float) -> tuple[Array, float]:
        """Return the point near ``centre`` where the model falls to a level between the bounds, and a lower bound."""
        at_centre, square = self.slopes.rows @ centre, float(centre @ centre)
        for _ in range(_LEVEL_TRIES):
            prox = self.prox
            linear = self.heights + prox / (1.0 + prox) * at_centre
            self.near_shares = shares = maximise_on_simplex(
                self.gram / (1.0 + prox), linear, self.near_shares, self.enough
            )
            bound = self._bound(shares)
            lower = max(lower, bound)
            # At the minimum the model is h.alpha + w.G alpha: a square above the bound, |w + G alpha|^2 / 2.
            distance = square + 2.0 * (shares @ at_centre) + shares @ (self.gram @ shares)  # |p + G alpha|^2
            level = (bound + 0.5 * np.square(prox / (1.0 + prox)) * distance - lower) / (upper - lower)
            if level < _LOW_LEVEL:
                self.prox *= _LEVEL_FACTOR
            elif level > _HIGH_LEVEL:
                self.prox /= _LEVEL_FACTOR
            else:
                break
        return (prox * centre - shares @ self.slopes.rows) / (1.0 + prox), lower

    def forget(self) -> None:
        """Drop the planes that have not taken part for long, once they are many."""
        self.idle = np.where((self.shares > 0.0) | (self.near_shares > 0.0), 0, self.idle + 1)
        kept = self.idle < _PATIENCE
        if kept.mean() > _WORTH_KEEPING:
            return
        self.slopes.keep(kept)
        self.heights, self.idle = self.heights[kept], self.idle[kept]
        self.shares, self.near_shares = self.shares[kept], self.near_shares[kept]
        self.gram = self.gram[np.ix_(kept, kept)]

    def _bound(self, shares: Array) -> float:
        return float(self.heights @ shares - 0.5 * shares @ (self.gram @ shares))


class _GrowingRows:
    """A matrix that grows by rows without being copied each time."""

    def __init__(self, n_columns: int) -> None:
        self._space = np.empty((16, n_columns))
        self._used = 0

    @property
    def rows(self) -> Array:
        return self._space[: self._used]

    def append(self, row: Array) -> None:
        if self._used == len(self._space):
            self._space = np.concatenate([self._space, np.empty_like(self._space)])
        self._space[self._used] = row
        self._used += 1

    def keep(self, mask: Array) -> None:
        kept = self.rows[mask]
        self._space[: len(kept)] = kept
        self._used = len(kept)


def maximise_on_simplex(gram: Array, linear: Array, start: Array, enough: float) -> Array:
    """Maximise ``linear.x - x'gram x / 2`` over the simplex by an active set, from a point on it.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Positive semi-definite.
    enough : float
        How far below the maximum the result may be.

    Returns
    -------
    ndarray of shape (n,) : a point on the simplex, whatever rounding does.
    """
    shares = start
    support = np.flatnonzero(shares > 0.0)
    for _ in range(10 * len(linear) + 10):
        # 1. The maximum over the affine hull of the support.
        wanted = _affine_maximum(gram[np.ix_(support, support)], linear[support])
        if wanted.min() >= 0.0:
            # 2. It is on the simplex: the gradient says whether another coordinate would help.
            shares = _with_values(len(linear), support, wanted)
            gradient = linear - gram @ shares
            best = int(np.argmax(gradient))
            if gradient[best] - gradient @ shares <= enough or best in support:
                return shares
            support = np.append(support, best)
            continue
        # 3. It is not: go towards it up to the edge, and leave there what has become zero.
        now = shares[support]
        falling = wanted < 0.0
        reach = now[falling] / (now[falling] - wanted[falling])
        if reach.min() <= 0.0:  # the coordinate just added does not help after all: rounding
            return shares
        moved = now + reach.min() * (wanted - now)
        moved[np.flatnonzero(falling)[np.argmin(reach)]] = 0.0
        shares = _with_values(len(linear), support, moved)
        support = np.flatnonzero(shares > 0.0)
    return shares


def _affine_maximum(gram: Array, linear: Array) -> Array:
    """Maximise ``linear.x - x'gram x / 2`` subject to ``sum x = 1``."""
    n = len(linear)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = gram
    # Planes may be multiples of each other: a little ridge keeps the system regular.
    system[np.arange(n), np.arange(n)] += _RIDGE * max(float(np.trace(gram)) / n, np.finfo(float).tiny)
    system[n, n] = 0.0
    try:
        return np.linalg.solve(system, np.append(linear, 1.0))[:n]
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(system, np.append(linear, 1.0))[0][:n]


def _with_values(n: int, support: Array, values: Array) -> Array:
    """Return a point of the simplex with these values (rounding removed) and zeros elsewhere."""
    shares = np.zeros(n)
    shares[support] = np.maximum(values, 0.0)
    return shares / shares.sum()
