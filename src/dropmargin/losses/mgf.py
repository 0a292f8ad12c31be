"""Losses through the moment generating function (van der Maaten et al. 2013), in the log domain.

``K = log E exp(-y score)`` is a sum over features. Far from the optimum ``exp(K)`` may overflow, for example on text;
the value is then infinite, and the line search rejects the step.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from dropmargin.losses.base import MGFLoss
from dropmargin.typing import Array


class Exponential(MGFLoss):
    """The expected exponential loss ``E exp(-y score) = exp(K)``, exact (MCF-exponential)."""

    def value(self, K: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(K)

    def slope(self, K: Array) -> Array:
        return self.value(K)

    def curvature(self, K: Array) -> Array:
        return self.value(K)


class MCFLogistic(MGFLoss):
    """Jensen's bound on the expected logistic loss, ``E log(1 + exp(-y score)) <= log(1 + exp(K))`` (MCF-logistic)."""

    scores_are_log_odds = True

    def value(self, K: Array) -> Array:
        return np.logaddexp(0.0, K)

    def slope(self, K: Array) -> Array:
        return expit(K)

    def curvature(self, K: Array) -> Array:
        return expit(K) * expit(-K)
