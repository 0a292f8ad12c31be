"""Noise distributions: dropout, Gaussian, Laplace and Poisson noise on the features of a row."""

from dropmargin.data.variance import Variance
from dropmargin.noise.base import Noise, as_noise
from dropmargin.noise.distributions import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise
from dropmargin.noise.estimation import estimate_dropout_rates
from dropmargin.noise.transformer import NoiseTransformer

__all__ = [
    "DropoutNoise",
    "GaussianNoise",
    "LaplaceNoise",
    "Noise",
    "NoiseTransformer",
    "PoissonNoise",
    "Variance",
    "as_noise",
    "estimate_dropout_rates",
]
