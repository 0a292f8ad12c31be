"""Noise distributions: what may happen to the features of a row."""

from dropmargin.noise.base import Noise, Variance, as_noise
from dropmargin.noise.distributions import Dropout, Gaussian, Laplace, Poisson
from dropmargin.noise.estimation import estimate_dropout_rates
from dropmargin.noise.transformer import NoiseTransformer

__all__ = [
    "Dropout",
    "Gaussian",
    "Laplace",
    "Noise",
    "NoiseTransformer",
    "Poisson",
    "Variance",
    "as_noise",
    "estimate_dropout_rates",
]
