"""Linear classifiers that survive the loss of their features: dropout training in closed form."""

from dropmargin.baselines import ExplicitCorruption, FDropSVC
from dropmargin.classifiers import DropoutLogisticRegression, DropoutSVC, MCFClassifier, NoisyLinearClassifier
from dropmargin.evaluation import corruption_curve, deletion_curve
from dropmargin.io.model import load, save
from dropmargin.noise import Dropout, Gaussian, Laplace, NoiseTransformer, Poisson, estimate_dropout_rates
from dropmargin.path import DropoutLogisticRegressionCV, DropoutSVCCV, NoisyLinearClassifierCV, noise_path
from dropmargin.plotting import ConvergenceDisplay, DeletionCurveDisplay, NoiseGridDisplay, NoisePathDisplay

__version__ = "0.1.0"

__all__ = [
    "ConvergenceDisplay",
    "DeletionCurveDisplay",
    "Dropout",
    "DropoutLogisticRegression",
    "DropoutLogisticRegressionCV",
    "DropoutSVC",
    "DropoutSVCCV",
    "ExplicitCorruption",
    "FDropSVC",
    "Gaussian",
    "Laplace",
    "MCFClassifier",
    "NoiseGridDisplay",
    "NoisePathDisplay",
    "NoiseTransformer",
    "NoisyLinearClassifier",
    "NoisyLinearClassifierCV",
    "Poisson",
    "corruption_curve",
    "deletion_curve",
    "estimate_dropout_rates",
    "load",
    "noise_path",
    "save",
]
