"""Base classes of the losses: functions of the targets ``y`` and of moments of the noisy score.

Targets are -1 or +1 in classification, and any numbers in regression.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dropmargin.typing import Array


class Loss:
    """Base class of all losses: a `MomentLoss` or an `MGFLoss`."""

    #: Whether a score is a log-odds, so that ``expit(score)`` is a probability.
    scores_are_log_odds = False
    #: Whether the loss is a function of the residual ``y - score``, for any number ``y``.
    suits_regression = False


class MomentLoss(Loss, ABC):
    """A loss ``phi(y; m, v)`` of the mean ``m`` and the variance ``v`` of the noisy score.

    All methods take arrays of one shape and return arrays of that shape.
    """

    #: The scale of the scores at which ``phi`` has a kink for ``v = 0``; 0 if ``phi`` is smooth. A loss with a kink
    #: defines `smoothed`, and the solvers minimise the smoothed loss with decreasing width.
    kink: float = 0.0
    #: Whether ``gamma``, which `majoriser` returns, defines a quadratic majoriser of ``phi``:
    #: ``phi(m, v) <= gamma / 2 * ((m - o)^2 + v) - k y m + const``.
    has_majoriser = False
    #: Whether the second derivatives are constant, so that one Newton step reaches the minimum.
    is_quadratic = False

    @abstractmethod
    def value(self, y: Array, m: Array, v: Array) -> Array:
        """Return ``phi``."""

    @abstractmethod
    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``phi`` by ``m`` and by ``v``."""

    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        """Return both; a loss may share what they have in common."""
        return self.value(y, m, v), self.gradient(y, m, v)

    @abstractmethod
    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """Return the second derivatives of ``phi``: by ``m`` twice, by ``m`` and ``v``, by ``v`` twice."""

    @abstractmethod
    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        """Return ``gamma``, the row weights of the re-weighted least-squares step.

        A loss without a majoriser returns the ``gamma`` of an upper bound of the loss.
        """

    def without_noise(self) -> MomentLoss:
        """Return a loss that is equal for scores of variance zero, and easier to minimise."""
        return self

    def smoothed(self, width: float | Array) -> MomentLoss:
        """Return the loss with its kink smoothed over an interval of scores of this width."""
        raise NotImplementedError(f"{type(self).__name__} has kink={self.kink} but no smoothed().")


class JointLoss(MomentLoss):
    """A loss whose value and derivatives have most in common: a subclass defines `value_and_gradient` for both."""

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self.value_and_gradient(y, m, v)[0]

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        return self.value_and_gradient(y, m, v)[1]

    @abstractmethod
    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        """Return ``phi``, and its derivatives by ``m`` and by ``v``."""


class SumOfLosses(JointLoss):
    """A weighted sum of losses at arguments that are shifted by constants: its derivatives are the sums of theirs."""

    @abstractmethod
    def terms(self, y: Array, m: Array, v: Array) -> Iterable[tuple[Any, MomentLoss, tuple[Array, Array, Array]]]:
        """Return factor, loss and arguments of each term."""

    def _sum(self, own: Callable[..., Any], *given: Array) -> Any:
        return sum(factor * np.asarray(own(loss, *at)) for factor, loss, at in self.terms(*given))

    def value_and_gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, Array]]:
        value, by_mean, by_variance = self._sum(_joint, y, m, v)
        return value, (by_mean, by_variance)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return self._sum(lambda loss, *at: loss.curvature(*at), y, m, v)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._sum(lambda loss, *at: loss.majoriser(*at), y, m, v)


def _joint(loss: MomentLoss, *at: Array) -> tuple[Array, Array, Array]:
    value, gradient = loss.value_and_gradient(*at)
    return value, *gradient


class MGFLoss(Loss, ABC):
    """A loss ``phi(K)`` of ``K = log E exp(-y score)``, the log moment generating function of the noisy score."""

    @abstractmethod
    def value(self, K: Array) -> Array:
        """Return ``phi``."""

    @abstractmethod
    def slope(self, K: Array) -> Array:
        """Return the first derivative."""

    @abstractmethod
    def curvature(self, K: Array) -> Array:
        """Return the second derivative."""
