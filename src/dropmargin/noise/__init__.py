"""Noise distributions: what may happen to the features of a row."""

from dropmargin.noise.base import Noise, Variance, as_noise
from dropmargin.noise.distributions import Dropout, Gaussian, Laplace, Poisson

__all__ = ["Dropout", "Gaussian", "Laplace", "Noise", "Poisson", "Variance", "as_noise"]
