"""Linear classifiers that survive the loss of their features: dropout training in closed form."""

from dropmargin.baselines import ExplicitCorruption, FDropSVC
from dropmargin.classifiers import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.noise import Dropout, Gaussian, Laplace, Poisson

__version__ = "0.1.0"

__all__ = [
    "Dropout",
    "DropoutLogisticRegression",
    "DropoutSVC",
    "ExplicitCorruption",
    "FDropSVC",
    "Gaussian",
    "Laplace",
    "MCFClassifier",
    "NoisyLinearClassifier",
    "Poisson",
]
